"""Figures with lines: one value per layer, or per τ. Needs matplotlib, which is imported when a figure is drawn."""

from typing import Any, Callable, Dict, Optional, Sequence, Union

import numpy as np

from fairseq_rela.analysis.metrics import LayerValues, ModelMetrics, Models, Rates
from fairseq_rela.analysis.plots import label, new_figure
from fairseq_rela.kinds import KINDS

# Okabe and Ito's colours, which colour-blind readers can tell apart
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MARKERS = "osD^vP*X"


Metric = Callable[[Rates], Optional[LayerValues]]  # which numbers of a model a figure shows


def by_layer(models: Models, metric: Metric, title: str, dashed: Optional[Metric] = None, dashed_name: str = "") -> Any:
    """One panel per kind of attention, one line per model, layers from left to right. `dashed` adds a dashed line.

    Where a model has several seeds, a band around the line shows their standard deviation.
    """
    kinds = [kind for kind in KINDS if any(kind in (metric(model.rates) or {}) for model in models.values())]
    figure = new_figure(3.2 * len(kinds) + 1.2, 3.0)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for panel, kind in zip(panels, kinds):
        for index, (name, model) in enumerate(models.items()):
            _model_line(panel, kind, model, metric, index, "-", label(name))
            if dashed:
                _model_line(panel, kind, model, dashed, index, "--", f"{label(name)} {dashed_name}")
        _dress(panel, kind, "layer (from 0)")
    panels[0].set_ylabel(title)
    _legend(figure, panels)
    return figure


def _model_line(panel: Any, kind: str, model: ModelMetrics, metric: Metric, index: int, style: str, name: str) -> None:
    """The line of one model, with its band; nothing if the model does not have this metric or kind."""
    by_kind = metric(model.rates) or {}
    if kind not in by_kind:
        return
    values, layers = np.array(by_kind[kind]), model.layers[kind]
    _line(panel, layers, values, index, style, name)
    spread = metric(model.spread) if model.spread else None
    if spread:
        width = np.array(spread[kind])
        panel.fill_between(
            layers, values - width, values + width, color=_COLOURS[index % len(_COLOURS)], alpha=0.15, linewidth=0
        )


def _line(
    panel: Any, x: Sequence[float], y: Union[Sequence[float], np.ndarray], index: int, style: str, name: str
) -> None:
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


def diversity_by_tau(models: Models) -> Any:
    """Table 6 as a figure: the mean over layers of head diversity against τ."""
    kinds = [kind for kind in KINDS if any(kind in model.rates.diversity_tau for model in models.values())]
    figure = new_figure(3.2 * len(kinds) + 1.2, 3.0)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for panel, kind in zip(panels, kinds):
        for index, (name, model) in enumerate(models.items()):
            by_tau = model.rates.diversity_tau.get(kind)
            if by_tau:
                means = [float(np.mean(values)) for values in by_tau.values()]
                _line(panel, range(len(by_tau)), means, index, "-", label(name))
                ticks = list(by_tau)
        _dress(panel, kind, "τ")
        panel.set_xticks(range(len(ticks)), ticks)
    panels[0].set_ylabel("head diversity (nats)")
    _legend(figure, panels)
    return figure


def alignment_error(models: Models) -> Any:
    """Figure 4: AER by layer, rows read as normal (left) and shifted (right). The best head of a layer is solid, the
    layer attention (mean of heads) dashed."""
    figure = new_figure(7.6, 3.4)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, rows in zip(panels, ("normal", "shifted")):
        for index, (name, model) in enumerate(models.items()):
            if model.rates.alignment is None:
                continue
            error, layers = model.rates.alignment[rows], model.layers["cross"]
            _line(panel, layers, error.best_head, index, "-", f"{label(name)}, best head")
            _line(panel, layers, error.layer, index, "--", f"{label(name)}, layer")
        _dress(panel, rows, "layer (from 0)")
    panels[0].set_ylabel("AER")
    _legend(figure, panels)
    return figure
