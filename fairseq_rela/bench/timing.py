"""What is compared is measured in turn, A B C A B C …, so that a busy machine slows all of it alike."""

import statistics
import time
from typing import Callable, Dict, List, NamedTuple, Optional

import torch

Run = Callable[[], object]


class Result(NamedTuple):
    """One case. Seconds a run, or bytes for memory: medians over the repeats."""

    case: str
    ours: float
    baseline: float
    spread: float  # of the ratio: the interquartile range over the repeats
    limit: Optional[float] = None  # the same work with (almost) no attention

    @property
    def ratio(self) -> float:
        """baseline ÷ ours: above 1, ours is faster (or smaller)."""
        return self.baseline / self.ours

    def as_json(self) -> Dict[str, object]:
        return {
            "case": self.case,
            "ours_s": self.ours,
            "baseline_s": self.baseline,
            "ratio": self.ratio,
            "spread": self.spread,
        }


def wait_for(device: torch.device) -> None:
    """Return when the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run: Run, device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    run()
    wait_for(device)
    return time.perf_counter() - start


def interleaved(runs: Dict[str, Run], repeats: int, device: torch.device) -> Dict[str, List[float]]:
    """The seconds of every repeat of each run, after one of each to warm up."""
    for run in runs.values():
        run()
    times: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(seconds(run, device))
    return times


def interquartile_range(values: List[float]) -> float:
    if len(values) < 2:
        return 0.0
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return quarters[2] - quarters[0]


def compare(cases: Dict[str, str], runs: Dict[str, Run], repeats: int, device: torch.device) -> List[Result]:
    """One result a case; `cases` names the baseline of each, `runs` holds "ours", the baselines and perhaps "limit"."""
    times = interleaved(runs, repeats, device)
    limit = statistics.median(times["limit"]) if "limit" in times else None
    return [
        Result(
            case,
            statistics.median(times["ours"]),
            statistics.median(times[baseline]),
            interquartile_range([b / o for b, o in zip(times[baseline], times["ours"])]),
            limit,
        )
        for case, baseline in cases.items()
    ]
