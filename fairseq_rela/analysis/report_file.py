"""Writing report.html, with as many sentences in the explorer as fit."""

import os
from typing import List, Optional

from fairseq_rela.analysis.explorer import explorer_data
from fairseq_rela.analysis.metrics import Models
from fairseq_rela.analysis.named_dumps import NamedDumps
from fairseq_rela.analysis.page import encoded
from fairseq_rela.analysis.report import FigureFile, report_html
from fairseq_rela.analysis.report_tables import named_runs
from fairseq_rela.analysis.tally import SentenceLines

MOST_BYTES = 20_000_000  # of report.html
_NOTE_BYTES = 1000  # room for the note about missing sentences, which is shorter


def write_report(
    models: Models,
    signature: str,
    figures: List[FigureFile],
    dumps: NamedDumps,
    gold: Optional[SentenceLines],
    sentences: int,
    directory: str,
) -> None:
    """Write report.html of at most `MOST_BYTES` into `directory`. `sentences`: how many the explorer should have."""
    size = _size_without_sentences(models, signature, figures)
    if size > MOST_BYTES // 2:  # too many heat maps to embed; their files stay in the directory
        figures = [figure for figure in figures if figure.section != "heatmaps"]
        size = _size_without_sentences(models, signature, figures)
    readers = [reader for runs in dumps.values() for reader in runs]
    runs = [(name, reader, run.rates) for (name, run), reader in zip(named_runs(models), readers)]
    golds = gold.values if gold else None
    explorer, count = explorer_data(runs, golds, max(sentences, 0), MOST_BYTES - size - _NOTE_BYTES)
    wanted = min(sentences, max(len(reader) for reader in readers))
    note = ""
    if count < wanted:
        note = f"{count} of {wanted} sentences are here: more would make this file larger than 20 MB."
    page = report_html(models, signature, figures, explorer, note)
    with open(os.path.join(directory, "report.html"), "wb") as file:
        file.write(encoded(page))


def _size_without_sentences(models: Models, signature: str, figures: List[FigureFile]) -> int:
    return len(encoded(report_html(models, signature, figures, {"models": [{"sentences": []}]})))
