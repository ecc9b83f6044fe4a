"""Scores of pairs, AUROC with its interval, shuffling and selection: literals, slow implementations, an oracle."""

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.filtering import (
    Term,
    auroc,
    auroc_interval,
    candidates,
    combined_score,
    pair_score,
    selection,
    shuffled_targets,
)

scores = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12)


def test_pair_score_is_the_mean_over_layers_and_heads():
    assert pair_score(np.array([[[0, 1], [0.5, 0.5]], [[0, 0], [0, 1]]])).tolist() == [0.5, 0.25]


def test_auroc_hand_computed():
    assert auroc([0, 1], [2, 3]) == 1
    assert auroc([2, 3], [0, 1]) == 0
    assert auroc([1, 1], [1, 1]) == 0.5
    # pairs (true, shuffled): 1<2, 1=1 (half), 3>2, 3>1
    assert auroc([1, 3], [2, 1]) == 1.5 / 4


@given(scores, scores)
def test_auroc_equals_counting(true, shuffled):
    wins = sum((s > t) + 0.5 * (s == t) for t in true for s in shuffled)
    assert auroc(true, shuffled) == pytest.approx(wins / (len(true) * len(shuffled)), abs=1e-12)


@given(scores, scores)
def test_auroc_equals_scikit_learn(true, shuffled):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn, the oracle, is not installed")
    labels = [0] * len(true) + [1] * len(shuffled)
    assert auroc(true, shuffled) == pytest.approx(metrics.roc_auc_score(labels, true + shuffled), abs=1e-12)


def test_interval_holds_the_value_and_narrows():
    draw = np.random.RandomState(0)
    widths = []
    for count in (50, 2000):
        true, shuffled = draw.randn(count), draw.randn(count) + 1
        low, high = auroc_interval(true, shuffled, replicates=300)
        assert low < auroc(true, shuffled) < high
        assert low < 0.7602 < high  # Φ(1/√2), what the AUROC of these distributions is
        widths.append(high - low)
    # like 1/√n
    assert widths[1] == pytest.approx(widths[0] * np.sqrt(50 / 2000), rel=0.35)


def test_interval_equals_resampling_by_hand():
    draw = np.random.RandomState(1)
    true, shuffled = draw.randint(0, 9, 40).astype(float), draw.randint(3, 12, 30).astype(float)
    rng = np.random.default_rng(7)
    by_hand = [auroc(true[rng.integers(40, size=40)], shuffled[rng.integers(30, size=30)]) for _ in range(50)]
    actual = auroc_interval(true, shuffled, replicates=50, seed=7)
    assert actual == pytest.approx(tuple(np.percentile(by_hand, [2.5, 97.5])), abs=1e-12)


@given(st.lists(st.integers(1, 40), min_size=4, max_size=30), st.integers(0, 99), st.booleans())
def test_shuffling_moves_every_target_within_its_half(lengths, seed, match):
    targets = shuffled_targets(lengths, seed, match)
    assert sorted(targets) == list(range(len(lengths)))
    assert all(target != index and target % 2 == index % 2 for index, target in enumerate(targets))


def test_shuffling_by_length_swaps_neighbours():
    lengths = np.random.RandomState(0).randint(1, 60, 1000)
    apart = [np.median(np.abs(lengths - lengths[shuffled_targets(lengths, 0, match)])) for match in (False, True)]
    assert apart[1] <= 1 < 10 < apart[0]


def features(seed=0, count=400, layers=2, heads=3):
    """True and shuffled pairs: these have less mass in layer 1, head 2, a higher null rate in layer 0, head 1."""
    draw = np.random.RandomState(seed)
    null, mass = draw.rand(2, count, layers, heads), draw.rand(2, count, layers, heads)
    mass[1, :, 1, 2] -= 0.5
    null[1, :, 0, 1] += 0.4
    return (null[0], mass[0]), (null[1], mass[1])


def test_selection_finds_what_differs():
    steps = selection(*features())
    first = steps[0][0]
    assert (first.measure, first.layer, first.head, first.sign) == ("mass", 1, 2, -1)
    assert str(first) == "low mass of layer 1, head 2"
    assert ("null", 0, 1, 1) in [term[:4] for term in steps[1]]
    development = [auroc(*(combined_score(terms, *part) for part in features())) for terms in steps]
    assert development == sorted(development)  # each step is kept only if it helps
    held_out = [auroc(*(combined_score(terms, *part) for part in features(seed=1))) for terms in steps[:2]]
    assert held_out[0] > 0.8 and held_out[1] > held_out[0]


def test_without_mass_only_null_rates_are_candidates():
    (null, _), (shuffled, _) = features()
    actual = candidates((null, None), (shuffled, None))
    assert {term.measure for term in actual} == {"null"}
    assert len(actual) == 1 + 2 + 6


def test_constant_features_are_numbers():
    constant = (np.zeros((5, 1, 1)), np.ones((5, 1, 1)))
    assert all(np.isfinite(combined_score(terms, *constant)).all() for terms in selection(constant, constant))


def test_term_values():
    null, mass = np.arange(12.0).reshape(2, 2, 3), np.ones((2, 2, 3))
    assert Term("null", None, None, 1, 0, 1).values(null, mass).tolist() == [2.5, 8.5]
    assert Term("null", 1, None, 1, 0, 1).values(null, mass).tolist() == [4, 10]
    assert Term("null", 1, 2, 1, 0, 1).values(null, mass).tolist() == [5, 11]
    assert combined_score([Term("null", 1, 2, -1, 5.0, 2.0)], null, mass).tolist() == [0, -3]
