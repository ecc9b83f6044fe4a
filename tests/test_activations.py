"""Every activation of the table: f(0) = 0 for pointwise ones, rows that are distributions where the table says so."""

import pytest
import torch

from fairseq_rela.attention.activations import ACTIVATIONS, at_least_float32

POINTWISE = [name for name, activation in ACTIVATIONS.items() if activation.pointwise]
DISTRIBUTIONS = [name for name, activation in ACTIVATIONS.items() if activation.distribution]

# worked out by hand: sparsemax projects onto the simplex, 1.5-entmax has threshold τ with Σ (s/2 − τ)² = 1
LITERAL = {
    "softmax": [0.66524096, 0.24472847, 0.09003057],
    "sparsemax": [1.0, 0.0, 0.0],
    "entmax15": [0.8307189, 0.1692811, 0.0],
    "topk": [0.66524096, 0.24472847, 0.09003057],  # fewer than k: softmax
    "softpick": [0.7880584, 0.2119416, 0.0],  # e² − 1 and e − 1 over their sum
    "relu": [2.0, 1.0, 0.0],
    "rectified_exp": [6.38905610, 1.71828183, 0.0],  # e² − 1 and e − 1
    "gelu": [1.9544997, 0.8413447, 0.0],
    "leaky_relu": [2.0, 1.0, 0.0],
}


@pytest.mark.parametrize("name", LITERAL)
def test_literal_values(name):
    weights = ACTIVATIONS[name].build()(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    assert weights.tolist() == pytest.approx(LITERAL[name], abs=1e-6)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_maps_zero_to_exactly_zero(name):
    assert ACTIVATIONS[name].build()(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_weighs_each_score_by_itself(name):
    act = ACTIVATIONS[name].build()
    scores = torch.randn(5, 7, dtype=torch.float64)
    alone = torch.stack([act(score.view(1)) for score in scores.flatten()]).view(5, 7)
    assert torch.allclose(act(scores), alone, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_rowwise_rows_are_distributions(name):
    weights = ACTIVATIONS[name].build()(torch.randn(5, 7, dtype=torch.float64))
    assert (weights >= 0).all()
    assert weights.sum(-1).tolist() == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient(name):
    torch.manual_seed(0)
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ACTIVATIONS[name].build(), scores)


def test_at_least_float32_only_touches_half_precision():
    for narrow in (torch.float16, torch.bfloat16):
        assert at_least_float32(torch.zeros(1, dtype=narrow)).dtype == torch.float32
    for wide in (torch.float32, torch.float64):
        x = torch.zeros(1, dtype=wide)
        assert at_least_float32(x) is x
