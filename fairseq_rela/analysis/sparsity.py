"""Sparsity rate: the share of weights exactly 0 among the positions a query may see (Section 5.2, Figure 3)."""

from typing import Optional

import numpy as np

KINDS = ("encoder", "decoder", "cross")


def visible_positions(kind: str, queries: int, keys: int) -> Optional[np.ndarray]:
    """(T, S) true where a query may look, or None where it may look everywhere.

    A dump holds no padding, so only the decoder's future is hidden: its row t sees columns 0 … t.
    """
    return np.tri(queries, keys, dtype=bool) if kind == "decoder" else None


def visible_count(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> int:
    """How many positions of one head's matrix are visible."""
    return int(weights.shape[-2] * weights.shape[-1]) if visible is None else int(visible.sum())


def zero_count(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """How many visible weights are exactly 0: (…) from (…, T, S)."""
    zero = weights == 0
    if visible is not None:
        zero &= visible
    return np.count_nonzero(zero, axis=(-2, -1))


def sparsity_rate(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """#{(t, s) visible: α[t, s] = 0} / #{(t, s) visible}: (…) from (…, T, S); 0 where nothing is visible."""
    return zero_count(weights, visible) / max(visible_count(weights, visible), 1)
