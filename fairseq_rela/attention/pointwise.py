"""Pointwise attention where no weights are asked for: by GPU kernels where they can, else by tiles."""

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
        q: (N, T, w); k: (N, S, w); v: (N, S, d_h). What is wider than d_h are further columns of the scores. One such
            column is a term of its own for the kernels, because a width of d_h + 1 would be padded to 2 d_h
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
