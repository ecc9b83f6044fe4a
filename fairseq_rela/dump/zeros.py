"""What counts as visible, as zero and as null, for numpy arrays. Every other module uses these definitions.

`recording.device_stats` has the same definitions for torch tensors. The tests compare the two.

Shapes: L layers, H heads, T queries, S keys.
"""

from typing import Optional, Tuple, Union

import numpy as np

from fairseq_rela.kinds import is_causal

BITS = np.dtype("<u4")
_ALL_BUT_THE_SIGN = BITS.type(0x7FFFFFFF)


def is_nonzero(weights: np.ndarray) -> np.ndarray:
    """True where a weight is not exactly 0, an array of the same shape. -0.0 is zero; NaN and subnormals are not."""
    if weights.dtype not in (np.float32, np.float16):
        return weights != 0
    # The bits are compared, because `!= 0` does not see subnormals once a process has told its CPU to flush them.
    bits = np.ascontiguousarray(weights, dtype="<f4").view(BITS)
    return (bits & _ALL_BUT_THE_SIGN).astype(bool).reshape(weights.shape)


def visible_positions(kind: str, queries: int, keys: int) -> Optional[np.ndarray]:
    """(T, S), true where a query may see a key; None where every query sees every key.

    A dump has no padding, so only the decoder's future is hidden: query t sees keys 0 to t.
    """
    return np.tri(queries, keys, dtype=bool) if is_causal(kind) else None


def visible_count(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> int:
    """The number of visible positions in the matrix of one head; weights (…, T, S), visible (T, S)."""
    return int(weights.shape[-2] * weights.shape[-1]) if visible is None else int(visible.sum())


def visible_nonzero(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """(…, T, S), true where a weight is visible and not 0."""
    nonzero = is_nonzero(weights)
    return nonzero if visible is None else nonzero & visible


def zero_count(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """The number of visible weights that are exactly 0: (…) from (…, T, S)."""
    return visible_count(weights, visible) - np.count_nonzero(visible_nonzero(weights, visible), axis=(-2, -1))


def null_rows(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """(…, T), true where all visible weights of a query, a row of (…, T, S), are exactly 0."""
    return ~visible_nonzero(weights, visible).any(axis=-1)


def null_and_sparsity(weights: np.ndarray, kind: str) -> Tuple[np.ndarray, np.ndarray]:
    """The null rate and the sparsity rate of each layer over all its heads: (L,) and (L,) from (L, H, T, S).

    Both are NaN where there is no query.
    """
    heads, queries, keys = weights.shape[1:]
    visible = visible_positions(kind, queries, keys)
    nulls = np.count_nonzero(null_rows(weights, visible), axis=(1, 2))
    zeros = zero_count(weights, visible).sum(axis=1)
    return share(nulls, heads * queries), share(zeros, heads * visible_count(weights, visible))


def share(counts: np.ndarray, totals: Union[int, np.ndarray]) -> np.ndarray:
    """counts / totals as float64; NaN where a total is 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(counts, np.float64) / np.asarray(totals, np.float64)
