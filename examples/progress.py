"""Show how far fairseq trainings are, from their logs (`--log-format json`).

python progress.py MAX_UPDATES NAME=LOG NAME=LOG &      several trainings that run side by side, until it is killed
"""

import os
import re
import sys
import time
from typing import Dict, Optional

WIDTH = 30
FIELDS = {name: re.compile(rf'"{name}": "([^"]+)"') for name in ("num_updates", "loss", "valid_loss")}
EVERY = 2.0  # the logs are read again after this many seconds


class Training:
    """What a log has said so far. The clock starts at its first line, because fairseq is slow to load."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.loss, self.valid = total, 0, "-", "-"
        self.start: Optional[float] = None
        self.first = 0

    def read(self, line: str) -> bool:
        """Take in a line of the log. Returns whether it reports progress."""
        matches = ((name, pattern.search(line)) for name, pattern in FIELDS.items())
        values = {name: match[1] for name, match in matches if match}
        self.valid = values.get("valid_loss", self.valid)
        if "num_updates" not in values or "loss" not in values:
            return False
        self.done, self.loss = int(values["num_updates"]), values["loss"]
        if self.start is None:
            self.start, self.first = time.time(), self.done
        return True

    @property
    def left(self) -> Optional[float]:
        """Seconds that are left, or None as long as that is not known."""
        if self.start is None or self.done == self.first:
            return None
        return (time.time() - self.start) / (self.done - self.first) * (self.total - self.done)

    @property
    def tenths(self) -> int:
        return self.done * 10 // self.total

    def __str__(self) -> str:
        bar = "#" * (WIDTH * self.done // self.total)
        left = "…" if self.left is None else f"{self.left:.0f} s left"
        return f"[{bar:-<{WIDTH}}] {self.done}/{self.total} updates, loss {self.loss}, valid {self.valid}, {left} "


class Bar:
    """On a terminal, each line replaces the one before. In a file, one line is written for each tenth."""

    def __init__(self) -> None:
        self.tenths = -1

    def show(self, text: str, tenths: int) -> None:
        if sys.stderr.isatty():
            print("\033[K" + text, end="\r", file=sys.stderr, flush=True)
        elif tenths > self.tenths:
            self.tenths = tenths
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)


class Log:
    """A log that grows: `read_new` takes in the lines that have been completed since the last time."""

    def __init__(self, path: str, total: int) -> None:
        self.path, self.training, self.position = path, Training(total), 0

    def read_new(self) -> None:
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            file.seek(self.position)
            for line in file:
                if line.endswith(b"\n"):  # the rest of an unfinished line comes next time
                    self.position += len(line)
                    self.training.read(line.decode("utf-8", "replace"))


def summary(trainings: Dict[str, Training], total: int) -> str:
    """All trainings in one line."""
    width = WIDTH // len(trainings)
    parts = [
        f"{name} [{'#' * (width * training.done // total):-<{width}}] {training.done}, valid {training.valid}"
        for name, training in trainings.items()
    ]
    slowest = min(trainings.values(), key=lambda training: training.done)
    left = "" if slowest.left is None else f", {slowest.left:.0f} s left"
    return f"  {'; '.join(parts)} of {total} updates{left}"


def follow(total: int, paths: Dict[str, str]) -> None:
    """Show the trainings until this process is killed."""
    logs, bar = {name: Log(path, total) for name, path in paths.items()}, Bar()
    while True:
        for log in logs.values():
            log.read_new()
        trainings = {name: log.training for name, log in logs.items()}
        slowest = min(trainings.values(), key=lambda training: training.done)
        if slowest.start is not None:
            bar.show(summary(trainings, total), slowest.tenths)
        time.sleep(EVERY)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    follow(int(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
