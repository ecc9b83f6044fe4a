"""Null and sparsity rates of every sentence pair, without its weights: one line per pair in a TSV file.

    id  rank  source_length  target_length  checksum  encoder.0.null  encoder.0.sparsity  …  cross.5.sparsity

A rate is that of a layer over all its heads, in the positions that a query may see: no padding, no future. The null
rate is the share of queries whose weights are all 0. The sparsity rate is the share of weights that are 0. The checksum
says which text the pair is (see `pair_text`); files of version 0.1.0 have none. Memory does not grow with the number of
pairs.
"""

import contextlib
import os
import re
from functools import partial
from types import TracebackType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, TextIO, Tuple, Type

import numpy as np

from fairseq_rela.atomic import flush_to_disk, rename_without_replacing
from fairseq_rela.dump.files import check_ids
from fairseq_rela.dump.pair_text import CHECKSUM_BITS
from fairseq_rela.dump.segment import MOST_ID
from fairseq_rela.dump.zeros import null_and_sparsity
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS

PARTIAL = ".partial"
KEYS = ("id", "rank", "source_length", "target_length")
CHECKSUM = "checksum"
_COLUMN = re.compile(rf"({'|'.join(KINDS)})\.[0-9]{{1,4}}\.(null|sparsity)")
_LONGEST_LINE = 1_000_000  # characters


class PairStats(NamedTuple):
    """One line of the file. `rates` is, for example, {"cross.0.null": 0.25, …}."""

    id: int
    rank: int
    source_length: int
    target_length: int
    rates: Dict[str, float]
    checksum: Optional[int] = None


class StatsWriter:
    """Writes FILE.partial and renames it to FILE when it is closed, so a FILE that exists is complete.

        with StatsWriter("stats.tsv", {"cross": [0, 1, 2]}) as stats:
            stats.add(17, 12, 14, cross=weights)

    With `checksums`, each pair needs one (`pair_text.pair_checksum`).
    A killed run leaves FILE.partial, in which only the last line may be incomplete. Neither file is ever overwritten.
    `resume` continues FILE.partial. If FILE exists, there is nothing left to do. See `done`.
    """

    def __init__(
        self, path: str, layers: Mapping[str, Sequence[int]], resume: bool = False, checksums: bool = False
    ) -> None:
        """`layers`: for each kind of attention the numbers of its layers, counted from 0 (axis 0 of the weights)."""
        self.path = os.fspath(path)
        self._partial = self.path + PARTIAL
        self._layers = {kind: list(layers[kind]) for kind in KINDS if kind in layers}
        self._keys = key_columns(checksums)
        self._done: Set[Tuple[int, int]] = set()
        self.complete = os.path.exists(self.path)
        if self.complete:
            if not resume:
                raise InputError(f"{self.path}: exists already; name a new file")
            with open(self.path, encoding="utf-8", errors="replace") as file:
                self._check_header(self.path, file.readline())
            return
        self._file = self._resumed_file() if resume and os.path.exists(self._partial) else self._new_file()

    def _new_file(self) -> TextIO:
        try:
            file = open(self._partial, "x", encoding="utf-8", newline="\n")  # noqa: SIM115 (open until `close`)
        except FileExistsError:
            raise InputError(
                f"{self._partial}: left by a killed run, or being written now; remove it, or name another file"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._write_line([*self._keys, *self.columns], file)
        return file

    def _resumed_file(self) -> TextIO:
        """FILE.partial, open after its last complete line. Notes the pairs in it as done."""
        try:
            file = open(self._partial, "r+", encoding="utf-8", newline="\n")  # noqa: SIM115 (open until `close`)
            header = file.readline()
            if not header.endswith("\n") and "\t".join([*self._keys, *self.columns]).startswith(header):
                file.close()
                os.unlink(self._partial)  # killed before its first line was complete: it has no data
                return self._new_file()
            self._check_header(self._partial, header)
            end = len(header.encode())
            for number, line in enumerate(iter(file.readline, ""), start=2):
                if not line.endswith("\n"):
                    break
                pair = _parsed(self._partial, number, line, self._keys, self.columns)
                self._done.add((pair.id, pair.rank))
                end += len(line.encode())
            file.seek(end)
            file.truncate()
        except OSError as error:
            raise InputError(f"{self._partial}: {error.strerror}; remove it, or name another file") from None
        except UnicodeDecodeError:
            raise InputError(f"{self._partial}: not statistics of attention: not a text file") from None
        return file

    def _check_header(self, path: str, line: str) -> None:
        header = line.rstrip("\n").split("\t")
        self._keys = key_columns(CHECKSUM in header)  # a file of version 0.1.0 goes on without checksums
        if header != [*self._keys, *self.columns]:
            raise InputError(f"{path}: its statistics are of other kinds or layers of attention; name another file")

    def done(self, id: int, rank: int = 0) -> bool:
        """Whether a pair is in the file already, from the run that this one resumes."""
        return self.complete or (int(id), int(rank)) in self._done

    @property
    def columns(self) -> List[str]:
        """The names of the rates, in the order of the file."""
        return [
            f"{kind}.{layer}.{rate}"
            for kind, layers in self._layers.items()
            for layer in layers
            for rate in ("null", "sparsity")
        ]

    def add(
        self,
        id: int,
        source_length: int,
        target_length: int,
        encoder: Optional[np.ndarray] = None,
        decoder: Optional[np.ndarray] = None,
        cross: Optional[np.ndarray] = None,
        rank: int = 0,
        checksum: Optional[int] = None,
    ) -> None:
        """Add a pair by its weights: encoder (L,H,S,S), decoder (L,H,T,T), cross (L,H,T,S), for the kinds recorded."""
        rates: List[float] = []
        for kind, weights in zip(KINDS, (encoder, decoder, cross)):
            if (weights is not None) != (kind in self._layers):
                raise InputError(f"{self.path}: pair {id}: {kind} weights must be given if and only if it has layers")
            if weights is not None:
                null, sparsity = null_and_sparsity(np.asarray(weights), kind)
                rates += np.stack([null, sparsity], axis=1).ravel().tolist()
        self.add_rates(id, source_length, target_length, rates, rank, checksum)

    def add_rates(
        self,
        id: int,
        source_length: int,
        target_length: int,
        rates: Sequence[float],
        rank: int = 0,
        checksum: Optional[int] = None,
    ) -> None:
        """Add a pair by rates that were computed elsewhere, in the order of `columns`."""
        if len(rates) != 2 * sum(map(len, self._layers.values())):
            raise InputError(f"{self.path}: pair {id} has {len(rates)} rates for the columns {', '.join(self.columns)}")
        check_ids(self.path, id, rank)
        keys = [str(key) for key in (id, rank, source_length, target_length)]
        if CHECKSUM in self._keys:
            if checksum is None:
                raise InputError(f"{self.path}: pair {id} has no checksum, but the others have")
            keys.append(str(checksum))
        self._write_line([*keys, *(f"{rate:.6g}" for rate in rates)], self._file)

    def _write_line(self, fields: List[str], file: TextIO) -> None:
        try:
            file.write("\t".join(fields) + "\n")
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> InputError:
        return InputError(f"{self._partial}: {error.strerror}; free some space, remove this file and run again")

    def flush(self) -> None:
        """Hand the lines to the operating system, so that they stay if this process is killed."""
        if self.complete or self._file.closed:
            return
        try:
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Finish the file and give it its final name."""
        if self.complete or self._file.closed:
            return
        try:
            with self._file:
                flush_to_disk(self._file)
            rename_without_replacing(self._partial, self.path)
        except FileExistsError:
            raise InputError(
                f"{self.path}: was written by another process and stays; "
                f"the statistics of this run are in {self._partial}"
            ) from None
        except OSError as error:
            raise self._failed(error) from None
        self.complete = True

    def abandon(self) -> None:
        """Stop before the file is complete. It stays FILE.partial."""
        if not self.complete:
            with contextlib.suppress(OSError):  # a full disk, which was reported before
                self._file.close()

    def __enter__(self) -> "StatsWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def read_stats(path: str) -> Iterator[PairStats]:
    """The lines of a file, one at a time. An incomplete last line of a FILE.partial is left out."""
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            header = file.readline(_LONGEST_LINE).rstrip("\n").split("\t")
            keys = check_columns(path, header)
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), ""), start=2):
                if not line.endswith("\n") and path.endswith(PARTIAL):
                    return
                yield _parsed(path, number, line, keys, header[len(keys) :])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not statistics of attention: not a text file") from None


def key_columns(checksums: bool) -> Tuple[str, ...]:
    """The columns before the rates."""
    return (*KEYS, CHECKSUM) if checksums else KEYS


def _whole_number(field: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", field):
        raise ValueError(f"{field[:40]!r} is not a whole number from 0 to {MOST_ID}")
    return int(field)


def _checksum(field: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", field) or int(field) >> CHECKSUM_BITS:
        raise ValueError(f"{field[:40]!r} is not a checksum of {CHECKSUM_BITS} bits")
    return int(field)


def check_columns(path: str, header: List[str]) -> Tuple[str, ...]:
    """The columns before the rates. InputError unless these are the column names of statistics, each once."""
    if tuple(header[: len(KEYS)]) != KEYS:
        raise InputError(f"{path}, line 1: not statistics of attention: does not begin with {' '.join(KEYS)}")
    keys = key_columns(header[len(KEYS) : len(KEYS) + 1] == [CHECKSUM])
    columns = header[len(keys) :]
    for name in columns:
        if not _COLUMN.fullmatch(name):
            raise InputError(
                f"{path}, line 1: {name[:40]!r} is not the name of a column; cross.0.null and cross.0.sparsity are"
            )
    if len(set(columns)) < len(columns):
        twice = next(name for number, name in enumerate(columns) if name in columns[:number])
        raise InputError(f"{path}, line 1: the column {twice} occurs twice; each name should occur once")
    return keys


def _parsed(path: str, number: int, line: str, keys: Sequence[str], columns: List[str]) -> PairStats:
    fields = line.rstrip("\n").split("\t")
    expected = len(keys) + len(columns)
    if not line.endswith("\n") or len(fields) != expected:
        raise InputError(f"{path}, line {number}: truncated or changed: {len(fields)} fields, not {expected}")
    try:
        id, rank, source_length, target_length = (_whole_number(field) for field in fields[: len(KEYS)])
        checksum = _checksum(fields[len(KEYS)]) if CHECKSUM in keys else None
        rates = dict(zip(columns, (float(field) for field in fields[len(keys) :])))
    except ValueError as error:
        raise InputError(f"{path}, line {number}: {str(error)[:120]}") from None
    return PairStats(id, rank, source_length, target_length, rates, checksum)
