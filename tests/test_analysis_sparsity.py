"""Sparsity rate: literals, and a slow implementation on random matrices."""

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.sparsity import sparsity_rate
from fairseq_rela.dump.zeros import visible_positions
from fairseq_rela.kinds import KINDS

WEIGHTS = np.array([[[1, 0, 0], [0, 0, 5], [0.1, 1e-30, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]], dtype=np.float32)


def test_hand_computed():
    assert sparsity_rate(WEIGHTS).tolist() == [5 / 9, 1]
    # row 0 sees 1 weight, row 1 sees 2, row 2 sees 3: of the first head's six, rows [1], [0 0], [0.1 1e-30 0]
    assert sparsity_rate(WEIGHTS, visible_positions("decoder", 3, 3)).tolist() == [3 / 6, 1]


def test_uniform_attention_is_not_sparse_and_negative_zero_is_zero():
    assert sparsity_rate(np.full((2, 4, 5, 5), 0.2, dtype=np.float32)).tolist() == [[0] * 4] * 2
    assert sparsity_rate(np.array([[-0.0, -0.1]])) == 0.5


def test_nothing_visible_is_a_number():
    assert sparsity_rate(np.zeros((2, 0, 3))).tolist() == [0, 0]


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from(KINDS), st.integers(0, 999))
def test_equals_loops(queries, keys, kind, seed):
    keys = keys if kind == "cross" else queries
    draw = np.random.RandomState(seed)
    weights = np.maximum(draw.randn(2, 3, queries, keys), 0) * draw.randint(0, 2, (2, 3, queries, keys))
    actual = sparsity_rate(weights, visible_positions(kind, queries, keys))
    for layer in range(2):
        for head in range(3):
            zeros = seen = 0
            for t in range(queries):
                for s in range(keys):
                    if kind == "decoder" and s > t:
                        continue
                    seen += 1
                    zeros += weights[layer, head, t, s] == 0
            assert actual[layer, head] == pytest.approx(zeros / seen, abs=0)
