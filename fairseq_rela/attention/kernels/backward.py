"""Gradients of `forward`: first those of the queries, then those of the keys and values.

    s = q kᵀ − a bᵀ     w = ReLU(s)     dw = dz vᵀ     ds = dw where s > 0
    dq = ds k     da = −Σ_j ds b_j     dk = dsᵀ q     dv = wᵀ dz     db = −Σ_t ds a_t        each times the scale

With SHARP, s has the scale, w = max(0, e^s − 1) and ds = dw e^s where 0 < s < 10. Then dv is not times the scale.

The gradient dz arrives in float32. `query_gradients` reads it once and leaves a 16-bit copy for `key_gradients`,
which would run out of registers with 32 bits. float16 holds few sizes of number, and a row of dz may be tiny or
huge. ReLU is homogeneous: with q m instead of q and dz / m instead of dz, for any m > 0, a row adds the same to dk
and dv. So with BALANCED each row takes the power of two m that makes q and dz about equally large, and both are left.
An exponential is not homogeneous. With SHARP, m is left too: dv = Σ_t (w m) (dz / m) and dk = Σ_t (ds / m) (q m), and
the scores are those of q m, divided by m in float32. Here m is 4 times as large: e^s makes ds large, but not q.
"""

import triton
import triton.language as tl

from fairseq_rela.attention.kernels.parts import (
    activated,
    differentiated,
    inverse,
    kept,
    keys_of,
    product,
    read,
    read_term,
    write,
)


@triton.jit
def balance(q, dz, SHARP: tl.constexpr):
    """For each row, the power of two m for which the largest |q| m and |dz| / m are about equal; 1 where one is 0.

    With SHARP, 4 times that.
    """
    largest_q = tl.max(tl.abs(q.to(tl.float32)), 1)
    largest_dz = tl.max(tl.abs(dz), 1)
    both = (largest_q > 0) & (largest_dz > 0) & (largest_dz < float("inf"))
    share = tl.where(both, largest_dz, 1.0) / tl.where(both, largest_q, 1.0)
    m = tl.exp2(tl.floor(0.5 * tl.log2(share)))
    if SHARP:
        m *= 4.0
    return m


@triton.jit
def leave(
    q, a, m, left_q, left_a, left_m, left, first_query, queries,
    TERM: tl.constexpr, SHARP: tl.constexpr, QUERIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write q m, a m and m for `key_gradients`; `left` rows belong to the heads before this one."""
    place = first_query + tl.arange(0, QUERIES)
    balanced_q = q.to(tl.float32) * m[:, None]
    write(left_q + left * WIDTH, balanced_q, first_query, queries, WIDTH, 1, QUERIES, WIDTH)
    if TERM:
        tl.store(left_a + left + place, a * m, mask=place < queries)
    if SHARP:
        tl.store(left_m + left + place, m, mask=place < queries)


@triton.jit
def summed_over_keys(
    dq, da, q, dz, a, row_keys, k, v, b, exponent, seed, head, first_query, first, last, keys,
    k_row, k_column, v_row, v_column, b_row,
    DIAGONAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq and da plus what the keys first … last − 1 add to them."""
    for start in tl.range(first, last, KEYS, num_stages=1 if DIAGONAL else STAGES):
        place = start + tl.arange(0, KEYS)
        k_j = read(k, start, keys, k_row, k_column, KEYS, WIDTH)
        v_j = read(v, start, keys, v_row, v_column, KEYS, WIDTH)
        scores = product(q, tl.trans(k_j), PRECISION)
        if TERM:
            b_j = read_term(b, start, keys, b_row, KEYS)
            scores -= a[:, None] * b_j[None, :]
        if SHARP:
            scores *= exponent
        ds = differentiated(scores, product(dz, tl.trans(v_j), PRECISION), SHARP)
        if DIAGONAL:
            ds = tl.where(place[None, :] <= (first_query + tl.arange(0, QUERIES))[:, None], ds, 0.0)
        if DROPPED > 0:
            ds = tl.where(kept(row_keys[:, None], keys_of(seed, head, place, 2)[None, :], DROPPED), ds, 0.0)
        if TERM:
            da -= tl.sum(ds * b_j[None, :], 1)
        dq += product(ds.to(k_j.dtype), k_j, PRECISION)
    return dq, da


@triton.jit(do_not_specialize=["seed", "queries", "keys", "a_head", "a_row", "b_head", "b_row"])
def query_gradients(
    q, k, v, a, b, dz, dq, da, left_q, left_dz, left_a, left_m, seed, scale, exponent, queries, keys,
    q_head, q_row, q_column, k_head, k_row, k_column, v_head, v_row, v_column,
    a_head, a_row, b_head, b_row, dz_head, dz_row, dz_column, dq_head, dq_row, dq_column,
    CAUSAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr,
    BALANCED: tl.constexpr, NARROWED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq (N, T, d_h) and da (N, T), one block of queries of one head per program.

    `left_q`, `left_dz` (N, T, d_h), `left_a` and `left_m` (N, T), contiguous, are for `key_gradients`: `left_dz` where
    the inputs have 16 bits (NARROWED), the others where they are float16 (BALANCED), `left_m` with SHARP alone.
    """
    blocks = tl.cdiv(queries, QUERIES)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if CAUSAL:
        block = blocks - 1 - block
    first_query = block * QUERIES
    place = first_query + tl.arange(0, QUERIES)
    q_t = read(q + head * q_head, first_query, queries, q_row, q_column, QUERIES, WIDTH)
    dz_t = read(dz + head * dz_head, first_query, queries, dz_row, dz_column, QUERIES, WIDTH)
    a_t, row_keys = 0.0, 0
    if TERM:
        a_t = read_term(a + head * a_head, first_query, queries, a_row, QUERIES)
    if DROPPED > 0:
        row_keys = keys_of(seed, head, place, 1)
    last_scale = scale
    if NARROWED:
        left = head * queries
        if BALANCED:
            m = balance(q_t, dz_t, SHARP)
            dz_t /= m[:, None]
            last_scale = (scale * m)[:, None]
            leave(q_t, a_t, m, left_q, left_a, left_m, left, first_query, queries, TERM, SHARP, QUERIES, WIDTH)
        dz_t = dz_t.to(q_t.dtype)
        write(left_dz + left * WIDTH, dz_t, first_query, queries, WIDTH, 1, QUERIES, WIDTH)

    dq_t = tl.zeros([QUERIES, WIDTH], tl.float32)
    da_t = tl.zeros([QUERIES], tl.float32)
    past, last = keys, keys
    if CAUSAL:
        past, last = first_query // KEYS * KEYS, tl.minimum(first_query + QUERIES, keys)
    dq_t, da_t = summed_over_keys(
        dq_t, da_t, q_t, dz_t, a_t, row_keys, k + head * k_head, v + head * v_head, b + head * b_head,
        exponent, seed, head, first_query, 0, past, keys, k_row, k_column, v_row, v_column, b_row,
        False, TERM, DROPPED, SHARP, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
    )  # fmt: skip
    if CAUSAL:
        dq_t, da_t = summed_over_keys(
            dq_t, da_t, q_t, dz_t, a_t, row_keys, k + head * k_head, v + head * v_head, b + head * b_head,
            exponent, seed, head, first_query, past, last, keys, k_row, k_column, v_row, v_column, b_row,
            True, TERM, DROPPED, SHARP, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
        )  # fmt: skip
    write(dq + head * dq_head, dq_t * last_scale, first_query, queries, dq_row, dq_column, QUERIES, WIDTH)
    if TERM:
        da_t = da_t * (scale * m if BALANCED else scale)
        tl.store(da + head * queries + place, da_t, mask=place < queries)


@triton.jit
def summed_over_queries(
    dk, dv, db, k, v, b, column_keys, q, dz, a, m, exponent, seed, head, first_key, first, last, queries,
    q_row, q_column, dz_row, dz_column, a_row,
    DIAGONAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr, BALANCED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk, dv and db plus what the queries first … last − 1 add to them. Tiles are keys × queries here."""
    for start in tl.range(first, last, QUERIES, num_stages=1 if DIAGONAL else STAGES):
        place = start + tl.arange(0, QUERIES)
        q_t = read(q, start, queries, q_row, q_column, QUERIES, WIDTH)
        dz_t = read(dz, start, queries, dz_row, dz_column, QUERIES, WIDTH)
        scores = product(k, tl.trans(q_t), PRECISION)
        if TERM:
            a_t = read_term(a, start, queries, a_row, QUERIES)
            scores -= b[:, None] * a_t[None, :]
        m_t = 1.0
        if SHARP:
            if BALANCED:
                m_t = read_term(m, start, queries, 1, QUERIES, 1.0)[None, :]
                scores *= exponent * inverse(m_t)
            else:
                scores *= exponent
        if DIAGONAL:
            scores = tl.where((first_key + tl.arange(0, KEYS))[:, None] <= place[None, :], scores, 0.0)
        if DROPPED > 0:
            keep = kept(keys_of(seed, head, place, 1)[None, :], column_keys[:, None], DROPPED)
            scores = tl.where(keep, scores, 0.0)
        weights = activated(scores, m_t, SHARP, dz_t.dtype == tl.float32)
        dv += product(weights.to(dz_t.dtype), dz_t, PRECISION)
        ds = differentiated(scores, product(v, tl.trans(dz_t), PRECISION), SHARP)
        if TERM:
            db -= tl.sum(ds * a_t[None, :], 1)
        dk += product(ds.to(q_t.dtype), q_t, PRECISION)
    return dk, dv, db


@triton.jit(do_not_specialize=["seed", "queries", "keys", "a_head", "a_row", "b_head", "b_row"])
def key_gradients(
    q, k, v, a, b, dz, m, dk, dv, db, seed, exact_scale, last_scale, scale, exponent, queries, keys,
    q_head, q_row, q_column, k_head, k_row, k_column, v_head, v_row, v_column,
    a_head, a_row, b_head, b_row, dz_head, dz_row, dz_column,
    dk_head, dk_row, dk_column, dv_head, dv_row, dv_column,
    CAUSAL: tl.constexpr, TERM: tl.constexpr, DROPPED: tl.constexpr, SHARP: tl.constexpr, BALANCED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk, dv (N, S, d_h) and db (N, S), one block of keys of one head per program; m (N, T) if SHARP and BALANCED."""
    blocks = tl.cdiv(keys, KEYS)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    first_key = tl.program_id(0) % blocks * KEYS  # under a causal mask the first keys have most to do
    k_j = read(k + head * k_head, first_key, keys, k_row, k_column, KEYS, WIDTH)
    k_j = (k_j.to(tl.float32) * exact_scale).to(k_j.dtype)
    v_j = read(v + head * v_head, first_key, keys, v_row, v_column, KEYS, WIDTH)
    place = first_key + tl.arange(0, KEYS)
    b_j, column_keys = 0.0, 0
    if TERM:
        b_j = read_term(b + head * b_head, first_key, keys, b_row, KEYS) * exact_scale
    if DROPPED > 0:
        column_keys = keys_of(seed, head, place, 2)

    dk_j, dv_j = tl.zeros([KEYS, WIDTH], tl.float32), tl.zeros([KEYS, WIDTH], tl.float32)
    db_j = tl.zeros([KEYS], tl.float32)
    if SHARP and BALANCED:
        m += head * queries
    seeing = 0  # the first query that sees all keys of this block, rounded up to whole tiles
    if CAUSAL:
        seeing = tl.minimum(tl.cdiv(first_key + KEYS - 1, QUERIES) * QUERIES, queries)
        dk_j, dv_j, db_j = summed_over_queries(
            dk_j, dv_j, db_j, k_j, v_j, b_j, column_keys, q + head * q_head, dz + head * dz_head, a + head * a_head,
            m, exponent, seed, head, first_key, first_key // QUERIES * QUERIES, seeing, queries,
            q_row, q_column, dz_row, dz_column, a_row,
            True, TERM, DROPPED, SHARP, BALANCED, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
        )  # fmt: skip
    dk_j, dv_j, db_j = summed_over_queries(
        dk_j, dv_j, db_j, k_j, v_j, b_j, column_keys, q + head * q_head, dz + head * dz_head, a + head * a_head,
        m, exponent, seed, head, first_key, seeing, queries, queries, q_row, q_column, dz_row, dz_column, a_row,
        False, TERM, DROPPED, SHARP, BALANCED, QUERIES, KEYS, WIDTH, STAGES, PRECISION,
    )  # fmt: skip
    write(dk + head * dk_head, dk_j * scale, first_key, keys, dk_row, dk_column, KEYS, WIDTH)
    write(dv + head * dv_head, dv_j * last_scale, first_key, keys, dv_row, dv_column, KEYS, WIDTH)
    if TERM:
        tl.store(db + head * keys + place, db_j * scale, mask=place < keys)
