"""The tables of the report, as HTML. Every text from a corpus or a user is escaped here."""

import html
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_rela.analysis.metrics import (
    AlignmentError,
    LayerValues,
    ModelMetrics,
    Models,
    Rates,
    RowErrors,
    RunMetrics,
)
from fairseq_rela.kinds import KINDS

_MISSING = "–"


def escaped(value: Any) -> str:
    """`value` as text inside HTML."""
    return html.escape(str(value), quote=True)


def _name(value: Any) -> str:
    """A name or a word from outside, escaped, whatever direction its script has."""
    return f"<bdi>{escaped(value)}</bdi>"


def _number(value: Optional[float], spread: Optional[float] = None) -> str:
    if value is None:
        return _MISSING
    return f"{value:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def plain_mean(values: Sequence[float]) -> float:
    """The mean of some numbers; 0 of none."""
    return sum(values) / max(len(values), 1)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """A table. The cells of `rows` are HTML already; `head` is text."""

    def cell(tag: str, index: int, content: str) -> str:
        return f"<{tag}{' class=text' if index in text_columns else ''}>{content}</{tag}>"

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(cell(tag, index, content) for index, content in enumerate(cells)) + "</tr>"

    lines = ["<div class=wide><table>", line("th", [escaped(text) for text in head])]
    lines += [line("td", row) for row in rows]
    return "\n".join([*lines, "</table></div>"])


def models_table(models: Models) -> str:
    """One row per model: what it is and where its dumps are."""
    rows = []
    for name, model in models.items():
        run = model.first
        attention = ", ".join(f"{kind} {attention}" for kind, attention in run.attention.items())
        dumps = "; ".join(run.dump for run in model.runs)
        rows.append([_name(text) for text in (name, run.model, attention, run.sentences, dumps)])
    return _table(["name", "model", "attention", "sentences", "dumps"], rows, (0, 1, 2, 4))


def layer_tables(models: Models, metric: Callable[[Rates], Optional[LayerValues]]) -> str:
    """One table per kind of attention: one row per model, one column per layer, and the mean over layers."""
    tables = []
    for kind in KINDS:
        having = {name: model for name, model in models.items() if kind in (metric(model.rates) or {})}
        if not having:
            continue
        layers = max((model.layers[kind] for model in having.values()), key=len)
        rows = []
        for name, model in having.items():
            cells = _layer_cells(model, metric, kind)
            cells = cells[:-1] + [_MISSING] * (len(layers) + 1 - len(cells)) + cells[-1:]
            rows.append([_name(name), *cells])
        tables.append(_table([kind, *(f"layer {i}" for i in layers), "mean"], rows))
    return "\n".join(tables)


def _layer_cells(model: ModelMetrics, metric: Callable[[Rates], Optional[LayerValues]], kind: str) -> List[str]:
    """The values of a model's layers with their spread over seeds, and last their mean."""
    values = (metric(model.rates) or {})[kind]
    spread: Sequence[Optional[float]] = [None] * len(values)
    if model.spread:
        spread = (metric(model.spread) or {})[kind]
    return [*(_number(value, width) for value, width in zip(values, spread)), _number(plain_mean(values))]


def tau_table(models: Models) -> str:
    """Table 6: head diversity over τ, mean over layers."""
    rows: List[List[str]] = []
    taus: List[str] = []
    for name, model in models.items():
        for kind, by_tau in model.rates.diversity_tau.items():
            rows.append([_name(name), kind, *(_number(plain_mean(values)) for values in by_tau.values())])
            taus = list(by_tau)
    return _table(["mean over layers", "kind", *(f"τ = {tau}" for tau in taus)], rows, (0, 1))


ErrorsByEos = Optional[Dict[str, RowErrors]]


def alignment_tables(models: Models, metric: Callable[[Rates], ErrorsByEos]) -> str:
    """Table 5, for normal and for shifted rows: AER by layer and its mean."""
    parts = []
    for rows_read in ("normal", "shifted"):
        rows: List[List[str]] = []
        layers: List[int] = []
        for name, model in models.items():
            for eos, errors in (metric(model.rates) or {}).items():
                spread = metric(model.spread) if model.spread else None
                lines = _alignment_lines(errors[rows_read], spread[eos][rows_read] if spread else None)
                treatment = "dropped" if eos == "drop" else "as null"
                rows += [[_name(name), links_of, treatment, *cells] for links_of, cells in lines]
                layers = model.layers["cross"]
        if rows:
            head = ["model", "links of", "source </s>", *(f"layer {i}" for i in layers), "mean (AoL, AoH)"]
            parts.append(f"<h3>{rows_read} rows</h3>" + _table(head, rows, (0, 1, 2)))
    return "\n".join(parts)


def _alignment_lines(error: AlignmentError, spread: Optional[AlignmentError]) -> List[Tuple[str, List[str]]]:
    """(which links, the cells of its layers and of their mean)."""
    lines: List[Tuple[str, List[float], str]] = [
        ("mean of heads", error.layer, _number(error.AoL, spread.AoL if spread else None)),
        ("best head", error.best_head, _number(error.AoH, spread.AoH if spread else None)),
    ]
    if error.held_out:
        held_out = error.held_out
        lines += [("mean of heads, held-out half", held_out.layer, _number(held_out.AoL))]
        lines += [("best head, chosen on the other half", held_out.best_head, _number(held_out.AoH))]
    return [(links_of, [*map(_number, values), mean]) for links_of, values, mean in lines]


class NamedRun(NamedTuple):
    """A single run of a model. Heads can only be told apart within one run."""

    name: str
    run: RunMetrics


def named_runs(models: Models) -> List[NamedRun]:
    """Every run of every model, numbered from 1 where a model has several."""
    return [
        NamedRun(name if len(model.runs) == 1 else f"{name}, run {number}", run)
        for name, model in models.items()
        for number, run in enumerate(model.runs, 1)
    ]


def after_words_tables(models: Models, most: int = 30) -> str:
    """For every run the words after which heads are null most or least often."""
    parts = []
    for name, run in named_runs(models):
        rows = [
            [
                str(condition.layer),
                str(condition.head),
                _name(condition.after),
                str(condition.count),
                _number(condition.null_rate),
                _number(condition.head_null_rate),
                f"{condition.surprise:.1f}",
            ]
            for condition in (run.null_after_words or [])[:most]
        ]
        if rows:
            head = ["layer", "head", "after the word", "queries", "null rate", "null rate of the head", "G²"]
            parts.append(f"<h3>{_name(name)}</h3>" + _table(head, rows, (2,)))
    return "\n".join(parts)


def after_tags_tables(models: Models) -> str:
    """For every run and tag the null rate of all heads, and the least and the most null head."""
    parts = []
    for name, run in named_runs(models):
        rows = []
        for tag, nulls in (run.null_after_tags or {}).items():
            heads = [(rate, i, j) for i, line in enumerate(nulls.null_rate_heads) for j, rate in enumerate(line)]
            extremes = [f"{layer}.{head} ({_number(rate)})" for rate, layer, head in (min(heads), max(heads))]
            rows.append([_name(tag), str(nulls.count), _number(plain_mean([rate for rate, _, _ in heads])), *extremes])
        if rows:
            head = ["after the tag", "queries", "null rate, all heads", "least null head", "most null head"]
            parts.append(f"<h3>{_name(name)}</h3>" + _table(head, rows))
    return "\n".join(parts)
