"""The report: one HTML file with a summary, the attention explorer, the figures and the tables.

It needs no other file.
Every text from a corpus or a user is escaped, here and in `report_tables`, or set as text by the explorer's script.
The page's policy allows only that script to run, and nothing to be fetched.
"""

import base64
from typing import Any, Dict, List, NamedTuple, Sequence

from fairseq_rela.analysis.metrics import Models
from fairseq_rela.analysis.page import data_and_script, page, part
from fairseq_rela.analysis.report_summary import summary_html
from fairseq_rela.analysis.report_tables import (
    after_tags_tables,
    after_words_tables,
    alignment_tables,
    escaped,
    layer_tables,
    models_table,
    tau_table,
)


class FigureFile(NamedTuple):
    """A figure on disk and its caption; `section` says where in the report it belongs."""

    path: str
    caption: str
    section: str


class Section(NamedTuple):
    """A section of the report. It is left out if it has neither content nor figures."""

    anchor: str
    title: str
    lead: str
    content: str


def _sections(models: Models) -> List[Section]:
    return [
        Section("models", "Models", "", models_table(models)),
        Section(
            "sparsity",
            "Sparsity",
            "Share of weights exactly 0 among those a query may see (the paper's Figure 3).",
            layer_tables(models, lambda rates: rates.sparsity),
        ),
        Section(
            "nulls",
            "Null attention",
            "Share of queries whose visible weights are all 0 (Figure 6).",
            layer_tables(models, lambda rates: rates.null_rate)
            + _titled(
                "Variance over the heads of a layer", layer_tables(models, lambda rates: rates.null_rate_variance)
            )
            + _titled(
                "Of the layer attention (mean of heads)", layer_tables(models, lambda rates: rates.null_rate_layer)
            )
            + _titled("On shuffled targets", layer_tables(models, lambda rates: rates.null_rate_shuffled)),
        ),
        Section(
            "diversity",
            "Head diversity",
            "Jensen-Shannon divergence of the heads of a layer, in nats (Figure 5, Table 6).",
            layer_tables(models, lambda rates: rates.diversity) + tau_table(models),
        ),
        Section(
            "alignment",
            "Word alignment",
            "Alignment error rate of cross attention (Figure 4, Table 5). A best head looks better than it is if it is "
            "chosen on the sentences it is scored on. The held-out lines choose on even lines and score on odd ones.",
            alignment_tables(models, lambda rates: rates.alignment_eos)
            + _titled(
                "By the norms of what source words contribute, instead of their weights",
                alignment_tables(models, lambda rates: rates.alignment_norms_eos),
            ),
        ),
        Section(
            "after-words",
            "What heads fire after",
            "Null rate of cross-attention heads by the target word before the query, most telling first (Section 5.2).",
            after_words_tables(models),
        ),
        Section(
            "after-tags",
            "What heads fire after: parts of speech",
            "Heads are written layer.head.",
            after_tags_tables(models),
        ),
        Section("heatmaps", "Heat maps", "", ""),
    ]


def report_html(
    models: Models, signature: str, figures: Sequence[FigureFile], explorer: Dict[str, Any], note: str = ""
) -> str:
    """The whole page.

    Args:
        signature: how the numbers were measured
        figures: files to embed
        explorer: the result of `explorer.explorer_data`; without models the explorer is left out
        note: a sentence to show under the explorer
    """
    body, links = [], []
    for section in _sections(models):
        content = _figures(figures, section.anchor)
        if section.anchor == "heatmaps":  # large pictures fold like tables
            content = _folded("Heat maps", content)
        content += _folded("Tables", section.content)
        if content:
            links.append(f'<a href="#{section.anchor}">{section.title}</a>')
            lead = f"<p>{section.lead}</p>" if section.lead else ""
            body.append(f'<h2 id="{section.anchor}">{section.title}</h2>{lead}{content}')
    explored = []
    if explorer.get("models"):
        links.insert(0, '<a href="#explorer-title">Attention explorer</a>')
        lead = "It opens at a telling sentence. " if explorer.get("start") else ""
        explored = [
            '<h2 id="explorer-title">Attention explorer</h2>',
            f"<p class=note>{lead}Single sentences, layers and heads. {escaped(note)}</p>",
            part("explorer.html"),
        ]
        body += data_and_script(explorer)
    return page(
        f"Attention of {', '.join(models)}",
        [
            "<h1>Attention analysis</h1>",
            summary_html(models),
            f"<nav>{' '.join(links)}</nav>",
            *explored,
            *body,
            f"<p class=note>How these numbers were made: <code>{escaped(signature)}</code></p>",
        ],
    )


def _folded(title: str, content: str) -> str:
    return f"<details class=tables><summary>{title}</summary>{content}</details>" if content else ""


def _figures(figures: Sequence[FigureFile], section: str) -> str:
    """The figures of a section, embedded."""
    parts = []
    for figure in figures:
        if figure.section == section:
            image_type = "svg+xml" if figure.path.endswith(".svg") else "png"
            with open(figure.path, "rb") as file:
                content = base64.b64encode(file.read()).decode("ascii")
            parts.append(
                f'<figure><img alt="{escaped(figure.caption)}" src="data:image/{image_type};base64,{content}">'
                f"<figcaption>{escaped(figure.caption)}</figcaption></figure>"
            )
    return "\n".join(parts)


def _titled(title: str, content: str) -> str:
    return f"<h3>{title}</h3>{content}" if content else ""
