"""The metrics of one dump."""

import dataclasses
from typing import Dict, Optional, Sequence

from fairseq_rela.analysis.alignment import EOS, ROWS, AlignmentScores
from fairseq_rela.analysis.diversity import TAUS
from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import read_links
from fairseq_rela.analysis.metrics import HeadValues, LayerValues, Rates, RowErrors, RunMetrics, TagNulls
from fairseq_rela.analysis.nulls import ConditionalNulls, null_rate_variance
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.tally import KindTotals, SentenceLines, Tally, tally
from fairseq_rela.errors import InputError

_WORDS_PER_HEAD = 5  # words that are listed for each head


def gold_lines(path: str, base: int = 0, reverse: bool = False) -> SentenceLines:
    """Gold links, one line per sentence."""
    return SentenceLines(path, read_links(path, base, reverse))


def tag_lines(path: str) -> SentenceLines:
    """Tags, one line per sentence, one tag per target word."""
    return SentenceLines(path, [line.split() for _, line in text_lines(path)])


def measurement(
    reader: DumpReader,
    gold: Optional[SentenceLines] = None,
    tags: Optional[SentenceLines] = None,
    eos: str = "drop",
    tau: float = 1.0,
    taus: Sequence[float] = TAUS,
    min_count: int = 5,
    shuffled: Optional[DumpReader] = None,
    level: str = "subword",
) -> RunMetrics:
    """Measure a dump.

    Args:
        gold, tags: of the same sentences; alignment and nulls by tag are measured where they are given
        eos: the treatment of the source's </s> in `Rates.alignment`, one of `alignment.EOS`
        tau, taus: temperatures of head diversity, for `Rates.diversity` and `Rates.diversity_tau`
        min_count: words that are rarer are left out of `null_after_words`
        shuffled: a dump of the same sources with shuffled targets; its null rates are measured too
        level: "subword", or "word" to merge weights to words before sparsity, null rate and diversity
    """
    if gold:
        reader.require("cross")
        reader.match_gold(gold.values, gold.path)
    if tags:
        reader.require("cross")
        _match_tags(reader, tags)
    counted = tally(reader, gold, tags, sorted({tau, *taus}, reverse=True), level)
    has_cross = "cross" in counted.totals
    return RunMetrics(
        model=reader.info.model,
        attention={kind: info.attention for kind, info in reader.info.kinds.items()},
        sentences=len(reader),
        layers={kind: list(info.layers) for kind, info in reader.info.kinds.items()},
        dump=reader.path,
        rates=_rates(counted, eos if gold else None, tau, taus, tally(shuffled, level=level) if shuffled else None),
        null_after_words=counted.after_words.most_telling(_WORDS_PER_HEAD, min_count) if has_cross else None,
        null_after_tags=_nulls_by_tag(counted.after_tags) if tags else None,
    )


def with_alignment(metrics: RunMetrics, reader: DumpReader, gold: SentenceLines, eos: str) -> RunMetrics:
    """The same metrics, with the alignment error of another dump of the same model: of the sentences in `gold`."""
    aligned = measurement(reader, gold, eos=eos, taus=()).rates
    names = ("alignment", "alignment_eos", "alignment_norms", "alignment_norms_eos")
    rates = dataclasses.replace(metrics.rates, **{name: getattr(aligned, name) for name in names})
    return dataclasses.replace(metrics, rates=rates)


def _rates(counted: Tally, eos: Optional[str], tau: float, taus: Sequence[float], shuffled: Optional[Tally]) -> Rates:
    """`eos` is None where there are no gold links."""
    totals = counted.totals
    return Rates(
        sparsity={kind: total.sparsity.mean(axis=1).tolist() for kind, total in totals.items()},
        sparsity_heads={kind: total.sparsity.tolist() for kind, total in totals.items()},
        null_rate=_null_rate(totals),
        null_rate_heads=_null_rate_heads(totals),
        null_rate_variance={kind: null_rate_variance(total.null_rate).tolist() for kind, total in totals.items()},
        diversity={kind: total.diversity(tau).tolist() for kind, total in totals.items()},
        diversity_tau={
            kind: {f"{each:g}": total.diversity(each).tolist() for each in taus} for kind, total in totals.items()
        },
        null_rate_layer={kind: total.layer_null_rate.tolist() for kind, total in totals.items()},
        null_rate_shuffled=_null_rate(shuffled.totals) if shuffled else None,
        null_rate_heads_shuffled=_null_rate_heads(shuffled.totals) if shuffled else None,
        alignment=_row_errors(counted.scores, eos),
        alignment_eos=_errors_by_eos(counted.scores) if eos else None,
        alignment_norms=_row_errors(counted.norm_scores, eos),
        alignment_norms_eos=_errors_by_eos(counted.norm_scores) if eos else None,
    )


def _row_errors(scores: AlignmentScores, eos: Optional[str]) -> Optional[RowErrors]:
    """The error rates for each way of reading rows; None where no sentence was scored."""
    return {rows: scores.result(rows, eos) for rows in ROWS} if eos and scores.sentences else None


def _errors_by_eos(scores: AlignmentScores) -> Optional[Dict[str, RowErrors]]:
    every = {eos: _row_errors(scores, eos) for eos in EOS}
    return {eos: errors for eos, errors in every.items() if errors is not None} or None


def _null_rate(totals: Dict[str, KindTotals]) -> LayerValues:
    return {kind: total.null_rate.mean(axis=1).tolist() for kind, total in totals.items()}


def _null_rate_heads(totals: Dict[str, KindTotals]) -> HeadValues:
    return {kind: total.null_rate.tolist() for kind, total in totals.items()}


def _nulls_by_tag(after_tags: ConditionalNulls) -> Dict[str, TagNulls]:
    return {tag: TagNulls(after_tags.count(tag), after_tags.rate(tag).tolist()) for tag in after_tags.labels}


def _match_tags(reader: DumpReader, tags: SentenceLines) -> None:
    """InputError unless every target word of the dump has a tag."""
    reader.match_lines(tags.values, tags.path)
    for record in reader:
        words, given = len(reader.target_words(record).text), len(tags.values[record.id])
        if words != given:
            raise InputError(
                f"{tags.path}, line {record.id + 1}: {given} tags for the {words} target words of the dump's sentence"
            )
