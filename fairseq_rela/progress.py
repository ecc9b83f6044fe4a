"""A progress bar on stderr, for people only: nothing where stderr is no terminal."""

import sys
import time
from typing import Iterable, Iterator, Optional, TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, total: Optional[int] = None) -> Iterator[Item]:
    """`items`, with a bar (or a count, where no `total` is known) drawn while they are gone through."""
    if not sys.stderr.isatty():
        yield from items
        return
    begun = drawn = time.monotonic()
    done = 0
    try:
        for done, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now - drawn > 0.1:
                drawn = now
                # the cursor goes back, so that a line printed meanwhile takes the place of the bar
                print(_bar(label, done, total, now - begun), end="\r", file=sys.stderr, flush=True)
    finally:
        print("\033[K", end="", file=sys.stderr, flush=True)  # leave the line as it was found


def _bar(label: str, done: int, total: Optional[int], seconds: float) -> str:
    speed = f"{done / max(seconds, 1e-9):,.0f}/s"
    if not total:
        return f"{label} {done:,} {speed}"
    filled = int(30 * done / total)
    return f"{label} [{'#' * filled}{' ' * (30 - filled)}] {done:,}/{total:,} {speed}"
