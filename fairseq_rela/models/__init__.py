"""Importing this registers every model and architecture with fairseq."""

from fairseq_rela.checkpoints import allow_fairseq_checkpoints, copy_checkpoints_whole
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.models.transformer_rela import TransformerRelaModel

__all__ = ["TransformerLMRelaModel", "TransformerRelaModel"]

allow_fairseq_checkpoints()
copy_checkpoints_whole()
