"""Whether the lines of a text are the pairs of a file of statistics or of a dump.

Pair i is line i. If pairs were left out between the text and fairseq's data, such as long ones, every later line would
get the score of another pair. Statistics have a checksum of every pair's text, and a dump has the text itself. A line
that was written in another way (with characters that sentencepiece changes, or that the dictionary does not know) has
another checksum than its pair. So a text is refused if one of its lines is the text of a pair close by, or if most of
its lines are not those of their pairs.

Statistics of version 0.1.0 have only the lengths: a sentence has at least as many pieces as words.
"""

from itertools import chain, count
from typing import Iterable, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.disk_sorter import DiskSorter
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
_WINDOW = 1 << 16  # lines whose values are in memory at once
_LENGTH_BITS = 16
_MOST_LENGTH = (1 << _LENGTH_BITS) - 1
_END = (float("inf"), 0)  # after the last value


class _Described(NamedTuple):
    """Some pairs: their ids and what is compared, both (n,): checksums, or else lengths with </s> as one number."""

    ids: np.ndarray
    values: np.ndarray
    have_text: bool  # whether the values are checksums


class _Expected:
    """The values of all pairs in the order of the lines, from a file on the disk: a line without a pair has 0."""

    def __init__(self, blocks: Iterable[_Described], lines: int, sorter: DiskSorter) -> None:
        self.pairs = self.compared = 0
        for block in blocks:
            self.pairs = max(self.pairs, 1 + int(block.ids.max(initial=-1)))
            inside = block.ids < lines
            self.compared += int(np.count_nonzero(block.values[inside]))
            sorter.add(block.ids[inside], block.values[inside])
        self._sorter = sorter

    def windows(self, searched: int) -> Iterator[np.ndarray]:
        """For each _WINDOW lines, the values of these lines, of `searched` lines before and of as many after them."""
        sorted_values = iter(self._sorter)
        line, value = next(sorted_values, _END)
        window = np.zeros(_WINDOW + 2 * searched, dtype=np.int64)
        for begin in count(-searched, _WINDOW):
            window[: 2 * searched] = window[_WINDOW:]
            window[2 * searched :] = 0
            while line < begin + len(window):
                window[int(line) - begin] = value
                line, value = next(sorted_values, _END)
            yield window


def check_lines(path: str, source: str, target: str, directory: Optional[str] = None) -> None:
    """InputError if the text is not that of the pairs in `path`.

    The memory needed is constant. `directory` holds 16 bytes per pair meanwhile, in a file that has no name.
    """
    blocks = _described(path)
    first = next(blocks, None)
    if first is None:
        return
    lines = line_count(source)
    check = _check_text if first.have_text else _check_lengths
    with DiskSorter(directory) as sorter:
        expected = _Expected(chain([first], blocks), lines, sorter)
        text = progress(text_pairs(source, target), source, lines)
        wrong, why = check(path, expected, lines, text)
    if wrong:
        raise InputError(
            f"{source}, line {wrong}: {why}: the text ({lines} lines) is not that of the pairs ({expected.pairs}); "
            f"were pairs left out before fairseq-preprocess?"
        )


def _described(path: str) -> Iterator[_Described]:
    if not is_dump(path):
        for block in stats_blocks(path):
            if block.checksums is None:
                yield _Described(block.ids, _packed(block.lengths), False)
            else:
                yield _Described(block.ids, block.checksums, True)
        return
    dump = AttentionDump(path)
    best = np.flatnonzero(dump.ranks == 0)
    for begin in range(0, len(best), _BLOCK_PAIRS):
        part = best[begin : begin + _BLOCK_PAIRS]
        checksums = [pair_checksum(record.source, record.target) for record in (dump[i] for i in part)]
        yield _Described(dump.ids[part], np.array(checksums, dtype=np.int64), True)


def _packed(lengths: np.ndarray) -> np.ndarray:
    """(n,): the two lengths of each pair, (n, 2), as one number."""
    bounded = np.minimum(lengths, _MOST_LENGTH)
    return bounded[:, 0] << _LENGTH_BITS | bounded[:, 1]


_Text = Iterator[Tuple[bytes, bytes]]
_Finding = Tuple[int, str]  # the number of a line that is not its pair's, or 0, and why


def _compared(expected: _Expected, text: _Text, searched: int) -> Iterator[Tuple[int, Tuple[bytes, bytes], np.ndarray]]:
    """(line, its text, the values of the lines around it) for each line that has a pair; its own is in the middle."""
    windows = expected.windows(searched)
    for line, pair in enumerate(text):
        place = line % _WINDOW
        if place == 0:
            window = next(windows)
        if window[place + searched]:
            yield line, pair, window[place : place + 2 * searched + 1]


def _check_text(path: str, expected: _Expected, lines: int, text: _Text) -> _Finding:
    """Compares checksums. The rare pair with the checksum 0 is not compared."""
    searched = min(max(lines - expected.pairs, _FEWEST_SEARCHED), _MOST_SEARCHED)
    different = first = 0
    for line, pair, around in _compared(expected, text, searched):
        checksum = pair_checksum(*(side.decode("utf-8", "replace").split() for side in pair))
        if around[searched] == checksum:
            continue
        different, first = different + 1, first or line + 1
        found = np.flatnonzero(around == checksum)
        if checksum and len(found):
            return line + 1, f"is the text of pair {line - searched + int(found[-1])} of {path}, not of pair {line}"
    if different > _MOST_DIFFERENT * expected.compared:
        compared = f"{different} of {expected.compared} lines"
        return first, f"is not the text of pair {first - 1} of {path}, and neither are {compared}"
    return 0, ""


def _check_lengths(path: str, expected: _Expected, lines: int, text: _Text) -> _Finding:
    """Compares numbers of words with numbers of pieces.

    A line with more words than its pair has pieces is wrong. If the text has more lines than there are pairs, one such
    line is an error. If it has as many, more than one line in a hundred must be wrong.
    """
    longer = first = 0
    for line, pair, (lengths,) in _compared(expected, text, 0):
        if any(len(side.split()) >= length for side, length in zip(pair, divmod(int(lengths), 1 << _LENGTH_BITS))):
            longer, first = longer + 1, first or line + 1
    if longer > (0 if lines > expected.pairs else _MOST_LONGER * expected.compared):
        compared = f"{longer} of {expected.compared} lines"
        return first, f"has more words than pair {first - 1} of {path} has pieces, and so have {compared}"
    return 0, ""
