"""Writing a dump: sentences are packed into a segment in memory, and segments appear on disk whole."""

import contextlib
import os
import re
import time
from types import TracebackType
from typing import Dict, List, Optional, Sequence, Set, Tuple, Type

import numpy as np

from fairseq_rela.atomic import TEMPORARY, publish
from fairseq_rela.errors import InputError
from fairseq_rela.recording.info import INFO_FILE, KINDS, DumpInfo, first_difference, read_info
from fairseq_rela.recording.segment import PendingSegment, Segment

_SEGMENT_NAME = re.compile(r"shard(\d+)-(\d{5,})\.npz")


def segment_path(directory: str, shard: int, number: int) -> str:
    return os.path.join(directory, f"shard{shard}-{number:05d}.npz")


def shard_of(path: str) -> int:
    """The shard that a segment belongs to."""
    return int(_SEGMENT_NAME.fullmatch(os.path.basename(path))[1])


def _segment_numbers(directory: str) -> Dict[int, List[int]]:
    """The numbers of each shard's segments."""
    shards: Dict[int, List[int]] = {}
    for match in filter(None, map(_SEGMENT_NAME.fullmatch, os.listdir(directory))):
        shards.setdefault(int(match[1]), []).append(int(match[2]))
    return shards


def open_segments(directory: str, info: DumpInfo) -> List[Segment]:
    """All segments of a dump, by shard and number. InputError if one is damaged or missing between others."""
    try:
        shards = _segment_numbers(directory)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}") from None
    segments = []
    for shard, numbers in sorted(shards.items()):
        missing = sorted(set(range(max(numbers))) - set(numbers))
        if missing:
            raise InputError(
                f"{segment_path(directory, shard, missing[0])}: missing, though later segments are there; copy it too, "
                f"or delete {os.path.join(directory, f'shard{shard}')}-*.npz and generate again with --attn-dump-resume"
            )
        segments += [Segment(segment_path(directory, shard, number), info) for number in sorted(numbers)]
    return segments


class DumpWriter:
    """One shard's writer into a dump; processes with different shards may write into one directory at once.

        with DumpWriter(path, info) as writer:
            writer.add(0, ["a", "</s>"], ["b", "</s>"], encoder=…, decoder=…, cross=…)

    A segment is closed when it has `segment_bytes`, or is older than `segment_seconds` and a fiftieth of the run:
    what a killed run loses is seconds of work or 2 % of it, and a long run still makes few files. Memory is a
    segment, and the ids. `resume` goes on with what this shard has written before; see `done`.
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
                f"{self.path}: already holds a dump, {count} sentences of shard {shard}; "
                f"give --attn-dump-resume to go on with it, or another directory"
            )
        self._number = len(own)
        self._done: Set[Tuple[int, int]] = set()
        for segment in segments:
            self._done.update(zip(segment.index["id"].tolist(), segment.index["rank"].tolist()))
        self._sweep()

    def _claim_directory(self) -> None:
        """Write `dump.json` unless it is there; either way know now, not in an hour, that files can be made here."""
        path = os.path.join(self.path, INFO_FILE)
        try:
            os.makedirs(self.path, exist_ok=True)
            if _segment_numbers(self.path) and not os.path.exists(path):
                raise InputError(f"{path}: missing, though segments of a dump are there; restore it from a copy")
            with contextlib.suppress(FileExistsError):
                publish(path, lambda file: file.write(self.info.to_json().encode("utf-8")))
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot write a dump here: {error.strerror or error}; name a directory that can be"
            ) from None

    def _check_same_dump(self) -> None:
        difference = first_difference(read_info(self.path), self.info)
        if difference:
            name, there, here = difference
            raise InputError(
                f"{self.path}: holds another dump: {name} is {there!r} there and {here!r} in this run; "
                f"name another directory"
            )

    def _sweep(self) -> None:
        """Remove what a killed run of this shard left half written."""
        for name in os.listdir(self.path):
            if name.startswith(f".shard{self.shard}-") and name.endswith(TEMPORARY):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.path, name))

    def _renew(self) -> None:
        self._pending = PendingSegment(self.info.kinds)
        self._opened = time.monotonic()

    def done(self, id: int, rank: int = 0) -> bool:
        """Whether a sentence is in the dump (any shard's, as of when this writer was made) or was added since."""
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
    ) -> None:
        """Add a sentence. encoder (L,H,S,S), decoder (L,H,T,T), cross (L,H,T,S): the kinds that `info` names.

        float32 or float16: what is wider cannot be kept without turning small weights into zeros. On InputError
        nothing of the sentence is in the dump.
        """
        id, rank = int(id), int(rank)
        if self.done(id, rank):
            raise InputError(f"{self.path}: {name_sentence(id, rank)} is there already; each may be recorded once")
        given = {
            kind: None if weights is None else np.asarray(weights)
            for kind, weights in zip(KINDS, (encoder, decoder, cross))
        }
        for kind in KINDS:
            self._check(id, kind, given[kind], len(source), len(target))
        self._pending.add(id, rank, source, target, {kind: given[kind] for kind in self.info.kinds})
        self._done.add((id, rank))
        if self._is_due():
            self.flush()

    def _check(self, id: int, kind: str, weights: Optional[np.ndarray], source_length: int, target_length: int) -> None:
        recorded = kind in self.info.kinds
        if recorded != (weights is not None):
            raise InputError(
                f"{self.path}: sentence {id} {'lacks' if recorded else 'has'} {kind} weights; "
                f"the dump is of {', '.join(self.info.kinds)}"
            )
        if not recorded:
            return
        shape = self.info.kinds[kind].shape(kind, source_length, target_length)
        if weights.shape != shape:
            raise InputError(
                f"{self.path}: the {kind} weights of sentence {id} are {weights.shape}; its {source_length} source and "
                f"{target_length} target tokens and the dump's layers and heads make {shape}"
            )
        if weights.dtype not in (np.float32, np.float16):
            raise InputError(f"{self.path}: the {kind} weights of sentence {id} are {weights.dtype}, not float32")

    def _is_due(self) -> bool:
        if self._pending.bytes >= self._segment_bytes:
            return True
        now = time.monotonic()
        return now - self._opened >= max(self._segment_seconds, (now - self._begun) / 50)

    def flush(self) -> None:
        """Close the segment in memory: when this returns its sentences are on the disk."""
        pending = self._pending
        self._renew()  # first, so that a segment that could not be written is not tried again on the way out
        if not len(pending):
            return
        path = segment_path(self.path, self.shard, self._number)
        try:
            publish(path, pending.write)
        except FileExistsError:
            raise InputError(
                f"{path}: another process writes shard {self.shard} of this dump; give each its own shard"
            ) from None
        except OSError as error:
            raise InputError(
                f"{path}: {error.strerror or error}; the segments before it are whole: "
                f"make room and go on with --attn-dump-resume"
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
        # after an error too: the sentences that were finished are whole
        self.close()


def name_sentence(id: int, rank: int) -> str:
    return f"sentence {id}, rank {rank}," if rank else f"sentence {id}"
