"""Head diversity: literals, and a slow implementation on random heads."""

import math

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.diversity import TAUS, head_diversity, query_diversity
from fairseq_rela.dump.zeros import visible_positions
from fairseq_rela.errors import InputError


def test_distributions_that_do_not_overlap_differ_by_ln_of_their_number():
    heads = np.eye(4)[:, None, :]  # four heads, one query, each certain of another key
    assert head_diversity(heads, distribution=True) == pytest.approx(math.log(4))


def test_two_distributions_hand_computed():
    heads = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])
    # mixture (0.75, 0.25); entropies 0 and ln 2
    by_hand = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) - math.log(2) / 2
    assert head_diversity(heads, distribution=True) == pytest.approx(by_hand, rel=1e-12)


def test_two_rectified_rows_hand_computed():
    heads = np.array([[[math.log(3.0), 0.0]], [[0.0, 0.0]]])
    # the first becomes (3/4, 1/4, dummy 0), the second (0, 0, dummy 1): no overlap, and the second has entropy 0
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    mixture = -(3 / 8 * math.log(3 / 8) + 1 / 8 * math.log(1 / 8) + 0.5 * math.log(0.5))
    assert head_diversity(heads) == pytest.approx(mixture - entropy / 2, rel=1e-12)
    assert head_diversity(heads) == pytest.approx(math.log(2), rel=1e-12)


def test_temperature_acts_on_the_size_and_keeps_the_sign():
    heads = np.array([[[4.0, -9.0]], [[0.0, 1.0]]])
    first, second = np.exp([2.0, -3.0]), np.exp([0.0, 1.0])
    first, second = first / first.sum(), second / second.sum()
    mixture = (first + second) / 2
    by_hand = -(mixture * np.log(mixture)).sum() + ((first * np.log(first)).sum() + (second * np.log(second)).sum()) / 2
    assert head_diversity(heads, tau=0.5) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("distribution", [True, False])
def test_equal_heads_do_not_differ(distribution):
    uniform = np.full((2, 8, 5, 7), 1 / 7, dtype=np.float32)
    assert head_diversity(uniform, distribution=distribution) == pytest.approx(0, abs=1e-12)
    assert head_diversity(np.zeros((8, 5, 7)), distribution=distribution) == 0  # all null: all certain of the dummy
    assert head_diversity(np.random.RandomState(0).rand(1, 5, 7)) == pytest.approx(0, abs=1e-12)  # one head


def test_huge_weights_and_no_queries_are_numbers():
    assert np.isfinite(head_diversity(np.array([[[3e4, 0.0]], [[0.0, 6e4]]])))
    assert head_diversity(np.array([[[3e4, 0.0]], [[0.0, 6e4]]])) == pytest.approx(math.log(2))
    assert head_diversity(np.zeros((2, 3, 0, 4))).tolist() == [0, 0]


def slow(heads, visible, distribution, tau):
    """The definition, one row at a time, with the dummy slot as a real position."""
    count, queries, keys = heads.shape
    total = 0.0
    for t in range(queries):
        seen = [s for s in range(keys) if visible is None or visible[t, s]]
        rows = []
        for head in range(count):
            row = [heads[head, t, s] for s in seen]
            if all(w == 0 for w in row):
                rows.append([0.0] * len(seen) + [1.0])
            elif distribution:
                rows.append([*row, 0.0])
            else:
                powers = [math.exp(math.copysign(abs(w) ** tau, w) if w else 0.0) for w in row]
                rows.append([*(p / sum(powers) for p in powers), 0.0])
        mixture = [sum(column) / count for column in zip(*rows)]
        total += sum(-p * math.log(p) for p in mixture if p > 0)
        total -= sum(-p * math.log(p) for row in rows for p in row if p > 0) / count
    return total / queries


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(TAUS), st.booleans(), st.integers(0, 9999))
def test_equals_the_definition(count, size, tau, decoder, seed):
    draw = np.random.RandomState(seed)
    heads = draw.randn(count, size, size) * 3 * (draw.rand(count, size, size) < 0.5)
    visible = visible_positions("decoder", size, size) if decoder else None
    assert head_diversity(heads, visible, tau=tau) == pytest.approx(slow(heads, visible, False, tau), abs=1e-10)
    rows = np.abs(heads) + 1e-3
    rows = rows * (visible if decoder else 1)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    actual = head_diversity(rows, visible, distribution=True)
    assert actual == pytest.approx(slow(rows, visible, True, 1), abs=1e-10)


def test_a_high_temperature_keeps_its_digits():
    """3^100 is 5e47. Added and subtracted again, it would leave nothing of an entropy of ln 2."""
    same, other = np.array([[[3, 3.0]], [[3, 3.0]]]), np.array([[[3, 0.0]], [[0, 3.0]]])
    zeros = np.array([[[0, 0, 5.0]], [[0, 0, -5.0]]])  # the first head is sure, the second has both zeros left
    assert head_diversity(same, tau=100) == pytest.approx(0, abs=1e-12)
    assert head_diversity(other, tau=100) == pytest.approx(math.log(2), abs=1e-12)
    mixed = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    assert head_diversity(zeros, tau=100) == pytest.approx(mixed - 0.5 * math.log(2), abs=1e-12)


def test_a_power_that_is_not_finite():
    with pytest.raises(InputError, match="τ is 1e\\+300, too large: the weight 3 to this power"):
        head_diversity(np.array([[[3, 1.0]]]), tau=1e300)


def test_all_temperatures_at_once_equal_one_at_a_time():
    heads = np.random.RandomState(1).randn(2, 4, 5, 6).astype(np.float32)
    together = query_diversity(heads, taus=TAUS)
    for tau in TAUS:
        assert together[tau].mean(axis=-1) == pytest.approx(head_diversity(heads, tau=tau), rel=1e-12)
