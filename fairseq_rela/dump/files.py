"""The segments of a dump: how their files are named, and opening all of them in order."""

import os
import re
from typing import Dict, List

from fairseq_rela.dump.info import DumpInfo
from fairseq_rela.dump.segment import MOST_ID, Segment
from fairseq_rela.errors import InputError

_SEGMENT_NAME = re.compile(r"shard([0-9]+)-([0-9]{5,})\.npz")


def segment_path(directory: str, shard: int, number: int) -> str:
    """The file of a segment: shard0-00000.npz is the first one of shard 0."""
    return os.path.join(directory, f"shard{shard}-{number:05d}.npz")


def shard_of(path: str) -> int:
    """The shard that a segment belongs to."""
    match = _SEGMENT_NAME.fullmatch(os.path.basename(path))
    if not match:
        raise ValueError(f"{path}: not named like a segment")
    return int(match[1])


def segment_numbers(directory: str) -> Dict[int, List[int]]:
    """shard → the numbers of its segments, in order. A name with extra zeros is not that of a segment."""
    shards: Dict[int, List[int]] = {}
    for match in filter(None, map(_SEGMENT_NAME.fullmatch, os.listdir(directory))):
        shard, number = int(match[1]), int(match[2])
        if match[0] == segment_path("", shard, number):
            shards.setdefault(shard, []).append(number)
    return {shard: sorted(numbers) for shard, numbers in shards.items()}


def open_segments(directory: str, info: DumpInfo) -> List[Segment]:
    """All segments of a dump, ordered by shard and number. InputError if one is damaged, or missing between others."""
    try:
        shards = segment_numbers(directory)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}") from None
    segments = []
    for shard, numbers in sorted(shards.items()):
        for expected, number in enumerate(numbers):
            if number != expected:
                later = segment_path("", shard, number)
                raise InputError(
                    f"{segment_path(directory, shard, expected)}: missing, although later segments are there "
                    f"({later}); "
                    f"copy it too, or delete {os.path.join(directory, f'shard{shard}')}-*.npz and generate again with "
                    f"--attn-dump-resume"
                )
        segments += [Segment(segment_path(directory, shard, number), info) for number in numbers]
    return segments


def check_ids(path: str, id: int, rank: int) -> None:
    """InputError unless a sentence's id and rank can be written and read again."""
    for name, value in (("id", id), ("rank", rank)):
        if not 0 <= value <= MOST_ID:
            raise InputError(f"{path}: a sentence cannot have the {name} {value}; give 0 to {MOST_ID}")


def name_sentence(id: int, rank: int) -> str:
    """A sentence as messages name it."""
    return f"sentence {id}, rank {rank}," if rank else f"sentence {id}"
