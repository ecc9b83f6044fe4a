"""Importing this registers every task with fairseq."""

from fairseq_rela.tasks.language_modeling_attention import LanguageModelingAttentionTask
from fairseq_rela.tasks.translation_attention import TranslationAttentionTask

__all__ = ["LanguageModelingAttentionTask", "TranslationAttentionTask"]
