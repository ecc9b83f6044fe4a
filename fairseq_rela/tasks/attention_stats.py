"""Telemetry: what attention does on the validation set during training, as metrics of fairseq.

    fairseq-train DATA --user-dir fairseq_rela --task translation_attention --attn-stats \\
      --required-batch-size-multiple 1 …

The metrics are named by kind and layer, such as `attn_sparsity/cross_3`, and go where the loss goes: the log,
TensorBoard, Weights & Biases. The counting happens in the usual validation pass. Training steps do not change.
"""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from torch import Tensor, nn

from fairseq_rela.kinds import KINDS
from fairseq_rela.recording.attention_modules import find_attention, select
from fairseq_rela.recording.heads_probe import probe_heads
from fairseq_rela.recording.recorder import record_attention
from fairseq_rela.tasks.attention_counts import METRICS, NEEDS, QUERIES, count_attention, sum_counts
from fairseq_rela.tasks.attention_warnings import warn_about_heads

if TYPE_CHECKING:
    from fairseq.tasks import FairseqTask as _Task
else:
    _Task = object

logger = logging.getLogger(__name__)

LAST_IN_THE_LOG = 1000  # so that the lines of the log begin as usual


@dataclass
class AttentionStatsConfig(FairseqDataclass):
    attn_stats: bool = field(
        default=False,
        metadata={
            "help": "at each validation, log sparsity, null rate, dead heads, gate saturation, weight scale and the "
            "largest head's share of the energy, of every kind and layer of attention; warn about heads that attend "
            "to nothing, give nothing, or give NaN or infinity"
        },
    )


class AttentionStats(_Task):
    """Adds `--attn-stats` to a fairseq task. It comes before the task in the list of base classes.

    It does nothing in generation.
    """

    attn_stats = False
    _in_training = False

    def build_model(self, cfg, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        if self.attn_stats and not from_checkpoint:
            select(find_attention(model))  # a model without attention fails now, not after the first epoch
        return model

    def begin_valid_epoch(self, epoch, model) -> None:
        super().begin_valid_epoch(epoch, model)
        self._in_training = True

    def valid_step(self, sample, model, criterion):
        if not self.attn_stats:
            return super().valid_step(sample, model, criterion)

        # Only the criterion's pass is recorded. With --eval-bleu a search follows it.
        def recorded(model: nn.Module, sample: Dict[str, Any]) -> Tuple[Any, Any, Dict[str, Any]]:
            with record_attention(model) as recording, probe_heads(find_attention(model)) as probes:
                loss, sample_size, logging_output = criterion(model, sample)
            logging_output.update(count_attention(recording, probes, self._present(sample["net_input"])))
            return loss, sample_size, logging_output

        return super().valid_step(sample, model, recorded)

    def _present(self, net_input: Dict[str, Tensor]) -> Dict[str, Tensor]:
        """True where there is no padding, (B, S) and (B, T). The only input of a language model is its target."""
        source = net_input["src_tokens"].ne(self.source_dictionary.pad())
        if "prev_output_tokens" not in net_input:
            return {"source": source, "target": source}
        return {"source": source, "target": net_input["prev_output_tokens"].ne(self.target_dictionary.pad())}

    def reduce_metrics(self, logging_outputs: List[Dict[str, Any]], criterion) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        counts = sum_counts(logging_outputs)
        for kind in counts:
            log_counts(kind, counts[kind])
        if not self._in_training:  # fairseq-validate reduces once, at the end, and does not call `post_validate`
            warn_about_heads(counts)

    def post_validate(self, model: nn.Module, stats: Dict[str, Any], agg: MetersDict) -> None:
        warn_about_heads({kind: agg[f"_attn_{kind}"].sum for kind in KINDS if f"_attn_{kind}" in agg})


def log_counts(kind: str, counts: np.ndarray) -> None:
    """Log the counts of some batches, which fairseq adds up, and the metrics that are derived from the sums."""
    metrics.log_scalar(f"_attn_{kind}", counts)  # names with an underscore are not shown
    for layer, row in enumerate(counts):
        if not row[QUERIES]:
            continue
        for name, metric in METRICS.items():
            if name not in NEEDS or row[NEEDS[name]]:
                shown = partial(_derived, kind=kind, layer=layer, metric=metric)
                metrics.log_derived(f"attn_{name}/{kind}_{layer}", shown, priority=LAST_IN_THE_LOG)


def _derived(meters: MetersDict, kind: str, layer: int, metric: Callable[[np.ndarray], float]) -> float:
    return metric(meters[f"_attn_{kind}"].sum[layer])
