"""Null and sparsity rates of every pair without its matrices: a line of a TSV file each, memory constant.

    id  rank  source_length  target_length  encoder.0.null  encoder.0.sparsity  …  cross.5.null  cross.5.sparsity

The rates are a layer's, over its heads, of the positions a query may see: no padding, no future.
The null rate is the share of queries whose weights are all 0, the sparsity rate the share of weights that are.
"""

import contextlib
import os
from types import TracebackType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, TextIO, Tuple, Type

import numpy as np

from fairseq_rela.atomic import rename_new
from fairseq_rela.errors import InputError
from fairseq_rela.recording.info import KINDS
from fairseq_rela.recording.segment import is_nonzero

PARTIAL = ".partial"
_KEYS = ("id", "rank", "source_length", "target_length")


def null_and_sparsity(weights: np.ndarray, causal: bool = False) -> Tuple[np.ndarray, np.ndarray]:
    """(L, H, queries, keys) → the null rate and the sparsity rate of each layer, (L,) each; NaN without a query.

    `causal`: query t sees keys 0 to t only, whatever is stored behind them.
    """
    layers, heads, queries, keys = weights.shape
    nonzero = is_nonzero(weights)
    visible = queries * keys
    if causal:
        lower = np.tri(queries, keys, dtype=bool)
        nonzero &= lower
        visible = int(lower.sum())
    rows = nonzero.any(axis=-1)  # (L, H, queries)
    null = share_of_zeros(np.count_nonzero(rows, axis=(1, 2)), heads * queries)
    return null, share_of_zeros(np.count_nonzero(nonzero.reshape(layers, -1), axis=1), heads * visible)


def share_of_zeros(nonzero: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Counts → rates, float64; NaN where there is nothing to count."""
    with np.errstate(invalid="ignore"):
        return 1 - np.asarray(nonzero) / np.asarray(total, np.float64)


class PairStats(NamedTuple):
    """A line of the file. `rates`: e.g. {"cross.0.null": 0.25, …}."""

    id: int
    rank: int
    source_length: int
    target_length: int
    rates: Dict[str, float]


class StatsWriter:
    """Writes FILE.partial, which becomes FILE when it is closed: a FILE that exists is complete.

        with StatsWriter("stats.tsv", {"cross": [0, 1, 2]}) as stats:
            stats.add(17, 12, 14, cross=weights)

    A killed run leaves FILE.partial, whole lines but perhaps the last. Neither is overwritten; `resume` goes on
    with FILE.partial, and with a FILE that is there it has nothing left to do. See `done`.
    """

    def __init__(self, path: str, layers: Mapping[str, Sequence[int]], resume: bool = False) -> None:
        """`layers`: for each kind of attention, the layers there will be weights of (axis 0), counted from 0."""
        self.path = os.fspath(path)
        self._partial = self.path + PARTIAL
        self._layers = {kind: list(layers[kind]) for kind in KINDS if kind in layers}
        self._done: Set[Tuple[int, int]] = set()
        self.complete = os.path.exists(self.path)
        if self.complete:
            if not resume:
                raise InputError(f"{self.path}: there already; name a file that is not")
            with open(self.path, encoding="utf-8", errors="replace") as file:
                self._check_header(self.path, file.readline())
            return
        self._file = self._resumed() if resume and os.path.exists(self._partial) else self._begun()

    def _begun(self) -> TextIO:
        try:
            file = open(self._partial, "x", encoding="utf-8", newline="\n")  # noqa: SIM115 (open until `close`)
        except FileExistsError:
            raise InputError(
                f"{self._partial}: left by a run that was killed, or being written; remove it, or name another file"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._write_line([*_KEYS, *self.columns], file)
        return file

    def _resumed(self) -> TextIO:
        """FILE.partial open behind its last whole line, and what it holds in `_done`."""
        try:
            file = open(self._partial, "r+", encoding="utf-8", newline="\n")  # noqa: SIM115 (open until `close`)
            header = file.readline()
            if not header.endswith("\n"):
                file.close()
                os.unlink(self._partial)  # killed before its first line was whole: there is nothing in it
                return self._begun()
            self._check_header(self._partial, header)
            end = len(header.encode())
            for number, line in enumerate(iter(file.readline, ""), start=2):
                if not line.endswith("\n"):
                    break
                pair = _parse(self._partial, number, line, self.columns)
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
        if line.rstrip("\n").split("\t") != [*_KEYS, *self.columns]:
            raise InputError(f"{path}: not statistics of these kinds and layers of attention; name another file")

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
    ) -> None:
        """Add a pair by its weights: encoder (L,H,S,S), decoder (L,H,T,T), cross (L,H,T,S), the kinds with layers."""
        rates: List[float] = []
        for kind, weights in zip(KINDS, (encoder, decoder, cross)):
            if (weights is not None) != (kind in self._layers):
                raise InputError(f"{self.path}: pair {id}: {kind} weights must be given if and only if it has layers")
            if weights is not None:
                null, sparsity = null_and_sparsity(np.asarray(weights), causal=kind == "decoder")
                rates += np.stack([null, sparsity], axis=1).ravel().tolist()
        self.add_rates(id, source_length, target_length, rates, rank)

    def add_rates(
        self, id: int, source_length: int, target_length: int, rates: Sequence[float], rank: int = 0
    ) -> None:
        """Add a pair by rates that were computed elsewhere, in the order of `columns`."""
        if len(rates) != 2 * sum(map(len, self._layers.values())):
            raise InputError(f"{self.path}: pair {id} has {len(rates)} rates for the columns {', '.join(self.columns)}")
        keys = map(str, (id, rank, source_length, target_length))
        self._write_line([*keys, *(f"{rate:.6g}" for rate in rates)], self._file)

    def _write_line(self, fields: List[str], file: TextIO) -> None:
        try:
            file.write("\t".join(fields) + "\n")
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> InputError:
        return InputError(f"{self._partial}: {error.strerror}; make room, remove it and run again")

    def close(self) -> None:
        """The file is complete: give it its name."""
        if self.complete or self._file.closed:
            return
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            rename_new(self._partial, self.path)
        except FileExistsError:
            raise InputError(
                f"{self.path}: came to be meanwhile and stays; the statistics of this run are in {self._partial}"
            ) from None
        except OSError as error:
            raise self._failed(error) from None
        self.complete = True

    def abandon(self) -> None:
        """The file is not complete and will not be: it stays FILE.partial."""
        if not self.complete:
            with contextlib.suppress(OSError):  # of a full disk, which has been told
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
    """The lines of a file, one at a time. Of a FILE.partial, a last line that was cut short is left out."""
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            header = file.readline().rstrip("\n").split("\t")
            if tuple(header[: len(_KEYS)]) != _KEYS:
                raise InputError(f"{path}: not statistics of attention: line 1 does not begin with {' '.join(_KEYS)}")
            for number, line in enumerate(file, start=2):
                if not line.endswith("\n") and path.endswith(PARTIAL):
                    return
                yield _parse(path, number, line, header[len(_KEYS) :])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not statistics of attention: not a text file") from None


def _parse(path: str, number: int, line: str, columns: List[str]) -> PairStats:
    fields = line.rstrip("\n").split("\t")
    expected = len(_KEYS) + len(columns)
    if not line.endswith("\n") or len(fields) != expected:
        raise InputError(f"{path}, line {number}: cut short or changed: {len(fields)} fields, not {expected}")
    try:
        id, rank, source_length, target_length = (int(field) for field in fields[: len(_KEYS)])
        rates = dict(zip(columns, (float(field) for field in fields[len(_KEYS) :])))
    except ValueError as error:
        raise InputError(f"{path}, line {number}: {error}") from None
    return PairStats(id, rank, source_length, target_length, rates)
