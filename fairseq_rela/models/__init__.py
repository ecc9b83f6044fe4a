"""Importing this registers every model and architecture with fairseq, and the criteria.

For `--user-dir` fairseq imports the packages `models` and `tasks`, but not `criterions`.
"""

import fairseq_rela.criterions  # noqa: F401
from fairseq_rela.fairseq_patches import apply_patches
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.models.transformer_rela import TransformerRelaModel
from fairseq_rela.models.transformer_rela_align import TransformerRelaAlignModel

__all__ = ["TransformerLMRelaModel", "TransformerRelaAlignModel", "TransformerRelaModel"]

apply_patches()
