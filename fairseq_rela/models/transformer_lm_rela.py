"""fairseq's Transformer language model with a row of the catalog as its self-attention."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
    transformer_lm_big,
)

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.models import topk_flag
from fairseq_rela.models.architectures import refuse_xformers, register_architectures, set_attention, set_defaults
from fairseq_rela.models.threshold_flags import THRESHOLD_FLAGS, check_threshold
from fairseq_rela.models.transformer_rela import RelaDecoder

AttentionName: Any = ChoiceEnum(list(CATALOG))


def threshold_field(name: str):
    """A threshold flag as a field of a configuration."""
    metavar, text = THRESHOLD_FLAGS[name]
    return field(default=None, metadata={"help": text, "argparse_metavar": metavar})


@dataclass
class TransformerLMRelaConfig(TransformerLanguageModelConfig):
    decoder_attn: AttentionName = field(default="rela_g", metadata={"help": "self-attention of the model"})
    rela_threshold: Optional[str] = threshold_field("rela_threshold")
    rela_target_sparsity: Optional[float] = threshold_field("rela_target_sparsity")
    rela_sparsity_warmup: Optional[int] = threshold_field("rela_sparsity_warmup")
    attn_topk: Optional[int] = field(default=None, metadata={"help": topk_flag.HELP, "argparse_metavar": "K"})


@register_model("transformer_lm_rela", dataclass=TransformerLMRelaConfig)
class TransformerLMRelaModel(TransformerLanguageModel):
    """fairseq's `transformer_lm` with all its flags, plus `--decoder-attn` and the flags of thresholds and top-k."""

    @classmethod
    def build_model(cls, args, task):
        set_attention(args, decoder="rela_g")  # the default if neither the architecture nor a flag sets it
        refuse_xformers(args, "decoder")
        check_threshold(args, "decoder")
        topk_flag.check_topk(args, "decoder")
        embed_tokens = super().build_model(args, task).decoder.embed_tokens  # plain, adaptive or of characters
        cfg = TransformerConfig.from_namespace(args)
        cfg.decoder.attn = str(args.decoder_attn)
        for name in (*THRESHOLD_FLAGS, "attn_topk"):
            setattr(cfg, name, getattr(args, name, None))
        return cls(RelaDecoder(cfg, task.target_dictionary, embed_tokens, no_encoder_attn=True))


def iwslt_de_en_architecture(args):
    set_defaults(args, decoder_ffn_embed_dim=1024, decoder_attention_heads=4)
    base_lm_architecture(args)


def tiny_architecture(args):
    set_defaults(args, decoder_embed_dim=128, decoder_ffn_embed_dim=256, decoder_layers=4, decoder_attention_heads=4)
    base_lm_architecture(args)


SIZES = {
    "base": base_lm_architecture,
    "big": transformer_lm_big,
    "iwslt_de_en": iwslt_de_en_architecture,
    "tiny": tiny_architecture,
}


register_architectures("transformer_lm_rela", "transformer_lm", {name: {"decoder": name} for name in CATALOG}, SIZES)
