"""What all figures share: a new figure, saving as PNG and SVG, labels. Needs matplotlib only when a figure is drawn."""

import os
import unicodedata
import warnings
from typing import Any, Tuple

from fairseq_rela.errors import InputError

_LONGEST_LABEL = 24


def require_matplotlib(or_else: str = "give --no-figures") -> Any:
    """matplotlib. Without it, InputError says how to install it, or what to do instead (`or_else`)."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            'figures need matplotlib, which is not installed: in this repository pip install ".[figures]", '
            f"or {or_else}"
        ) from None
    return matplotlib


def new_figure(width: float, height: float) -> Any:
    require_matplotlib()
    from matplotlib.figure import Figure  # not pyplot, which needs a display and keeps every figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, directory: str, name: str) -> Tuple[str, str]:
    """Write `name`.png and `name`.svg; the same figure gives the same bytes every time."""
    matplotlib = require_matplotlib()
    png, svg = (os.path.join(directory, f"{name}.{suffix}") for suffix in ("png", "svg"))
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": name}):
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font lacks are drawn as boxes
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def label(text: str) -> str:
    """`text` in a form that matplotlib can draw: short, without formulas, without characters that SVG forbids."""
    text = "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cs", "Cn") else char for char in text)
    if len(text) > _LONGEST_LABEL:
        text = text[: _LONGEST_LABEL - 1] + "…"
    return text.replace("$", r"\$")
