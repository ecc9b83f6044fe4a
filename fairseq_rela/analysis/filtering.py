"""Quality of sentence pairs by null attention (Section 5.2): scores, how well they separate, which heads do best."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

Features = Tuple[np.ndarray, Optional[np.ndarray]]  # null rates and attention mass, (N, L, H); mass may be unknown


def pair_score(null_rates: np.ndarray) -> np.ndarray:
    """The null rate of a pair's cross attention, averaged over layers and heads: (N,) of (N, L, H); less is better."""
    return null_rates.reshape(len(null_rates), -1).mean(axis=1)


def auroc(true: np.ndarray, shuffled: np.ndarray) -> float:
    """P(shuffled scores higher) + ½ P(equal) of a random true and a random shuffled pair: 0.5 is chance."""
    true = np.sort(np.asarray(true, dtype=np.float64))
    shuffled = np.asarray(shuffled, dtype=np.float64)
    below = np.searchsorted(true, shuffled, "left").astype(np.float64)
    through = np.searchsorted(true, shuffled, "right")
    return float((below + through).mean() / (2 * len(true)))


def auroc_interval(
    true: np.ndarray, shuffled: np.ndarray, replicates: Optional[int] = None, seed: int = 0
) -> Tuple[float, float]:
    """The 95 % bootstrap interval of `auroc`: both sets drawn again with replacement, 2.5 and 97.5 percentiles."""
    draw = np.random.default_rng(seed)
    n, m = len(true), len(shuffled)
    if replicates is None:
        replicates = int(np.clip(2e7 / (n + m), 100, 1000))  # of a large set each is dear, and few are enough
    # Equal scores are one group; a replicate is how often each group was drawn.
    groups, where = np.unique(np.concatenate([true, shuffled]), return_inverse=True)
    of_true, of_shuffled = where[:n], where[n:]
    found = np.empty(replicates)
    for index in range(replicates):
        drawn = np.bincount(of_true[draw.integers(n, size=n)], minlength=len(groups))
        against = np.bincount(of_shuffled[draw.integers(m, size=m)], minlength=len(groups))
        below = np.cumsum(drawn) - drawn
        found[index] = float(against @ (below + 0.5 * drawn)) / (n * m)
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def shuffled_targets(lengths: Sequence[int], seed: int = 0, match_lengths: bool = False) -> np.ndarray:
    """For each pair the index of the target that it gets instead of its own, (N,).

    Even pairs get targets of even pairs and odd ones of odd ones, so that a choice made on one half is tested on
    targets it has not seen. With `match_lengths` the new target is one of nearly the same length.
    """
    draw = np.random.default_rng(seed)
    lengths = np.asarray(lengths)
    targets = np.arange(len(lengths))
    for half in (0, 1):
        members = np.arange(half, len(lengths), 2)
        order = members[draw.permutation(len(members))]
        if match_lengths:
            order = order[np.argsort(lengths[order], kind="stable")]
        targets[order] = np.roll(order, -1)  # one cycle: no pair keeps its target
    return targets


def kept(scores: np.ndarray, keep: Optional[float] = None, max_score: Optional[float] = None) -> np.ndarray:
    """(N,) true for pairs to keep: the share `keep` with the least scores (earlier pairs first), or those up to
    `max_score`. A pair without a score (NaN) is not kept."""
    scored = ~np.isnan(scores)
    if max_score is not None:
        return scored & (np.where(scored, scores, np.inf) <= max_score)
    count = round((1.0 if keep is None else keep) * int(scored.sum()))
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[np.argsort(scores, kind="stable")[:count]] = True  # NaN sorts last
    return chosen


class Term(NamedTuple):
    """One measure of one head (head None: the layer's mean; layer None, too: of all) in a combined score.

    It adds sign · (value - centre) / scale.
    """

    measure: str  # "null" or "mass"
    layer: Optional[int]
    head: Optional[int]
    sign: int
    centre: float
    scale: float

    def values(self, null: np.ndarray, mass: Optional[np.ndarray]) -> np.ndarray:
        """(N,) of (N, L, H): the measure, not yet signed or scaled."""
        features = null if self.measure == "null" else mass
        if self.layer is not None:
            features = features[:, self.layer]
        if self.head is not None:
            features = features[:, self.head]
        return features.reshape(len(features), -1).mean(axis=1)

    def __str__(self) -> str:
        where = "all layers" if self.layer is None else f"layer {self.layer}"
        where += ", mean of heads" if self.head is None else f", head {self.head}"
        return f"{'low' if self.sign < 0 else 'high'} {self.measure} of {where}"


def combined_score(terms: Sequence[Term], null: np.ndarray, mass: Optional[np.ndarray]) -> np.ndarray:
    """(N,): the sum of the terms, higher for worse pairs."""
    return sum(term.sign * (term.values(null, mass) - term.centre) / term.scale for term in terms)


def candidates(true: Features, shuffled: Features) -> List[Term]:
    """Every term there is, its sign and scale by the pairs given."""
    layers, heads = true[0].shape[1:]
    places: List[Tuple[Optional[int], Optional[int]]] = [(None, None)]
    places += [(layer, None) for layer in range(layers)]
    places += [(layer, head) for layer in range(layers) for head in range(heads)] if heads > 1 else []
    found = []
    for measure in ("null",) if true[1] is None else ("null", "mass"):
        for layer, head in places:
            bare = Term(measure, layer, head, 1, 0.0, 1.0)
            low, high = bare.values(*true), bare.values(*shuffled)
            both = np.concatenate([low, high])
            spread = float(both.std())
            sign = 1 if auroc(low, high) >= 0.5 else -1
            found.append(Term(measure, layer, head, sign, float(both.mean()), spread if spread > 0 else 1.0))
    return found


def selection(true: Features, shuffled: Features, most: int = 4) -> List[List[Term]]:
    """The best single term, then that with another added, and so on while development pairs separate better."""
    every = candidates(true, shuffled)
    signed = [(term, combined_score([term], *true), combined_score([term], *shuffled)) for term in every]
    chosen: List[Term] = []
    low, high, best = 0.0, 0.0, 0.0
    steps = []
    while len(chosen) < most:
        rates = [0.0 if term in chosen else auroc(low + t, high + s) for term, t, s in signed]
        index = int(np.argmax(rates))
        if rates[index] <= best:
            break
        best = rates[index]
        term, t, s = signed[index]
        chosen, low, high = [*chosen, term], low + t, high + s
        steps.append(chosen)
    return steps
