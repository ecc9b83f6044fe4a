"""The models that are compared, all of one size, and random sentences for them."""

import argparse
from typing import Callable, Dict, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError
from fairseq_rela.models.architectures import PLACEMENTS
from fairseq_rela.models.layers import FUSED_COPIES
from fairseq_rela.models.transformer_lm_rela import SIZES as LM_SIZES
from fairseq_rela.models.transformer_rela import SIZES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attention", default="rela_g", help="ours: a name of the catalog (default: rela_g)")
    parser.add_argument("--size", choices=list(SIZES), default="base", help="of all the models (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=4000, metavar="N", help="tokens (default: 4000)")


def add_against(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        nargs="*",
        default=[],
        choices=list(CATALOG),
        metavar="ATTENTION",
        help="compare with these attentions too",
    )


class NoAttention(nn.Module):
    """Replaces an attention: returns the queries unchanged."""

    def forward(self, query, key=None, value=None, **options):
        return query, None

    def _get_input_buffer(self, incremental_state):
        return {}


def dictionary(size: int) -> Dictionary:
    """A dictionary of `size` words, fairseq's special symbols included."""
    words = Dictionary()
    for i in range(size - len(words)):
        words.add_symbol(f"w{i}")
    return words


def build(attention: str, size: str, words: Dictionary, **flags) -> nn.Module:
    """A newly initialised model. "stock" is fairseq's `transformer`, "limit" is the same without attention."""
    args = argparse.Namespace(**flags, max_source_positions=4096, max_target_positions=4096)
    return _built("transformer", SIZES[size], attention, size, words, args)


def build_lm(attention: str, size: str, words: Dictionary, **flags) -> nn.Module:
    """A newly initialised language model. "stock" is fairseq's `transformer_lm`, "limit" the same without attention."""
    args = argparse.Namespace(**flags, share_decoder_input_output_embed=True)
    return _built("transformer_lm", LM_SIZES[size], attention, size, words, args)


def _built(
    stock: str, set_size: Callable, attention: str, size: str, words: Dictionary, args: argparse.Namespace
) -> nn.Module:
    arch = f"{stock}_{attention}_{size}"
    if attention in ("stock", "limit"):
        arch = stock
        set_size(args)
    elif arch not in ARCH_CONFIG_REGISTRY:
        known = [name for name in PLACEMENTS if f"{stock}_{name}_{size}" in ARCH_CONFIG_REGISTRY]
        raise InputError(f"--attention {attention}: known are {', '.join(known)}")
    ARCH_CONFIG_REGISTRY[arch](args)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    if attention == "limit":
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, MultiheadAttention):
                    setattr(module, name, NoAttention())
            for copy in FUSED_COPIES:  # otherwise fairseq 0.12.2 would use its fused encoder layer, which attends
                module._parameters.pop(copy, None)
            if hasattr(module, "BT_version"):
                module.BT_version = False
            if hasattr(module, "can_use_fastpath"):
                module.can_use_fastpath = False
    return model


def parameters(model: nn.Module) -> int:
    """The number of parameters, without the copies for the fused layer of fairseq 0.12.2."""
    return sum(p.numel() for n, p in model.named_parameters() if n.rpartition(".")[2] not in FUSED_COPIES)


def sentences(count: int, length: int, words: Dictionary, device: torch.device) -> Tuple[Dict[str, Tensor], Tensor]:
    """A batch of about `length` tokens per sentence, as fairseq collates it, and its targets (B, T)."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(words.nspecial, len(words), (2, count, length), generator=draw)
    tokens[..., -1] = words.eos()
    shorter = torch.randint(0, max(1, length // 5), (count,), generator=draw)
    shorter[0] = 0
    place = torch.arange(length)
    source = tokens[0].masked_fill(place < shorter.unsqueeze(1), words.pad())  # padded on the left
    target = tokens[1].masked_fill(place >= length - shorter.unsqueeze(1), words.pad())
    previous = target.roll(1, 1)
    previous[:, 0] = words.eos()
    batch = {"src_tokens": source, "src_lengths": length - shorter, "prev_output_tokens": previous}
    return {name: x.to(device) for name, x in batch.items()}, target.to(device)


def text(length: int, words: Dictionary, device: torch.device) -> Tuple[Dict[str, Tensor], Tensor]:
    """One sample for a language model, as fairseq cuts it out of a text, and its targets (1, T)."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(words.nspecial, len(words), (1, length + 1), generator=draw).to(device)
    return {"src_tokens": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()
