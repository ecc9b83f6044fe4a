"""Sorting more records than fit into memory: sorted runs are written to one file without a name, and merged."""

import heapq
import os
import tempfile
from types import TracebackType
from typing import Iterator, List, Optional, Tuple, Type

import numpy as np

_RECORD = np.dtype([("key", "<f8"), ("value", "<i8")])
_RUN_RECORDS = 1 << 18  # that are sorted in memory at once, 4 MB
_READ_RECORDS = 1 << 8  # that are read at once from each run


class DiskSorter:
    """Sorts (key, value) by key, and equal keys by value. `directory` holds the file; the memory needed is constant."""

    def __init__(self, directory: Optional[str], run_records: int = _RUN_RECORDS) -> None:
        self.count = 0
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (open until `close`)
        self._run_records = run_records
        self._waiting: List[np.ndarray] = []
        self._waiting_records = 0
        self._runs: List[Tuple[int, int]] = []  # first and last record in the file

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Add (n,) keys with their (n,) whole values. What has the key NaN is left out."""
        known = ~np.isnan(keys)
        records = np.empty(int(known.sum()), _RECORD)
        records["key"], records["value"] = keys[known], values[known]
        self.count += len(records)
        self._waiting.append(records)
        self._waiting_records += len(records)
        if self._waiting_records >= self._run_records:
            self._write_run()

    def _write_run(self) -> None:
        records = np.concatenate(self._waiting)
        self._waiting, self._waiting_records = [], 0
        first = self._runs[-1][1] if self._runs else 0
        self._file.write(records[np.lexsort((records["value"], records["key"]))].tobytes())
        self._runs.append((first, first + len(records)))

    def __iter__(self) -> Iterator[Tuple[float, int]]:
        """(key, value) of all records, in order."""
        if self._waiting_records:
            self._write_run()
        self._file.flush()
        return heapq.merge(*(self._run(first, end) for first, end in self._runs))

    def _run(self, first: int, end: int) -> Iterator[Tuple[float, int]]:
        for begin in range(first, end, _READ_RECORDS):
            size = min(_READ_RECORDS, end - begin) * _RECORD.itemsize
            records = np.frombuffer(os.pread(self._file.fileno(), size, begin * _RECORD.itemsize), _RECORD)
            yield from zip(records["key"].tolist(), records["value"].tolist())

    def __enter__(self) -> "DiskSorter":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self._file.close()
