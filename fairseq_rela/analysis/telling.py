"""Which sentence and head an explorer opens with: one picture that shows what the attention does.

The rule: a sentence of medium length, and in it the head of cross attention that has null rows, but not in more than
half of its rows, and follows the gold links best. Without gold links, it is the head whose rows are most concentrated.
A model without null rows (softmax) takes part if no other model has any.
"""

from typing import NamedTuple, Optional

import numpy as np

from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.zeros import null_rows

MEDIUM = range(8, 26)  # tokens of a sentence
_MOST_NULL = 0.5  # of a head's rows


class Telling(NamedTuple):
    """How telling a head is; a larger value is better."""

    has_nulls: bool
    score: float
    layer: int  # its position on axis 0 of the weights
    head: int


def linked_pieces(source: Words, target: Words, gold: Gold) -> np.ndarray:
    """(T, S), true where the words of two pieces have a gold link, sure or possible."""
    linked = np.zeros((len(target.of_piece), len(source.of_piece)), dtype=bool)
    for i, j in gold.possible:
        linked |= np.outer(target.of_piece == j, source.of_piece == i)
    return linked


def most_telling_head(weights: np.ndarray, linked: Optional[np.ndarray] = None) -> Telling:
    """The most telling head of cross attention (L, H, T, S), with gold links (T, S) if there are any."""
    nulls = null_rows(weights)  # (L, H, T)
    score = _concentration(weights) if linked is None or not linked.any() else _hits(weights, nulls, linked)
    null_share = nulls.mean(axis=-1)
    fitting = (null_share > 0) & (null_share <= _MOST_NULL)
    has_nulls = bool(fitting.any())
    layer, head = np.unravel_index(np.argmax(np.where(fitting, score, -1) if has_nulls else score), score.shape)
    return Telling(has_nulls, float(score[layer, head]), int(layer), int(head))


def _hits(weights: np.ndarray, nulls: np.ndarray, linked: np.ndarray) -> np.ndarray:
    """(L, H): the share of rows whose largest weight is on a linked piece, or that are null and have no link."""
    largest = weights.argmax(axis=-1)  # (L, H, T)
    on_link = linked[np.arange(linked.shape[0]), largest]
    return np.where(nulls, ~linked.any(axis=-1), on_link).mean(axis=-1)


def _concentration(weights: np.ndarray) -> np.ndarray:
    """(L, H): the mean over rows of the share that the largest weight has of all; 0 for a null row."""
    size = np.abs(weights.astype(np.float64))
    return (size.max(axis=-1) / np.maximum(size.sum(axis=-1), 1e-300)).mean(axis=-1)
