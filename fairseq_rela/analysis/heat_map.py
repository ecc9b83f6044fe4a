"""Heat maps: the weights of one head (Figures 7 to 10), and the null rates of all heads by tag."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from fairseq_rela.analysis.metrics import TagNulls
from fairseq_rela.analysis.plots import label, new_figure, require_matplotlib
from fairseq_rela.dump.zeros import is_nonzero, null_rows
from fairseq_rela.kinds import queries_of


def heat_map(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    visible: Optional[np.ndarray] = None,
    gold: Sequence[Tuple[int, int]] = (),
) -> Any:
    """Figures 7 to 10: the weights of one head, (T, S).

    Exact zeros are white, hidden positions are grey, null rows are hatched, negative weights are red. The cells in
    `gold`, (row, column), have a frame.
    """
    require_matplotlib()
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    # Both begin far from white, so that a small weight never looks like a zero.
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
    colours[~is_nonzero(weights)] = 1.0
    if visible is not None:
        colours[~visible] = 0.93
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    for row in np.flatnonzero(null_rows(weights, visible)):
        axes.add_patch(
            Rectangle((-0.5, row - 0.5), len(columns), 1, facecolor="none", edgecolor="#b0b0b0", hatch="////", lw=0)
        )
    for row, column in gold:
        frame = Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, facecolor="none", edgecolor="#009E73", lw=1.2)
        axes.add_patch(frame)
    _label_axes(axes, rows, columns)
    axes.set_title(title, fontsize=8)
    return figure


def _label_axes(axes: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    axes.set_xticks(range(len(columns)), [label(text) for text in columns], rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), [label(text) for text in rows], fontsize=7)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e6e6e6", linewidth=0.4)
    axes.tick_params(which="both", length=0)


def axis_labels(kind: str, source: Sequence[str], target: Sequence[str]) -> Tuple[List[str], List[str]]:
    """(rows, columns): the tokens of a kind's queries and keys.

    A row of decoder or cross attention is labelled by the token it predicts, a column of the decoder by its input.
    """
    rows = list(source if queries_of(kind) == "source" else target)
    columns = ["</s>", *target[:-1]] if kind == "decoder" else list(source)
    return rows, columns


def null_after_tags(name: str, by_tag: Dict[str, TagNulls], most: int = 20) -> Any:
    """The null rate of every cross-attention head (columns) after target words of each tag (rows)."""
    tags = list(by_tag)[:most]
    rates = np.array([np.ravel(by_tag[tag].null_rate_heads) for tag in tags])  # (tags, L·H)
    heads = len(by_tag[tags[0]].null_rate_heads[0])
    figure = new_figure(min(1.8 + 0.18 * rates.shape[1], 14), 1.4 + 0.24 * len(tags))
    axes = figure.subplots()
    image = axes.imshow(rates, vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(tags)), [f"{label(tag)} ({by_tag[tag].count})" for tag in tags], fontsize=8)
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
