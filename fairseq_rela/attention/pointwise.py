"""Pointwise attention that returns no weights: by the GPU kernels where they can be used, else by tiles."""

import functools
from typing import Callable, Optional

import torch
from torch import Tensor

from fairseq_rela.attention import kernels
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.streaming import streaming_attention


@functools.lru_cache(maxsize=None)
def function_of(activation: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name as a function of scores."""
    return ACTIVATIONS[activation].build()


def kernel_attention(
    activation: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beside_q: Optional[Tensor],
    beside_k: Optional[Tensor],
    causal: bool,
    scale: float,
    dropout: float,
) -> Optional[Tensor]:
    """`pointwise_attention` by GPU kernels, or None where there is none for this: they take one column at most."""
    if not kernels.usable(q, k, v, activation) or (beside_q is not None and beside_q.size(2) > 1):
        return None
    row = None if beside_q is None else -beside_q[..., 0]
    column = None if beside_k is None else beside_k[..., 0]
    return kernels.attention(q, k, v, row, column, causal, scale, dropout, activation)


def beside(x: Tensor, columns: Optional[Tensor]) -> Tensor:
    """x (N, T, d_h) with its columns (N, T, c): (N, T, d_h + c), heads inside positions in memory."""
    if columns is None:
        return x
    return torch.cat([x.transpose(0, 1), columns.to(x.dtype).transpose(0, 1)], dim=-1).transpose(0, 1)


def pointwise_attention(
    activation: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beside_q: Optional[Tensor],
    beside_k: Optional[Tensor],
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """f(scale · (q kᵀ + c eᵀ)) v of every head.

    Args:
        activation: its name in `ACTIVATIONS`
        q: (N, T, d_h); k, v: (N, S, d_h)
        beside_q, beside_k: c (N, T, columns) and e (N, S, columns), further columns of queries and keys, or None. For
            the kernels they are apart, because a width of d_h + 1 would be padded to 2 d_h, and would not be aligned
        causal: query t sees keys 0 … t only
        dropout: the probability of dropping a weight

    Returns: heads (N, T, d_h), in float32 where q is in half precision
    """
    heads = kernel_attention(activation, q, k, v, beside_q, beside_k, causal, scale, dropout)
    if heads is not None:
        return heads
    in_place = ACTIVATIONS[activation].in_place
    wide_q, wide_k = beside(q, beside_q), beside(k, beside_k)
    return streaming_attention(wide_q, wide_k, v, function_of(activation), in_place, causal, scale, dropout)
