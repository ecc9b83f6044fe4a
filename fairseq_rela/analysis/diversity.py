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
    weights = weights.astype(np.float64)
    if visible is not None:
        weights = np.where(visible, weights, 0.0)
    null = ~(weights != 0).any(axis=-1)  # (…, H, T)
    if distribution:
        value = _divergence(weights, -_sum_plogp(weights), null)
        return dict.fromkeys(taus, value)
    size = np.abs(weights)
    zero = size == 0
    log_size = np.log(np.where(zero, 1.0, size))
    sign = np.sign(weights)  # 0 where the weight is 0, so that 0 stays 0 for every τ
    found = {}
    for tau in taus:
        logits = sign * (size if tau == 1 else np.exp(tau * log_size))
        top = (logits if visible is None else np.where(visible, logits, -np.inf)).max(axis=-1, keepdims=True)
        logits = logits - top
        share = np.exp(logits)
        if visible is not None:
            share = share * visible
        total = share.sum(axis=-1, keepdims=True)
        share /= total
        # H(p) = ln Z - Σ p·logit: no logarithm per weight
        entropy = np.log(total[..., 0]) - np.einsum("...s,...s->...", share, logits)
        share[null] = 0.0
        found[tau] = _divergence(share, np.where(null, 0.0, entropy), null)
    return found


def _divergence(share: np.ndarray, entropy: np.ndarray, null: np.ndarray) -> np.ndarray:
    """(…, T) from the rows (…, H, T, S), their entropies and whether they are null (…, H, T)."""
    mixture = share.mean(axis=-3)  # (…, T, S)
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
