"""The null rates in a file of statistics (`--attn-dump-stats`), one block at a time: millions of pairs in seconds.

`dump.statistics.read_stats` reads such a file line by line and parses every number, which takes most of the time.
Here only the null rates are parsed. The other columns are only checked for characters that are not in numbers.
"""

import io
from array import array
from itertools import chain
from operator import itemgetter
from typing import Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.lines import LONGEST_LINE, text_lines
from fairseq_rela.dump.pair_text import CHECKSUM_BITS
from fairseq_rela.dump.segment import MOST_ID
from fairseq_rela.dump.statistics import CHECKSUM, KEYS, PARTIAL, check_columns, read_stats
from fairseq_rela.errors import InputError
from fairseq_rela.inputs import require_file

_IN_NUMBERS = b"0123456789.eE+-\t\n"
_BLOCK_BYTES = 1 << 20
_MOST_PAIRS = MOST_ID + 1  # a larger id is a mistake


class StatsBlock(NamedTuple):
    """Some lines of the file. Of several hypotheses only the best (rank 0) is there."""

    ids: np.ndarray  # (n,) int
    lengths: np.ndarray  # (n, 2): source, target
    null: np.ndarray  # (n, L): null rates of cross attention
    lines: np.ndarray  # (n,) their numbers, from 1
    checksums: Optional[np.ndarray]  # (n,) uint32, which text each pair is; None in files of version 0.1.0


def cross_layers(path: str) -> Tuple[int, ...]:
    """The layers whose null rate of cross attention the file has."""
    return tuple(int(name.split(".")[1]) for name in _null_columns(_header(path)))


def _header(path: str) -> List[str]:
    require_file(path)
    header = next(text_lines(path), (1, ""))[1].split("\t")
    check_columns(path, header)
    if not _null_columns(header):
        raise InputError(f"{path}, line 1: no null rates of cross attention (columns as cross.0.null)")
    return header


def _null_columns(header: List[str]) -> List[str]:
    return [name for name in header if name.startswith("cross.") and name.endswith(".null")]


def stats_blocks(path: str) -> Iterator[StatsBlock]:
    """The file in blocks. InputError names the wrong line. A pair that occurs twice is not noticed here."""
    header = _header(path)
    names = [*KEYS, *(name for name in header if name == CHECKSUM), *_null_columns(header)]
    wanted = itemgetter(*(header.index(name) for name in names))
    with open(path, "rb") as file:
        file.readline()
        first = 2
        while True:
            lines = io.BytesIO(file.read(_BLOCK_BYTES) + file.readline(LONGEST_LINE)).readlines()
            if lines and not lines[-1].endswith(b"\n") and path.endswith(PARTIAL):
                lines.pop()  # incomplete, because the run was killed
            if not lines:
                break
            fields = [line.split(b"\t") for line in lines]
            _check(path, first, lines, fields, len(header))
            try:
                flat = array("d", map(float, chain.from_iterable(map(wanted, fields))))
            except ValueError:
                _explain(path)
            numbers = np.frombuffer(flat, dtype=np.float64).reshape(len(lines), len(names))
            yield _block(path, numbers, names, first)
            first += len(lines)
    if first == 2:
        raise InputError(f"{path}: has no pair, only a heading")


def _check(path: str, first: int, lines: List[bytes], fields: List[List[bytes]], columns: int) -> None:
    if b"".join(lines).translate(None, _IN_NUMBERS):
        for number, parts in enumerate(fields, first):
            for part in parts:
                if part.translate(None, _IN_NUMBERS):
                    text = part.rstrip(b"\n").decode("utf-8", "replace")[:40]
                    raise InputError(f"{path}, line {number}: {text!r} is not a number")
    if set(map(len, fields)) != {columns} or not lines[-1].endswith(b"\n"):
        _explain(path)


def _explain(path: str) -> None:
    """Read the file again with `read_stats`, which says which line is wrong and why."""
    for _ in read_stats(path):
        pass
    raise InputError(f"{path}: cannot be read")


def _block(path: str, numbers: np.ndarray, names: List[str], first: int) -> StatsBlock:
    lines = np.arange(first, first + len(numbers))
    keys, others = numbers[:, : len(KEYS)], numbers[:, len(KEYS) :]
    _check_whole(path, keys, names, lines, _MOST_PAIRS)
    checksums = None
    if CHECKSUM in names:
        _check_whole(path, others[:, :1], [CHECKSUM], lines, 1 << CHECKSUM_BITS)
        checksums, others = others[:, 0].astype(np.uint32), others[:, 1:]
    wrong = ~((others >= 0) & (others <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        name, value = names[column - others.shape[1]], others[row, column]
        raise InputError(f"{path}, line {lines[row]}: {name} is {value:g}; a null rate is between 0 and 1")
    best = keys[:, 1] == 0
    ids, lengths = keys[best, 0].astype(np.int64), keys[best, 2:].astype(np.int64)
    return StatsBlock(ids, lengths, others[best], lines[best], None if checksums is None else checksums[best])


def _check_whole(path: str, values: np.ndarray, names: List[str], lines: np.ndarray, end: int) -> None:
    """InputError unless all are whole numbers from 0 to before `end`."""
    wrong = ~((values >= 0) & (values < end) & (values == np.floor(values)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(f"{path}, line {lines[row]}: {names[column]} cannot be {values[row, column]:g}")
