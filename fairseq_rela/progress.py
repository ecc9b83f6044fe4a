"""A progress bar on stderr. Nothing is drawn if stderr is not a terminal."""

import sys
import time
from typing import Iterable, Iterator, Optional, TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, total: Optional[int] = None) -> Iterator[Item]:
    """Yield `items`, and draw a bar meanwhile, or a count if `total` is not known."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    started = drawn = time.monotonic()
    done = 0
    try:
        for done, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now - drawn > 0.1:
                drawn = now
                # The cursor goes back to the start, so that the next printed line replaces the bar.
                print(_bar(label, done, total, now - started), end="\r", file=sys.stderr, flush=True)
    finally:
        print("\033[K", end="", file=sys.stderr, flush=True)  # clear the line


def _bar(label: str, done: int, total: Optional[int], seconds: float) -> str:
    speed = f"{done / max(seconds, 1e-9):,.0f}/s"
    if not total:
        return f"{label} {done:,} {speed}"
    filled = int(30 * done / total)
    return f"{label} [{'#' * filled}{' ' * (30 - filled)}] {done:,}/{total:,} {speed}"
