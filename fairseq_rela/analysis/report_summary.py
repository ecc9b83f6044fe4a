"""The first lines of the report: one row per model, which a reader understands in ten seconds."""

from typing import List, Optional

from fairseq_rela.analysis.metrics import LayerValues, ModelMetrics, Models
from fairseq_rela.analysis.report_tables import escaped, plain_mean
from fairseq_rela.kinds import KINDS

_BLUE, _AMBER = "#dbe7f3", "#f6e3b4"


def summary_html(models: Models) -> str:
    """The share of zeros and of null queries by kind, and the alignment error rate where there is one."""
    kinds = [kind for kind in KINDS if any(kind in model.rates.sparsity for model in models.values())]
    nulls = "cross" if "cross" in kinds else kinds[-1] if kinds else ""
    aligned = any(model.rates.alignment for model in models.values())
    head = ["", *(f"{kind}: weights that are 0" for kind in kinds)]
    head += [f"{nulls}: queries that attend to nothing"] if nulls else []
    head += ["word alignment: error rate of the best layer"] if aligned else []
    rows = []
    for name, model in models.items():
        cells = [_bar(_mean_rate(model.rates.sparsity, kind), _BLUE) for kind in kinds]
        cells += [_bar(_mean_rate(model.rates.null_rate, nulls), _AMBER)] if nulls else []
        cells += [_error(model)] if aligned else []
        rows.append(f"<tr><td class=text><b><bdi>{escaped(name)}</bdi></b></td>{''.join(cells)}</tr>")
    header = "".join(f"<th>{escaped(text)}</th>" for text in head)
    sentences = " and ".join(sorted({f"{model.first.sentences:,}" for model in models.values()}))
    lead = f"<p>Measured on {sentences} sentences, mean over layers and heads.</p>"
    return f'<div class="summary wide" id="summary">{lead}<table><tr>{header}</tr>{"".join(rows)}</table></div>'


def _mean_rate(values: LayerValues, kind: str) -> Optional[float]:
    return plain_mean(values[kind]) if values.get(kind) else None


def _bar(rate: Optional[float], colour: str) -> str:
    """A cell with a percentage and a bar of that length behind it."""
    if rate is None:
        return "<td>–</td>"
    style = f"background-image:linear-gradient({colour},{colour});background-size:{100 * rate:.1f}% 100%"
    return f'<td class=bar style="{style}">{100 * rate:.1f} %</td>'


def _error(model: ModelMetrics) -> str:
    """The smallest alignment error rate of a layer's mean over heads, normal or shifted."""
    errors: List[float] = [error for rows in (model.rates.alignment or {}).values() for error in rows.layer]
    return f"<td>{100 * min(errors):.1f} %</td>" if errors else "<td>–</td>"
