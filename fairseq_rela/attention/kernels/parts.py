"""What the attention kernels share: tiles in memory, scores, and the dropout of a weight.

A *tile* is ROWS positions × WIDTH numbers of one head. What lies outside a matrix is read as 0. A query or a key of
zeros has weight 0, so nothing but the future needs a mask after that.
"""

import triton
import triton.language as tl


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
def read_term(base, first, length, stride, ROWS: tl.constexpr):
    """Elements first … first + ROWS − 1 of a vector (length,) in float32, 0 past its end."""
    row = tl.arange(0, ROWS)
    where = base + tl.cast(first, tl.int64) * stride + row * stride
    return tl.load(where, mask=first + row < length, other=0.0).to(tl.float32)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b with float32 sums. PRECISION says how float32 factors are multiplied; factors of 16 bits are as they are."""
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def relu(scores):
    """max(scores, 0). NaN stays NaN, as in torch: a model that has diverged must show it."""
    return tl.maximum(scores, 0.0, propagate_nan=tl.PropagateNan.ALL)


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
