"""All numbers of one dump, in one pass over its sentences: memory does not grow with the corpus."""

import contextlib
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_rela.analysis.alignment import EOS, ROWS, AlignmentScores
from fairseq_rela.analysis.diversity import TAUS, query_diversity
from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import Gold, read_links
from fairseq_rela.analysis.nulls import (
    SENTENCE_START,
    ConditionalNulls,
    input_words,
    null_rate_variance,
    null_rows,
)
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.sparsity import visible_count, visible_positions, zero_count
from fairseq_rela.analysis.words import Words
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress
from fairseq_rela.recording.dump import Record

_AT_ONCE = 4_000_000  # weights
_PART = 100  # sentences that one process counts before it reports


class Lines(NamedTuple):
    """What a file says of each sentence, with the file's name for messages."""

    path: str
    values: List[Any]


def gold_lines(path: str, base: int = 0, reverse: bool = False) -> Lines:
    """Gold links, a line a sentence."""
    return Lines(path, read_links(path, base, reverse))


def tag_lines(path: str) -> Lines:
    """Tags, a line a sentence, a tag a target word."""
    return Lines(path, [line.split() for _, line in text_lines(path)])


class KindTotals:
    """Sums over sentences for one kind of attention."""

    def __init__(self, kind: str, distribution: bool, layers: int, heads: int, taus: Sequence[float]) -> None:
        self.kind, self.distribution, self.taus = kind, distribution, tuple(taus)
        self.zeros = np.zeros((layers, heads), dtype=np.int64)
        self.nulls = np.zeros((layers, heads), dtype=np.int64)
        self.divergence = {tau: np.zeros(layers) for tau in self.taus}
        self.visible = self.queries = 0

    def add(self, weights: np.ndarray) -> np.ndarray:
        """Count one sentence's weights, (L, H, T, S); returns its null rows, (L, H, T)."""
        visible = visible_positions(self.kind, *weights.shape[2:])
        nulls = null_rows(weights, visible)
        self.zeros += zero_count(weights, visible)
        self.visible += visible_count(weights, visible)
        self.nulls += np.count_nonzero(nulls, axis=-1)
        self.queries += weights.shape[2]
        if self.taus:
            # a few layers at a time where sentences are long: memory stays that of a common one
            step = max(_AT_ONCE * len(weights) // max(weights.size, 1), 1)
            for first in range(0, len(weights), step):
                some = slice(first, first + step)
                for tau, value in query_diversity(weights[some], visible, self.distribution, self.taus).items():
                    self.divergence[tau][some] += value.sum(axis=-1)
        return nulls

    def merge(self, other: "KindTotals") -> None:
        """Add what another has counted."""
        self.zeros, self.nulls = self.zeros + other.zeros, self.nulls + other.nulls
        self.visible, self.queries = self.visible + other.visible, self.queries + other.queries
        self.divergence = {tau: self.divergence[tau] + other.divergence[tau] for tau in self.taus}

    @property
    def sparsity(self) -> np.ndarray:
        """(L, H)"""
        return self.zeros / max(self.visible, 1)

    @property
    def null_rate(self) -> np.ndarray:
        """(L, H)"""
        return self.nulls / max(self.queries, 1)

    def diversity(self, tau: float) -> np.ndarray:
        """(L,)"""
        return self.divergence[tau] / max(self.queries, 1)


class Tally:
    """All that is counted of a dump, or of a part of it."""

    def __init__(self, reader: DumpReader, taus: Sequence[float]) -> None:
        self.totals = {
            kind: KindTotals(kind, info.distribution, len(info.layers), info.heads, taus)
            for kind, info in reader.info.kinds.items()
        }
        self.scores = AlignmentScores()
        self.after_words, self.after_tags = ConditionalNulls(), ConditionalNulls()

    def add(self, reader: DumpReader, record: Record, gold: Optional[Lines], tags: Optional[Lines]) -> None:
        """Count one sentence."""
        for kind, total in self.totals.items():
            weights = reader.weights(record, kind)
            nulls = total.add(weights)
            if kind != "cross":
                continue
            target = reader.target_words(record)
            self.after_words.add(nulls, _labels(target, target.text))
            if tags:
                self.after_tags.add(nulls, _labels(target, tags.values[record.id]))
            if gold:
                links: Gold = gold.values[record.id]
                self.scores.add(weights, reader.source_words(record), target, links, record.id % 2)

    def merge(self, other: "Tally") -> None:
        """Add what another has counted."""
        for kind, total in self.totals.items():
            total.merge(other.totals[kind])
        self.scores.merge(other.scores)
        self.after_words.merge(other.after_words)
        self.after_tags.merge(other.after_tags)


class _Part:
    """Tallies a part of a dump; one in each process, with the dump opened anew: open files cannot be shared."""

    here: Optional["_Part"] = None

    def __init__(self, reader: DumpReader, gold: Optional[Lines], tags: Optional[Lines], taus: Sequence[float]) -> None:
        self.reader, self.gold, self.tags, self.taus = reader, gold, tags, taus

    def tally(self, first: int) -> Tally:
        counted = Tally(self.reader, self.taus)
        for index in range(first, min(first + _PART, len(self.reader))):
            counted.add(self.reader, self.reader[index], self.gold, self.tags)
        return counted


def _begin(path: str, merge: str, *others: Any) -> None:
    _Part.here = _Part(DumpReader(path, merge), *others)


def _tally_here(first: int) -> Tally:
    return _Part.here.tally(first)


def tally(
    reader: DumpReader, gold: Optional[Lines] = None, tags: Optional[Lines] = None, taus: Sequence[float] = ()
) -> Tally:
    """The whole dump counted, on as many processors as there are (four at most, for memory's sake).

    Parts are the same however many processors share them, and are added in order: so are the sums.
    """
    parts = range(0, len(reader), _PART)
    processes = min(_processors(), 4, len(parts))
    with contextlib.ExitStack() as stack:
        if processes > 1:
            others = (reader.path, reader.merge, gold, tags, taus)
            pool = stack.enter_context(ProcessPoolExecutor(processes, initializer=_begin, initargs=others))
            counted = pool.map(_tally_here, parts)
        else:
            counted = map(_Part(reader, gold, tags, taus).tally, parts)
        whole = Tally(reader, taus)
        for part in progress(counted, f"{reader.path}, parts of {_PART} sentences", len(parts)):
            whole.merge(part)
    return whole


def _processors() -> int:
    """How many this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measurement(
    reader: DumpReader,
    gold: Optional[Lines] = None,
    tags: Optional[Lines] = None,
    eos: str = "drop",
    tau: float = 1.0,
    taus: Sequence[float] = TAUS,
    min_count: int = 5,
) -> Dict[str, Any]:
    """The metrics of a dump, as `metrics.json` has them: lists by layer, or by layer and head."""
    if gold:
        reader.require("cross")
        reader.match_gold(gold.values, gold.path)
    if tags:
        reader.require("cross")
        _match_tags(reader, tags)
    counted = tally(reader, gold, tags, sorted({tau, *taus}, reverse=True))
    totals, scores = counted.totals, counted.scores
    after_words, after_tags = counted.after_words, counted.after_tags
    found = {
        "model": reader.info.model,
        "attention": {kind: info.attention for kind, info in reader.info.kinds.items()},
        "sentences": len(reader),
        "layers": {kind: list(info.layers) for kind, info in reader.info.kinds.items()},
        "sparsity": {kind: total.sparsity.mean(axis=1).tolist() for kind, total in totals.items()},
        "sparsity_heads": {kind: total.sparsity.tolist() for kind, total in totals.items()},
        **_null_rates(totals),
        "diversity": {kind: total.diversity(tau).tolist() for kind, total in totals.items()},
        "diversity_tau": {
            kind: {f"{each:g}": total.diversity(each).tolist() for each in taus} for kind, total in totals.items()
        },
    }
    if "cross" in totals:
        found["null_after_words"] = [condition._asdict() for condition in after_words.most_telling(5, min_count)]
    if tags:
        found["null_after_tags"] = {
            tag: {"count": after_tags.count(tag), "null_rate_heads": after_tags.rate(tag).tolist()}
            for tag in after_tags.labels
        }
    if gold:
        found["alignment"] = {rows: scores.result(rows, eos) for rows in ROWS}
        found["alignment_eos"] = {each: {rows: scores.result(rows, each) for rows in ROWS} for each in EOS}
    return found


def null_rates(reader: DumpReader) -> Dict[str, Any]:
    """Null rates alone, by kind and layer (and head): all that is asked of a dump of shuffled targets."""
    return _null_rates(tally(reader).totals)


def _null_rates(totals: Dict[str, KindTotals]) -> Dict[str, Any]:
    return {
        "null_rate": {kind: total.null_rate.mean(axis=1).tolist() for kind, total in totals.items()},
        "null_rate_heads": {kind: total.null_rate.tolist() for kind, total in totals.items()},
        "null_rate_variance": {kind: null_rate_variance(total.null_rate).tolist() for kind, total in totals.items()},
    }


def _labels(target: Words, of_word: Sequence[str]) -> List[Optional[str]]:
    """For each row what `of_word` says of the word that its input ends; None within a word."""
    return [None if word is None else SENTENCE_START if word == -1 else of_word[word] for word in input_words(target)]


def _match_tags(reader: DumpReader, tags: Lines) -> None:
    reader.match_lines(tags.values, tags.path)
    for record in reader:
        words, given = len(reader.target_words(record).text), len(tags.values[record.id])
        if words != given:
            raise InputError(
                f"{tags.path}, line {record.id + 1}: {given} tags for the {words} target words of the dump's sentence"
            )
