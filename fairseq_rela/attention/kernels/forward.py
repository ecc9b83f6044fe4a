"""Heads z = Σ_j f(scale · (q kᵀ_j − a b_j)) v_j, one block of queries of one head per program.

f is ReLU, or with SHARP the rectified exponential max(0, e^s − 1), where scores s above 10 count as 10.
ReLU is homogeneous, so the scale leaves the loop, but for a power of two that keeps 16-bit weights in range.
There is no maximum, no exponential and no rescaling between the two products. With SHARP there is one exponential.
Both factors of the score's exponent, the scale and log₂ e, are one number then, `exponent`, and exact_scale is 1.
"""

import triton
import triton.language as tl

from fairseq_rela.attention.kernels.parts import activated, kept, keys_of, product, read, read_term, write


@triton.jit
def weighted_values(
    total, q, a, row_keys, k, v, b, exponent, seed, head, first_query, first, last, keys,
    k_row, k_column, v_row, v_column, b_row,
    DIAGONAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`total` plus what the keys first … last − 1 add to it; DIAGONAL: some of them come after the query."""
    for start in tl.range(first, last, KEYS, num_stages=1 if DIAGONAL else STAGES):
        place = start + tl.arange(0, KEYS)
        k_j = read(k, start, keys, k_row, k_column, KEYS, WIDTH)
        scores = product(q, tl.trans(k_j), PRECISION)
        if TERM:
            scores -= a[:, None] * read_term(b, start, keys, b_row, KEYS)[None, :]
        if SHARP:
            scores *= exponent
        weights = activated(scores, 1.0, SHARP, k_j.dtype == tl.float32)
        if DIAGONAL:
            weights = tl.where(place[None, :] <= (first_query + tl.arange(0, QUERIES))[:, None], weights, 0.0)
        if DROPPED > 0:
            weights = tl.where(kept(row_keys[:, None], keys_of(seed, head, place, 2)[None, :], DROPPED), weights, 0.0)
        v_j = read(v, start, keys, v_row, v_column, KEYS, WIDTH)
        total += product(weights.to(v_j.dtype), v_j, PRECISION)
    return total


@triton.jit(do_not_specialize=["seed", "queries", "keys", "a_head", "a_row", "b_head", "b_row"])
def forward(
    q, k, v, a, b, z, seed, exact_scale, last_scale, exponent, queries, keys,
    q_head, q_row, q_column, k_head, k_row, k_column, v_head, v_row, v_column,
    a_head, a_row, b_head, b_row, z_head, z_row, z_column,
    CAUSAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """z (N, T, d_h) of q (N, T, d_h), k and v (N, S, d_h), a (N, T), b (N, S)."""
    blocks = tl.cdiv(queries, QUERIES)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if CAUSAL:  # the last block has most to do: it starts first
        block = blocks - 1 - block
    first_query = block * QUERIES
    q_t = read(q + head * q_head, first_query, queries, q_row, q_column, QUERIES, WIDTH)
    q_t = (q_t.to(tl.float32) * exact_scale).to(q_t.dtype)
    a_t, row_keys = 0.0, 0
    if TERM:
        a_t = read_term(a + head * a_head, first_query, queries, a_row, QUERIES) * exact_scale
    if DROPPED > 0:
        row_keys = keys_of(seed, head, first_query + tl.arange(0, QUERIES), 1)

    total = tl.zeros([QUERIES, WIDTH], tl.float32)
    past, last = keys, keys
    if CAUSAL:
        past, last = first_query // KEYS * KEYS, tl.minimum(first_query + QUERIES, keys)
    total = weighted_values(
        total, q_t, a_t, row_keys, k + head * k_head, v + head * v_head, b + head * b_head,
        exponent, seed, head, first_query, 0, past, keys, k_row, k_column, v_row, v_column, b_row,
        False, TERM, DROPPED, SHARP, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
    )  # fmt: skip
    if CAUSAL:
        total = weighted_values(
            total, q_t, a_t, row_keys, k + head * k_head, v + head * v_head, b + head * b_head,
            exponent, seed, head, first_query, past, last, keys, k_row, k_column, v_row, v_column, b_row,
            True, TERM, DROPPED, SHARP, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
        )  # fmt: skip
    write(z + head * z_head, total * last_scale, first_query, queries, z_row, z_column, QUERIES, WIDTH)
