"""Several runs of one model (seeds): the mean of their numbers, and the spread."""

import dataclasses
import statistics
from typing import Any, Callable, Dict, List

from fairseq_rela.analysis.metrics import ModelMetrics, RunMetrics
from fairseq_rela.errors import InputError

# Head 3 of one run has nothing in common with head 3 of another run, so numbers of heads are not averaged.
_OF_ONE_RUN = ("best_head_index",)


def over_seeds(name: str, runs: List[RunMetrics]) -> ModelMetrics:
    """The metrics of the model `name`: those of its only run, or the mean and the sample standard deviation."""
    if len(runs) == 1:
        return ModelMetrics(runs, runs[0].rates)
    for run in runs[1:]:
        if (run.attention, run.layers) != (runs[0].attention, runs[0].layers):
            raise InputError(f"dumps named {name!r} are of different models; give them different names: NAME=DUMP")
    rates = [run.rates for run in runs]
    return ModelMetrics(runs, _combined(rates, statistics.fmean), _combined(rates, statistics.stdev))


def _combined(values: List[Any], combine: Callable[[List[float]], float]) -> Any:
    """One value of the same structure, with the numbers at each place combined. None if one of the values is None."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        by_field: Dict[str, List[Any]] = {
            field.name: [getattr(value, field.name) for value in values] for field in dataclasses.fields(first)
        }
        combined = {
            name: None if name in _OF_ONE_RUN else _combined(column, combine) for name, column in by_field.items()
        }
        return type(first)(**combined)
    if isinstance(first, dict):
        return {key: _combined([value[key] for value in values], combine) for key in first}
    if isinstance(first, list):
        return [_combined(list(column), combine) for column in zip(*values)]
    return combine(values)
