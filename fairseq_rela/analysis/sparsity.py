"""Sparsity rate: the share of weights that are exactly 0 where a query may see (Section 5.2, Figure 3)."""

from typing import Optional

import numpy as np

from fairseq_rela.dump.zeros import visible_count, zero_count


def sparsity_rate(weights: np.ndarray, visible: Optional[np.ndarray] = None) -> np.ndarray:
    """#{(t, s) visible: α[t, s] = 0} / #{(t, s) visible}: (…) from (…, T, S); 0 where nothing is visible."""
    return zero_count(weights, visible) / max(visible_count(weights, visible), 1)
