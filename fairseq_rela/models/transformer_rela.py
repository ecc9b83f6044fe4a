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
from fairseq_rela.models.layers import RelaDecoderLayer, RelaEncoderLayer, wrapped
from fairseq_rela.models.threshold_flags import THRESHOLD_FLAGS, check_threshold, threshold_setting


class RelaEncoder(TransformerEncoderBase):
    """fairseq's encoder on our layers.

    Its loop is written anew because fairseq's asks the device whether there is any padding, which
    waits for it, and 0.12.2's cannot be scripted by the torch it runs on.
    """

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
    """fairseq's decoder on our layers; in training it asks for no weights unless it is told whose.

    Its future mask is a stand-in of the right shape, one number in memory: the layers' attention knows what it means,
    and makes its own where it shows weights. At 8,192 tokens fairseq's takes 268 MB, and three times that at first.
    """

    def __init__(self, cfg, *args, **options):
        super().__init__(cfg, *args, **options)
        setting = threshold_setting(cfg)
        self.driven = setting is not None and setting.target is not None

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(RelaDecoderLayer(cfg, no_encoder_attn), cfg)

    def buffered_future_mask(self, tensor):
        length = tensor.size(0)
        if self.cross_self_attention:  # a layer puts it beside the encoder's keys: there its numbers count
            return torch.full([length, length], -math.inf, dtype=tensor.dtype, device=tensor.device).triu(1)
        return tensor.new_zeros([1, 1]).expand(length, length)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """fairseq's, with another default: it asks the last layer for its weights, which nobody reads in training."""
        if alignment_layer is None and self.training:
            alignment_layer = -1  # of no layer
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
        """Cross attention cannot see which queries are padding, whose zeros a driven threshold is not to count."""
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
        if OmegaConf.is_config(args):  # from hydra: fairseq's transformer drops the flags it does not know of
            args = Namespace(**args)
        set_attention(args, **PLACEMENTS["rela_g"])  # where neither the architecture nor a flag has said
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
    """Width 128, 4 heads, 4+4 layers, FFN 256: what a laptop trains in minutes."""
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
