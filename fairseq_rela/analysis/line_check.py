"""Whether the lines of a text are the pairs of a file of statistics or of a dump.

Pair i is line i. If pairs were left out between the text and fairseq's data, such as long ones, every later line would
get the score of another pair. Statistics do not have the text, but they have the lengths: a sentence has at least as
many pieces as words.
"""

from typing import Iterator, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.pair_features import is_dump
from fairseq_rela.analysis.ranking import ScoreSorter
from fairseq_rela.analysis.splitting import line_count, text_pairs
from fairseq_rela.analysis.stats_blocks import stats_blocks
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

_BITS = 31  # of a length
_MOST_LONGER = 0.01  # share of lines that may have more words than pieces: sentencepiece removes invisible characters


def _lengths(path: str) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
    """(ids, the pieces of source and target with </s>), block by block."""
    if not is_dump(path):
        yield from ((block.ids, block.lengths) for block in stats_blocks(path))
        return
    for segment in AttentionDump(path).segments:
        index = segment.index[segment.index["rank"] == 0]
        yield index["id"].astype(np.int64), np.stack([index["source_length"], index["target_length"]], axis=1)


def _lengths_by_id(path: str, sorter: ScoreSorter) -> Tuple[Iterator[Tuple[int, int, int]], int]:
    """(id, pieces of the source, of the target) in the order of ids, and the highest id and 1. Sorted on the disk."""
    pairs = 0
    for ids, lengths in _lengths(path):
        pairs = max(pairs, 1 + int(ids.max(initial=-1)))
        sorter.add(lengths[:, 0] << _BITS | lengths[:, 1], ids.astype(np.float64))  # every id fits exactly
    return ((int(id), packed >> _BITS, packed & (1 << _BITS) - 1) for id, packed in sorter), pairs


def check_lines(path: str, source: str, target: str, directory: Optional[str] = None) -> None:
    """InputError if the text cannot be that of the pairs in `path`. `directory` is where the pairs are sorted.

    Where the text has more lines than there are pairs, one line with more words than its pair has pieces is enough to
    refuse. Where it has as many, one in a hundred is.
    """
    lines = line_count(source)
    compared = longer = first = 0
    with ScoreSorter(directory) as sorter:
        lengths, pairs = _lengths_by_id(path, sorter)
        id, pieces = -1, [0, 0]
        for number, pair in enumerate(progress(text_pairs(source, target), source, lines)):
            while id < number:
                id, *pieces = next(lengths, (lines, 0, 0))
            if id != number or not pieces[0]:
                continue
            compared += 1
            if any(len(side.split()) >= most for side, most in zip(pair, pieces)):
                longer += 1
                first = first or number + 1
    if longer > (0 if lines > pairs else _MOST_LONGER * compared):
        raise InputError(
            f"{source}, line {first}: has more words than pair {first - 1} of {path} has pieces, and so have {longer} "
            f"of {compared} lines: the text ({lines} lines) is not that of the pairs ({pairs}); were pairs left "
            f"out before fairseq-preprocess?"
        )
