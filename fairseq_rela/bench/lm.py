"""Language models: time and peak memory of a training step by context length, against stock fairseq's `transformer_lm`.

The input is one sequence of random tokens for each of --lengths. A step is forward, backward and the optimizer's; with
--mode eval it is the forward pass alone. `limit` is the stock model without attention. Memory is the growth of the peak
in one step. Each model is measured in a new process, and only once, because it hardly differs from run to run. A model
that needs more than --memory-limit is shown as "no memory" and is not timed. --plot draws both by context length.
"""

import argparse
import contextlib
import json
import sys
from typing import Callable, Iterator, List, Optional, Set, Tuple

import torch
import torch.nn.functional as F

from fairseq_rela.bench import models
from fairseq_rela.bench.hardware import DTYPES
from fairseq_rela.bench.memory import WARM_UP, OutOfMemory, growth_in, in_process
from fairseq_rela.bench.timing import Result, compare, result
from fairseq_rela.bench.train import step
from fairseq_rela.errors import InputError

PANELS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.set_defaults(size="tiny")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="T")
    parser.add_argument("--mode", choices=["train", "eval"], default="train", help="(default: train)")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--memory-limit", type=float, metavar="GB", help="for one step on a CPU (default: nine tenths of what is free)"
    )


def work(attention: str, length: int, setting: dict, device: torch.device) -> Callable[[int], Callable[[], None]]:
    """A function that takes a number of tokens, at most `length`, and returns the step to measure on so many tokens."""
    words = models.dictionary(setting["vocabulary"])
    flags = {"dropout": setting["dropout"], "tokens_per_sample": length, "max_target_positions": length}
    model = models.build_lm(attention, setting["size"], words, **flags).to(device, DTYPES[setting["dtype"]])

    def step_on(tokens: int) -> Callable[[], None]:
        batch, target = models.text(tokens, words, device)
        if setting["mode"] == "train":
            return step(model, batch, target, words.pad())
        return scored(model.eval(), batch, target)

    return step_on


def scored(model: torch.nn.Module, batch: dict, target: torch.Tensor) -> Callable[[], None]:
    """A function that computes the loss of the batch once, as fairseq-eval-lm does."""

    def run() -> None:
        with torch.no_grad():
            F.cross_entropy(model(**batch)[0].flatten(0, 1).float(), target.flatten())

    return run


def free_memory() -> Optional[int]:
    """Free memory in bytes. None if the system does not tell; Linux does."""
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    return None


def limit_memory(limit: Optional[int]) -> None:
    """Let this process take at most `limit` more bytes, so that it fails before the system has to kill a process."""
    if limit is None:
        return
    import resource  # not on every system

    with open("/proc/self/status") as file:
        now = next(int(line.split()[1]) for line in file if line.startswith("VmSize")) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (now + limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def growth(attention: str, length: int, setting: dict, limit: Optional[int], device: torch.device) -> int:
    """Bytes by which the peak of this process grows in one step."""
    step_on = work(attention, length, setting, device)
    step_on(min(WARM_UP, length))()
    run = step_on(length)
    limit_memory(limit)
    return growth_in(run, device)


def settings(args: argparse.Namespace) -> dict:
    """The settings, apart from the length, that a measurement depends on."""
    return {name: getattr(args, name) for name in ("size", "vocabulary", "mode", "dropout", "dtype")}


def memory_limit(args: argparse.Namespace, device: torch.device) -> Optional[int]:
    """How many bytes one step may take. None if no limit can be set."""
    free = free_memory()
    if device.type != "cpu" or free is None:
        return None
    return int(args.memory_limit * 1e9) if args.memory_limit is not None else free * 9 // 10


def measured_memory(args: argparse.Namespace, length: int, device: torch.device) -> Tuple[Result, Set[str]]:
    """The result, and which of "ours" and "stock" ran out of memory."""
    values = {}
    for name, attention in (("ours", args.attention), ("stock", "stock")):
        question = (attention, length, settings(args), memory_limit(args, device), str(device), torch.get_num_threads())
        try:
            values[name] = [in_process(__name__, f"{attention} at T = {length}", *question)]
        except OutOfMemory:
            values[name] = []
    failed = {name for name, value in values.items() if not value}
    return result(f"lm/T{length}/memory", values["ours"], values["stock"], unit="bytes"), failed


def measured_time(args: argparse.Namespace, length: int, without: Set[str], device: torch.device) -> Result:
    """The time of a step of all models except those in `without`, which ran out of memory."""
    contenders = {"ours": args.attention, "stock": "stock", "limit": "limit"}
    runs = {
        name: work(attention, length, settings(args), device)(length)
        for name, attention in contenders.items()
        if name not in without
    }
    return compare({f"lm/T{length}/time": "stock"}, runs, args.repeats, device)[0]


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    if args.memory_limit is not None and args.memory_limit <= 0:
        raise InputError(f"--memory-limit {args.memory_limit}: give more than 0")
    models.build_lm(args.attention, args.size, models.dictionary(args.vocabulary))  # fails now if a name is unknown
    failed = {}
    for length in args.lengths:  # memory first, because a model that runs out of it must not run in this process
        memory, failed[length] = measured_memory(args, length, device)
        yield [memory]
    for length in args.lengths:
        yield [measured_time(args, length, failed[length], device)]


def steps(args: argparse.Namespace) -> int:
    return 2 * len(args.lengths)


def length_of(r: Result) -> int:
    return int(r.case.split("/")[1][1:])


def notes(args: argparse.Namespace, measured: List[Result]) -> List[str]:
    words = models.dictionary(args.vocabulary)
    ours, stock = (models.parameters(models.build_lm(a, args.size, words)) for a in (args.attention, "stock"))
    lines = [f"parameters: ours {ours:,}, stock {stock:,} ({ours - stock:+,})"]
    for name, values in (("ours", [r.ours for r in measured]), ("stock", [r.baseline for r in measured])):
        per_token = ", ".join(
            f"T {length_of(r)} {value / length_of(r) / 1e3:,.0f}"
            for r, value in zip(measured, values)
            if r.unit == "bytes" and value
        )
        lines.append(f"kB for each token, {name}: {per_token or '-'}")
    return lines


def draw(args: argparse.Namespace) -> Callable:
    """Time and memory by context length, one line per model."""

    def panels(axes, measured: List[Result]) -> None:
        for panel, unit, scale, label in zip(axes, ("s", "bytes"), (1.0, 1e-6), ("seconds per step", "MB per step")):
            rows = sorted((length_of(r), r.ours, r.baseline) for r in measured if r.unit == unit)
            for name, column in ((f"transformer_lm_{args.attention}", 1), ("stock transformer_lm", 2)):
                points = [(row[0], y * scale) for row in rows for y in row[column : column + 1] if y is not None]
                panel.plot(*zip(*points) if points else ((), ()), marker="o", label=name)
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks([row[0] for row in rows])
            for axis in (panel.xaxis, panel.yaxis):  # 1024, not 2¹⁰
                axis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")  # minor labels would overlap
            panel.set_xlabel("context length")
            panel.set_ylabel(label)
            panel.legend()

    return panels


if __name__ == "__main__":
    _attention, _length, _setting, _limit, _device, _threads = json.loads(sys.argv[1])
    torch.set_num_threads(_threads)
    print(growth(_attention, _length, _setting, _limit, torch.device(_device)))
