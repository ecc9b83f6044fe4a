"""Importing this registers every model and architecture with fairseq."""

from fairseq_rela.fairseq_patches import apply_patches
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.models.transformer_rela import TransformerRelaModel

__all__ = ["TransformerLMRelaModel", "TransformerRelaModel"]

apply_patches()
