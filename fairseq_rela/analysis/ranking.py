"""Ranking the pairs of a corpus by score, with memory of two bits per line of the corpus."""

from typing import Iterable, Iterator, NamedTuple, Optional, Tuple

import numpy as np


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
