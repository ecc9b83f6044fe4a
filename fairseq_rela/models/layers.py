"""fairseq's Transformer layers with a row of the catalog in each attention (paper, Section 4)."""

from typing import Any, Dict

from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.models.threshold_flags import threshold_setting
from fairseq_rela.models.topk_flag import kept_scores

# The parameters of fairseq 0.12.2's fused encoder layer, which always computes softmax: copies of the usual ones.
FUSED_COPIES = tuple(f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias"))


def attention_options(layer, cfg) -> Dict[str, Any]:
    """The options that all attentions of a model have in common."""
    return {
        "threshold": threshold_setting(cfg),
        "topk": kept_scores(cfg),
        "dropout": cfg.attention_dropout,
        "q_noise": layer.quant_noise,
        "qn_block_size": layer.quant_noise_block_size,
    }


class RelaEncoderLayer(TransformerEncoderLayerBase):
    """An encoder layer whose self-attention is `--encoder-attn`."""

    # If this were true, fairseq 0.12.2 would use its fused softmax layer in evaluation. TorchScript does not compile
    # the branch of a constant that is false.
    __constants__ = ("BT_version",)

    def __init__(self, cfg):
        super().__init__(cfg)
        self.BT_version = False
        self.can_use_fastpath = False
        for name in FUSED_COPIES:
            self._parameters.pop(name, None)

    def build_self_attention(self, embed_dim, cfg):
        return RelaMultiheadAttention(
            cfg.encoder.attn,
            embed_dim,
            cfg.encoder.attention_heads,
            self_attention=True,
            **attention_options(self, cfg),
        )

    def _load_from_state_dict(self, state_dict, prefix, *args):
        # The method of fairseq 0.12.2 is skipped, because it fills the copies and turns on its fused layer.
        nn.Module._load_from_state_dict(self, state_dict, prefix, *args)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        super().upgrade_state_dict_named(state_dict, name)
        for copy in FUSED_COPIES:
            state_dict.pop(f"{name}.{copy}", None)


class RelaDecoderLayer(TransformerDecoderLayerBase):
    """A decoder layer whose self-attention is `--decoder-attn` and whose cross attention is `--cross-attn`."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return RelaMultiheadAttention(
            cfg.decoder.attn,
            embed_dim,
            cfg.decoder.attention_heads,
            causal=True,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            self_attention=not cfg.cross_self_attention,
            **attention_options(self, cfg),
        )

    def build_encoder_attention(self, embed_dim, cfg):
        return RelaMultiheadAttention(
            cfg.cross_attn,
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
            **attention_options(self, cfg),
        )


def wrapped(layer: nn.Module, cfg) -> nn.Module:
    """The layer wrapped as fairseq wraps its own layers: for checkpointed activations, then for sharded parameters."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)
