"""Splitting a parallel corpus into kept and dropped text, and shuffling its targets."""

import contextlib
import itertools
import os
from typing import Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_rela.analysis.lines import raw_lines
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

_FEWEST_TO_SHUFFLE = 4


class SplitCounts(NamedTuple):
    """How many sentence pairs went where."""

    kept: int
    dropped: int

    @property
    def total(self) -> int:
        return self.kept + self.dropped


def text_pairs(source: str, target: str) -> Iterator[Tuple[bytes, bytes]]:
    """The lines of two files side by side, as bytes, because the text is only copied."""
    for number, (left, right) in enumerate(itertools.zip_longest(raw_lines(source), raw_lines(target)), 1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            raise InputError(f"{short}: ends before line {number}, but {long} goes on: not the two sides of one text")
        yield left, right


def line_count(path: str) -> int:
    """How many lines a text has."""
    return sum(1 for _ in raw_lines(path))


def output_suffixes(source: str, target: str) -> Tuple[str, str]:
    """How the names of the written files end: as those of the text do, if these are different languages."""
    suffixes = [
        os.path.splitext(path[:-3] if path.endswith(".gz") else path)[1].lstrip(".") for path in (source, target)
    ]
    return (suffixes[0], suffixes[1]) if all(suffixes) and suffixes[0] != suffixes[1] else ("source", "target")


def write_split(source: str, target: str, keep: Iterable[bool], directory: str) -> SplitCounts:
    """Write kept.* and dropped.* into `directory`. Pair i is kept if the i-th of `keep` is true."""
    suffixes = output_suffixes(source, target)
    counts = {True: 0, False: 0}
    with contextlib.ExitStack() as stack:
        files = {
            kept: [stack.enter_context(open(os.path.join(directory, f"{word}.{name}"), "wb")) for name in suffixes]
            for kept, word in ((True, "kept"), (False, "dropped"))
        }
        for pair, kept in zip(progress(text_pairs(source, target), source), keep):
            for file, line in zip(files[kept], pair):
                file.write(line + b"\n")
            counts[kept] += 1
    return SplitCounts(counts[True], counts[False])


def read_pairs_to_shuffle(source: str, target: str) -> List[Tuple[bytes, bytes]]:
    """All sentence pairs of two files; InputError if there are too few to shuffle."""
    pairs = list(text_pairs(source, target))
    if len(pairs) < _FEWEST_TO_SHUFFLE:
        raise InputError(
            f"{source}: {len(pairs)} lines are too few to shuffle; at least {_FEWEST_TO_SHUFFLE} are needed"
        )
    return pairs


def write_shuffled(
    pairs: List[Tuple[bytes, bytes]], targets: Sequence[int], suffixes: Tuple[str, str], directory: str
) -> None:
    """Write shuffled.* into `directory`: source i with the target of pair targets[i]."""
    sources = (source for source, _ in pairs)
    shuffled = (pairs[number][1] for number in targets)
    for suffix, lines in zip(suffixes, (sources, shuffled)):
        with open(os.path.join(directory, f"shuffled.{suffix}"), "wb") as file:
            file.writelines(line + b"\n" for line in lines)
