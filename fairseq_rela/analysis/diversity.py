"""Head diversity: how much the heads of a layer differ (Section 5.2, Figure 5 and Table 6)."""

from typing import Dict, Optional, Sequence

import numpy as np

TAUS = (1.0, 0.5, 0.25, 0.1)


def query_diversity(
    weights: np.ndarray,
    visible: Optional[np.ndarray] = None,
    distribution: bool = False,
    taus: Sequence[float] = (1.0,),
) -> Dict[float, np.ndarray]:
    """Generalised Jensen-Shannon divergence of the heads at each query, in nats: τ -> (…, T) from (…, H, T, S).

        JS(p¹ … p^H) = H(1/H Σ p^h) - 1/H Σ H(p^h)

    Rows that are no distributions become p = softmax(sign(α)|α|^τ) over the visible positions; a null row becomes
    certainty of a dummy slot after the last position (entropy 0). Rows that are distributions are taken as they are,
    whatever τ.
    """
    if visible is not None:
        weights = np.where(visible, weights, weights.dtype.type(0))
    if distribution:
        rows = weights.astype(np.float64)
        null = ~(rows != 0).any(axis=-1)
        value = _divergence(rows.mean(axis=-3), -_sum_plogp(rows), null)
        return dict.fromkeys(taus, value)
    return _rectified_diversity(weights, visible, taus)


def _rectified_diversity(
    weights: np.ndarray, visible: Optional[np.ndarray], taus: Sequence[float]
) -> Dict[float, np.ndarray]:
    """`query_diversity` of rows that are no distributions.

    The weights that are 0 all have logit 0, so a row's zeros need one exponential between them: the work is in
    proportion to the weights that are not 0, few in sparse attention.
    """
    *outer, heads, queries, keys = weights.shape
    shape = (*outer, heads, queries)
    seen = np.full(queries, keys) if visible is None else visible.sum(axis=-1)  # (T,)
    nonzero = weights != 0
    counts = np.count_nonzero(nonzero, axis=-1)  # (…, H, T)
    null = counts == 0
    values = weights[nonzero].astype(np.float64)  # row after row
    rows = np.flatnonzero(~null)
    per_row = counts.reshape(-1)[rows]
    starts = np.cumsum(per_row) - per_row
    has_zeros = counts < seen
    top = np.full(null.size, -np.inf)
    top[rows] = np.maximum.reduceat(values, starts) if len(rows) else 0
    top = np.where(has_zeros.reshape(-1), np.maximum(top, 0), top)[rows]
    zeros = np.maximum(seen - counts, 0).reshape(-1)[rows]
    cells = _mixture_cells(nonzero)
    found = {}
    for tau in taus:
        logits = np.copysign(_power(np.abs(values), tau), values)
        peak = np.copysign(_power(np.abs(top), tau), top)  # the power keeps order: still the largest logit
        of_zero = np.exp(-np.maximum(peak, 0))  # a row that has zeros has no lower peak
        powers = np.exp(logits - np.repeat(peak, per_row))
        total = zeros * of_zero + _row_sums(powers, starts)
        # H(p) = ln Z - Σ p·logit: no logarithm per weight
        entropy = np.zeros(null.size)
        entropy[rows] = np.log(total) + peak - _row_sums(powers * logits, starts) / total
        # the mixture: what each row gives to a zero, everywhere, and what its other weights get besides
        base = np.zeros(null.size)
        base[rows] = of_zero / total
        extra = powers / np.repeat(total, per_row) - np.repeat(base[rows], per_row)
        mixture = np.bincount(cells, extra, minlength=int(np.prod([*outer, queries, keys])))
        mixture = mixture.reshape(*outer, queries, keys) + base.reshape(shape).sum(axis=-2)[..., None]
        mixture = np.maximum(mixture / heads, 0)
        if visible is not None:
            mixture *= visible
        found[tau] = _divergence(mixture, entropy.reshape(shape), null)
    return found


def _mixture_cells(nonzero: np.ndarray) -> np.ndarray:
    """For each weight that is not 0, in order, where its (query, key) is in the mixture of heads, (…, T, S), flat."""
    heads, queries, keys = nonzero.shape[-3:]
    flat = np.flatnonzero(nonzero)
    layer = flat // (heads * queries * keys)
    return layer * (queries * keys) + flat % (queries * keys)


def _row_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def _power(size: np.ndarray, tau: float) -> np.ndarray:
    """size ** τ for size > 0; roots are several times as fast as a general power."""
    if tau == 1:
        return size
    if tau in (0.5, 0.25):
        root = np.sqrt(size)
        return root if tau == 0.5 else np.sqrt(root)
    return size**tau


def _divergence(mixture: np.ndarray, entropy: np.ndarray, null: np.ndarray) -> np.ndarray:
    """(…, T) from the mixture of the heads, (…, T, S), their entropies and which are null, (…, H, T)."""
    dummy = null.mean(axis=-2)[..., None]  # (…, T, 1): what the heads give to the dummy slot
    mixed = -_sum_plogp(mixture) - _sum_plogp(dummy)
    return np.maximum(mixed - entropy.mean(axis=-2), 0.0)  # rounding may fall below 0


def _sum_plogp(p: np.ndarray) -> np.ndarray:
    """Σ p ln p over the last axis, with 0 ln 0 = 0."""
    return np.einsum("...s,...s->...", p, np.log(np.where(p > 0, p, 1.0)))


def head_diversity(
    weights: np.ndarray,
    visible: Optional[np.ndarray] = None,
    distribution: bool = False,
    tau: float = 1.0,
) -> np.ndarray:
    """Mean over queries of the heads' Jensen-Shannon divergence: (…) from (…, H, T, S); 0 where there is no query."""
    by_query = query_diversity(weights, visible, distribution, (tau,))[tau]
    return by_query.mean(axis=-1) if by_query.shape[-1] else np.zeros(by_query.shape[:-1])
