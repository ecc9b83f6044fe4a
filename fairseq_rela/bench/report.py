"""The page that `--report FILE.md` writes: the results, the device, the versions and the command, in Markdown."""

import argparse
import shlex
import sys
from typing import List, Sequence

import torch

from fairseq_rela.bench.hardware import description
from fairseq_rela.bench.timing import Result


def number(value: object, form: str = ".4g") -> str:
    return "-" if value is None else format(value, form)


def row(r: Result) -> str:
    limit = r.baseline / r.limit if r.baseline and r.limit else None
    cells = [r.case, number(r.ours), number(r.baseline), r.unit]
    cells += [number(x, ".2f") for x in (r.ratio, r.spread, limit)]
    return f"| {' | '.join(cells)} |"


def page(
    bench: str, args: argparse.Namespace, device: torch.device, measured: List[Result], more: Sequence[str]
) -> str:
    """The page as text. `more` are the lines after the table, such as the mean."""
    lines = [
        f"# fairseq-rela bench {bench}",
        "",
        *description(device, args.dtype),
        f"- command: `fairseq-rela {shlex.join(sys.argv[1:])}`",
        f"- median of {args.repeats}; ratio is baseline ÷ ours, so above 1 ours is faster or smaller",
        "",
        "| case | ours | baseline | unit | ratio | spread | limit |",
        "|---|---|---|---|---|---|---|",
        *(row(r) for r in measured),
        "",
        *(f"- {line.strip()}" for line in more),
    ]
    return "\n".join(lines) + "\n"
