"""The report: one HTML file with the tables, the figures and the attention explorer, that needs nothing else.

Everything that comes from a corpus or a user is escaped here or set as text by the explorer; the page's policy lets
only the explorer's own script run, and nothing be fetched.
"""

import base64
import hashlib
import html
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from fairseq_rela.analysis.explorer import embedded
from fairseq_rela.analysis.sparsity import KINDS

_PAGE = os.path.join(os.path.dirname(__file__), "report_page")
Models = Dict[str, Dict[str, Any]]


class FigureFile(NamedTuple):
    """A figure on disk and what is written under it; `section` is where in the report it belongs."""

    path: str
    caption: str
    section: str


def _part(name: str) -> str:
    with open(os.path.join(_PAGE, name), encoding="utf-8") as file:
        return file.read()


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _number(value: Optional[float], spread: Optional[float] = None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """A table of cells that are escaped already."""

    def cell(tag: str, index: int, content: str) -> str:
        return f"<{tag}{' class=text' if index in text_columns else ''}>{content}</{tag}>"

    lines = ["<div class=wide><table>", "<tr>" + "".join(cell("th", i, _text(c)) for i, c in enumerate(head)) + "</tr>"]
    lines += ["<tr>" + "".join(cell("td", i, c) for i, c in enumerate(row)) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table></div>"])


def _figures(figures: Sequence[FigureFile], section: str) -> str:
    found = []
    for figure in figures:
        if figure.section == section:
            kind = "svg+xml" if figure.path.endswith(".svg") else "png"
            with open(figure.path, "rb") as file:
                content = base64.b64encode(file.read()).decode("ascii")
            found.append(
                f'<figure><img alt="{_text(figure.caption)}" src="data:image/{kind};base64,{content}">'
                f"<figcaption>{_text(figure.caption)}</figcaption></figure>"
            )
    return "\n".join(found)


def _by_layer(models: Models, metric: str) -> str:
    """A table a kind of attention: a row a model, a column a layer, and the mean over layers."""
    tables = []
    for kind in KINDS:
        having = {name: model for name, model in models.items() if kind in model.get(metric, {})}
        if not having:
            continue
        layers = max((model["layers"][kind] for model in having.values()), key=len)
        rows = []
        for name, model in having.items():
            values = model[metric][kind]
            spread = model.get("spread", {}).get(metric, {}).get(kind, [None] * len(values))
            cells = [_number(value, width) for value, width in zip(values, spread)]
            cells += ["–"] * (len(layers) - len(values))
            rows.append([f"<bdi>{_text(name)}</bdi>", *cells, _number(sum(values) / max(len(values), 1))])
        tables.append(_table([kind, *(f"layer {i}" for i in layers), "mean"], rows))
    return "\n".join(tables)


def _models(models: Models) -> str:
    rows = []
    for name, model in models.items():
        attention = ", ".join(f"{kind} {attention}" for kind, attention in model["attention"].items())
        dumps = "; ".join(model.get("dumps", []))
        rows.append(
            [f"<bdi>{_text(text)}</bdi>" for text in (name, model["model"], attention, model["sentences"], dumps)]
        )
    return _table(["name", "model", "attention", "sentences", "dumps"], rows, (0, 1, 2, 4))


def _tau(models: Models) -> str:
    rows = []
    for name, model in models.items():
        for kind, by_tau in model["diversity_tau"].items():
            means = [_number(sum(values) / max(len(values), 1)) for values in by_tau.values()]
            rows.append([f"<bdi>{_text(name)}</bdi>", kind, *means])
            taus = list(by_tau)
    return _table(["mean over layers", "kind", *(f"τ = {tau}" for tau in taus)], rows, (0, 1))


def _alignment(models: Models) -> str:
    parts = []
    for rows_read in ("normal", "shifted"):
        rows = []
        for name, model in models.items():
            for eos, results in model.get("alignment_eos", {}).items():
                result = results[rows_read]
                spread = model.get("spread", {}).get("alignment_eos", {}).get(eos, {}).get(rows_read, {})
                lines = [("mean of heads", result["layer"], result["AoL"], spread.get("AoL"))]
                lines += [("best head", result["best_head"], result["AoH"], spread.get("AoH"))]
                if result["held_out"]:
                    held = result["held_out"]
                    lines += [("mean of heads, held-out half", held["layer"], held["AoL"], None)]
                    lines += [("best head, chosen on the other half", held["best_head"], held["AoH"], None)]
                treated = "dropped" if eos == "drop" else "as null"
                for what, values, mean, width in lines:
                    cells = [_number(value) for value in values]
                    rows.append([f"<bdi>{_text(name)}</bdi>", what, treated, *cells, _number(mean, width)])
                layers = model["layers"]["cross"]
        if rows:
            head = ["model", "links of", "source </s>", *(f"layer {i}" for i in layers), "mean (AoL, AoH)"]
            parts.append(f"<h3>{rows_read} rows</h3>" + _table(head, rows, (0, 1, 2)))
    return "\n".join(parts)


def _runs(models: Models) -> List[Dict[str, Any]]:
    """(name, metrics) of every single run: heads are only told apart within one."""
    found = []
    for name, model in models.items():
        runs = model.get("runs", [model])
        found += [
            {"name": name if len(runs) == 1 else f"{name}, run {number}", **run} for number, run in enumerate(runs, 1)
        ]
    return found


def _after_words(models: Models, most: int = 30) -> str:
    parts = []
    for run in _runs(models):
        conditions = run.get("null_after_words") or []
        rows = [
            [
                str(c["layer"]),
                str(c["head"]),
                f"<bdi>{_text(c['after'])}</bdi>",
                str(c["count"]),
                _number(c["null_rate"]),
                _number(c["head_null_rate"]),
                f"{c['surprise']:.1f}",
            ]
            for c in conditions[:most]
        ]
        if rows:
            head = ["layer", "head", "after the word", "queries", "null rate", "null rate of the head", "G²"]
            parts.append(f"<h3><bdi>{_text(run['name'])}</bdi></h3>" + _table(head, rows, (2,)))
    return "\n".join(parts)


def _after_tags(models: Models) -> str:
    parts = []
    for run in _runs(models):
        by_tag = run.get("null_after_tags") or {}
        rows = []
        for tag, value in by_tag.items():
            heads = [(rate, i, j) for i, line in enumerate(value["null_rate_heads"]) for j, rate in enumerate(line)]
            fires, rests = min(heads), max(heads)
            rows.append(
                [
                    f"<bdi>{_text(tag)}</bdi>",
                    str(value["count"]),
                    _number(sum(rate for rate, _, _ in heads) / len(heads)),
                    f"{fires[1]}.{fires[2]} ({_number(fires[0])})",
                    f"{rests[1]}.{rests[2]} ({_number(rests[0])})",
                ]
            )
        if rows:
            head = ["after the tag", "queries", "null rate, all heads", "least null head", "most null head"]
            parts.append(f"<h3><bdi>{_text(run['name'])}</bdi></h3>" + _table(head, rows))
    return "\n".join(parts)


def report_html(
    models: Models, signature: str, figures: Sequence[FigureFile], explorer: Dict[str, Any], note: str = ""
) -> str:
    """The whole page. `explorer` is what `explorer.explorer_data` made; without sentences the explorer is left out."""
    sections = [
        ("models", "Models", "", _models(models)),
        (
            "sparsity",
            "Sparsity",
            "Share of weights exactly 0 among those a query may see (the paper's Figure 3).",
            _by_layer(models, "sparsity"),
        ),
        (
            "nulls",
            "Null attention",
            "Share of queries whose visible weights are all 0 (Figure 6).",
            _by_layer(models, "null_rate")
            + _titled("Variance over the heads of a layer", _by_layer(models, "null_rate_variance"))
            + _titled("On shuffled targets", _by_layer(models, "null_rate_shuffled")),
        ),
        (
            "diversity",
            "Head diversity",
            "Jensen-Shannon divergence of the heads of a layer, in nats (Figure 5, Table 6).",
            _by_layer(models, "diversity") + _tau(models),
        ),
        (
            "alignment",
            "Word alignment",
            "Alignment error rate of cross attention (Figure 4, Table 5). A best head chosen "
            "on the sentences it is scored on flatters; the held-out lines choose on even lines and score on odd ones.",
            _alignment(models),
        ),
        (
            "after-words",
            "What heads fire after",
            "Null rate of cross-attention heads by the target word before the query, "
            "the most telling first (Section 5.2).",
            _after_words(models),
        ),
        ("after-tags", "What heads fire after: parts of speech", "Heads are written layer.head.", _after_tags(models)),
        ("heatmaps", "Heat maps", "", ""),
    ]
    body, links = [], []
    for anchor, title, lead, content in sections:
        content = _figures(figures, anchor) + content
        if content:
            links.append(f'<a href="#{anchor}">{title}</a>')
            body.append(f'<h2 id="{anchor}">{title}</h2>' + (f"<p>{lead}</p>" if lead else "") + content)
    script = _part("explorer.js")
    if explorer.get("models"):
        links.append('<a href="#explorer-title">Attention explorer</a>')
        body.append(_part("explorer.html") + (f"<p class=note>{_text(note)}</p>" if note else ""))
        body.append(f'<script type="application/json" id="explorer-data">{embedded(explorer)}</script>')
        body.append(f"<script>{script}</script>")
    allowed = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Attention of {_text(', '.join(models))}</title>",
            f"<style>{_part('style.css')}</style></head><body>",
            "<h1>Attention analysis</h1>",
            f"<p class=note>How these numbers were made: <code>{_text(signature)}</code></p>",
            f"<nav>{' '.join(links)}</nav>",
            *body,
            "</body></html>\n",
        ]
    )


def _titled(title: str, content: str) -> str:
    return f"<h3>{title}</h3>{content}" if content else ""
