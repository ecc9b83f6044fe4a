"""fairseq's Transformer with a row of the catalog in each of its three attentions (paper, Section 4 and Table 1)."""

import math
from argparse import Namespace
from typing import Dict, List, Optional

import torch
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
    base_architecture,
    transformer_iwslt_de_en,
    transformer_vaswani_wmt_en_de_big,
)
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.masks import future_mask
from fairseq_rela.attention.threshold import Threshold
from fairseq_rela.kinds import KINDS
from fairseq_rela.models import topk_flag
from fairseq_rela.models.architectures import (
    PLACEMENTS,
    refuse_xformers,
    register_architecture,
    register_architectures,
    set_attention,
    set_defaults,
)
from fairseq_rela.models.dropout import use_fast_dropout
from fairseq_rela.models.layers import RelaDecoderLayer, RelaEncoderLayer, wrapped
from fairseq_rela.models.threshold_flags import THRESHOLD_FLAGS, check_threshold, threshold_setting


class RelaEncoder(TransformerEncoderBase):
    """fairseq's encoder with our layers.

    The loop over the layers is our own for two reasons. fairseq's asks whether there is any padding, which waits for
    the GPU. And the loop of fairseq 0.12.2 cannot be compiled by TorchScript.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        use_fast_dropout(self)

    def build_encoder_layer(self, cfg):
        return wrapped(RelaEncoderLayer(cfg), cfg)

    def forward_scriptable(
        self,
        src_tokens,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Tensor]]:
        """Tokens (B, S) → fairseq's dictionary: `encoder_out` (S, B, d), its padding (B, S), …"""
        padding = src_tokens.eq(self.padding_idx)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0).transpose(0, 1)
        states: List[Tensor] = []
        if return_all_hiddens:
            states.append(x)
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=padding)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        nothing: List[Tensor] = []
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": nothing,
            "src_tokens": nothing,
            "src_lengths": [src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).view(-1, 1)],
        }


class RelaDecoder(TransformerDecoderBase):
    """fairseq's decoder with our layers.

    It differs in two ways. In training no layer returns its weights unless that is asked for. And the future is hidden
    by `future_mask`, which takes no memory, because our decoder layers build their self-attention with `causal=True`.
    """

    def __init__(self, cfg, *args, **options):
        super().__init__(cfg, *args, **options)
        setting = threshold_setting(cfg)
        self.driven = setting is not None and setting.target is not None
        use_fast_dropout(self)

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(RelaDecoderLayer(cfg, no_encoder_attn), cfg)

    def buffered_future_mask(self, tensor):
        length = tensor.size(0)
        if self.cross_self_attention:  # the layer appends this mask to one for the encoder's keys, so it needs values
            return torch.full([length, length], -math.inf, dtype=tensor.dtype, device=tensor.device).triu(1)
        return future_mask(tensor)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """fairseq's, but in training no layer returns its weights by default, because nothing reads them."""
        if alignment_layer is None and self.training:
            alignment_layer = -1  # no layer has this number; fairseq's default is the last layer
        if not torch.jit.is_scripting():
            self._tell_thresholds(prev_output_tokens)
        return self.extract_features_scriptable(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    @torch.jit.unused
    def _tell_thresholds(self, prev_output_tokens: Tensor) -> None:
        """Tell driven thresholds which queries are padding, (B, T), because these must not be counted.

        fairseq's layers call cross attention without the padding of the target, so it cannot be an argument there.
        """
        if self.training and self.driven:
            padded = prev_output_tokens.eq(self.padding_idx)
            for module in self.modules():
                if isinstance(module, Threshold):
                    module.padded_queries = padded


@register_model("transformer_rela")
class TransformerRelaModel(TransformerModel):
    """fairseq's `transformer` and all its flags, plus `--encoder-attn`, `--decoder-attn` and `--cross-attn`."""

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        for kind in KINDS:
            parser.add_argument(
                f"--{kind}-attn", choices=list(CATALOG), help=f"attention of the {kind} (default: the architecture's)"
            )
        for name, (metavar, text) in THRESHOLD_FLAGS.items():
            parser.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=text)
        parser.add_argument("--attn-topk", type=int, metavar="K", help=topk_flag.HELP)

    @classmethod
    def build_model(cls, args, task):
        if OmegaConf.is_config(args):  # from hydra; fairseq's transformer would drop our flags from a config
            args = Namespace(**args)
        set_attention(args, **PLACEMENTS["rela_g"])  # the default if neither the architecture nor a flag sets it
        refuse_xformers(args, "encoder", "decoder")
        check_threshold(args, *KINDS)
        topk_flag.check_topk(args, *KINDS)
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return RelaEncoder(TransformerConfig.from_namespace(cfg), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return RelaDecoder(
            TransformerConfig.from_namespace(cfg), tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )


def tiny_architecture(args):
    """Width 128, 4 heads, 4+4 layers, FFN 256: a model that trains in minutes on a laptop."""
    for side in ("encoder", "decoder"):
        tiny = {"embed_dim": 128, "ffn_embed_dim": 256, "layers": 4, "attention_heads": 4}
        set_defaults(args, **{f"{side}_{field}": value for field, value in tiny.items()})
    base_architecture(args)


SIZES = {
    "base": base_architecture,
    "big": transformer_vaswani_wmt_en_de_big,
    "iwslt_de_en": transformer_iwslt_de_en,
    "tiny": tiny_architecture,
}

register_architectures("transformer_rela", "transformer", PLACEMENTS, SIZES)
register_architecture("transformer_rela", "transformer_rela", PLACEMENTS["rela_g"], SIZES["base"])
