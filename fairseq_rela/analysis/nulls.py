"""Null attention: queries that attend to nothing (Section 5.2, Figures 6 and 7)."""

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

import numpy as np

from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.zeros import null_rows

SENTENCE_START = "</s>"  # the input of row 0, as in fairseq


def null_rate(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """The share of queries that are null: (…) from (…, T, S); 0 where there is no query."""
    nulls = null_rows(weights, visible)
    return np.count_nonzero(nulls, axis=-1) / max(nulls.shape[-1], 1)


def null_rate_variance(rates: np.ndarray) -> np.ndarray:
    """The variance over heads of the null rates of a layer: (L,) from (L, H)."""
    return np.var(np.asarray(rates, dtype=np.float64), axis=-1)


def input_words(target: Words) -> List[Optional[int]]:
    """For each row the index of the word that its input token ends; -1 at the sentence start; None inside a word.

    The input of row t is token t - 1, of row 0 the sentence start.
    """
    of_piece = target.of_piece.tolist()
    ended: List[Optional[int]] = [-1]
    for index in range(len(of_piece) - 1):
        last_of_word = of_piece[index] != of_piece[index + 1]
        ended.append(of_piece[index] if last_of_word and of_piece[index] != -1 else None)
    return ended[: len(of_piece)]


@dataclass(frozen=True)
class Condition:
    """The null rate of one head over the queries after one word, and how surprising it is."""

    layer: int
    head: int
    after: str
    count: int
    null_rate: float
    head_null_rate: float
    surprise: float  # G², nats: see `surprise`


class ConditionalNulls:
    """Counts null queries by the word or tag before them."""

    def __init__(self) -> None:
        self._index: Dict[str, int] = {}
        self._queries = np.zeros(0, dtype=np.int64)  # (labels,)
        self._nulls = np.zeros((0, 0, 0), dtype=np.int64)  # (labels, L, H)

    def add(self, nulls: np.ndarray, labels: Sequence[Optional[str]]) -> None:
        """Count the rows of `nulls`, (L, H, T), by their labels. Rows with the label None are left out."""
        labelled = [(row, label) for row, label in enumerate(labels) if label is not None]
        if not labelled:
            return
        rows = [row for row, _ in labelled]
        where = np.array([self._index.setdefault(label, len(self._index)) for _, label in labelled])
        self._grow(nulls.shape[:2])
        np.add.at(self._queries, where, 1)
        np.add.at(self._nulls, where, np.moveaxis(nulls[..., rows], -1, 0).astype(np.int64))

    def merge(self, other: "ConditionalNulls") -> None:
        """Add the counts of another part of the same dump."""
        if not other._index:
            return
        where = np.array([self._index.setdefault(label, len(self._index)) for label in other._index])
        self._grow(other._nulls.shape[1:])
        self._queries[where] += other._queries[: len(where)]
        self._nulls[where] += other._nulls[: len(where)]

    def _grow(self, shape: Sequence[int]) -> None:
        need = len(self._index)
        if need > len(self._queries):
            room = max(need, 2 * len(self._queries), 64)
            queries = np.zeros(room, dtype=np.int64)
            nulls = np.zeros((room, *shape), dtype=np.int64)
            queries[: len(self._queries)] = self._queries
            if len(self._queries):
                nulls[: len(self._queries)] = self._nulls
            self._queries, self._nulls = queries, nulls

    @property
    def labels(self) -> List[str]:
        """The labels, most frequent first."""
        return sorted(self._index, key=lambda label: (-self.count(label), label))

    def count(self, label: str) -> int:
        """The number of queries after `label`."""
        return int(self._queries[self._index[label]])

    def rate(self, label: str) -> np.ndarray:
        """#{null queries after label} / #{queries after label}: (L, H)."""
        index = self._index[label]
        return self._nulls[index] / max(int(self._queries[index]), 1)

    def most_telling(self, per_head: int = 5, min_count: int = 5) -> List[Condition]:
        """For each head the labels that tell most about whether it is null, the most telling of all heads first."""
        known = [label for label in self._index if self.count(label) >= min_count]
        if not known:
            return []
        rows = np.array([self._index[label] for label in known])
        queries, nulls = self._queries[rows], self._nulls[rows]
        size = len(self._index)
        all_queries = int(self._queries[:size].sum())
        all_nulls = self._nulls[:size].sum(axis=0)  # (L, H)
        scores = surprise(nulls, queries[:, None, None], all_nulls, all_queries)  # (labels, L, H)
        conditions: List[Condition] = []
        for layer, head in np.ndindex(*all_nulls.shape):
            order = sorted(range(len(known)), key=lambda i: (-scores[i, layer, head], known[i]))
            conditions += [
                Condition(
                    layer,
                    head,
                    known[i],
                    int(queries[i]),
                    float(nulls[i, layer, head] / queries[i]),
                    float(all_nulls[layer, head] / all_queries),
                    float(scores[i, layer, head]),
                )
                for i in order[:per_head]
                if scores[i, layer, head] > 0
            ]
        return sorted(conditions, key=lambda c: (-c.surprise, c.layer, c.head, c.after))


def surprise(nulls: np.ndarray, queries: np.ndarray, all_nulls: np.ndarray, all_queries: int) -> np.ndarray:
    """Dunning's G² of "the query is null" against "it comes after this word": 2 Σ O ln(O / E) of the 2 × 2 table.

    A rate over few queries tells little, however extreme it is. G² takes that into account, and a bare rate does not.
    """
    nulls, queries = np.asarray(nulls, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    all_nulls = np.asarray(all_nulls, dtype=np.float64)
    observed = [nulls, queries - nulls, all_nulls - nulls, (all_queries - queries) - (all_nulls - nulls)]
    share = all_nulls / max(all_queries, 1)
    expected = [queries * share, queries * (1 - share)]
    expected += [(all_queries - queries) * share, (all_queries - queries) * (1 - share)]
    total = np.zeros(np.broadcast(nulls, queries, all_nulls).shape)
    for o, e in zip(observed, expected):
        o, e = np.broadcast_arrays(o, e)
        ratio = np.divide(o, e, out=np.ones(o.shape), where=(e > 0) & (o > 0))
        total = total + o * np.log(ratio)
    return np.maximum(2 * total, 0.0)
