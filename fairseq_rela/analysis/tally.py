"""Counting a dump in one pass over its sentences: memory does not grow with the corpus.

Shapes: L layers, H heads, T queries, S keys.
"""

import contextlib
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_rela.analysis.alignment import AlignmentScores
from fairseq_rela.analysis.diversity import query_diversity
from fairseq_rela.analysis.levels import SeenWeights, at_subword_level, at_word_level
from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.nulls import SENTENCE_START, ConditionalNulls, input_words
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import null_rows, visible_count, zero_count
from fairseq_rela.progress import progress

_WEIGHTS_AT_ONCE = 4_000_000
_SENTENCES_PER_PART = 100  # that one process counts before it reports
_MOST_PROCESSES = 4  # each needs memory of its own


class SentenceLines(NamedTuple):
    """What a file says about each sentence, one value per line, with the file's name for messages."""

    path: str
    values: List[Any]


class KindTotals:
    """Sums over sentences for one kind of attention."""

    def __init__(self, kind: str, distribution: bool, layers: int, heads: int, taus: Sequence[float]) -> None:
        self.kind, self.distribution, self.taus = kind, distribution, tuple(taus)
        self.zeros = np.zeros((layers, heads), dtype=np.int64)
        self.nulls = np.zeros((layers, heads), dtype=np.int64)
        self.layer_nulls = np.zeros(layers, dtype=np.int64)  # queries that are null in all heads of the layer
        self.divergence = {tau: np.zeros(layers) for tau in self.taus}
        self.visible = self.queries = 0

    def add(self, seen: SeenWeights) -> None:
        """Count the weights of one sentence, (L, H, T, S)."""
        weights, visible = seen
        nulls = null_rows(weights, visible)
        self.zeros += zero_count(weights, visible)
        self.visible += visible_count(weights, visible)
        self.nulls += np.count_nonzero(nulls, axis=-1)
        self.layer_nulls += np.count_nonzero(nulls.all(axis=1), axis=-1)
        self.queries += weights.shape[2]
        if self.taus:
            self._add_divergence(weights, visible)

    def _add_divergence(self, weights: np.ndarray, visible: Optional[np.ndarray]) -> None:
        # A few layers at a time where sentences are long, so that memory stays that of a common sentence.
        step = max(_WEIGHTS_AT_ONCE * len(weights) // max(weights.size, 1), 1)
        for first in range(0, len(weights), step):
            layers = slice(first, first + step)
            for tau, value in query_diversity(weights[layers], visible, self.distribution, self.taus).items():
                self.divergence[tau][layers] += value.sum(axis=-1)

    def merge(self, other: "KindTotals") -> None:
        """Add the counts of another part of the same dump."""
        self.zeros, self.nulls = self.zeros + other.zeros, self.nulls + other.nulls
        self.layer_nulls = self.layer_nulls + other.layer_nulls
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

    @property
    def layer_null_rate(self) -> np.ndarray:
        """Of the layer attention, the mean over heads: (L,)"""
        return self.layer_nulls / max(self.queries, 1)

    def diversity(self, tau: float) -> np.ndarray:
        """(L,)"""
        return self.divergence[tau] / max(self.queries, 1)


class Tally:
    """Everything that is counted in a dump, or in a part of it."""

    def __init__(self, reader: DumpReader, taus: Sequence[float], level: str = "subword") -> None:
        self.level = level
        self.totals = {
            kind: KindTotals(kind, info.distribution, len(info.layers), info.heads, taus)
            for kind, info in reader.info.kinds.items()
        }
        self.scores, self.norm_scores = AlignmentScores(), AlignmentScores()
        self.after_words, self.after_tags = ConditionalNulls(), ConditionalNulls()

    def add(
        self, reader: DumpReader, record: Record, gold: Optional[SentenceLines], tags: Optional[SentenceLines]
    ) -> None:
        """Count one sentence."""
        for kind, total in self.totals.items():
            weights = reader.weights(record, kind)
            target = reader.target_words(record)
            if self.level == "word":
                total.add(at_word_level(weights, kind, reader.source_words(record), target))
            else:
                total.add(at_subword_level(weights, kind))
            if kind != "cross":
                continue
            nulls = null_rows(weights)
            self.after_words.add(nulls, _labels_of_rows(target, target.text))
            if tags:
                self.after_tags.add(nulls, _labels_of_rows(target, tags.values[record.id]))
            if gold:
                links: Gold = gold.values[record.id]
                words = reader.source_words(record), target
                self.scores.add(weights, *words, links, record.id % 2)
                if reader.has_norms(kind):
                    self.norm_scores.add(reader.weights(record, kind, "norms"), *words, links, record.id % 2)

    def merge(self, other: "Tally") -> None:
        """Add the counts of another part of the same dump."""
        for kind, total in self.totals.items():
            total.merge(other.totals[kind])
        self.scores.merge(other.scores)
        self.norm_scores.merge(other.norm_scores)
        self.after_words.merge(other.after_words)
        self.after_tags.merge(other.after_tags)


def _labels_of_rows(target: Words, label_of_word: Sequence[str]) -> List[Optional[str]]:
    """For each row the label of the word that its input token ends; None where the input is inside a word."""
    return [
        None if word is None else SENTENCE_START if word == -1 else label_of_word[word] for word in input_words(target)
    ]


class _PartCounter:
    """Counts parts of a dump. Each process has one and opens the dump itself: open files cannot be shared."""

    of_this_process: "_PartCounter"

    def __init__(
        self,
        reader: DumpReader,
        gold: Optional[SentenceLines],
        tags: Optional[SentenceLines],
        taus: Sequence[float],
        level: str,
    ) -> None:
        self.reader, self.gold, self.tags, self.taus, self.level = reader, gold, tags, taus, level

    def count(self, first: int) -> Tally:
        """Count the part that begins at sentence `first`."""
        part = Tally(self.reader, self.taus, self.level)
        for index in range(first, min(first + _SENTENCES_PER_PART, len(self.reader))):
            part.add(self.reader, self.reader[index], self.gold, self.tags)
        return part


def _start_process(path: str, merge: str, *others: Any) -> None:
    _PartCounter.of_this_process = _PartCounter(DumpReader(path, merge), *others)


def _count_in_process(first: int) -> Tally:
    return _PartCounter.of_this_process.count(first)


def tally(
    reader: DumpReader,
    gold: Optional[SentenceLines] = None,
    tags: Optional[SentenceLines] = None,
    taus: Sequence[float] = (),
    level: str = "subword",
) -> Tally:
    """Count a whole dump, on up to four processors.

    The parts do not depend on the number of processors and are added in order, so the sums do not depend on it either.
    """
    parts = range(0, len(reader), _SENTENCES_PER_PART)
    processes = min(_processors(), _MOST_PROCESSES, len(parts))
    with contextlib.ExitStack() as stack:
        counted: Iterator[Tally]
        if processes > 1:
            arguments = (reader.path, reader.merge, gold, tags, taus, level)
            pool = stack.enter_context(ProcessPoolExecutor(processes, initializer=_start_process, initargs=arguments))
            counted = pool.map(_count_in_process, parts)
        else:
            counted = map(_PartCounter(reader, gold, tags, taus, level).count, parts)
        total = Tally(reader, taus, level)
        for part in progress(counted, f"{reader.path}, parts of {_SENTENCES_PER_PART} sentences", len(parts)):
            total.merge(part)
    return total


def _processors() -> int:
    """How many processors this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
