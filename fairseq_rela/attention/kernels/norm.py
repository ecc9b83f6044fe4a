"""σ(w ⊙ z) ⊙ RMSNorm(z) over rows of width d, and its gradients, each in one pass (paper, Equations 4 and 5).

    n = z r      r = 1 / √(mean(z²) + eps)      σ = σ(w ⊙ z)      t = dy ⊙ σ ⊙ n ⊙ g
    dw = Σ t (1 − σ) z      dg = Σ dy σ n      dz = r (dy σ g − n mean(t)) + t (1 − σ) w

The norm spans all heads, but a block of the attention kernel has one head. So the norm is a separate kernel.
Without a gate, σ is 1 and dw is not computed. Without a gain either (GAINED), this is x / √(mean(x²) + eps).
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def norm_forward(
    z,
    gate,
    gain,
    y,
    scales,
    eps,
    rows,
    width,
    z_row,
    y_row,
    GATED: tl.constexpr,
    GAINED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """y (rows, width) of z (rows, width), and r (rows,) in `scales` for the backward pass."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    x = tl.load(z + row[:, None] * z_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(x * x, 1) / width + eps)
    out = x * r[:, None]
    if GAINED:
        out *= tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if GATED:
        out *= tl.sigmoid(x * tl.load(gate + column, mask=column < width, other=0.0).to(tl.float32)[None, :])
    tl.store(y + row[:, None] * y_row + column[None, :], out.to(y.dtype.element_ty), mask=inside)
    tl.store(scales + row, r, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def norm_backward(
    z, gate, gain, dy, scales, dz, dgate, dgain, rows, width, z_row, dy_row, dz_row,
    GATED: tl.constexpr, GAINED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """dz (rows, width); each program adds up its rows' part of dgate and dgain (programs, width)."""
    column = tl.arange(0, WIDTH)
    g = tl.full([1, WIDTH], 1.0, tl.float32)
    if GAINED:
        g = tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    w = tl.zeros([1, WIDTH], tl.float32)
    if GATED:
        w = tl.load(gate + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    gate_sum, gain_sum = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = tl.cast(first, tl.int64) + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        x = tl.load(z + row[:, None] * z_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(dy + row[:, None] * dy_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
        r = tl.load(scales + row, mask=row < rows, other=0.0)[:, None]
        n = x * r
        if GATED:
            sigma = tl.sigmoid(x * w)
            grad *= sigma
        if GAINED:
            gain_sum += tl.sum(grad * n, 0)
        t = grad * n * g
        out = r * (grad * g - n * (tl.sum(t, 1) / width)[:, None])
        if GATED:
            t *= 1.0 - sigma
            out += t * w
            gate_sum += tl.sum(t * x, 0)
        tl.store(dz + row[:, None] * dz_row + column[None, :], out.to(dz.dtype.element_ty), mask=inside)
    part = tl.program_id(0) * width + column
    if GAINED:
        tl.store(dgain + part, gain_sum, mask=column < width)
    if GATED:
        tl.store(dgate + part, gate_sum, mask=column < width)
