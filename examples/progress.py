"""Show how far a fairseq training is: reads its log (`--log-format json`) and draws a bar.

fairseq-train … --log-format json 2>&1 | tee train.log | python progress.py MAX_UPDATES
"""

import re
import sys
import time

WIDTH = 30
FIELDS = {name: re.compile(rf'"{name}": "([^"]+)"') for name in ("num_updates", "loss", "valid_loss")}


def main(total: int) -> None:
    start, first, shown, valid = None, 0, -1, "-"  # the clock starts at the first line: fairseq is slow to load
    for line in sys.stdin:
        found = {name: match[1] for name, match in ((n, p.search(line)) for n, p in FIELDS.items()) if match}
        valid = found.get("valid_loss", valid)
        if "num_updates" not in found or "loss" not in found:
            continue
        done = int(found["num_updates"])
        if start is None:
            start, first = time.time(), done
        left = f"{(time.time() - start) / (done - first) * (total - done):.0f} s left" if done > first else "…"
        bar = "#" * (WIDTH * done // total)
        text = f"  [{bar:-<{WIDTH}}] {done}/{total} updates, loss {found['loss']}, valid {valid}, {left} "
        if sys.stderr.isatty():
            print(text, end="\r", file=sys.stderr, flush=True)
        elif done * 10 // total > shown:  # in a file: a line every tenth
            shown = done * 10 // total
            print(text, file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]))
