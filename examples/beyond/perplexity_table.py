"""The table of language_model.sh: perplexities of language models, from the logs of fairseq-eval-lm.

python perplexity_table.py WINDOW SEED ATTENTION=RUN ...
"""

import os
import re
import sys


def read(run: str, name: str) -> str:
    with open(os.path.join(run, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def last(pattern: str, text: str) -> str:
    """The last match of the group, or a dash."""
    matches = re.findall(pattern, text, re.MULTILINE)
    return matches[-1] if matches else "-"


def main(window: str, seed: str, *named: str) -> None:
    rows = [["attention", "parameters", "valid", "test", f"test, window {window}", "updates", "LR", "seed"]]
    for attention, _, run in (argument.partition("=") for argument in named):
        logs = [read(run, f"{name}.log") for name in ("valid", "test", f"test-window{window}")]
        parameters = last(r"num\. model params: (.*)$", logs[1])
        perplexities = [last(r"Perplexity: (.*)$", log) for log in logs]
        rate = last(r"^LR=(.*)$", read(run, "settings"))
        rows.append([attention, parameters, *perplexities, read(run, "trained").strip(), rate, seed])
    print("\n".join("\t".join(row) for row in rows))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
