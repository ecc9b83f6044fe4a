"""Which sentences and heads the heat maps show unless a user chooses (Figures 7 to 9).

The paper shows heads 0, 2, 3 and 7 of its third cross-attention layer, and sentences in which heads that are mostly
null fire after a comma or after a verb. Layers and heads are counted from 0.
"""

from typing import Callable, List, Optional, Sequence

import numpy as np

from fairseq_rela.analysis.nulls import input_words
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.words import Words
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import null_rows

THIRD_LAYER = 2
PAPER_HEADS = (0, 2, 3, 7)
VERBS = frozenset(["VERB", "AUX"])  # tags
COMMAS = frozenset([",", "\uff0c", "\u3001", "\u060c"])  # also full-width, ideographic and Arabic
_SEARCHED_SENTENCES = 1000
_FITTING_LENGTHS = range(6, 31)  # tokens of a sentence that fits a heat map


def paper_heads(heads: int) -> List[int]:
    """The paper's heads, those that a layer of so many heads has."""
    return [head for head in PAPER_HEADS if head < heads]


Wanted = Callable[[Record, Words], Sequence[bool]]  # for each word of the target whether heads should fire after it


def commas(record: Record, target: Words) -> List[bool]:
    """Which words are commas or, in text without tokenisation, end in one."""
    return [text[-1:] in COMMAS for text in target.text]


def verbs(tags: Sequence[Sequence[str]]) -> Wanted:
    """Which words are verbs or auxiliaries by their tags; line i of `tags` belongs to sentence i."""
    return lambda record, target: [tag in VERBS for tag in tags[record.id]]


def rows_after(target: Words, wanted: Sequence[bool]) -> List[int]:
    """The queries whose input token ends a word that is `wanted`."""
    return [row for row, word in enumerate(input_words(target)) if word is not None and word >= 0 and wanted[word]]


def null_rows_of_firing_heads(nulls: np.ndarray, after: Sequence[int]) -> int:
    """How many rows are null, (H, T) → a number, in the heads that fire in all rows of `after`. 0 without such rows."""
    if not len(after):
        return 0
    fires = ~nulls[:, list(after)].any(axis=1)
    return int(nulls[fires].sum())


def example_sentence(reader: DumpReader, layer: int, wanted: Wanted = commas) -> Optional[Record]:
    """The sentence with the most null rows in heads of cross attention that fire after its commas; the first of equals.

    Args:
        layer: the position of the layer in the dump
        wanted: after which words the heads fire, `commas` or `verbs(tags)`
    Returns: None if no sentence that fits a heat map has such a head
    """
    best, most = None, 0
    for index in range(min(len(reader), _SEARCHED_SENTENCES)):
        record = reader[index]
        if record.target_length not in _FITTING_LENGTHS or record.source_length not in _FITTING_LENGTHS:
            continue
        target = reader.target_words(record)
        after = rows_after(target, wanted(record, target))
        if not after:
            continue
        count = null_rows_of_firing_heads(null_rows(reader.weights(record, "cross")[layer]), after)
        if count > most:
            best, most = record, count
    return best
