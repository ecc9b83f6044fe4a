"""Null rates: plain, over heads, and by the word before the query."""

import math

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.nulls import (
    ConditionalNulls,
    input_words,
    null_rate,
    null_rate_variance,
    null_rows,
    surprise,
)
from fairseq_rela.analysis.words import merged
from fairseq_rela.dump.zeros import visible_positions


def test_hand_computed():
    weights = np.array([[[0, 0], [0, 1]], [[0, 0], [0, 0]], [[-0.1, 0], [0, 2]]])
    assert null_rows(weights).tolist() == [[True, False], [True, True], [False, False]]
    assert null_rate(weights).tolist() == [0.5, 1, 0]
    assert null_rate(np.zeros((2, 0, 4))).tolist() == [0, 0]


def test_what_is_hidden_does_not_count():
    weights = np.array([[0.0, 7.0], [0.0, 1.0]])
    assert null_rate(weights, visible_positions("decoder", 2, 2)) == 0.5
    assert null_rate(weights) == 0


def test_variance_over_heads():
    assert null_rate_variance(np.array([[0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5]])).tolist() == [0.25, 0]


@given(st.integers(1, 6), st.integers(0, 999), st.booleans())
def test_equals_loops(size, seed, decoder):
    draw = np.random.RandomState(seed)
    weights = draw.rand(3, size, size) * (draw.rand(3, size, size) < 0.3)
    actual = null_rate(weights, visible_positions("decoder", size, size) if decoder else None)
    for head in range(3):
        nulls = sum(all(weights[head, t, s] == 0 for s in range(size) if not decoder or s <= t) for t in range(size))
        assert actual[head] == nulls / size


def test_input_words_end_where_words_end():
    target = merged(["un@@", "known", ",", "</s>"], "bpe")
    # inputs of the rows: </s>, un@@, known, ","
    assert input_words(target) == [-1, None, 0, 1]
    assert input_words(merged(["</s>"], "bpe")) == [-1]
    assert input_words(merged(["a", "a", "</s>"], "bpe")) == [-1, 0, 1]


def test_conditional_null_rate_hand_computed():
    counted = ConditionalNulls()
    nulls = np.array([[[1, 0, 1], [0, 0, 0]]], dtype=bool)  # (1 layer, 2 heads, 3 queries)
    counted.add(nulls, [",", "a", None])
    counted.add(nulls, ["b", ",", ","])
    assert counted.count(",") == 3
    assert counted.rate(",").tolist() == [[2 / 3, 0]]
    assert counted.rate("a").tolist() == [[0, 0]]
    assert counted.labels == [",", "a", "b"]


def test_most_telling_finds_the_head_that_fires_after_a_comma():
    counted = ConditionalNulls()
    draw = np.random.RandomState(0)
    for _ in range(200):
        labels = [str(word) for word in draw.choice([",", "the", "cat", "sat"], 10)]
        nulls = draw.rand(2, 3, 10) < 0.5
        nulls[1, 2] = [label != "," for label in labels]
        counted.add(nulls, labels)
    first = counted.most_telling()[0]
    assert (first.layer, first.head, first.after, first.null_rate) == (1, 2, ",", 0.0)
    assert 0.7 < first.head_null_rate < 0.8
    assert counted.most_telling(min_count=10**6) == []


def test_many_labels_grow_the_table():
    counted = ConditionalNulls()
    for start in range(0, 500, 10):
        counted.add(np.ones((1, 1, 10), dtype=bool), [str(start + i) for i in range(10)])
    assert len(counted.labels) == 500
    assert all(counted.rate(label).tolist() == [[1.0]] for label in counted.labels)


def test_surprise_hand_computed():
    # after the word: 1 null of 4; elsewhere 8 of 16 null. Expected share 9/20.
    table = [(1, 4 * 9 / 20), (3, 4 * 11 / 20), (8, 16 * 9 / 20), (8, 16 * 11 / 20)]
    by_hand = 2 * sum(o * math.log(o / e) for o, e in table)
    assert surprise(1, 4, 9, 20) == pytest.approx(by_hand, rel=1e-12)
    assert surprise(0, 5, 0, 10) == 0  # never null: nothing to tell
    assert surprise(5, 5, 10, 10) == 0  # always null
    assert surprise(5, 5, 5, 10) == pytest.approx(2 * 10 * math.log(2))
