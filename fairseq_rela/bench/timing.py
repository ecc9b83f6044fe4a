"""What is compared is measured in turn, A B C A B C …, so that a busy machine slows all of it alike."""

import statistics
import time
from collections import defaultdict
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

Run = Callable[[], object]


class Result(NamedTuple):
    """One case: medians over the repeats, in seconds a run or in bytes; None of what found no memory to run in."""

    case: str
    ours: Optional[float]
    baseline: Optional[float]
    spread: Optional[float]  # of the ratio: the interquartile range over the repeats
    limit: Optional[float] = None  # the same work with (almost) no attention
    unit: str = "s"  # or "bytes"

    @property
    def ratio(self) -> Optional[float]:
        """baseline ÷ ours: above 1, ours is faster (or smaller)."""
        return self.baseline / self.ours if self.ours and self.baseline else None

    def as_json(self) -> Dict[str, object]:
        return {
            "case": self.case,
            "unit": self.unit,
            "ours_s": self.ours,  # the names of the first bench, which knew seconds only
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


def result(case: str, ours: List[float], baseline: List[float], limit: Sequence[float] = (), unit: str = "s") -> Result:
    """The case, from the repeats of each; none where it could not be run."""
    middles = [statistics.median(values) if values else None for values in (ours, baseline, limit)]
    spread = interquartile_range([b / o for b, o in zip(baseline, ours)]) if ours and baseline else None
    return Result(case, middles[0], middles[1], spread, middles[2], unit)


def compare(cases: Dict[str, str], runs: Dict[str, Run], repeats: int, device: torch.device) -> List[Result]:
    """One result a case; `cases` names the baseline of each, `runs` holds "ours", the baselines and perhaps "limit"."""
    times: Dict[str, List[float]] = defaultdict(list, interleaved(runs, repeats, device))
    return [result(case, times["ours"], times[baseline], times["limit"]) for case, baseline in cases.items()]
