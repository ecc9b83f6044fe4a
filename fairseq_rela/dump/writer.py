"""Writing a dump: sentences are packed into a segment in memory, and each segment is written atomically."""

import contextlib
import os
import time
from types import TracebackType
from typing import Mapping, Optional, Sequence, Set, Tuple, Type

import numpy as np

from fairseq_rela.atomic import TEMPORARY, write_atomically
from fairseq_rela.dump.files import check_ids, name_sentence, open_segments, segment_numbers, segment_path, shard_of
from fairseq_rela.dump.info import INFO_FILE, DumpInfo, first_difference, read_info
from fairseq_rela.dump.segment import PendingSegment
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS


class DumpWriter:
    """Writes one shard of a dump. Processes with different shards may write into one directory at the same time.

        with DumpWriter(path, info) as writer:
            writer.add(0, ["a", "</s>"], ["b", "</s>"], encoder=…, decoder=…, cross=…)

    A segment is closed when it has `segment_bytes`, or is older than `segment_seconds` and than 2 % of the run. So a
    killed run loses a few seconds of work or 2 % of it, and a long run still makes few files. The memory needed is one
    segment and the ids. `resume` continues what this shard has written before; see `done`.
    """

    def __init__(
        self,
        path: str,
        info: DumpInfo,
        shard: int = 0,
        resume: bool = False,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 2.0,
    ) -> None:
        self.path = os.fspath(path)
        self.info = info
        self.shard = shard
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._begun = time.monotonic()
        self._renew()
        self._claim_directory()
        self._check_same_dump()
        segments = open_segments(self.path, info)
        own = [segment for segment in segments if shard_of(segment.path) == shard]
        if own and not resume:
            count = sum(len(segment.index) for segment in own)
            raise InputError(
                f"{self.path}: already has a dump, {count} sentences of shard {shard}; "
                f"give --attn-dump-resume to continue it, or name another directory"
            )
        self._number = len(own)
        self._done: Set[Tuple[int, int]] = set()
        for segment in segments:
            self._done.update(zip(segment.index["id"].tolist(), segment.index["rank"].tolist()))
        self._sweep()

    def _claim_directory(self) -> None:
        """Write `dump.json` unless it is there. This also checks at the start that files can be written here."""
        path = os.path.join(self.path, INFO_FILE)
        try:
            os.makedirs(self.path, exist_ok=True)
            if segment_numbers(self.path) and not os.path.exists(path):
                raise InputError(f"{path}: missing, although segments of a dump are there; restore it from a copy")
            with contextlib.suppress(FileExistsError):
                write_atomically(path, lambda file: file.write(self.info.to_json().encode("utf-8")), replace=False)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot write a dump here: {error.strerror or error}; "
                f"name a directory that can be written"
            ) from None

    def _check_same_dump(self) -> None:
        difference = first_difference(read_info(self.path), self.info)
        if difference:
            name, there, here = difference
            raise InputError(
                f"{self.path}: has another dump: {name} is {there!r} there and {here!r} in this run; "
                f"name another directory"
            )

    def _sweep(self) -> None:
        """Remove the unfinished files of a killed run of this shard."""
        for name in os.listdir(self.path):
            if name.startswith(f".shard{self.shard}-") and name.endswith(TEMPORARY):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.path, name))

    def _renew(self) -> None:
        self._pending = PendingSegment(self.info.kinds)
        self._opened = time.monotonic()

    def done(self, id: int, rank: int = 0) -> bool:
        """Whether a sentence was in the dump, in any shard, when this writer was opened, or was added since."""
        return (int(id), int(rank)) in self._done

    def add(
        self,
        id: int,
        source: Sequence[str],
        target: Sequence[str],
        encoder: Optional[np.ndarray] = None,
        decoder: Optional[np.ndarray] = None,
        cross: Optional[np.ndarray] = None,
        rank: int = 0,
        norms: Optional[Mapping[str, np.ndarray]] = None,
    ) -> None:
        """Add a sentence. encoder (L,H,S,S), decoder (L,H,T,T), cross (L,H,T,S): the kinds that `info` names.

        `norms` has an array of the same shape for each kind whose norms `info` announces. What is kept of it are the
        positions where the weight is not 0. All are float32 or float16, because rounding a wider type could turn small
        weights into zeros. After an InputError, nothing of the sentence is in the dump.
        """
        id, rank = int(id), int(rank)
        check_ids(self.path, id, rank)
        if self.done(id, rank):
            raise InputError(
                f"{self.path}: {name_sentence(id, rank)} is in the dump already; each sentence is recorded once"
            )
        given = {
            kind: np.asarray(weights) for kind, weights in zip(KINDS, (encoder, decoder, cross)) if weights is not None
        }
        sizes = {kind: np.asarray(array) for kind, array in (norms or {}).items()}
        with_norms = [kind for kind, row in self.info.kinds.items() if row.norms]
        for kind in KINDS:
            self._check_recorded(id, f"{kind} weights", kind in given, list(self.info.kinds), kind)
            self._check_recorded(id, f"{kind} norms", kind in sizes, with_norms, kind)
        for name, arrays in (("weights", given), ("norms", sizes)):
            for kind, array in arrays.items():
                self._check_array(id, kind, name, array, len(source), len(target))
        self._pending.add(id, rank, source, target, given, sizes)
        self._done.add((id, rank))
        if self._is_due():
            self.flush()

    def _check_recorded(self, id: int, what: str, given: bool, wanted: Sequence[str], kind: str) -> None:
        """InputError unless `what` of a sentence is given exactly if its kind is `wanted`."""
        if (kind in wanted) != given:
            raise InputError(
                f"{self.path}: sentence {id} {'has' if given else 'lacks'} {what}; "
                f"the dump is of {', '.join(wanted) or 'none'}"
            )

    def _check_array(
        self, id: int, kind: str, name: str, array: np.ndarray, source_length: int, target_length: int
    ) -> None:
        """InputError unless the weights or the norms of a kind have the shape and the type of this dump."""
        shape = self.info.kinds[kind].shape(kind, source_length, target_length)
        if array.shape != shape:
            raise InputError(
                f"{self.path}: the {kind} {name} of sentence {id} are {array.shape}; its {source_length} source and "
                f"{target_length} target tokens and the dump's layers and heads make {shape}"
            )
        if array.dtype not in (np.float32, np.float16):
            raise InputError(f"{self.path}: the {kind} {name} of sentence {id} are {array.dtype}, not float32")

    def _is_due(self) -> bool:
        if self._pending.bytes >= self._segment_bytes:
            return True
        now = time.monotonic()
        return now - self._opened >= max(self._segment_seconds, (now - self._begun) / 50)

    def flush(self) -> None:
        """Write the segment in memory. When this returns, its sentences are on the disk."""
        pending = self._pending
        self._renew()  # first, so that a segment that cannot be written is not tried again when the writer is closed
        if not len(pending):
            return
        path = segment_path(self.path, self.shard, self._number)
        try:
            write_atomically(path, pending.write, replace=False)
        except FileExistsError:
            raise InputError(
                f"{path}: another process writes shard {self.shard} of this dump; give each process its own shard"
            ) from None
        except OSError as error:
            raise InputError(
                f"{path}: {error.strerror or error}; the segments before it are complete: "
                f"free some space and continue with --attn-dump-resume"
            ) from None
        self._number += 1

    def close(self) -> None:
        self.flush()

    def __enter__(self) -> "DumpWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        # After an error too, because the sentences that were added are complete.
        self.close()
