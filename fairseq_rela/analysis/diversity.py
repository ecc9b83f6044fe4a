"""Head diversity: how much the heads of a layer differ (Section 5.2, Figure 5 and Table 6)."""

from typing import Dict, Optional, Sequence

import numpy as np

from fairseq_rela.dump.zeros import is_nonzero, null_rows
from fairseq_rela.errors import InputError

TAUS = (1.0, 0.5, 0.25, 0.1)


def query_diversity(
    weights: np.ndarray,
    visible: Optional[np.ndarray] = None,
    distribution: bool = False,
    taus: Sequence[float] = (1.0,),
) -> Dict[float, np.ndarray]:
    """Generalised Jensen-Shannon divergence of the heads at each query, in nats: τ -> (…, T) from (…, H, T, S).

        JS(p¹ … p^H) = H(1/H Σ p^h) - 1/H Σ H(p^h)

    Rows that are not distributions become p = softmax(sign(α)|α|^τ) over the visible positions; a null row becomes
    a one-hot on a dummy slot after the last position (entropy 0). Rows that are distributions are used as they are, for
    every τ.
    """
    if visible is not None:
        weights = np.where(visible, weights, weights.dtype.type(0))
    if distribution:
        rows = weights.astype(np.float64)
        value = _divergence(rows.mean(axis=-3), -_sum_plogp(rows), null_rows(weights))
        return dict.fromkeys(taus, value)
    return _rectified_diversity(weights, visible, taus)


def _rectified_diversity(
    weights: np.ndarray, visible: Optional[np.ndarray], taus: Sequence[float]
) -> Dict[float, np.ndarray]:
    """`query_diversity` of rows that are not distributions.

    All zeros have logit 0, so the zeros of a row need one exponential together. The work is proportional to the number
    of weights that are not 0, which is small in sparse attention.
    """
    *outer, heads, queries, keys = weights.shape
    shape = (*outer, heads, queries)
    seen = np.full(queries, keys) if visible is None else visible.sum(axis=-1)  # (T,)
    nonzero = is_nonzero(weights)
    counts = np.count_nonzero(nonzero, axis=-1)  # (…, H, T)
    null = counts == 0
    flat = np.flatnonzero(nonzero)  # row after row
    values = weights.reshape(-1)[flat].astype(np.float64)
    rows = np.flatnonzero(~null)
    per_row = counts.reshape(-1)[rows]
    starts = np.cumsum(per_row) - per_row
    zeros = (seen - counts).reshape(-1)[rows]
    # where each weight is in the mixture of heads, (…, T, S), flat
    cells = flat // (heads * queries * keys) * (queries * keys) + flat % (queries * keys)
    cell_count = int(np.prod([*outer, queries, keys]))
    diversity = {}
    for tau in taus:
        logits = _signed_power(values, tau)
        # Subtracting the peak does not change a softmax. It is needed only if some logit is large.
        peak = _row_peaks(logits, starts, zeros)
        small_logits = bool(len(peak)) and peak.max() < _SAFE and peak.min() > -_SAFE
        if small_logits:
            peak = np.zeros(len(peak))
            powers = np.exp(logits)
        else:
            # Below -10,000 all exponentials are 0. The bound keeps 0 × ∞ out of the entropy.
            logits = np.maximum(logits - np.repeat(peak, per_row), -1e4)
            powers = np.exp(logits)
        of_zero = np.exp(-np.maximum(peak, 0))  # the peak of a row with zeros is at least 0
        total = zeros * of_zero + _row_sums(powers, starts)
        base = of_zero / total  # the probability of each zero of a row
        # The mixture is `base` everywhere, plus what the other weights get in addition.
        if small_logits:
            extra = (powers - 1) * np.repeat(base, per_row)
        else:
            extra = powers / np.repeat(total, per_row) - np.repeat(base, per_row)
        mixture = np.bincount(cells, extra, minlength=cell_count).reshape(*outer, queries, keys)
        mixture = mixture + _by_row(base, rows, shape).sum(axis=-2)[..., None]
        mixture = np.maximum(mixture / heads, 0)
        if visible is not None:
            mixture *= visible
        # H(p) = ln Z - Σ p·logit: no logarithm per weight. The logits and Z are relative to the peak, and a zero's is
        # minus the peak: a large peak that is added and subtracted again would leave its rounding.
        powers *= logits
        entropy = np.log(total) - (_row_sums(powers, starts) - zeros * of_zero * np.maximum(peak, 0)) / total
        diversity[tau] = _divergence(mixture, _by_row(entropy, rows, shape), null)
    return diversity


_SAFE = 300.0  # exp(300) squared, times the number of rows, still fits a double


def _by_row(values: np.ndarray, rows: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """`values` at `rows` of an array of `shape`, 0 elsewhere."""
    spread = np.zeros(int(np.prod(shape)))
    spread[rows] = values
    return spread.reshape(shape)


def _row_peaks(logits: np.ndarray, starts: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """The largest logit of each row, including that of its zeros."""
    peak = np.maximum.reduceat(logits, starts) if len(starts) else np.zeros(0)
    return np.where(zeros > 0, np.maximum(peak, 0), peak)


def _row_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def _signed_power(values: np.ndarray, tau: float) -> np.ndarray:
    """sign(α)|α|^τ, where α is not 0; square roots are several times faster than a general power."""
    if tau == 1:
        return values
    size = values if len(values) == 0 or values.min() > 0 else np.abs(values)
    if tau in (0.5, 0.25):
        power = np.sqrt(size)
        power = power if tau == 0.5 else np.sqrt(power)
    else:
        with np.errstate(over="ignore"):
            power = size**tau
        if not np.isfinite(power).all():
            raise InputError(f"τ is {tau:g}, too large: the weight {size.max():g} to this power is no finite number")
    return power if size is values else np.copysign(power, values)


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
