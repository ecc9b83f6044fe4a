"""Print what the compiled kernels take, as a table for docs/gpu.md. No GPU is needed.

    python -m fairseq_rela.attention.kernels.report [--every]

Each cell: registers per thread / kilobytes of shared memory per program / instructions in the longest loop.
Exit status 1, with one line for each, if a kernel spills registers or takes more shared memory than there is.
"""

import argparse
import sys
from typing import Dict, Iterator, List

from fairseq_rela.attention.kernels.compiled import TARGETS, Case, Compiled, cases, compiled, problem


def row_name(case: Case) -> str:
    """What stands in the first three columns: all of a case but its target."""
    words = case.flags() + ([f"{case.length} tokens"] if case.length < 4096 else [])
    return f"`{case.kernel}`{' ' + ', '.join(words) if words else ''} | {case.dtype} | {case.width}"


def table(measured: Dict[Case, Compiled]) -> Iterator[str]:
    """The lines of a Markdown table: one row per kernel, one column per target."""
    yield "| kernel | dtype | width | " + " | ".join(TARGETS) + " |"
    yield "|---|---|---|" + "---|" * len(TARGETS)
    rows: Dict[str, List[str]] = {}
    for case, result in measured.items():
        cell = f"{result.registers} / {result.shared / 1024:.0f} / {result.loop or '-'}"
        rows.setdefault(row_name(case), []).append(cell)
    for name, cells in rows.items():
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", action="store_true", help="every combination: about twenty minutes")
    args = parser.parse_args()
    measured = {case: compiled(case) for case in cases(list(TARGETS), every=args.every)}
    print("\n".join(table(measured)))
    problems = [line for line in (problem(case, result) for case, result in measured.items()) if line]
    print("\n".join([*problems, f"{len(measured)} compiled, {len(problems)} with a problem"]), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
