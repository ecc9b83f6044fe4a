"""The task `language_modeling_attention`: fairseq's `language_modeling` with `--attn-stats` in training."""

from dataclasses import dataclass

from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from fairseq_rela.tasks.attention_stats import AttentionStats, AttentionStatsConfig


@dataclass
class LanguageModelingAttentionConfig(AttentionStatsConfig, LanguageModelingConfig):
    pass


@register_task("language_modeling_attention", dataclass=LanguageModelingAttentionConfig)
class LanguageModelingAttentionTask(AttentionStats, LanguageModelingTask):
    """Models language as `language_modeling` does."""

    def __init__(self, args, *dictionaries, **options) -> None:
        super().__init__(args, *dictionaries, **options)
        self.attn_stats = args.attn_stats
