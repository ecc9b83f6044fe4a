"""The kernels as operators of torch, with their gradients: `torch.compile` and autograd see one node each.

Needs torch 2.4 or later and Triton; `kernels.available` tells whether they are there.
"""

import contextlib
import math
from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from fairseq_rela.attention.kernels import backward, forward, norm
from fairseq_rela.attention.kernels.tiles import norm_tile, precision, run_options, tiles

NORM_PROGRAMS = 512  # of the norm's backward pass at most: so many partial sums are added by torch


def on(x: Tensor) -> ContextManager:
    """Make the device of x the current one inside the `with`, because Triton launches there."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def laid_out_like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Empty memory for a tensor shaped like x (N, T, d_h), dense, and laid out like x: by heads or by positions."""
    if x.stride(0) < x.stride(1):
        return x.new_empty(x.size(1), x.size(0), x.size(2), dtype=dtype).transpose(0, 1)
    return x.new_empty(x.shape, dtype=dtype)


def exact_part(scale: float) -> float:
    """The power of two nearest below the scale: a product with it rounds nothing."""
    return 2.0 ** math.floor(math.log2(scale)) if scale > 0 else 1.0


def split_scale(scale: float, sharp: bool) -> Tuple[float, float, Optional[float]]:
    """The factors of the queries, of the sums over weights, and of the exponent to base 2; None without exponential."""
    if sharp:
        return 1.0, 1.0, scale * math.log2(math.e)
    exact = exact_part(scale)
    return exact, scale / exact, None


def threshold(dropout: float) -> int:
    """The probability times 2³²: the kernels compare random 32-bit numbers with it."""
    return min(round(dropout * 2**32), 2**32 - 1)


def of_kept(dropout: float) -> float:
    """The factor by which dropout multiplies the weights that it keeps."""
    return 1.0 / (1.0 - dropout) if dropout < 1 else 0.0


def strides(*tensors: Tensor) -> List[int]:
    return [stride for x in tensors for stride in x.stride()]


def block_options(kernel: str, q: Tensor, k: Tensor, flags: Dict[str, Any], sharp: bool) -> Dict[str, Any]:
    """The kernel's compile-time arguments: its tiles for these tensors, and the flags that the passes share."""
    amd = torch.version.hip is not None
    simple = not any(flags.values())
    sizes = tiles(kernel, q.element_size(), q.size(2), q.size(1), k.size(1), simple, amd, sharp)
    return {
        **flags,
        "SHARP": sharp,
        "QUERIES": sizes.queries,
        "KEYS": sizes.keys,
        "WIDTH": q.size(2),
        "STAGES": sizes.stages,
        "PRECISION": precision(amd),
        **run_options(sizes.warps, amd),
    }


def terms(q: Tensor, k: Tensor, row: Optional[Tensor], column: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """The term a bᵀ as (N, T) and (N, S); without one, tensors of that many dimensions that nothing reads."""
    if row is None or column is None:
        return q[:, :, 0], k[:, :, 0]
    return row, column


def flags_of(causal: bool, row: Optional[Tensor], dropout: float) -> Dict[str, Any]:
    return {"CAUSAL": causal, "TERM": row is not None, "DROPPED": threshold(dropout)}


def drawn(seed: Optional[Tensor]) -> int:
    """The number in `seed` (1,), which lies in the memory of the CPU: no device is waited for."""
    return 0 if seed is None else int(seed)


@torch.library.custom_op("fairseq_rela::attention", mutates_args=())
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Optional[Tensor],
    column: Optional[Tensor],
    seed: Optional[Tensor],
    causal: bool,
    scale: float,
    dropout: float,
    sharp: bool,
) -> Tensor:
    z = laid_out_like(q, torch.float32)
    heads, queries, _ = q.shape
    keys = k.size(1)
    exact, rest, exponent = split_scale(scale, sharp)
    a, b = terms(q, k, row, column)
    options = block_options("forward", q, k, flags_of(causal, row, dropout), sharp)
    with on(q):
        forward.forward[(heads * cdiv(queries, options["QUERIES"]),)](
            q, k, v, a, b, z, drawn(seed), exact, rest * of_kept(dropout), exponent, queries, keys,
            *strides(q, k, v, a, b, z), **options,
        )  # fmt: skip
    return z


@attention.register_fake
def _(q, k, v, row, column, seed, causal, scale, dropout, sharp):
    return laid_out_like(q, torch.float32)


@torch.library.custom_op("fairseq_rela::attention_gradients", mutates_args=())
def attention_gradients(
    dz: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Optional[Tensor],
    column: Optional[Tensor],
    seed: Optional[Tensor],
    causal: bool,
    scale: float,
    dropout: float,
    sharp: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, da, db = empty_gradients(q, k, v, row)
    heads, queries, _ = q.shape
    keys = k.size(1)
    exact, rest, exponent = split_scale(scale, sharp)
    a, b = terms(q, k, row, column)
    flags = flags_of(causal, row, dropout)
    number, kept = drawn(seed), of_kept(dropout)
    narrowed, balanced = q.dtype != torch.float32, q.dtype == torch.float16
    left_dz = q.new_empty(q.shape) if narrowed else dz
    left_q = q.new_empty(q.shape) if balanced else q
    left_a = a.new_empty(a.shape, dtype=torch.float32) if balanced and row is not None else a
    m = q.new_empty(q.shape[:2], dtype=torch.float32) if balanced and sharp else None
    with on(q):
        options = block_options("query_gradients", q, k, flags, sharp)
        backward.query_gradients[(heads * cdiv(queries, options["QUERIES"]),)](
            q, k, v, a, b, dz, dq, da, left_q, left_dz, left_a, m, number, scale * kept, exponent, queries, keys,
            *strides(q, k, v, a, b, dz, dq), BALANCED=balanced, NARROWED=narrowed, **options,
        )  # fmt: skip
        options = block_options("key_gradients", q, k, flags, sharp)
        backward.key_gradients[(heads * cdiv(keys, options["KEYS"]),)](
            left_q, k, v, left_a, b, left_dz, m, dk, dv, db, number,
            exact, rest * kept, scale * kept, exponent, queries, keys,
            *strides(left_q, k, v, left_a, b, left_dz, dk, dv), BALANCED=balanced, **options,
        )  # fmt: skip
    return dq, dk, dv, da, db


def empty_gradients(q: Tensor, k: Tensor, v: Tensor, row: Optional[Tensor]) -> Tuple[Tensor, ...]:
    """Memory for dq, dk, dv, da and db; without a term the last two have no elements."""
    with_term = 1 if row is not None else 0
    da, db = (x.new_empty(x.size(0), x.size(1) * with_term, dtype=torch.float32) for x in (q, k))
    return (*(laid_out_like(x, x.dtype) for x in (q, k, v)), da, db)


@attention_gradients.register_fake
def _(dz, q, k, v, row, column, seed, causal, scale, dropout, sharp):
    return empty_gradients(q, k, v, row)


def keep_for_gradients(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.flags = inputs[6:]


def differentiate(ctx, dz: Tensor) -> Sequence[Optional[Tensor]]:
    q, k, v, row, column, seed = ctx.saved_tensors
    *gradients, da, db = attention_gradients(dz, q, k, v, row, column, seed, *ctx.flags)
    terms_too = (None, None) if row is None else (da.to(row.dtype), db.to(column.dtype))
    return (*gradients, *terms_too, None, None, None, None, None)


attention.register_autograd(differentiate, setup_context=keep_for_gradients)


@torch.library.custom_op("fairseq_rela::gated_rms_norm", mutates_args=())
def gated_rms_norm(
    z: Tensor, gate: Optional[Tensor], gain: Optional[Tensor], eps: float, dtype: torch.dtype
) -> Tuple[Tensor, Tensor]:
    """z: (rows, d), its rows contiguous. Returns y (rows, d) of `dtype` and 1 / √(mean(z²) + eps) (rows,)."""
    y, scales = empty_normed(z, dtype)
    rows, width = z.shape
    options = norm_options(z, gate, gain)
    with on(z):
        norm.norm_forward[(cdiv(rows, options["ROWS"]),)](
            z, z if gate is None else gate, z if gain is None else gain, y, scales, eps, rows, width,
            z.stride(0), y.stride(0), **options,
        )  # fmt: skip
    return y, scales


def norm_options(z: Tensor, gate: Optional[Tensor], gain: Optional[Tensor]) -> Dict[str, Any]:
    """The compile-time arguments of the norm's kernels. What is not there is not read."""
    rows, warps = norm_tile(z.size(1))
    width = next_power_of_2(z.size(1))
    return {"GATED": gate is not None, "GAINED": gain is not None, "ROWS": rows, "WIDTH": width, "num_warps": warps}


def empty_normed(z: Tensor, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    return z.new_empty(z.shape, dtype=dtype), z.new_empty(z.size(0), dtype=torch.float32)


@gated_rms_norm.register_fake
def _(z, gate, gain, eps, dtype):
    return empty_normed(z, dtype)


@torch.library.custom_op("fairseq_rela::gated_rms_norm_gradients", mutates_args=())
def gated_rms_norm_gradients(
    dy: Tensor, z: Tensor, gate: Optional[Tensor], gain: Optional[Tensor], scales: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """dz (rows, d), and dgate and dgain (programs, d), which are still to be added up."""
    dz, dgate, dgain = empty_norm_gradients(z, gate, gain)
    rows, width = z.shape
    with on(z):
        norm.norm_backward[(norm_programs(z),)](
            z, z if gate is None else gate, z if gain is None else gain, dy, scales, dz, dgate, dgain, rows, width,
            z.stride(0), dy.stride(0), dz.stride(0), **norm_options(z, gate, gain),
        )  # fmt: skip
    return dz, dgate, dgain


def norm_programs(z: Tensor) -> int:
    return min(NORM_PROGRAMS, cdiv(z.size(0), norm_tile(z.size(1))[0]))


def empty_norm_gradients(z: Tensor, gate: Optional[Tensor], gain: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    """Memory for dz, dgate and dgain; the parts of what is not there have no elements."""
    shapes = [(0, 0) if x is None else (norm_programs(z), z.size(1)) for x in (gate, gain)]
    dgate, dgain = (z.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return z.new_empty(z.shape), dgate, dgain


@gated_rms_norm_gradients.register_fake
def _(dy, z, gate, gain, scales):
    return empty_norm_gradients(z, gate, gain)


def keep_for_norm_gradients(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # of that


def differentiate_norm(ctx, dy: Tensor, _) -> Sequence[Optional[Tensor]]:
    z, gate, gain, scales = ctx.saved_tensors
    dy = dy if dy.stride(1) == 1 else dy.contiguous()
    dz, dgate, dgain = gated_rms_norm_gradients(dy, z, gate, gain, scales)
    sums = (None if x is None else parts.sum(0).to(x.dtype) for x, parts in ((gate, dgate), (gain, dgain)))
    return (dz, *sums, None, None)


gated_rms_norm.register_autograd(differentiate_norm, setup_context=keep_for_norm_gradients)
