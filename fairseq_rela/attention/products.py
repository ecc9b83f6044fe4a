"""Batched matrix products, in float32 or, on a GPU, of half-precision factors with float32 sums.

A GPU's matrix units multiply 16 bits and add in float32, many times as fast as they multiply 32 bits. Only the result
of a product is rounded to 16 bits. A sum over many tiles is kept in float32. A CPU multiplies in float32.
"""

import math

import torch
from torch import Tensor

from fairseq_rela.attention.activations import at_least_float32


def multiplies_half(x: Tensor) -> bool:
    """Whether products of x are taken in half precision."""
    return x.device.type != "cpu" and (x.dtype == torch.float16 or x.dtype == torch.bfloat16)


def factor(x: Tensor) -> Tensor:
    """x as it goes into a product: in float32 if it is half precision and the device does not multiply that."""
    return x if not torch.jit.is_scripting() and multiplies_half(x) else at_least_float32(x)


def room(terms: int) -> float:
    """What a sum of that many weighted values is multiplied by before it is rounded to float16.

    A power of two. Without it a sum overflows at 65,504; with it, at a mean of 2,047 for each of many terms. It is not
    smaller than that needs, because float16 loses small numbers too.
    """
    return 2.0 ** -max(0, math.ceil(math.log2(max(1, terms))) - 5)


def product32(a: Tensor, b: Tensor) -> Tensor:
    """The batched product of half-precision factors as float32: it may lie beyond the range of float16."""
    if torch.jit.is_scripting():
        return torch.bmm(a.float(), b.float())
    else:
        if multiplies_half(a):
            small = room(a.size(2))
            return torch.baddbmm(a.new_empty(1, 1, 1), a, b, beta=0, alpha=small).float() * (1 / small)
        with torch.autocast(a.device.type, enabled=False):  # which would take it back to half precision
            return torch.bmm(a.float(), b.float())


def product(a: Tensor, b: Tensor, out: Tensor, scale: float = 1.0, more: bool = False) -> Tensor:
    """out = scale · a b, or, with `more`, out + scale · a b, in the memory of `out`."""
    if not more and a.size(1) * a.size(2) * b.size(2) < 1000:
        out.zero_()  # for matrices this small torch 1.12 computes 0 · out, and what is left over may be NaN
    return torch.baddbmm(out, a, b, beta=1 if more else 0, alpha=scale, out=out)


class Scratch:
    """Memory for one tile after another: a contiguous view of the size asked for, its contents left over."""

    def __init__(self, like: Tensor):
        self.memory = like.new_empty(0)

    def __call__(self, *shape: int) -> Tensor:
        size = shape[0] * shape[1] * shape[2]
        if self.memory.numel() < size:
            self.memory = self.memory.new_empty(size)
        return self.memory[:size].view(shape)


class Sum:
    """A sum of matrix products (n, rows, d_h) that ends up in `target`, wherever that lies in memory.

    Torch's batched product is fast only into contiguous memory. Products of half-precision factors lie in the scratch
    memory, which is of their type, and are added to a float32 target.
    """

    def __init__(self, target: Tensor, scratch: Scratch, weighted: bool = False):
        """`weighted`: it is one of weighted values, which may lie beyond the range of float16."""
        self.target, self.scratch, self.weighted = target, scratch, weighted
        self.empty = True
        self.narrow = scratch.memory.dtype != target.dtype
        self.total = target if self.narrow or target.is_contiguous() else scratch(*target.shape)

    def add(self, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
        if self.narrow:
            small = room(a.size(2)) if self.weighted else 1.0
            part = product(a, b, self.scratch(*self.target.shape), scale * small)
            if self.empty:
                self.target.zero_()
            self.target.add_(part, alpha=1 / small)
        else:
            product(a, b, self.total, scale, more=not self.empty)
        self.empty = False

    def finish(self) -> None:
        if self.empty:
            self.target.zero_()
        elif self.total is not self.target:
            self.target.copy_(self.total)


def balance(q: Tensor, dz: Tensor) -> Tensor:
    """For each row, (…, 1), the power of two m for which the largest |q| m and |dz| / m are about equal; 1 where one is
    0 or not finite.

    With it, a row of dz that is tiny or huge fits into float16: whatever is linear in both takes q m and dz / m.
    """
    largest_q, largest_dz = (x.abs().amax(-1, keepdim=True).float() for x in (q, dz))
    share = largest_dz / largest_q
    share = torch.where((share > 0) & (share < math.inf), share, torch.ones_like(share))
    return torch.exp2(torch.floor(0.5 * torch.log2(share)))
