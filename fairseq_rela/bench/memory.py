"""Memory: how much the peak grows in a forward and a backward pass, against scaled_dot_product_attention.

Each is measured in a process of its own (on a GPU: the peak of its allocator). The numbers are bytes.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from typing import Iterator, List

import torch

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.bench.op import sdpa, streamed
from fairseq_rela.bench.timing import Result, interquartile_range
from fairseq_rela.errors import InputError

WARM_UP = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384], metavar="T")
    parser.add_argument("--heads", type=int, default=8, help="batch × heads (default: 8)")
    parser.add_argument("--width", type=int, default=64, help="of a head (default: 64)")


def forget_peak() -> None:
    """Let the peak be what is in use now; where the system cannot, it stays what it was (Linux can)."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak(device: torch.device) -> int:
    """Bytes at most in use so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def growth(attention: str, length: int, heads: int, width: int, device: torch.device) -> int:
    """Bytes by which the peak of this process grows in one forward and backward pass."""

    def run(length: int, inputs: List[torch.Tensor]) -> None:
        q, k, v = (x[..., :length, :].detach().requires_grad_() for x in inputs[:3])
        if attention == "sdpa":
            out = sdpa(q, k, v, False)
        else:
            out = streamed(q, k, v, False, ACTIVATIONS["relu"].in_place)
        torch.autograd.grad(out, (q, k, v), inputs[3][..., :length, :])

    inputs = [torch.randn(1, heads, length, width, device=device) for _ in range(4)]
    run(min(WARM_UP, length), inputs)  # libraries, and their threads, are loaded now
    forget_peak()
    before = peak(device)
    run(length, inputs)
    return max(1, peak(device) - before)


def in_process(attention: str, length: int, args: argparse.Namespace, device: torch.device) -> int:
    question = json.dumps([attention, length, args.heads, args.width, str(device), torch.get_num_threads()])
    # what malloc keeps back for later is not the attention's: give large pieces straight back
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-m", __name__, question], env=env, text=True, capture_output=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise InputError(f"measuring {attention} at T = {length} failed: {reason}")
    return int(done.stdout)


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    for length in args.lengths:
        ours, baseline = [], []
        for _ in range(args.repeats):
            ours.append(in_process("ours", length, args, device))
            baseline.append(in_process("sdpa", length, args, device))
        middle = sorted(ours)[len(ours) // 2], sorted(baseline)[len(baseline) // 2]
        spread = interquartile_range([b / o for b, o in zip(baseline, ours)])
        yield [Result(f"memory/T{length}", *map(float, middle), spread)]


def steps(args: argparse.Namespace) -> int:
    return len(args.lengths)


def notes(args: argparse.Namespace, found: List[Result]) -> List[str]:
    return ["bytes for each query: " + ", ".join(f"T {r.case[8:]} {r.ours / int(r.case[8:]):,.0f}" for r in found)]


if __name__ == "__main__":
    _attention, _length, _heads, _width, _device, _threads = json.loads(sys.argv[1])
    torch.set_num_threads(_threads)
    print(growth(_attention, _length, _heads, _width, torch.device(_device)))
