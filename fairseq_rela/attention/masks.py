"""fairseq's masks. An `attn_mask` (T, S) hides keys from queries, additive or boolean; `padding` (N, S) hides keys."""

from typing import Optional

import torch
from torch import Tensor

from fairseq_rela.errors import InputError


def check_mask(attn_mask: Optional[Tensor]) -> None:
    """InputError if an `attn_mask` holds integers: it is not clear whether they hide a key or are added to a score."""
    if attn_mask is not None and attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        kind = str(attn_mask.dtype).replace("torch.", "")
        raise InputError(
            f"attn_mask holds {kind}; give booleans (true hides a key) or floating-point numbers that are added"
        )


def future_mask(like: Tensor) -> Tensor:
    """An `attn_mask` that tells a causal attention to hide the future. It is square, (0, 0), and has no values.

    A mask with values would take T × T numbers: 268 MB at 8,192 tokens. Any other attention fails on this shape, so
    that it cannot see the future by mistake.
    """
    return like.new_empty([0, 0])


def hidden_by(attn_mask: Optional[Tensor], blocked: float = -1e4) -> Optional[Tensor]:
    """Where an `attn_mask` (T, S) hides a key: boolean (T, S), or None without a mask.

    fairseq's additive masks hold −inf, or −1e8 (−1e4 in half precision) where −inf would give NaN.
    """
    if attn_mask is None or attn_mask.dtype == torch.bool:
        return attn_mask
    assert attn_mask.is_floating_point(), "attn_mask holds integers"  # for TorchScript, which has no InputError
    return attn_mask <= blocked


def joined_padding(past: Optional[Tensor], new: Optional[Tensor], past_k: Tensor, new_k: Tensor) -> Optional[Tensor]:
    """The padding (N, S) of the past keys followed by the new keys, each (N, H, S, w). None if nothing is padding."""
    if past is None and new is None:
        return None
    if past is None:
        past = torch.zeros(past_k.size(0), past_k.size(2), dtype=torch.bool, device=past_k.device)
    if new is None:
        new = torch.zeros(new_k.size(0), new_k.size(2), dtype=torch.bool, device=new_k.device)
    return torch.cat([past.to(torch.bool), new], dim=1)
