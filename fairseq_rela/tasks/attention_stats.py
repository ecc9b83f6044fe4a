"""Telemetry while training: what attention does to the validation set, as metrics of fairseq's own.

    fairseq-train DATA --user-dir fairseq_rela --task translation_attention --attn-stats …

They are named by kind and layer, as `attn_sparsity/cross_3`, and go where the loss goes: the log, TensorBoard,
Weights & Biases. Validation counts in the pass it makes anyway; a training step does nothing for it.
"""

import contextlib
import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from torch import Tensor, nn

from fairseq_rela.attention.activations import widened
from fairseq_rela.attention.norms import Gated
from fairseq_rela.recording.device_stats import count, visible_positions
from fairseq_rela.recording.info import KINDS
from fairseq_rela.recording.recorder import (
    Recording,
    Views,
    find_attention,
    keys_of,
    queries_of,
    record_attention,
    select,
)

logger = logging.getLogger(__name__)

# What is counted in a layer: sums over its heads, then, from HEADS on, the queries that attend to something, by head.
# Only sums, so that those of batches and of workers add up; one array a kind, since fairseq adds up arrays as well.
QUERIES, VISIBLE, NONZERO, SIZE, GATES, SATURATED, HEADS = range(7)

# a gate is saturated below 0.05 and above 0.95: σ(x) > 0.95 if x > ln 19
SATURATION = math.log(0.95 / 0.05)
BEHIND_ALL_OTHERS = 1000  # in the log, whose lines begin as they do without


@dataclass
class AttentionStatsConfig(FairseqDataclass):
    attn_stats: bool = field(
        default=False,
        metadata={
            "help": "at each validation, log sparsity, null rate, dead heads, gate saturation and weight scale of "
            "every kind and layer of attention, and warn of heads that attend to nothing"
        },
    )


class AttentionStats:
    """A fairseq task's `--attn-stats`; stands before the task among the bases. Generation takes no notice of it."""

    attn_stats = False
    _in_training = False

    def build_model(self, cfg, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        if self.attn_stats and not from_checkpoint:
            select(find_attention(model))  # what has no attention is told now, not after the first epoch
        return model

    def begin_valid_epoch(self, epoch, model) -> None:
        super().begin_valid_epoch(epoch, model)
        self._in_training = True

    def valid_step(self, sample, model, criterion):
        if not self.attn_stats:
            return super().valid_step(sample, model, criterion)

        # only the criterion's pass is recorded: with --eval-bleu, a search follows it
        def recorded(model: nn.Module, sample: Dict[str, Any]) -> Tuple[Any, Any, Dict[str, Any]]:
            with record_attention(model) as recording, watch_gates(find_attention(model)) as gates:
                loss, sample_size, logging_output = criterion(model, sample)
            logging_output.update(count_attention(recording, gates, self._present(sample["net_input"])))
            return loss, sample_size, logging_output

        return super().valid_step(sample, model, recorded)

    def _present(self, net_input: Dict[str, Tensor]) -> Dict[str, Tensor]:
        """Where there is no padding, (B, S) and (B, T). A language model's only input is its target."""
        source = net_input["src_tokens"].ne(self.source_dictionary.pad())
        if "prev_output_tokens" not in net_input:
            return {"source": source, "target": source}
        return {"source": source, "target": net_input["prev_output_tokens"].ne(self.target_dictionary.pad())}

    def reduce_metrics(self, logging_outputs: List[Dict[str, Any]], criterion) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        counts = sum_counts(logging_outputs)
        for kind in counts:
            log_counts(kind, counts[kind])
        if not self._in_training:  # fairseq-validate: it reduces once, at the end, and has no `post_validate`
            warn_of_dead_heads(counts)

    def post_validate(self, model: nn.Module, stats: Dict[str, Any], agg: MetersDict) -> None:
        warn_of_dead_heads({kind: agg[f"_attn_{kind}"].sum for kind in KINDS if f"_attn_{kind}" in agg})


class GateCount:
    """A hook: how many gates of each query were saturated when a norm was last called."""

    def __init__(self) -> None:
        self.width = 0
        self.saturated: Optional[Tensor] = None  # (T, B)

    def __call__(self, norm: Gated, inputs: Tuple[Tensor, ...]) -> None:
        z = widened(inputs[0])  # (T, B, d)
        self.width = z.size(-1)
        self.saturated = (norm.gate.to(z.dtype) * z).abs().gt(SATURATION).sum(dim=-1)


Gates = Dict[str, Dict[int, List[GateCount]]]  # kind → layer → its gated modules, if there are any


@contextlib.contextmanager
def watch_gates(views: Views) -> Iterator[Gates]:
    """Count what the gates do inside the `with`."""
    hooks: Dict[Gated, GateCount] = {}  # one a module: a joint attention is in two kinds
    gates: Gates = {kind: {} for kind in views}
    with contextlib.ExitStack() as undo:
        for kind, layers in views.items():
            for layer, looks in layers.items():
                norms = [getattr(view.watch.module, "norm", None) for view in looks]
                gated = [norm for norm in norms if isinstance(norm, Gated)]
                for norm in gated:
                    if norm not in hooks:
                        hooks[norm] = GateCount()
                        undo.callback(norm.register_forward_pre_hook(hooks[norm]).remove)
                gates[kind][layer] = [hooks[norm] for norm in gated]
        yield gates


def count_attention(recording: Recording, gates: Gates, present: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """What a batch adds to the logging output: `_attn_cross` (model's layers, HEADS + H) and so on, on the device."""
    found = {}
    for kind, info in recording.info.items():
        queries, keys = present[queries_of(kind)], present[keys_of(kind)]
        rows = count_weights(recording.weights(kind), queries, keys, causal=kind == "decoder")
        for row, layer in zip(rows, info.layers):
            for gated in gates[kind][layer]:
                row[GATES] += queries.sum() * gated.width
                row[SATURATED] += (gated.saturated * queries.t()).sum()
        # by number: a layer of another sort leaves an empty row
        counts = rows.new_zeros(info.model_layers, rows.size(1))
        counts[list(info.layers)] = rows
        found[f"_attn_{kind}"] = counts
    return found


def count_weights(weights: Tensor, queries: Tensor, keys: Tensor, causal: bool) -> Tensor:
    """(L, HEADS + H) float64 without the gates; weights (L, H, B, T, S), the rest as in `visible_positions`."""
    layers, heads = weights.shape[:2]
    visible = visible_positions(queries, keys, causal)
    found = count(weights, visible)
    rows = torch.zeros(layers, HEADS + heads, dtype=torch.float64, device=weights.device)
    rows[:, QUERIES] = visible.any(dim=2).sum() * heads
    rows[:, VISIBLE] = visible.sum() * heads
    rows[:, NONZERO] = found.nonzero.sum(dim=(1, 2)).double()
    rows[:, SIZE] = found.size.sum(dim=(1, 2))
    rows[:, HEADS:] = found.attending.sum(dim=2).double()
    return rows


def sum_counts(logging_outputs: List[Dict[str, Any]]) -> Dict[str, np.ndarray]:
    """Kind → (layers, HEADS + H); empty for what was not validated with --attn-stats."""
    found = {}
    for kind in KINDS:
        counts = [log[f"_attn_{kind}"] for log in logging_outputs if f"_attn_{kind}" in log]
        if counts:
            found[kind] = sum(counts).cpu().numpy()
    return found


def log_counts(kind: str, counts: np.ndarray) -> None:
    """Tell fairseq's metrics of some batches: the counts, which it adds up, and what is derived from all of them."""
    metrics.log_scalar(f"_attn_{kind}", counts)  # an underscore: not shown
    for layer, row in enumerate(counts):
        if not row[QUERIES]:
            continue
        for name, metric in METRICS.items():
            if name != "gate_saturation" or row[GATES]:
                shown = partial(_derived, kind=kind, layer=layer, metric=metric)
                metrics.log_derived(f"attn_{name}/{kind}_{layer}", shown, priority=BEHIND_ALL_OTHERS)


def _derived(meters: MetersDict, kind: str, layer: int, metric: Callable[[np.ndarray], float]) -> float:
    return metric(meters[f"_attn_{kind}"].sum[layer])


def sparsity(row: np.ndarray) -> float:
    """The share of weights that are exactly 0, of those a query may see."""
    return round(1 - float(row[NONZERO] / row[VISIBLE]), 4)


def null_rate(row: np.ndarray) -> float:
    """The share of queries whose visible weights are all 0."""
    return round(1 - float(row[HEADS:].sum() / row[QUERIES]), 4)


def dead_heads(row: np.ndarray) -> int:
    """How many heads are null for every query."""
    return int((row[HEADS:] == 0).sum())


def gate_saturation(row: np.ndarray) -> float:
    """The share of gates σ(w ⊙ z) below 0.05 or above 0.95."""
    return round(float(row[SATURATED] / row[GATES]), 4)


def weight_scale(row: np.ndarray) -> float:
    """The mean size |α| of the weights that are not 0; 0 if all are."""
    return round(float(row[SIZE] / max(row[NONZERO], 1)), 6)


METRICS: Dict[str, Callable[[np.ndarray], float]] = {
    metric.__name__: metric for metric in (sparsity, null_rate, dead_heads, gate_saturation, weight_scale)
}


def warn_of_dead_heads(counts: Dict[str, np.ndarray]) -> None:
    """One line that names them, of the first worker only: all have the same counts."""
    dead = [
        (kind, layer, np.flatnonzero(row[HEADS:] == 0).tolist())
        for kind in counts
        for layer, row in enumerate(counts[kind])
        if row[QUERIES] and dead_heads(row)
    ]
    if not dead or distributed_utils.get_global_rank() != 0:
        return
    number = sum(len(heads) for _, _, heads in dead)
    places = [
        f"{kind} layer {layer} head{'s' if len(heads) > 1 else ''} {', '.join(map(str, heads))}"
        for kind, layer, heads in dead
    ]
    logger.warning(
        f"{number} head{'s' if number > 1 else ''} attended to nothing in the whole validation: {'; '.join(places)}"
    )
