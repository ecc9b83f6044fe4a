"""Whether the lines of a text are the pairs of a file of statistics or of a dump.

Pair i is line i. If pairs were left out between the text and fairseq's data, such as long ones, every later line would
get the score of another pair. Statistics do not have the text, but they have the lengths: a sentence has at least as
many pieces as words.
"""

from typing import Iterator, Tuple

import numpy as np

from fairseq_rela.analysis.pair_features import is_dump
from fairseq_rela.analysis.splitting import line_count, text_pairs
from fairseq_rela.analysis.stats_blocks import stats_blocks
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

_MOST_LONGER = 0.01  # this share of lines may have more words than pieces: sentencepiece drops invisible characters


def pair_lengths(path: str, lines: int) -> Tuple[np.ndarray, int]:
    """(lengths, number of pairs) of a dump or a file of statistics.

    The lengths (lines, 2) uint16 are the numbers of pieces of source and target, with </s>, at the id of the pair. They
    are 0 where there is no pair. The number of pairs is the highest id plus 1. An id beyond `lines` takes no memory.
    """
    lengths, pairs = np.zeros((lines, 2), dtype=np.uint16), 0
    for ids, values in _lengths(path):
        pairs = max(pairs, 1 + int(ids.max(initial=-1)))
        inside = ids < lines
        lengths[ids[inside]] = np.minimum(values[inside], np.iinfo(np.uint16).max)
    return lengths, pairs


def _lengths(path: str) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
    if not is_dump(path):
        yield from ((block.ids, block.lengths) for block in stats_blocks(path))
        return
    for segment in AttentionDump(path).segments:
        index = segment.index[segment.index["rank"] == 0]
        yield index["id"].astype(np.int64), np.stack([index["source_length"], index["target_length"]], axis=1)


def check_lines(path: str, source: str, target: str) -> None:
    """InputError if the text cannot be that of the pairs in `path`.

    A line with more words than its pair has pieces is wrong. If the text has more lines than there are pairs, one such
    line is an error. If it has as many, more than one line in a hundred must be wrong.
    """
    lines = line_count(source)
    lengths, pairs = pair_lengths(path, lines)
    compared = longer = first = 0
    for number, pair in enumerate(progress(text_pairs(source, target), source, lines)):
        if not lengths[number, 0]:
            continue
        compared += 1
        words = [len(side.split()) for side in pair]
        if words[0] >= lengths[number, 0] or words[1] >= lengths[number, 1]:
            longer += 1
            first = first or number + 1
    if longer > (0 if lines > pairs else _MOST_LONGER * compared):
        raise InputError(
            f"{source}, line {first}: has more words than pair {first - 1} of {path} has pieces, and so have {longer} "
            f"of {compared} lines: the text ({lines} lines) is not that of the pairs ({pairs}); were pairs left "
            f"out before fairseq-preprocess?"
        )
