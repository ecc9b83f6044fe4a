"""Measures the heads z of every attention while a model runs: their energy, values that are not finite, their gates.

z (T, B, d) is what the heads of an attention give together, before its norm and its output projection.
"""

import contextlib
import math
from typing import Dict, Iterator, List, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.activations import at_least_float32
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.norms import Gated
from fairseq_rela.recording.attention_modules import AttentionParts

# A gate is saturated below 0.05 and above 0.95: σ(x) > 0.95 if x > ln 19.
SATURATION = math.log(0.95 / 0.05)


class HeadsProbe:
    """A forward pre-hook of the module whose input is z. It keeps the numbers of its last call; None before."""

    def __init__(self, heads: int) -> None:
        self._heads = heads
        self.width = 0
        self.saturated: Optional[Tensor] = None  # (T, B), the number of saturated gates; None without a gate
        self.energy: Optional[Tensor] = None  # (T, B, H), the share of each head in Σ z²; 0 where that is 0
        self.broken: Optional[Tensor] = None  # (T, B, H), true where a value of the head is NaN or infinite

    def __call__(self, module: nn.Module, inputs: Tuple[Tensor, ...]) -> None:
        z = at_least_float32(inputs[0].detach())
        self.width = z.size(-1)
        if isinstance(module, Gated):
            self.saturated = (module.gate.detach().to(z.dtype) * z).abs().gt(SATURATION).sum(dim=-1)
        by_head = z.reshape(z.size(0), z.size(1), self._heads, -1)
        finite = torch.isfinite(by_head).all(dim=-1)
        self.broken = ~finite
        # Scaled by the largest value first, because squares of float32 can overflow.
        size = by_head.abs().amax(dim=(2, 3), keepdim=True)
        size = torch.where(torch.isfinite(size) & size.gt(0), size, torch.ones_like(size))
        squares = (by_head / size).square().sum(dim=-1)
        total = squares.sum(dim=-1, keepdim=True)
        usable = finite.all(dim=-1, keepdim=True) & total.gt(0)
        self.energy = torch.where(usable, squares / total, torch.zeros_like(squares))

    def after_norm(self, module: nn.Module, inputs: Tuple[Tensor, ...], output: Tensor) -> None:
        """A forward hook of our norm: a gain or gate that is NaN breaks a head whose own values are finite.

        Where z itself is not finite, the norm spreads that to the other heads, which are not to blame.
        """
        assert self.broken is not None
        by_head = output.detach().reshape(*self.broken.shape, -1)
        self.broken = self.broken | (~torch.isfinite(by_head).all(dim=-1) & ~self.broken.any(dim=-1, keepdim=True))


Probes = Dict[str, Dict[int, List[HeadsProbe]]]  # kind → layer → the probes of its attention modules


def taker_of_heads(module: MultiheadAttention) -> nn.Module:
    """The part of an attention module whose input is z: our norm, or the output projection of fairseq's own."""
    return module.norm if isinstance(module, RelaMultiheadAttention) else module.out_proj


@contextlib.contextmanager
def probe_heads(parts: AttentionParts) -> Iterator[Probes]:
    """Measure the heads of these attention modules inside the `with`."""
    hooks: Dict[MultiheadAttention, HeadsProbe] = {}  # one per module: a joint attention belongs to two kinds
    probes: Probes = {kind: {} for kind in parts}
    with contextlib.ExitStack() as undo:
        for kind, layers in parts.items():
            for layer, key_ranges in layers.items():
                for part in key_ranges:
                    if part.module not in hooks:
                        hooks[part.module] = HeadsProbe(part.module.num_heads)
                        handle = taker_of_heads(part.module).register_forward_pre_hook(hooks[part.module])
                        undo.callback(handle.remove)
                        if isinstance(part.module, RelaMultiheadAttention):
                            handle = part.module.norm.register_forward_hook(hooks[part.module].after_norm)
                            undo.callback(handle.remove)
                probes[kind][layer] = [hooks[part.module] for part in key_ranges]
        yield probes
