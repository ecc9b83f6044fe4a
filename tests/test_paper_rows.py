"""Top-k attention and softpick, which a reader of the paper compares with today: by hand, and in whole models."""

import math

import pytest
import torch

from fairseq_rela.attention.activations import ACTIVATIONS, Softpick, TopK
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.errors import InputError

LEAST = RelaMultiheadAttention.LEAST


def test_top_2_is_the_softmax_of_the_two_largest():
    scores = torch.tensor([0.0, 2.0, -1.0, 1.0], dtype=torch.float64)
    weights = TopK(2)(scores)
    assert weights.tolist() == pytest.approx([0.0, 0.7310585786, 0.0, 0.2689414214])
    assert (weights == 0).tolist() == [True, False, True, False]


def test_top_k_keeps_ties_of_the_kth():
    assert TopK(2)(torch.tensor([1.0, 1.0, 2.0, 0.0])).tolist() == pytest.approx(
        [0.211942, 0.211942, 0.576117, 0.0], abs=1e-6
    )


def slow_softpick(scores):
    positive = [max(math.exp(x) - 1, 0.0) for x in scores]
    total = sum(abs(math.exp(x) - 1) for x in scores)
    return [p / total for p in positive]


def test_softpick_equals_its_definition():
    torch.manual_seed(0)
    for scores in torch.randn(20, 6, dtype=torch.float64) * 3:
        assert Softpick()(scores).tolist() == pytest.approx(slow_softpick(scores.tolist()), rel=1e-6)


def test_softpick_of_large_and_small_scores():
    large = Softpick()(torch.tensor([1000.0, 999.0, -1000.0]))
    assert large.tolist() == pytest.approx([0.7310586, 0.2689414, 0.0], abs=1e-6)
    # eˣ − 1 of 1e-4 has three digits in float32 if it is computed as written
    small = Softpick()(torch.tensor([1e-4, 2e-4, -1e-4]))
    assert small.tolist() == pytest.approx(slow_softpick([1e-4, 2e-4, -1e-4]), rel=1e-4)


@pytest.mark.parametrize("row", [[-1.0, -2.0], [0.0, 0.0], [-1e4, LEAST], [LEAST, LEAST], [-math.inf, -3.0]])
def test_softpick_without_a_positive_score_is_null(row):
    scores = torch.tensor(row, requires_grad=True)
    weights = Softpick()(scores)
    weights.sum().backward()
    assert weights.tolist() == [0.0, 0.0]
    assert torch.isfinite(scores.grad).all()


def test_masked_scores_do_not_count_in_softpicks_sum():
    alone = Softpick()(torch.tensor([1.0, -1.0]))
    for masked in (LEAST, -math.inf):
        assert torch.equal(Softpick()(torch.tensor([1.0, -1.0, masked]))[:2], alone)


def test_which_rows_are_distributions():
    assert [name for name, row in ACTIVATIONS.items() if row.distribution] == [
        "softmax",
        "sparsemax",
        "entmax15",
        "topk",
    ]


# in a model


@pytest.mark.parametrize("flag, k", [({}, 8), ({"attn_topk": 2}, 2)])
def test_the_flag_reaches_every_attention(build, batch, flag, k):
    model = build("transformer_topk", **flag)
    activations = [module.activation for module in model.modules() if isinstance(module, RelaMultiheadAttention)]
    assert len(activations) == 6 and {activation.k for activation in activations} == {k}
    model.eval()(**batch)
    weights = model.decoder.layers[0].encoder_attn(
        query=torch.randn(3, 1, 16), key=torch.randn(12, 1, 16), value=torch.randn(12, 1, 16), need_head_weights=True
    )[1]
    assert ((weights > 0).sum(dim=-1) == k).all()


def test_the_flag_without_top_k_attention_is_refused(build):
    with pytest.raises(InputError, match="--attn-topk: rela_g does not use it; choose topk"):
        build("transformer_rela_g", attn_topk=4)
    with pytest.raises(InputError, match="--attn-topk 0: give at least 1"):
        build("transformer_topk", attn_topk=0)


def test_what_the_dump_says_of_their_rows(build):
    from fairseq_rela.recording.recorder import record_attention

    for name, distribution in (("topk", True), ("softpick", False)):
        with record_attention(build(f"transformer_{name}")) as recording:
            assert recording.info["cross"].attention == name
            assert recording.info["cross"].distribution is distribution
