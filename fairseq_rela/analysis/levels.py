"""The level of an analysis: weights between subword pieces as recorded, or between words (Section 5.2).

At word level each row and each column is a word; `</s>` counts as a word of its own, as it counts as a piece at subword
level. Weights are summed over the pieces of a key's word and averaged over those of a query's word, as for alignment.
"""

from typing import NamedTuple, Optional

import numpy as np

from fairseq_rela.analysis.words import Words, shifted
from fairseq_rela.dump.zeros import visible_positions

LEVELS = ("subword", "word")


class SeenWeights(NamedTuple):
    """Weights (L, H, queries, keys), and where a query may see a key, (queries, keys); None: everywhere."""

    weights: np.ndarray
    visible: Optional[np.ndarray]


def at_subword_level(weights: np.ndarray, kind: str) -> SeenWeights:
    return SeenWeights(weights, visible_positions(kind, *weights.shape[2:]))


def at_word_level(weights: np.ndarray, kind: str, source: Words, target: Words) -> SeenWeights:
    """W[w, v] = 1/|w| Σ_{t ∈ w} Σ_{s ∈ v} α[t, s]. A word is visible if one piece of the query sees one of its pieces.

    Query t of the decoder predicts token t. Its key s is the input of query s, which is token s - 1.
    """
    queries = source if kind == "encoder" else target
    keys = shifted(target) if kind == "decoder" else source
    rows, columns = _members(queries.of_piece), _members(keys.of_piece)
    sums = weights.astype(np.float64) @ columns.T
    merged = (rows / rows.sum(axis=1, keepdims=True)) @ sums
    visible = visible_positions(kind, *weights.shape[2:])
    return SeenWeights(merged, None if visible is None else rows @ visible @ columns.T > 0)


def _members(of_piece: np.ndarray) -> np.ndarray:
    """(words, pieces): 1 where the piece belongs to the word, in the order of the text. </s> is a word of its own."""
    begins = np.ones(len(of_piece), dtype=bool)
    begins[1:] = (of_piece[1:] != of_piece[:-1]) | (of_piece[1:] == -1)
    number = np.cumsum(begins) - 1
    return (np.arange(number[-1] + 1)[:, None] == number[None, :]).astype(np.float64)
