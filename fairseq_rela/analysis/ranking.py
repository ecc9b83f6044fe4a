"""Ranking the pairs of a corpus by score, with memory of two bits per line of the corpus.

The pairs are sorted on the disk: sorted runs are written to one file without a name, and merged.
"""

import heapq
import os
import tempfile
from types import TracebackType
from typing import Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type

import numpy as np

_RECORD = np.dtype([("score", "<f8"), ("id", "<i8")])
_RUN_PAIRS = 1 << 18  # that are sorted in memory at once, 4 MB
_READ_PAIRS = 1 << 8  # that are read at once from each run


class LineBits:
    """One bit per line of a text, all false at first."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self._bytes = bytearray((lines + 7) // 8)

    def __getitem__(self, line: int) -> bool:
        return bool(self._bytes[line >> 3] >> (line & 7) & 1)

    def __iter__(self) -> Iterator[bool]:
        return (self[line] for line in range(self.lines))

    def set(self, line: int) -> None:
        self._bytes[line >> 3] |= 1 << (line & 7)

    def set_all(self, lines: np.ndarray) -> Optional[int]:
        """Set the bits of `lines`, (n,) int. Returns a line that was set before or is there twice, or None."""
        unique, counts = np.unique(lines, return_counts=True)
        places, masks = unique >> 3, (1 << (unique & 7)).astype(np.uint8)
        view = np.frombuffer(self._bytes, dtype=np.uint8)
        twice = unique[(counts > 1) | ((view[places] & masks) != 0)]
        np.bitwise_or.at(view, places, masks)
        return int(twice[0]) if len(twice) else None


class ScoreSorter:
    """Sorts (score, id) by score, and equal scores by id. `directory` holds the file; the memory needed is constant."""

    def __init__(self, directory: Optional[str], run_pairs: int = _RUN_PAIRS) -> None:
        self.count = 0
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (open until `close`)
        self._run_pairs = run_pairs
        self._waiting: List[np.ndarray] = []
        self._waiting_pairs = 0
        self._runs: List[Tuple[int, int]] = []  # first and last record in the file

    def add(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Add pairs. A pair whose score is not a number is left out."""
        scored = ~np.isnan(scores)
        records = np.empty(int(scored.sum()), _RECORD)
        records["score"], records["id"] = scores[scored], ids[scored]
        self.count += len(records)
        self._waiting.append(records)
        self._waiting_pairs += len(records)
        if self._waiting_pairs >= self._run_pairs:
            self._write_run()

    def _write_run(self) -> None:
        records = np.concatenate(self._waiting)
        self._waiting, self._waiting_pairs = [], 0
        first = self._runs[-1][1] if self._runs else 0
        self._file.write(records[np.lexsort((records["id"], records["score"]))].tobytes())
        self._runs.append((first, first + len(records)))

    def __iter__(self) -> Iterator[Tuple[float, int]]:
        """(score, id) of all pairs, in order."""
        if self._waiting_pairs:
            self._write_run()
        self._file.flush()
        return heapq.merge(*(self._run(first, end) for first, end in self._runs))

    def _run(self, first: int, end: int) -> Iterator[Tuple[float, int]]:
        for begin in range(first, end, _READ_PAIRS):
            size = min(_READ_PAIRS, end - begin) * _RECORD.itemsize
            records = np.frombuffer(os.pread(self._file.fileno(), size, begin * _RECORD.itemsize), _RECORD)
            yield from zip(records["score"].tolist(), records["id"].tolist())

    def __enter__(self) -> "ScoreSorter":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self._file.close()


class Cut(NamedTuple):
    """Which pairs are kept: the share `keep` with the lowest scores, or those with at most `max_score`."""

    keep: Optional[float] = None
    max_score: Optional[float] = None


def write_ranking(ranked: Iterable[Tuple[float, int]], count: int, lines: int, cut: Cut, path: str) -> LineBits:
    """Write the ids and scores of `count` pairs, the best (lowest) first. Returns which of `lines` to keep.

    Of pairs with equal scores, those that come earlier in the text are kept first.
    """
    kept = LineBits(lines)
    most = count if cut.keep is None else round(cut.keep * count)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("id\tscore\n")
        for rank, (score, id) in enumerate(ranked):
            file.write(f"{id}\t{score:.6g}\n")
            if rank < most and (cut.max_score is None or score <= cut.max_score):
                kept.set(id)
    return kept
