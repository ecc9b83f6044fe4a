"""Timing: the candidates run in turn, A B C A B C …, so that a busy machine slows all of them alike."""

import statistics
from collections import defaultdict
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch

from fairseq_rela.bench.hardware import seconds, wait_for, warm_ups

Run = Callable[[], object]


class Result(NamedTuple):
    """One case: medians over the repeats, in seconds per run or in bytes. None if the model ran out of memory."""

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
            f"ours_{self.unit}": self.ours,
            f"baseline_{self.unit}": self.baseline,
            "ratio": self.ratio,
            "spread": self.spread,
        }


def interleaved(runs: Mapping[str, Run], repeats: int, device: torch.device) -> Dict[str, List[float]]:
    """The seconds of every repeat of each run. Some runs come first to warm up, and are not counted."""
    for _ in range(warm_ups(device)):
        for run in runs.values():
            run()
    wait_for(device)
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


def result(
    case: str, ours: Sequence[float], baseline: Sequence[float], limit: Sequence[float] = (), unit: str = "s"
) -> Result:
    """The result of a case from the repeats of each model. The list of a model that could not run is empty."""
    middles = [statistics.median(values) if values else None for values in (ours, baseline, limit)]
    spread = interquartile_range([b / o for b, o in zip(baseline, ours)]) if ours and baseline else None
    return Result(case, middles[0], middles[1], spread, middles[2], unit)


def compare(cases: Dict[str, str], runs: Mapping[str, Run], repeats: int, device: torch.device) -> List[Result]:
    """One result per case. `cases` names the baseline of each; `runs` holds "ours", the baselines and maybe "limit"."""
    times: Dict[str, List[float]] = defaultdict(list, interleaved(runs, repeats, device))
    return [result(case, times["ours"], times[baseline], times["limit"]) for case, baseline in cases.items()]
