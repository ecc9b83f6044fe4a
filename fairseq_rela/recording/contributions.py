"""How much each key contributes to the output of an attention (Kobayashi et al. 2020).

A weight alone does not say it: the value of the key may be short, or the output projection may drop it. The output is a
sum over heads h and keys j,

    output_i = Σ_h Σ_j f_hij + bias      f_hij = (c_ih ⊙ α_hij v_hj) Wo_h

c_i is what the norm multiplies the heads of query i by: 1 without a norm, σ(w ⊙ z_i) ⊙ g / RMS(z_i) for rela_g. What is
recorded is ‖f_hij‖ = |α_hij| · ‖(c_ih ⊙ v_hj) Wo_h‖. It is exactly 0 where the weight is 0.

A norm that centres (LayerNorm) subtracts from every column the mean over all columns. What a key of one head gives then
reaches the columns of the other heads, and so is projected by all of Wo.

Shapes: T queries, S keys, B sentences, H heads of width d_h, d = H × d_h.
"""

import contextlib
from typing import Any, Iterator, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.activations import at_least_float32
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.errors import InputError
from fairseq_rela.recording.heads_probe import taker_of_heads

ELEMENTS = 1 << 22  # most numbers in memory at once while sizes are computed, 16 MB of float32


class Inside:
    """What passes through an attention module in its last call: the values, and the heads before the norm."""

    def __init__(self) -> None:
        self.values: Optional[Tensor] = None  # (S, B, d)
        self.heads: Optional[Tensor] = None  # (T, B, d)

    def keep_values(self, module: nn.Module, inputs: Tuple[Tensor, ...], output: Tensor) -> None:
        self.values = output.detach()

    def keep_heads(self, module: nn.Module, inputs: Tuple[Tensor, ...]) -> None:
        self.heads = inputs[0].detach()

    def taken(self) -> Tuple[Tensor, Tensor]:
        """(values, heads), which are not kept any longer."""
        values, heads = self.values, self.heads
        self.values = self.heads = None
        if values is None or heads is None:
            raise InputError("norms cannot be recorded: this attention does not project its values and its output")
        return values, heads


@contextlib.contextmanager
def watch_inside(module: MultiheadAttention) -> Iterator[Inside]:
    """Keep what passes through the module inside the `with`."""
    inside = Inside()
    hooks = [
        module.v_proj.register_forward_hook(inside.keep_values),
        taker_of_heads(module).register_forward_pre_hook(inside.keep_heads),
    ]
    try:
        yield inside
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def contribution_norms(module: MultiheadAttention, inside: Inside, weights: Tensor) -> Tensor:
    """The norm of what each key of each head contributes: (H, B, T, S), from weights of the same shape."""
    values, heads = (at_least_float32(each).transpose(0, 1) for each in inside.taken())  # (B, S, d), (B, T, d)
    scale, centres = linear_form(module, heads)
    projection = at_least_float32(module.out_proj.weight.detach())  # (d, H × d_h)
    weights = at_least_float32(weights)
    norms = torch.zeros_like(weights)
    for head, own_weights in enumerate(weights):
        columns = slice(head * module.head_dim, (head + 1) * module.head_dim)
        if centres:
            own = torch.zeros_like(values)
            own[..., columns] = values[..., columns]
            own -= own.mean(dim=-1, keepdim=True)
            columns = slice(None)
        else:
            own = values[..., columns]
        sizes = projected_sizes(own, projection[:, columns], None if scale is None else scale[..., columns])
        # Where the weight is 0 nothing is contributed, whatever the size is.
        norms[head] = torch.where(own_weights.eq(0), own_weights.new_zeros(()), own_weights.abs() * sizes)
    return norms


def linear_form(module: MultiheadAttention, heads: Tensor) -> Tuple[Optional[Tensor], bool]:
    """(what the module's norm multiplies heads (…, d) by, or None without a norm; whether it centres them first)."""
    norm: Any = module.norm if isinstance(module, RelaMultiheadAttention) else nn.Identity()
    return (None, False) if isinstance(norm, nn.Identity) else (norm.scale(heads), norm.centres)


def projected_sizes(values: Tensor, projection: Tensor, scale: Optional[Tensor]) -> Tensor:
    """‖(scale_i ⊙ value_j) projectionᵀ‖ for every query i and key j: (B, T, S); (B, 1, S) without a scale.

    Args:
        values: (B, S, w); projection: (d, w); scale: (B, T, w)
    """
    # ‖P x‖ = ‖R x‖ if P = Q R with orthogonal columns in Q. R is only (w, w).
    factor = torch.linalg.qr(projection, mode="r")[1].t()
    if scale is None:
        return (values @ factor).norm(dim=-1).unsqueeze(1)
    rows = max(1, ELEMENTS // max(1, values.numel()))  # queries at a time
    parts = (part.unsqueeze(2) * values.unsqueeze(1) for part in scale.split(rows, dim=1))  # (B, rows, S, w)
    return torch.cat([(part @ factor).norm(dim=-1) for part in parts], dim=1)
