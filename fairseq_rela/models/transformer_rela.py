"""fairseq's Transformer with a row of the catalog in each of its three attentions (paper, Section 3 and Table 1)."""

import math
from argparse import Namespace
from typing import Callable, Dict, List, Optional

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
    base_architecture,
    transformer_iwslt_de_en,
    transformer_vaswani_wmt_en_de_big,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG, KINDS, attention
from fairseq_rela.attention.multihead import CatalogAttention
from fairseq_rela.attention.threshold import WARMUP, Threshold, ThresholdSetting
from fairseq_rela.errors import InputError

# fairseq 0.12.2 keeps a second copy of an encoder layer's parameters, for a fused softmax layer
FUSED_COPIES = tuple(
    f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)


class RelaEncoderLayer(TransformerEncoderLayerBase):
    """An encoder layer whose self-attention is `--encoder-attn`."""

    # fairseq 0.12.2 computes softmax in evaluation, in one fused call, where this is true; as a
    # constant it also keeps TorchScript from compiling that call
    __constants__ = ("BT_version",)

    def __init__(self, cfg):
        super().__init__(cfg)
        self.BT_version = False
        self.can_use_fastpath = False
        for name in FUSED_COPIES:
            self._parameters.pop(name, None)

    def build_self_attention(self, embed_dim, cfg):
        return CatalogAttention(
            cfg.encoder.attn,
            embed_dim,
            cfg.encoder.attention_heads,
            threshold=threshold_setting(cfg),
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def _load_from_state_dict(self, state_dict, prefix, *args):
        # not fairseq 0.12.2's, which fills the copies and turns its fused layer on
        nn.Module._load_from_state_dict(self, state_dict, prefix, *args)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        super().upgrade_state_dict_named(state_dict, name)
        for copy in FUSED_COPIES:
            state_dict.pop(f"{name}.{copy}", None)


class RelaDecoderLayer(TransformerDecoderLayerBase):
    """A decoder layer whose self-attention is `--decoder-attn` and whose cross attention is `--cross-attn`."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return CatalogAttention(
            cfg.decoder.attn,
            embed_dim,
            cfg.decoder.attention_heads,
            future_masked=True,
            threshold=threshold_setting(cfg),
            dropout=cfg.attention_dropout,
            self_attention=not cfg.cross_self_attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_encoder_attention(self, embed_dim, cfg):
        return CatalogAttention(
            cfg.cross_attn,
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            threshold=threshold_setting(cfg),
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


def _wrapped(layer: nn.Module, cfg) -> nn.Module:
    """As fairseq wraps its own layers: checkpointed activations, then sharded parameters."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class RelaEncoder(TransformerEncoderBase):
    """fairseq's encoder on our layers.

    Its loop is written anew because fairseq's asks the device whether there is any padding, which
    waits for it, and 0.12.2's cannot be scripted by the torch it runs on.
    """

    def build_encoder_layer(self, cfg):
        return _wrapped(RelaEncoderLayer(cfg), cfg)

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
        return _wrapped(RelaDecoderLayer(cfg, no_encoder_attn), cfg)

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

    @classmethod
    def build_model(cls, args, task):
        if OmegaConf.is_config(args):  # from hydra: fairseq's transformer drops the flags it does not know of
            args = Namespace(**args)
        set_attention(args, **PLACEMENTS["rela_g"])  # where neither the architecture nor a flag has said
        refuse_xformers(args, "encoder", "decoder")
        check_threshold(args, *KINDS)
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return RelaEncoder(TransformerConfig.from_namespace(cfg), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return RelaDecoder(
            TransformerConfig.from_namespace(cfg), tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )


def refuse_xformers(args, *sides: str) -> None:
    for side in sides:
        if getattr(args, f"{side}_xformers_att_config", None):
            raise InputError(f"--{side}-xformers-att-config replaces attention; leave it out and use --{side}-attn")


# Architectures: transformer_<placement> and transformer_<placement>_<size>


def set_defaults(args, **defaults) -> None:
    """Set what no flag has."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def set_attention(args, **names: str) -> None:
    """Set each kind's attention unless a flag has."""
    set_defaults(args, **{f"{kind}_attn": name for kind, name in names.items()})


# Thresholds


THRESHOLD_FLAGS = {
    "rela_threshold": (
        "NUMBER|learn",
        "subtract this number from the scores of pointwise attention, or one that is learned for each head",
    ),
    "rela_target_sparsity": ("SHARE", "drive thresholds until this share of each layer's weights is 0, e.g. 0.9"),
    "rela_sparsity_warmup": ("N", f"let the target rise from 0 within N updates (default: {WARMUP})"),
}


def threshold_setting(args) -> Optional[ThresholdSetting]:
    """What the flags say of thresholds; a checkpoint from before there were any says nothing."""
    return ThresholdSetting.of(*(getattr(args, name, None) for name in THRESHOLD_FLAGS))


def check_threshold(args, *kinds: str) -> None:
    """InputError if what is asked of thresholds is no number, or nothing here can have one."""
    setting = threshold_setting(args)
    if setting is None:
        return
    flag = "--rela-threshold" if setting.target is None else "--rela-target-sparsity"
    names = list(dict.fromkeys(str(getattr(args, f"{kind}_attn")) for kind in kinds))
    pointwise = [name for name in names if ACTIVATIONS[attention(name).activation].pointwise]
    if not pointwise:
        raise InputError(
            f"{flag}: {', '.join(names)} has no threshold, since it weighs each score against its row; choose an "
            f"attention with ReLU, GeLU or leaky ReLU"
        )
    never_zero = [name for name in pointwise if attention(name).activation != "relu"]
    if setting.target is not None and never_zero:
        raise InputError(f"{flag}: weights of {', '.join(never_zero)} are not exactly 0; choose an attention with ReLU")
    if setting.target is not None and getattr(args, "cross_self_attention", False):
        raise InputError(f"{flag} does not go with --cross-self-attention; give --rela-threshold, or leave that out")


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

# Table 1: rows 1–10 are one attention everywhere, rows 11–13 rela_g in one place and softmax elsewhere
PLACEMENTS = {name: dict.fromkeys(KINDS, name) for name in CATALOG}
PLACEMENTS.update(
    (f"rela_g_{kind}_only", {**dict.fromkeys(KINDS, "softmax"), kind: "rela_g"}) for kind in KINDS
)


def register_architecture(model: str, arch: str, attention: Dict[str, str], size: Callable) -> None:
    """`--arch arch` is `model` with these attentions and the flags that `size` sets."""

    @register_model_architecture(model, arch)
    def architecture(args):
        # from hydra; the omegaconf of fairseq 0.12.2 answers None for what is missing, which `size` takes for an answer
        flags = Namespace(**args) if OmegaConf.is_config(args) else args
        set_attention(flags, **attention)
        size(flags)
        if flags is not args:
            set_defaults(flags, base_layers=0)  # which fairseq's trainer asks for
            args.update(vars(flags))


for _placement, _attention in PLACEMENTS.items():
    register_architecture("transformer_rela", f"transformer_{_placement}", _attention, SIZES["base"])
    for _name, _size in SIZES.items():
        register_architecture("transformer_rela", f"transformer_{_placement}_{_name}", _attention, _size)
register_architecture("transformer_rela", "transformer_rela", PLACEMENTS["rela_g"], SIZES["base"])
