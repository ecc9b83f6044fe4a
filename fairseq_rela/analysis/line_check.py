"""Whether the lines of a text are the pairs of a file of statistics or of a dump.

Pair i is line i. If pairs were left out between the text and fairseq's data, such as long ones, every later line would
get the score of another pair. Statistics have a checksum of every pair's text, and a dump has the text itself. A line
that was written in another way (with characters that sentencepiece changes, or that the dictionary does not know) has
another checksum than its pair. So a text is refused if one of its lines is the text of a pair close by, or if most of
its lines are not those of their pairs.

Statistics of version 0.1.0 have only the lengths: a sentence has at least as many pieces as words.
"""

from itertools import chain
from typing import Iterator, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.pair_features import is_dump
from fairseq_rela.analysis.splitting import line_count, text_pairs
from fairseq_rela.analysis.stats_blocks import stats_blocks
from fairseq_rela.dump.pair_text import pair_checksum
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

_MOST_LONGER = 0.01  # share of lines that may have more words than pieces: sentencepiece removes invisible characters
_MOST_DIFFERENT = 0.5  # share of lines that may have another checksum
_FEWEST_SEARCHED, _MOST_SEARCHED = 10, 1000  # pairs before and after a line that may be its text
_BLOCK_PAIRS = 4096  # of a dump


class _Described(NamedTuple):
    """Some pairs: their checksums, (n,) uint32, or else their lengths with </s>, (n, 2)."""

    ids: np.ndarray
    checksums: Optional[np.ndarray]
    lengths: np.ndarray


def check_lines(path: str, source: str, target: str) -> None:
    """InputError if the text is not that of the pairs in `path`. Memory is 4 bytes per line."""
    blocks = _described(path)
    first = next(blocks, None)
    if first is None:
        return
    lines = line_count(source)
    check = _check_lengths if first.checksums is None else _check_text
    text = progress(text_pairs(source, target), source, lines)
    wrong, why, pairs = check(path, chain([first], blocks), lines, text)
    if wrong:
        raise InputError(
            f"{source}, line {wrong}: {why}: the text ({lines} lines) is not that of the pairs ({pairs}); were pairs "
            f"left out before fairseq-preprocess?"
        )


def _described(path: str) -> Iterator[_Described]:
    if not is_dump(path):
        yield from (_Described(block.ids, block.checksums, block.lengths) for block in stats_blocks(path))
        return
    dump = AttentionDump(path)
    best = np.flatnonzero(dump.ranks == 0)
    for begin in range(0, len(best), _BLOCK_PAIRS):
        part = best[begin : begin + _BLOCK_PAIRS]
        checksums = [pair_checksum(record.source, record.target) for record in (dump[i] for i in part)]
        yield _Described(dump.ids[part], np.array(checksums, dtype=np.uint32), np.zeros((len(part), 2)))


_Text = Iterator[Tuple[bytes, bytes]]
_Finding = Tuple[int, str, int]  # the number of a line that is not its pair's or 0, why, and the number of pairs


def _check_text(path: str, blocks: Iterator[_Described], lines: int, text: _Text) -> _Finding:
    """Compares checksums. A line without a pair has 0; the rare pair with that checksum is not compared."""
    expected, pairs = np.zeros(lines, dtype=np.uint32), 0
    for block in blocks:
        pairs = max(pairs, 1 + int(block.ids.max(initial=-1)))
        inside = block.ids < lines
        expected[block.ids[inside]] = block.checksums[inside] if block.checksums is not None else 0
    searched = min(max(lines - pairs, _FEWEST_SEARCHED), _MOST_SEARCHED)
    different = first = 0
    for number, pair in enumerate(text):
        checksum = pair_checksum(*(side.decode("utf-8", "replace").split() for side in pair))
        if expected[number] in (0, checksum):
            continue
        different, first = different + 1, first or number + 1
        begin, end = max(number - searched, 0), number + searched + 1
        found = np.flatnonzero(expected[begin:end] == checksum)
        if checksum and len(found):
            why = f"is the text of pair {begin + int(found[-1])} of {path}, not of pair {number}"
            return number + 1, why, pairs
    compared = int(np.count_nonzero(expected))
    if different > _MOST_DIFFERENT * compared:
        why = f"is not the text of pair {first - 1} of {path}, and neither are {different} of {compared} lines"
        return first, why, pairs
    return 0, "", pairs


def _check_lengths(path: str, blocks: Iterator[_Described], lines: int, text: _Text) -> _Finding:
    """Compares numbers of words with numbers of pieces.

    A line with more words than its pair has pieces is wrong. If the text has more lines than there are pairs, one such
    line is an error. If it has as many, more than one line in a hundred must be wrong.
    """
    lengths, pairs = np.zeros((lines, 2), dtype=np.uint16), 0
    for block in blocks:
        pairs = max(pairs, 1 + int(block.ids.max(initial=-1)))
        inside = block.ids < lines
        lengths[block.ids[inside]] = np.minimum(block.lengths[inside], np.iinfo(np.uint16).max)
    compared = longer = first = 0
    for number, pair in enumerate(text):
        if not lengths[number, 0]:
            continue
        compared += 1
        if any(len(side.split()) >= length for side, length in zip(pair, lengths[number].tolist())):
            longer, first = longer + 1, first or number + 1
    if longer > (0 if lines > pairs else _MOST_LONGER * compared):
        why = f"has more words than pair {first - 1} of {path} has pieces, and so have {longer} of {compared} lines"
        return first, why, pairs
    return 0, "", pairs
