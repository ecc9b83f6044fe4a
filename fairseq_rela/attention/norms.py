"""What stabilises unbounded weights: the norm over the concatenated heads (paper, Section 3, Equations 6 and 7).

A norm maps heads (…, d) to (…, d), in float32 where the model is in half precision: weights are not
bounded by 1, and neither are the heads. It maps 0 to 0 — a query that attends to nothing stays
nothing — so none of them has a bias. A norm is one line in `NORMS`.
"""

import math
from typing import Callable, Dict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_rela.attention.activations import widened

if hasattr(torch, "rms_norm"):  # fused since torch 2.4

    def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x / √(mean(x²) + eps) ⊙ gain over the last dimension."""
        return torch.rms_norm(x, [x.size(-1)], gain, eps)

else:

    def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x / √(mean(x²) + eps) ⊙ gain over the last dimension."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def uniform_(vector: Tensor) -> Tensor:
    """Fill a vector of width d from U(−√(3/d), √(3/d)): variance 1/d, the paper's initialisation."""
    bound = math.sqrt(3.0 / vector.numel())
    return nn.init.uniform_(vector, -bound, bound)


class RMSNorm(nn.Module):
    """RMSNorm(z) = z / √(mean(z²) + 1e-8) ⊙ g (paper, Equation 6)."""

    __constants__ = ("EPS",)
    EPS = 1e-8

    def __init__(self, width: int, gain_init: Callable[[Tensor], Tensor] = nn.init.ones_):
        super().__init__()
        self.gain = nn.Parameter(gain_init(torch.empty(width)))

    def forward(self, heads: Tensor) -> Tensor:
        z = widened(heads)
        return rms_norm(z, self.gain.to(z.dtype), self.EPS)


class LayerNorm(nn.Module):
    """LayerNorm(z) = (z − mean(z)) / √(var(z) + 1e-5) ⊙ g; no bias, so that 0 stays 0."""

    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, heads: Tensor) -> Tensor:
        z = widened(heads)
        return F.layer_norm(z, [z.size(-1)], self.gain.to(z.dtype), None, 1e-5)


class Gated(nn.Module):
    """σ(w ⊙ z) ⊙ norm(z) (paper, Equation 7): the gate sees the scale that the norm removes."""

    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.gate = nn.Parameter(uniform_(torch.empty(width)))
        self.norm = norm

    def forward(self, heads: Tensor) -> Tensor:
        z = widened(heads)
        return torch.sigmoid(self.gate.to(z.dtype) * z) * self.norm(z)


NORMS: Dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: nn.Identity(),
    "rmsnorm": RMSNorm,
    "rmsnorm_init": lambda width: RMSNorm(width, gain_init=uniform_),
    "gated_rmsnorm": lambda width: Gated(width, RMSNorm(width)),
    "gated_layernorm": lambda width: Gated(width, LayerNorm(width)),
}
