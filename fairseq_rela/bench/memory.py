"""Memory: how much the peak grows in a forward and a backward pass, against torch's scaled_dot_product_attention.

Each measurement is made in a new process. On a GPU it is the peak of torch's allocator. The numbers are bytes.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Callable, Iterator, List

import torch

from fairseq_rela.bench.hardware import DTYPES
from fairseq_rela.bench.op import rectified, sdpa
from fairseq_rela.bench.timing import Result, result
from fairseq_rela.errors import InputError

WARM_UP = 64
# parts of what torch, its libraries and Python say when there is no memory left
NO_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "memoryerror")


class OutOfMemory(InputError):
    """The measurement needs more memory than there is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384], metavar="T")
    parser.add_argument("--heads", type=int, default=8, help="batch × heads (default: 8)")
    parser.add_argument("--width", type=int, default=64, help="of a head (default: 64)")


def forget_peak(device: torch.device) -> None:
    """Reset the peak to the memory in use now. Only Linux can do that; on other systems the peak stays as it was."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak(device: torch.device) -> int:
    """The peak memory of this process so far, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def growth_in(run: Callable[[], object], device: torch.device) -> int:
    """Bytes by which the peak of this process grows in `run`. Libraries should be loaded before, or they count too."""
    forget_peak(device)
    before = peak(device)
    run()
    return max(1, peak(device) - before)


def growth(attention: str, length: int, heads: int, width: int, dtype: str, device: torch.device) -> int:
    """Bytes by which the peak of this process grows in one forward and backward pass."""

    def run(length: int, inputs: List[torch.Tensor]) -> None:
        q, k, v = (x[..., :length, :].detach().requires_grad_() for x in inputs[:3])
        if attention == "sdpa":
            out = sdpa(q, k, v, False)
        else:
            out = rectified(q, k, v, False)
        torch.autograd.grad(out, (q, k, v), inputs[3][..., :length, :].to(out.dtype))

    inputs = [torch.randn(1, heads, length, width, device=device).to(DTYPES[dtype]) for _ in range(4)]
    run(min(WARM_UP, length), inputs)  # loads the libraries and starts their threads
    return growth_in(lambda: run(length, inputs), device)


def in_process(module: str, what: str, *question: object) -> int:
    """Run `python -m module` in a new process with `question` as JSON. Returns the number that it prints.

    `what` says in messages what is measured.
    """
    # malloc should return large blocks to the system at once: what it keeps for later would be counted
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", module, json.dumps(question)]
    done = subprocess.run(command, env=env, text=True, capture_output=True)
    if done.returncode == -signal.SIGKILL:
        raise OutOfMemory(f"measuring {what} was killed: the system ran out of memory")
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        kind = OutOfMemory if any(words in reason.lower() for words in NO_MEMORY) else InputError
        raise kind(f"measuring {what} failed: {reason}")
    return int(done.stdout.split()[-1])


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    for length in args.lengths:
        ours: List[int] = []
        baseline: List[int] = []
        for _ in range(args.repeats):
            for name, values in (("ours", ours), ("sdpa", baseline)):
                shape = (length, args.heads, args.width, args.dtype)
                values.append(
                    in_process(__name__, f"{name} at T = {length}", name, *shape, str(device), torch.get_num_threads())
                )
        yield [result(f"memory/T{length}", ours, baseline, unit="bytes")]


def steps(args: argparse.Namespace) -> int:
    return len(args.lengths)


def notes(args: argparse.Namespace, measured: List[Result]) -> List[str]:
    return [
        "bytes for each query: "
        + ", ".join(f"T {r.case[8:]} {r.ours / int(r.case[8:]):,.0f}" for r in measured if r.ours)
    ]


if __name__ == "__main__":
    _attention, _length, _heads, _width, _dtype, _device, _threads = json.loads(sys.argv[1])
    torch.set_num_threads(_threads)
    print(growth(_attention, _length, _heads, _width, _dtype, torch.device(_device)))
