"""The numbers of an analysis, as typed values, and their form in `metrics.json`."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from fairseq_rela.analysis.nulls import Condition

LayerValues = Dict[str, List[float]]  # kind → one value per layer
HeadValues = Dict[str, List[List[float]]]  # kind → layer → one value per head
TauValues = Dict[str, Dict[str, List[float]]]  # kind → τ → one value per layer


@dataclass(frozen=True)
class HeldOutError:
    """Alignment error rates of the odd sentences. The best heads were chosen on the even ones."""

    layer: List[float]
    best_head: List[float]
    AoL: float
    AoH: float
    best_head_index: Optional[List[int]]

    def to_json(self) -> Dict[str, Any]:
        return _without_none(_shallow(self))


@dataclass(frozen=True)
class AlignmentError:
    """Alignment error rates by layer: of the mean over heads, and of the best head (Figure 4, Table 5)."""

    layer: List[float]
    best_head: List[float]
    AoL: float  # the mean of `layer`
    AoH: float  # the mean of `best_head`
    heads: List[List[float]]
    best_head_index: Optional[List[int]]  # None in a mean over seeds: heads of different runs cannot be compared
    held_out: Optional[HeldOutError]  # None if one half of the sentences is empty

    def to_json(self) -> Dict[str, Any]:
        held_out = self.held_out.to_json() if self.held_out else None
        return {**_without_none(_shallow(self)), "held_out": held_out}


RowErrors = Dict[str, AlignmentError]  # "normal" or "shifted" → error rates


@dataclass(frozen=True)
class Rates:
    """All numbers that can be averaged over seeds. The fields that may be None depend on the input given."""

    sparsity: LayerValues
    sparsity_heads: HeadValues
    null_rate: LayerValues
    null_rate_heads: HeadValues
    null_rate_variance: LayerValues
    diversity: LayerValues
    diversity_tau: TauValues
    null_rate_layer: Optional[LayerValues] = None  # of the layer attention, the mean over heads
    null_rate_shuffled: Optional[LayerValues] = None  # with --shuffled
    null_rate_heads_shuffled: Optional[HeadValues] = None
    alignment: Optional[RowErrors] = None  # with --gold
    alignment_eos: Optional[Dict[str, RowErrors]] = None  # treatment of </s> → rows → error rates
    alignment_norms: Optional[RowErrors] = None  # of links by norms, where the dump has them
    alignment_norms_eos: Optional[Dict[str, RowErrors]] = None

    def to_json(self) -> Dict[str, Any]:
        fields = _without_none(_shallow(self))
        for name in ("alignment", "alignment_norms"):
            if name in fields:
                fields[name] = _rows_to_json(fields[name])
            if f"{name}_eos" in fields:
                fields[f"{name}_eos"] = {eos: _rows_to_json(rows) for eos, rows in fields[f"{name}_eos"].items()}
        return fields


@dataclass(frozen=True)
class TagNulls:
    """Null rates of the cross-attention heads after target words with one tag."""

    count: int
    null_rate_heads: List[List[float]]


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of one dump."""

    model: str
    attention: Dict[str, str]  # kind → name of the attention
    sentences: int
    layers: Dict[str, List[int]]  # kind → numbers of the recorded layers
    dump: str
    rates: Rates
    null_after_words: Optional[List[Condition]] = None  # None without cross attention
    null_after_tags: Optional[Dict[str, TagNulls]] = None  # with --target-tags

    def description(self) -> Dict[str, Any]:
        """What the model and the data are, without any measured number."""
        return {name: getattr(self, name) for name in ("model", "attention", "sentences", "layers")}

    def to_json(self) -> Dict[str, Any]:
        fields = {**self.description(), **self.rates.to_json()}
        if self.null_after_words is not None:
            fields["null_after_words"] = [_shallow(condition) for condition in self.null_after_words]
        if self.null_after_tags is not None:
            fields["null_after_tags"] = {tag: _shallow(nulls) for tag, nulls in self.null_after_tags.items()}
        return {**fields, "dumps": [self.dump]}


@dataclass(frozen=True)
class ModelMetrics:
    """The metrics of one model: those of its run, or the mean and the spread over its runs (seeds)."""

    runs: List[RunMetrics]
    rates: Rates  # the mean over the runs
    spread: Optional[Rates] = None  # the standard deviation over the runs; None if there is one run

    @property
    def first(self) -> RunMetrics:
        return self.runs[0]

    @property
    def layers(self) -> Dict[str, List[int]]:
        return self.first.layers

    def to_json(self) -> Dict[str, Any]:
        if self.spread is None:
            return self.first.to_json()
        return {
            **self.first.description(),
            **self.rates.to_json(),
            "seeds": len(self.runs),
            "spread": self.spread.to_json(),
            "runs": [run.to_json() for run in self.runs],
            "dumps": [run.dump for run in self.runs],
        }


Models = Dict[str, ModelMetrics]  # by the model's name


def _shallow(value: Any) -> Dict[str, Any]:
    """The fields of a dataclass, without copying what they hold."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _without_none(fields: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _rows_to_json(rows: RowErrors) -> Dict[str, Any]:
    return {name: error.to_json() for name, error in rows.items()}
