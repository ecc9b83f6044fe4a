"""Which sentence and heads the heat maps show unless a user chooses (Figures 7 to 9).

The paper shows heads 0, 2, 3 and 7 of its third cross-attention layer, and sentences in which heads that are mostly
null fire after a comma. Layers and heads are counted from 0.
"""

from typing import List, Optional, Sequence

import numpy as np

from fairseq_rela.analysis.nulls import input_words
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import null_rows

THIRD_LAYER = 2
PAPER_HEADS = (0, 2, 3, 7)
COMMAS = frozenset([",", "\uff0c", "\u3001", "\u060c"])  # also full-width, ideographic and Arabic
_SEARCHED_SENTENCES = 1000
_FITTING_LENGTHS = range(6, 31)  # tokens of a sentence that fits a heat map


def paper_heads(heads: int) -> List[int]:
    """The paper's heads, those that a layer of so many heads has."""
    return [head for head in PAPER_HEADS if head < heads]


def rows_after_commas(target: Words) -> List[int]:
    """The queries whose input token ends a word that is a comma or, in text without tokenisation, ends in one."""
    ended = input_words(target)
    return [
        row for row, word in enumerate(ended) if word is not None and word >= 0 and target.text[word][-1:] in COMMAS
    ]


def null_rows_of_comma_heads(nulls: np.ndarray, after: Sequence[int]) -> int:
    """How many rows are null, (H, T) → a number, in the heads that fire after every comma. 0 without a comma."""
    if not len(after):
        return 0
    fires = ~nulls[:, list(after)].any(axis=1)
    return int(nulls[fires].sum())


def example_sentence(reader: DumpReader, layer: int) -> Optional[Record]:
    """The sentence with the most null rows in heads of cross attention that fire after its commas; the first of equals.

    Args:
        layer: the position of the layer in the dump
    Returns: None if no sentence that fits a heat map has such a head
    """
    best, most = None, 0
    for index in range(min(len(reader), _SEARCHED_SENTENCES)):
        record = reader[index]
        if record.target_length not in _FITTING_LENGTHS or record.source_length not in _FITTING_LENGTHS:
            continue
        after = rows_after_commas(reader.target_words(record))
        if not after:
            continue
        count = null_rows_of_comma_heads(null_rows(reader.weights(record, "cross")[layer]), after)
        if count > most:
            best, most = record, count
    return best
