"""What the attention kernels share: tiles in memory, the activation, and the dropout of a weight.

A *tile* is ROWS positions × WIDTH numbers of one head. What lies outside a matrix is read as 0. A query or a key of
zeros has weight 0, so nothing but the future needs a mask after that.
"""

import math

import triton
import triton.language as tl

from fairseq_rela.attention.activations import RectifiedExp

HIGHEST = tl.constexpr(RectifiedExp.HIGHEST * math.log2(math.e))
# e^s − 1 = x (A + x (B + x (C + x D))) for a small x = s log₂ e
A, B, C, D = (tl.constexpr(math.log(2) ** n / math.factorial(n)) for n in (1, 2, 3, 4))


@triton.jit
def read(base, first, length, row_stride, column_stride, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows first … first + ROWS − 1 of a matrix (length, WIDTH), 0 past its end."""
    row, column = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    start = base + tl.cast(first, tl.int64) * row_stride  # 64 bits once for a tile, 32 inside it
    where = start + row[:, None] * row_stride + column[None, :] * column_stride
    return tl.load(where, mask=(first + row < length)[:, None], other=0.0)


@triton.jit
def write(base, tile, first, length, row_stride, column_stride, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """`tile` as rows first … first + ROWS − 1 of a matrix (length, WIDTH)."""
    row, column = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    start = base + tl.cast(first, tl.int64) * row_stride
    where = start + row[:, None] * row_stride + column[None, :] * column_stride
    tl.store(where, tile.to(base.dtype.element_ty), mask=(first + row < length)[:, None])


@triton.jit
def read_term(base, first, length, stride, ROWS: tl.constexpr, OUTSIDE: tl.constexpr = 0.0):
    """Elements first … first + ROWS − 1 of a vector (length,) in float32, OUTSIDE past its end."""
    row = tl.arange(0, ROWS)
    where = base + tl.cast(first, tl.int64) * stride + row * stride
    return tl.load(where, mask=first + row < length, other=OUTSIDE).to(tl.float32)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b with float32 sums. PRECISION says how float32 factors are multiplied; factors of 16 bits are as they are."""
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def relu(scores):
    """max(scores, 0). NaN stays NaN, as in torch: a model that has diverged must show it."""
    return tl.maximum(scores, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def bounded(x):
    """x as it counts in an exponential: between 0 and HIGHEST. NaN stays NaN."""
    return tl.clamp(x, 0.0, HIGHEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def activated(scores, m, SHARP: tl.constexpr, PRECISE: tl.constexpr):
    """The weights: ReLU(s) of s = scores, or with SHARP m · max(0, e^s − 1) of s log₂ e = scores.

    Where no score is above 0, the result is exactly 0. The difference e^s − 1 has an error of 1e-7, which is much for
    a small weight. Weights of 16 bits hide it; for float32 (PRECISE) a series takes its place.
    """
    if SHARP:
        x = bounded(scores)
        weights = tl.exp2(x) * m - m
        if PRECISE:
            weights = tl.where(x < 0.125, x * (A + x * (B + x * (C + x * D))), weights)
    else:
        weights = relu(scores)
    return weights


@triton.jit
def differentiated(scores, dw, SHARP: tl.constexpr):
    """dw times the derivative of `activated`: 0 where s ≤ 0; with SHARP e^s elsewhere, but 0 where s ≥ 10."""
    if SHARP:
        ds = tl.where((scores <= 0) | (scores >= HIGHEST), 0.0, dw * tl.exp2(bounded(scores)))
    else:
        ds = tl.where(scores <= 0, 0.0, dw)
    return ds


@triton.jit
def inverse(m):
    """1 / m of powers of two, by their exponents alone."""
    return (0x7F000000 - m.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)


@triton.jit
def mixed(x):
    """A 32-bit number whose every bit depends on every bit of x (Wellons' `lowbias32`)."""
    x = x ^ (x >> 16)
    x = x * 0x21F0AAAD
    x = x ^ (x >> 15)
    x = x * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def keys_of(seed, head, positions, SALT: tl.constexpr):
    """A random 32-bit number for each row (SALT 1) or column (SALT 2) of a head's weights."""
    start = mixed(mixed(tl.cast(seed, tl.uint32) + SALT * 0x1E3779B9) ^ tl.cast(head, tl.uint32))
    return mixed(start + tl.cast(positions, tl.uint32))


@triton.jit
def kept(row_keys, column_keys, DROPPED: tl.constexpr):
    """Which weights dropout keeps, by row and column alone, so that both passes agree in any order of tiles.

    Both numbers are mixed already. Two more products break the linear relation between the corners of a rectangle.
    DROPPED is the probability of dropping a weight, times 2³². Only the high bits matter, and they are mixed best.
    """
    x = row_keys ^ column_keys
    x = x * 0x21F0AAAD
    x = x ^ (x >> 15)
    x = x * 0xD35A2D97
    return x >= DROPPED
