"""Guided alignment (Garg et al. 2019) for weights that need not be a distribution.

    fairseq-train DATA --user-dir fairseq_rela --arch transformer_rela_gc_align --load-alignments \\
      --criterion label_smoothed_cross_entropy_with_sparse_alignment --required-batch-size-multiple 1 …

The loss is fairseq's label-smoothed cross entropy plus λ times the cross entropy of the links. It is taken from the
scores s of the guided head, not from its weights, because a ReLU that is silent has no gradient. A head that may
attend to nothing has one more choice, null, whose score is always 0:

    linked target token     − mean over its links j of log softmax([s, 0])_j
    unlinked target token   − log softmax([s, 0])_null

ReLU weights are 0 just where a score is not above 0. So the head is null for a token just where null is the most
probable choice. Where weights always sum to 1 there is no null: linked tokens then have the loss of fairseq's own
criterion, and unlinked ones none, unless they are to point at the source's </s>.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
    LabelSmoothedCrossEntropyCriterionWithAlignmentConfig,
)
from torch import Tensor

from fairseq_rela.errors import InputError

NAME = "label_smoothed_cross_entropy_with_sparse_alignment"


@dataclass
class SparseAlignmentConfig(LabelSmoothedCrossEntropyCriterionWithAlignmentConfig):
    null_weight: float = field(
        default=1.0,
        metadata={"help": "weight of a target token that has no link; one that has links has a weight of 1"},
    )
    unlinked_to_eos: bool = field(
        default=False,
        metadata={"help": "where weights always sum to 1, train tokens that have no link towards the source's </s>"},
    )


@register_criterion(NAME, dataclass=SparseAlignmentConfig)
class SparseAlignmentCriterion(LabelSmoothedCrossEntropyCriterionWithAlignment):
    """fairseq's criterion with another alignment loss."""

    def __init__(
        self,
        task,
        sentence_avg: bool,
        label_smoothing: float,
        alignment_lambda: float,
        null_weight: float,
        unlinked_to_eos: bool,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, alignment_lambda)
        for flag, value in (("--alignment-lambda", alignment_lambda), ("--null-weight", null_weight)):
            if value < 0:
                raise InputError(f"{flag} {value}: a weight of a loss is at least 0")
        self.null_weight, self.unlinked_to_eos = null_weight, unlinked_to_eos
        self.eos_idx = task.target_dictionary.eos()

    def forward(self, model, sample: Dict[str, Any], reduce: bool = True):
        if model.training and "alignments" not in sample:
            self._require_links()
        return super().forward(model, sample, reduce)

    def _require_links(self) -> None:
        """InputError if the training data have no links. fairseq would train without them, and not say so."""
        data = self.task.datasets.get("train")
        if data is not None and getattr(data, "align_dataset", None) is None:
            raise InputError(
                f"--criterion {NAME}: the training data have no links; give --load-alignments, and data that "
                "fairseq-preprocess made with --align-suffix"
            )

    def compute_alignment_loss(self, sample: Dict[str, Any], net_output: Tuple[Tensor, Dict[str, Any]]) -> Tensor:
        """The sum over the target tokens. A sentence without any link is taken as not aligned, and has no loss."""
        scores: Optional[Tensor] = net_output[1].get("alignment_scores", [None])[0]  # (B, T, S + 1), the last is null
        if scores is None:
            raise InputError(f"--criterion {NAME}: the model has no guided head; choose an --arch with _align")
        chances = torch.log_softmax(scores.float(), dim=-1)
        links, shares = sample["alignments"], sample["align_weights"]  # (links, 2): source, row of (B × T); 1 / links
        loss = -(chances.flatten(0, 1)[links[:, 1], links[:, 0]] * shares.float()).sum()
        return loss + self.null_weight * self._unlinked_loss(chances, self._unlinked(sample), sample)

    def _unlinked(self, sample: Dict[str, Any]) -> Tensor:
        """(B, T), true for tokens that have no link, in the sentences that are aligned; </s> is not one of them."""
        target = sample["target"]
        linked = torch.zeros_like(target, dtype=torch.bool)
        linked.view(-1)[sample["alignments"][:, 1]] = True
        is_word = target.ne(self.padding_idx) & target.ne(self.eos_idx)
        return is_word & ~linked & linked.any(dim=1, keepdim=True)

    def _unlinked_loss(self, chances: Tensor, unlinked: Tensor, sample: Dict[str, Any]) -> Tensor:
        null = chances[unlinked][:, -1]  # (tokens,)
        if self.unlinked_to_eos:
            tokens = sample["net_input"]["src_tokens"]
            ends = tokens.size(1) - 1 - tokens.ne(self.padding_idx).flip(1).int().argmax(dim=1)  # (B,): </s> of each
            at_end = chances.gather(2, ends.view(-1, 1, 1).expand(-1, chances.size(1), 1)).squeeze(2)  # (B, T)
            null = torch.where(null.isinf(), at_end[unlinked], null)
        return -null[null.isfinite()].sum()
