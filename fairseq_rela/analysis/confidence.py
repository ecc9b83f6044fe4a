"""Confidence through attention (Rikters and Fishel, 2017), which the paper names beside its own measure of quality.

From one matrix α of T target and S source tokens, each row of which sums to 1:

    coverage deviation       1/S Σ_s ln(1 + (1 - Σ_t α[t, s])²)        a source token should be attended to once
    absentmindedness out     1/T Σ_t H(α[t, ·])                        a target token should attend to few
    absentmindedness in      1/S Σ_s H(α[·, s] / Σ_t α[t, s])          a source token should be attended to by few

All are 0 for a one-to-one alignment and grow with uncertainty. Their model had one matrix. A Transformer has many, so
α is the mean over layers and heads here. Rows of ReLA are scaled to the sum 1 after the mean. A row that is null in
all heads stays 0. It adds to the coverage deviation only.
"""

from functools import lru_cache
from typing import Dict, NamedTuple

import numpy as np

from fairseq_rela.analysis.reading import DumpReader


class Penalties(NamedTuple):
    """The penalties of one sentence pair, in nats. Higher is worse."""

    coverage_deviation: float
    absentmindedness_out: float
    absentmindedness_in: float

    @property
    def total(self) -> float:
        """Their sum, which Rikters and Fishel call the confidence score (with the opposite sign)."""
        return sum(self)


def penalties(weights: np.ndarray) -> Penalties:
    """The penalties of one matrix of weights, (T, S). Negative weights, as of GeLU, count as 0."""
    rows = _scaled(np.maximum(weights.astype(np.float64), 0.0), axis=1)
    coverage = rows.sum(axis=0)
    return Penalties(
        float(np.log1p((1 - coverage) ** 2).mean()),
        float(_entropies(rows, axis=1).mean()),
        float(_entropies(_scaled(rows, axis=0), axis=0).mean()),
    )


def _scaled(weights: np.ndarray, axis: int) -> np.ndarray:
    """The weights scaled to the sum 1 along `axis`. Where all are 0, they stay 0."""
    sums = weights.sum(axis=axis, keepdims=True)
    return np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)


def _entropies(weights: np.ndarray, axis: int) -> np.ndarray:
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=axis)


@lru_cache(maxsize=4)  # `evaluation` reads several scores from the same dump
def pair_penalties(path: str) -> Dict[int, Penalties]:
    """By id, the penalties of every pair of a dump, from the mean over layers and heads of its cross attention."""
    reader = DumpReader(path)
    reader.require("cross")
    return {record.id: penalties(reader.weights(record, "cross").mean(axis=(0, 1))) for record in reader}
