"""The paper's figures, as PNG and SVG. Needs matplotlib, and asks for it only when a figure is drawn."""

import os
import unicodedata
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from fairseq_rela.analysis.sparsity import KINDS
from fairseq_rela.errors import InputError

# Okabe and Ito's colours: told apart by colour-blind readers too
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MARKERS = "osD^vP*X"
_LONGEST_LABEL = 24


def require_matplotlib(or_else: str = "give --no-figures") -> Any:
    """matplotlib, or an InputError that says how to get it, and how to do without."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            f"figures need matplotlib, which is not installed: pip install fairseq-rela[figures], or {or_else}"
        ) from None
    return matplotlib


def new_figure(width: float, height: float) -> Any:
    require_matplotlib()
    from matplotlib.figure import Figure  # not pyplot, which wants a display and keeps every figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, directory: str, name: str) -> Tuple[str, str]:
    """Write `name`.png and `name`.svg; the same figure gives the same bytes every time."""
    matplotlib = require_matplotlib()
    paths = tuple(os.path.join(directory, f"{name}.{kind}") for kind in ("png", "svg"))
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": name}):
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks is drawn as boxes
        figure.savefig(paths[0], dpi=200)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def label(text: str) -> str:
    """`text` as matplotlib can draw it: short, no mathematics, nothing that is not allowed in SVG."""
    text = "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cs", "Cn") else char for char in text)
    if len(text) > _LONGEST_LABEL:
        text = text[: _LONGEST_LABEL - 1] + "…"
    return text.replace("$", r"\$")


def by_layer(
    models: Dict[str, Dict[str, Any]], metric: str, title: str, also: Optional[str] = None, also_name: str = ""
) -> Any:
    """A panel a kind of attention, a line a model, layers from left to right; `also` is drawn dashed.

    Where a model has several seeds, their standard deviation is a band around the line.
    """
    kinds = [kind for kind in KINDS if any(kind in model[metric] for model in models.values())]
    figure = new_figure(3.2 * len(kinds) + 1.2, 3.0)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for panel, kind in zip(panels, kinds):
        for index, (name, model) in enumerate(models.items()):
            for key, style in ((metric, "-"), (also, "--")):
                if key is None or kind not in model.get(key, {}):
                    continue
                values = np.array(model[key][kind])
                layers = model["layers"][kind]
                shown = label(name) if style == "-" else f"{label(name)} {also_name}"
                _line(panel, layers, values, index, style, shown)
                spread = model.get("spread", {}).get(key)
                if spread:
                    width = np.array(spread[kind])
                    colour = _COLOURS[index % len(_COLOURS)]
                    panel.fill_between(layers, values - width, values + width, color=colour, alpha=0.15, linewidth=0)
        _dress(panel, kind, "layer (from 0)")
    panels[0].set_ylabel(title)
    _legend(figure, panels)
    return figure


def _line(panel: Any, x: Sequence[float], y: Sequence[float], index: int, style: str, name: str) -> None:
    panel.plot(
        x,
        y,
        style,
        color=_COLOURS[index % len(_COLOURS)],
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=4,
        linewidth=1.4,
        markerfacecolor=_COLOURS[index % len(_COLOURS)] if style == "-" else "white",
        label=name,
    )


def _dress(panel: Any, title: str, x: str) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _legend(figure: Any, panels: Sequence[Any]) -> None:
    handles: Dict[str, Any] = {}
    for panel in panels:
        for handle, name in zip(*panel.get_legend_handles_labels()):
            handles.setdefault(name, handle)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(len(handles), 4),
        frameon=False,
        fontsize=8,
    )


def diversity_by_tau(models: Dict[str, Dict[str, Any]]) -> Any:
    """Table 6 as a figure: the mean over layers of head diversity against τ."""
    kinds = [kind for kind in KINDS if any(kind in model["diversity_tau"] for model in models.values())]
    figure = new_figure(3.2 * len(kinds) + 1.2, 3.0)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for panel, kind in zip(panels, kinds):
        for index, (name, model) in enumerate(models.items()):
            by_tau = model["diversity_tau"].get(kind)
            if by_tau:
                means = [float(np.mean(values)) for values in by_tau.values()]
                _line(panel, range(len(by_tau)), means, index, "-", label(name))
                ticks = list(by_tau)
        _dress(panel, kind, "τ")
        panel.set_xticks(range(len(ticks)), ticks)
    panels[0].set_ylabel("head diversity (nats)")
    _legend(figure, panels)
    return figure


def alignment_error(models: Dict[str, Dict[str, Any]]) -> Any:
    """Figure 4: AER by layer, of the layer's mean and of its best head, rows read as normal and shifted."""
    panels_of = [(rows, of) for of in ("layer", "best_head") for rows in ("normal", "shifted")]
    figure = new_figure(11, 3.0)
    panels = figure.subplots(1, 4, sharey=True)
    for panel, (rows, of) in zip(panels, panels_of):
        for index, (name, model) in enumerate(models.items()):
            if "alignment" not in model:
                continue
            result = model["alignment"][rows]
            layers = model["layers"]["cross"]
            _line(panel, layers, result[of], index, "-", label(name))
            if of == "best_head" and result["held_out"]:
                _line(panel, layers, result["held_out"][of], index, "--", f"{label(name)} held out")
        _dress(panel, f"{'mean of heads' if of == 'layer' else 'best head'}, {rows}", "layer (from 0)")
    panels[0].set_ylabel("AER")
    _legend(figure, panels)
    return figure


def null_after_tags(name: str, by_tag: Dict[str, Any], most: int = 20) -> Any:
    """Null rate of every cross-attention head (columns) after a target word of each part of speech (rows)."""
    tags = list(by_tag)[:most]
    rates = np.array([np.ravel(by_tag[tag]["null_rate_heads"]) for tag in tags])  # (tags, L·H)
    heads = len(by_tag[tags[0]]["null_rate_heads"][0])
    figure = new_figure(min(1.8 + 0.18 * rates.shape[1], 14), 1.4 + 0.24 * len(tags))
    axes = figure.subplots()
    image = axes.imshow(rates, vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(tags)), [f"{label(tag)} ({by_tag[tag]['count']})" for tag in tags], fontsize=8)
    axes.set_xticks(
        np.arange(0, rates.shape[1], heads) - 0.5,
        [f"layer {i}" for i in range(rates.shape[1] // heads)],
        fontsize=8,
        ha="left",
    )
    for column in range(heads, rates.shape[1], heads):
        axes.axvline(column - 0.5, color="white", linewidth=1.5)
    axes.set_title(f"{label(name)}: null rate of cross-attention heads after …", fontsize=10)
    figure.colorbar(image, ax=axes, label="null rate", shrink=0.8)
    return figure


def heat_map(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    visible: Optional[np.ndarray] = None,
    gold: Sequence[Tuple[int, int]] = (),
) -> Any:
    """Figures 7 to 10: the weights of one head, (T, S). Exact zeros are white, what is hidden is grey, null rows are
    hatched, negative weights are red; `gold` cells, (row, column), are framed."""
    require_matplotlib()
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    # both begin well away from white, so that a small weight never looks like a zero
    positive = LinearSegmentedColormap.from_list("weights", ["#cfe1f2", "#6aaed6", "#2070b4", "#08306b"])
    negative = LinearSegmentedColormap.from_list("negative", ["#fdd0b1", "#f16913", "#8c2d04"])
    longest = max((len(label(text)) for text in rows), default=1)
    tallest = max((len(label(text)) for text in columns), default=1)
    width = min(1.6 + 0.24 * len(columns) + 0.07 * longest, 40)
    height = min(1.0 + 0.24 * len(rows) + 0.07 * tallest, 40)
    figure = new_figure(width, height)
    axes = figure.subplots()
    top = float(np.abs(weights).max()) if weights.size else 0.0
    share = np.abs(weights) / top if top else np.zeros(weights.shape)
    colours = np.where((weights < 0)[..., None], negative(share), positive(share))[..., :3]
    colours[weights == 0] = 1.0
    if visible is not None:
        colours[~visible] = 0.93
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    seen = weights != 0 if visible is None else (weights != 0) & visible
    for row in np.flatnonzero(~seen.any(axis=1)):
        axes.add_patch(
            Rectangle((-0.5, row - 0.5), len(columns), 1, facecolor="none", edgecolor="#b0b0b0", hatch="////", lw=0)
        )
    for row, column in gold:
        frame = Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, facecolor="none", edgecolor="#009E73", lw=1.2)
        axes.add_patch(frame)
    axes.set_xticks(range(len(columns)), [label(text) for text in columns], rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), [label(text) for text in rows], fontsize=7)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e6e6e6", linewidth=0.4)
    axes.tick_params(which="both", length=0)
    axes.set_title(title, fontsize=8)
    return figure


def axis_labels(kind: str, source: Sequence[str], target: Sequence[str]) -> Tuple[List[str], List[str]]:
    """(rows, columns): the tokens of a kind's queries and keys.

    A row of the decoder or of cross attention is named by the token it predicts; the decoder's columns by their inputs.
    """
    rows = list(source if kind == "encoder" else target)
    columns = ["</s>", *target[:-1]] if kind == "decoder" else list(source)
    return rows, columns
