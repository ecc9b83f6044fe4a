"""Measure speed and memory against stock fairseq, torch's fused softmax attention and the entmax package.

    fairseq-rela bench op                    attention alone
    fairseq-rela bench train                 a training step of a whole model
    fairseq-rela bench decode                beam search
    fairseq-rela bench memory                peak memory of attention alone
    fairseq-rela bench lm                    time and peak memory of a language model by context length

All models are measured in one run, in turn. `ratio` is baseline ÷ ours: above 1, ours is faster. `spread` is the
interquartile range of the ratio over the repeats. `limit` is the highest ratio that is possible: the ratio of the
same work with attention reduced to its two matrix products (op) or removed (train, decode, lm).
"""

import argparse
import importlib
import json
import logging
import math
import os
from typing import Callable, List

from fairseq_rela.analysis.plots import new_figure, require_matplotlib
from fairseq_rela.atomic import write_atomically, write_text_atomically
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

BENCHES = {
    "op": "attention alone: forward, and forward and backward",
    "train": "a training step of a whole model",
    "decode": "beam search with a whole model",
    "memory": "peak growth of forward and backward",
    "lm": "a language model's time and memory by context length",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    benches = parser.add_subparsers(dest="bench", metavar="{" + ",".join(BENCHES) + "}", required=True)
    for name, help_line in BENCHES.items():
        module = importlib.import_module(f"fairseq_rela.bench.{name}")
        bench = benches.add_parser(
            name, help=help_line, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(bench)
        bench.add_argument("--repeats", type=int, default=5, help="how often each is measured (default: %(default)s)")
        bench.add_argument("--threads", type=int, metavar="N", help="threads of torch (default: torch's choice)")
        importlib.import_module("fairseq_rela.bench.hardware").add_arguments(bench)
        bench.add_argument("--json", metavar="FILE", help="write the results to FILE")
        bench.add_argument("--report", metavar="FILE.md", help="write the results to FILE, with device and versions")
        bench.add_argument("--plot", metavar="FILE.png", help="draw the results")


# How the names of cases end that are not in the mean: their baseline is not softmax, or a second kind of softmax.
OTHERS = (*(f"/{name}" for name in CATALOG), "/no threshold", "/plain torch", "/flash", "/efficient")
MOST = 10**7  # the largest whole number that an option takes
# unit of a result → the unit that is shown, how many of it make one, and what it measures
SHOWN = {"s": ("ms", 1e3, "time"), "bytes": ("MB", 1e-6, "memory")}


def header(unit: str) -> str:
    shown = SHOWN[unit][0]
    return f"{'case':<32}{'ours ' + shown:>12}{'baseline ' + shown:>14}{'ratio':>8}{'spread':>8}{'limit':>8}"


def line(r) -> str:
    """One result as a line of the table."""
    scale = SHOWN[r.unit][1]
    ours, baseline = ("no memory" if x is None else f"{x * scale:.1f}" for x in (r.ours, r.baseline))
    ratio, spread = ("-" if x is None else f"{x:.2f}" for x in (r.ratio, r.spread))
    limit = f"{r.baseline / r.limit:.2f}" if r.baseline and r.limit else "-"
    return f"{r.case:<32}{ours:>12}{baseline:>14}{ratio:>8}{spread:>8}{limit:>8}"


def mean_lines(results: List) -> List[str]:
    """The geometric mean of the ratios, one line per unit."""
    lines, units = [], list(dict.fromkeys(r.unit for r in results))
    for unit in units:
        softmax = [r for r in results if r.unit == unit and not r.case.endswith(OTHERS)]
        logs = [math.log(r.ratio) for r in softmax if r.ratio]
        mean = f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else "-"
        of = f", {SHOWN[unit][2]}" if len(units) > 1 else ""
        lines.append(f"geometric mean of the ratios to softmax{of}: {mean}")
    return lines


def bars(axes, results: List) -> None:
    """One bar per case: its ratio and spread. A line marks the ratio 1."""
    names = [r.case for r in results]
    axes.barh(names, [r.ratio for r in results], xerr=[r.spread / 2 for r in results], color="tab:blue", capsize=2)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("baseline ÷ ours (above 1: ours is better)")


def plot(draw: Callable, panels: int, results: List, path: str) -> None:
    """Write the picture that draw(axes, results) makes. With several panels, `axes` is a list with one for each."""
    figure = new_figure(8, 4 if draw is not bars else 1 + 0.3 * len(results))
    draw(figure.subplots(1, panels), results)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=150))


def check(args: argparse.Namespace) -> None:
    """InputError for options that would fail only after all has been measured."""
    for name, value in vars(args).items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and not isinstance(number, bool) and not 1 <= number <= MOST:
                raise InputError(f"--{name.replace('_', '-')} {number}: give 1 to {MOST}")
    for path in (args.json, args.plot, args.report):
        directory = os.path.dirname(os.path.abspath(path)) if path else "."
        if not os.path.isdir(directory):
            raise InputError(f"{path}: the directory {directory} does not exist")
    if args.plot:
        logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns on the log of every package
        require_matplotlib("leave --plot out")


def run(args: argparse.Namespace) -> None:
    import torch

    check(args)
    try:
        device = torch.device(args.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {args.device}: {str(error).splitlines()[0]}") from None
    if args.threads:
        torch.set_num_threads(args.threads)
    bench = importlib.import_module(f"fairseq_rela.bench.{args.bench}")
    measured: List = []
    unit, threads = None, torch.get_num_threads()
    print(f"torch {torch.__version__}, {device}, {threads} threads, median of {args.repeats}", flush=True)
    for results in progress(bench.results(args, device), "measured", bench.steps(args)):
        for result in results:  # printed at once, so that an interrupted run has shown what it measured
            if result.unit != unit:
                unit = result.unit
                print(header(unit), flush=True)
            measured.append(result)
            print(line(result), flush=True)
    notes = [*mean_lines(measured), *bench.notes(args, measured)]
    print("\n".join(notes))
    if args.report:
        report = importlib.import_module("fairseq_rela.bench.report").page(args.bench, args, device, measured, notes)
        write_text_atomically(args.report, report)
    if args.json:
        text = json.dumps([result.as_json() for result in measured], indent=1) + "\n"
        write_text_atomically(args.json, text)
    if args.plot:
        draw = bench.draw(args) if hasattr(bench, "draw") else bars
        plot(draw, getattr(bench, "PANELS", 1), measured, args.plot)
