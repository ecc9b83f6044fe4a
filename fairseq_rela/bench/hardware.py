"""The device and the number format of a measurement, and how to measure time on that device."""

import argparse
import platform
import time
from typing import Callable, Dict, List, Optional

import torch

from fairseq_rela import __version__
from fairseq_rela.attention import kernels

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Rounds that are not counted. Kernels are compiled in the first one, and the clock of a GPU rises in the others.
WARM_UPS = {"cpu": 1, "cuda": 3}
CACHE = 256 * 2**20  # bytes, more than the L2 cache of any GPU so far

_flushed: Dict[torch.device, torch.Tensor] = {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: cpu)")
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32", help="of models and inputs (default: fp32)")


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def warm_ups(device: torch.device) -> int:
    return WARM_UPS.get(device.type, 1)


def flush_cache(device: torch.device) -> None:
    """Overwrite the L2 cache of a GPU, so that no run finds the data of another one there."""
    if device not in _flushed:
        _flushed[device] = torch.empty(CACHE, dtype=torch.int8, device=device)
    _flushed[device].zero_()


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """How long `run` takes. On a CPU by the clock, on a GPU between two events in its queue."""
    if device.type == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            flush_cache(device)
            wait_for(device)
            start.record()
            run()
            stop.record()
            wait_for(device)
        return start.elapsed_time(stop) / 1e3
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def version_of(module: str) -> Optional[str]:
    """The version of an installed package, or None if it is not installed."""
    try:
        return __import__(module).__version__
    except ImportError:
        return None


def device_name(device: torch.device) -> str:
    if device.type != "cuda":
        return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    properties = torch.cuda.get_device_properties(device)
    capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    return f"{properties.name}, capability {capability}, {properties.total_memory / 2**30:.0f} GB"


def description(device: torch.device, dtype: str) -> List[str]:
    """The lines of a report that describe the device and the versions of the software."""
    q = torch.empty(1, 1, 64, dtype=DTYPES[dtype], device=device)
    platform_version = torch.version.cuda or getattr(torch.version, "hip", None)
    versions = {
        "fairseq-rela": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA or ROCm": platform_version,
        "Triton": version_of("triton"),
        "fairseq": version_of("fairseq"),
        "entmax": version_of("entmax"),
    }
    return [
        f"- device: {device} ({device_name(device)})",
        f"- dtype: {dtype}",
        f"- kernels for heads of width 64: {'used' if kernels.usable(q, q, q, 'relu') else 'not used'}",
        *(f"- {name}: {version or 'none'}" for name, version in versions.items()),
    ]
