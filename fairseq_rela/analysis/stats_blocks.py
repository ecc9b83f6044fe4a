"""The null rates in a file of statistics (`--attn-dump-stats`), a block of lines at a time: millions in seconds.

`recording.stats.read_stats` reads such a file a line at a time and makes numbers of all of it; that is most of the
time. Here only the columns that are asked for become numbers, the others are checked for characters no number has.
"""

from array import array
from itertools import chain
from operator import itemgetter
from typing import Iterator, List, NamedTuple, Tuple

import numpy as np

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.errors import InputError
from fairseq_rela.recording.stats import PARTIAL, read_stats

_KEYS = ("id", "rank", "source_length", "target_length")
_IN_NUMBERS = b"0123456789.eE+-\t\n"
_BLOCK_BYTES = 1 << 20
_MOST_PAIRS = 10**9  # an id past this is a slip, and would ask for memory by it


class StatsBlock(NamedTuple):
    """Some lines of the file; of several hypotheses of a sentence only the best (rank 0)."""

    ids: np.ndarray  # (n,) int
    lengths: np.ndarray  # (n, 2): source, target
    null: np.ndarray  # (n, L): null rates of cross attention
    lines: np.ndarray  # (n,) their numbers, from 1


def cross_layers(path: str) -> Tuple[int, ...]:
    """The layers whose null rate of cross attention the file has."""
    return tuple(int(name.split(".")[1]) for name in _null_columns(_header(path)))


def _header(path: str) -> List[str]:
    header = next(text_lines(path), (1, ""))[1].split("\t")
    if tuple(header[: len(_KEYS)]) != _KEYS:
        raise InputError(f"{path}, line 1: not statistics of attention: does not begin with {' '.join(_KEYS)}")
    if not _null_columns(header):
        raise InputError(f"{path}, line 1: no null rates of cross attention (columns as cross.0.null)")
    return header


def _null_columns(header: List[str]) -> List[str]:
    return [name for name in header if name.startswith("cross.") and name.endswith(".null")]


def stats_blocks(path: str) -> Iterator[StatsBlock]:
    """The file in blocks. InputError names the line where something is not as it must be."""
    header = _header(path)
    names = [*_KEYS, *_null_columns(header)]
    wanted = itemgetter(*(header.index(name) for name in names))
    seen = bytearray()  # a byte a pair, not a set: there may be millions
    with open(path, "rb") as file:
        file.readline()
        first = 2
        while True:
            lines = file.readlines(_BLOCK_BYTES)
            if lines and not lines[-1].endswith(b"\n") and path.endswith(PARTIAL):
                lines.pop()  # cut short when the run was killed
            if not lines:
                break
            fields = [line.split(b"\t") for line in lines]
            _check(path, first, lines, fields, len(header))
            try:
                flat = array("d", map(float, chain.from_iterable(map(wanted, fields))))
            except ValueError:
                _explain(path)
            numbers = np.frombuffer(flat, dtype=np.float64).reshape(len(lines), len(names))
            yield _block(path, numbers, names, first, seen)
            first += len(lines)
    if first == 2:
        raise InputError(f"{path}: has no pair, only a heading")


def _check(path: str, first: int, lines: List[bytes], fields: List[List[bytes]], columns: int) -> None:
    if b"".join(lines).translate(None, _IN_NUMBERS):
        for number, parts in enumerate(fields, first):
            for part in parts:
                if part.translate(None, _IN_NUMBERS):
                    said = part.rstrip(b"\n").decode("utf-8", "replace")[:40]
                    raise InputError(f"{path}, line {number}: {said!r} is no number")
    if set(map(len, fields)) != {columns} or not lines[-1].endswith(b"\n"):
        _explain(path)


def _explain(path: str) -> None:
    """Read the file again, carefully: that says which line is wrong and how."""
    for _ in read_stats(path):
        pass
    raise InputError(f"{path}: cannot be read")


def _block(path: str, numbers: np.ndarray, names: List[str], first: int, seen: bytearray) -> StatsBlock:
    lines = np.arange(first, first + len(numbers))
    rates = numbers[:, len(_KEYS) :]
    wrong = ~((rates >= 0) & (rates <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        name, value = names[len(_KEYS) + column], rates[row, column]
        raise InputError(f"{path}, line {lines[row]}: {name} is {value:g}; a null rate is between 0 and 1")
    keys = numbers[:, : len(_KEYS)]
    wrong = ~((keys >= 0) & (keys < _MOST_PAIRS) & (keys == np.floor(keys)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(f"{path}, line {lines[row]}: {names[column]} cannot be {keys[row, column]:g}")
    best = keys[:, 1] == 0
    ids = keys[best, 0].astype(np.int64)
    _check_new(path, ids, lines[best], seen)
    return StatsBlock(ids, keys[best, 2:].astype(np.int64), rates[best], lines[best])


def _check_new(path: str, ids: np.ndarray, lines: np.ndarray, seen: bytearray) -> None:
    """InputError if one of `ids` was there before; then they are noted in `seen`."""
    most = int(ids.max(initial=-1)) + 1
    if most > len(seen):
        seen.extend(bytes(max(most - len(seen), len(seen))))
    noted = np.frombuffer(seen, dtype=np.uint8)
    times = np.unique(ids, return_counts=True)[1]
    if noted[ids].any() or (times > 1).any():
        before = set(np.flatnonzero(noted).tolist())
        for number, line in zip(ids.tolist(), lines.tolist()):
            if number in before:
                raise InputError(f"{path}, line {line}: pair {number} is there twice")
            before.add(number)
    noted[ids] = 1
