"""Pointwise attention that returns no weights: by the GPU kernels where they can be used, else by tiles."""

import functools
from typing import Callable

from torch import Tensor

from fairseq_rela.attention import kernels
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.streaming import streaming_attention


@functools.lru_cache(maxsize=None)
def function_of(activation: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name as a function of scores."""
    return ACTIVATIONS[activation].build()


def pointwise_attention(
    activation: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, dropout: float
) -> Tensor:
    """f(scale · q kᵀ) v of every head.

    Args:
        activation: its name in `ACTIVATIONS`
        q: (N, T, w); k: (N, S, w); v: (N, S, d_h). If w is more than d_h, the rest are further columns. One such column
            is given to the kernels as a separate term, because they would pad a width of d_h + 1 to 2 d_h
        causal: query t sees keys 0 … t only
        dropout: the probability of dropping a weight

    Returns: heads (N, T, d_h), in float32 where q is in half precision
    """
    width = v.size(2)
    queries, keys = q[..., :width], k[..., :width]
    if q.size(2) <= width + 1 and kernels.usable(queries, keys, v, activation):
        row_term, column_term = (-q[..., width], k[..., width]) if q.size(2) > width else (None, None)
        return kernels.attention(queries, keys, v, row_term, column_term, causal, scale, dropout)
    in_place = ACTIVATIONS[activation].in_place
    return streaming_attention(q, k, v, function_of(activation), in_place, causal, scale, dropout)
