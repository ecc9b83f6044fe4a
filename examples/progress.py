"""Show how far fairseq trainings are, from their logs (`--log-format json`).

fairseq-train … --log-format json 2>&1 | tee train.log | python progress.py MAX_UPDATES
python progress.py MAX_UPDATES NAME=LOG NAME=LOG &      several that run side by side, until it is killed
"""

import os
import re
import sys
import time

WIDTH = 30
FIELDS = {name: re.compile(rf'"{name}": "([^"]+)"') for name in ("num_updates", "loss", "valid_loss")}
EVERY = 2.0  # seconds between looks at logs


class Training:
    """What a log has said so far; the clock starts at its first line, since fairseq is slow to load."""

    def __init__(self, total):
        self.total, self.done, self.loss, self.valid = total, 0, "-", "-"
        self.start, self.first = None, 0

    def read(self, line):
        """Whether the line tells of progress."""
        found = {name: match[1] for name, match in ((n, p.search(line)) for n, p in FIELDS.items()) if match}
        self.valid = found.get("valid_loss", self.valid)
        if "num_updates" not in found or "loss" not in found:
            return False
        self.done, self.loss = int(found["num_updates"]), found["loss"]
        if self.start is None:
            self.start, self.first = time.time(), self.done
        return True

    @property
    def left(self):
        """Seconds, or None where that cannot be told yet."""
        if self.start is None or self.done == self.first:
            return None
        return (time.time() - self.start) / (self.done - self.first) * (self.total - self.done)

    @property
    def tenths(self):
        return self.done * 10 // self.total

    def __str__(self):
        bar = "#" * (WIDTH * self.done // self.total)
        left = "…" if self.left is None else f"{self.left:.0f} s left"
        return f"[{bar:-<{WIDTH}}] {self.done}/{self.total} updates, loss {self.loss}, valid {self.valid}, {left} "


class Shown:
    """Lines that replace each other on a terminal; in a file, a line every tenth."""

    def __init__(self):
        self.tenths = -1

    def show(self, text, tenths):
        if sys.stderr.isatty():
            print("\033[K" + text, end="\r", file=sys.stderr, flush=True)
        elif tenths > self.tenths:
            self.tenths = tenths
            print(text, file=sys.stderr, flush=True)


def piped(total):
    training, shown = Training(total), Shown()
    for line in sys.stdin:
        if training.read(line):
            shown.show(f"  {training}", training.tenths)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def followed(total, logs):
    trainings, shown, read = {name: Training(total) for name in logs}, Shown(), dict.fromkeys(logs, 0)
    while True:
        for name, path in logs.items():
            if os.path.exists(path):
                with open(path, "rb") as file:
                    file.seek(read[name])
                    for line in file:
                        if line.endswith(b"\n"):  # the rest of an unfinished line comes next time
                            read[name] += len(line)
                            trainings[name].read(line.decode("utf-8", "replace"))
        slowest = min(trainings.values(), key=lambda training: training.done)
        width = WIDTH // len(logs)
        parts = [
            f"{name} [{'#' * (width * t.done // total):-<{width}}] {t.done}, valid {t.valid}"
            for name, t in trainings.items()
        ]
        left = "" if slowest.left is None else f", {slowest.left:.0f} s left"
        if slowest.start is not None:
            shown.show(f"  {'; '.join(parts)} of {total} updates{left}", slowest.tenths)
        time.sleep(EVERY)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        piped(int(sys.argv[1]))
    elif len(sys.argv) > 2:
        followed(int(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
    else:
        sys.exit(__doc__)
