"""Several runs of one model: the mean of their numbers, and the spread."""

import statistics
from typing import Any, Callable, Dict, List, Optional

from fairseq_rela.errors import InputError

# What can be averaged. Heads of different runs have nothing in common but their number, so that what is said of single
# heads (which is best, which fires after what) stays with each run.
_AVERAGED = (
    "sparsity",
    "sparsity_heads",
    "null_rate",
    "null_rate_heads",
    "null_rate_variance",
    "null_rate_shuffled",
    "null_rate_heads_shuffled",
    "diversity",
    "diversity_tau",
    "alignment",
    "alignment_eos",
)
_OF_ONE_RUN = ("best_head_index",)


def over_seeds(name: str, runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """One entry of `metrics.json` from the metrics of each run: themselves if there is one, else mean and spread."""
    if len(runs) == 1:
        return runs[0]
    for run in runs[1:]:
        if (run["attention"], run["layers"]) != (runs[0]["attention"], runs[0]["layers"]):
            raise InputError(f"dumps named {name!r} are of different models; give them different names: NAME=DUMP")
    same = {key: runs[0][key] for key in ("model", "attention", "sentences", "layers")}
    averaged = {key: _merged([run[key] for run in runs], _mean) for key in _AVERAGED if key in runs[0]}
    spread = {key: _merged([run[key] for run in runs], _deviation) for key in _AVERAGED if key in runs[0]}
    return {**same, **averaged, "seeds": len(runs), "spread": spread, "runs": runs}


def _merged(values: List[Any], combine: Callable[[List[float]], float]) -> Optional[Any]:
    """The same nested lists and dictionaries, with the numbers at each place combined into one."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _merged([value[key] for value in values], combine) for key in first if key not in _OF_ONE_RUN}
    if isinstance(first, list):
        return [_merged(list(column), combine) for column in zip(*values)]
    return None if any(value is None for value in values) else combine(values)


def _mean(values: List[float]) -> float:
    return statistics.fmean(values)


def _deviation(values: List[float]) -> float:
    """The sample standard deviation."""
    return statistics.stdev(values)
