"""The dropout of our models: fairseq's, but drawn faster on a CPU."""

import pytest
import torch
from fairseq.modules import FairseqDropout

from fairseq_rela.models.dropout import FastDropout, kept, use_fast_dropout


def test_mask_is_zero_or_scaled_with_mean_one():
    torch.manual_seed(1)
    mask = kept(torch.empty(400, 1000), dropped=2**14)  # a quarter
    assert mask.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    # 400,000 draws: the share of zeros has a standard deviation of 0.0007
    assert (mask == 0).double().mean().item() == pytest.approx(0.25, abs=0.003)
    assert mask.double().mean().item() == pytest.approx(1.0, abs=0.004)


def test_elements_of_one_random_number_are_independent():
    """Four elements come from the same 64 bits: the share of each of the 16 patterns is that of four coins."""
    torch.manual_seed(2)
    fours = (kept(torch.empty(100_000, 4), dropped=2**15) > 0).long()
    counts = (fours * torch.tensor([8, 4, 2, 1])).sum(1).bincount(minlength=16)
    assert counts.tolist() == pytest.approx([6250] * 16, abs=400)  # a standard deviation is 77


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (0, 4), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_shape_and_dtype(shape, dtype):
    mask = kept(torch.empty(shape, dtype=dtype), dropped=2**15)
    assert mask.shape == shape and mask.dtype == dtype
    assert set(mask.flatten().tolist()) <= {0.0, 2.0}


def test_seed_decides_and_gradient_has_the_same_mask():
    dropout, x = FastDropout(0.3), torch.ones(50, 60, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(dropout(x), first)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


def test_nothing_is_dropped_outside_of_training():
    dropout, x = FastDropout(0.5), torch.ones(1000)
    assert dropout.eval()(x) is x
    dropout.make_generation_fast_("", retain_dropout=True)
    assert (dropout(x) == 0).any()
    assert FastDropout(0.0)(x) is x


@pytest.mark.parametrize("p, expected", [(1.0, 0.0), (1e-9, 1.0)])
def test_probabilities_that_16_bits_cannot_hold(p, expected):
    assert FastDropout(p)(torch.ones(100)).tolist() == [pytest.approx(expected)] * 100


def test_in_place():
    x = torch.ones(1000)
    assert FastDropout(0.5)(x, inplace=True) is x and (x == 0).any()


def test_dropouts_of_a_model_are_replaced_and_keep_their_names():
    class Special(FairseqDropout):
        pass

    model = torch.nn.ModuleDict({"a": torch.nn.Sequential(FairseqDropout(0.25, "A")), "b": Special(0.5)})
    use_fast_dropout(model)
    assert type(model["a"][0]) is FastDropout and type(model["b"]) is Special
    assert (model["a"][0].p, model["a"][0].module_name) == (0.25, "A")


def test_scripted():
    scripted = torch.jit.script(FastDropout(0.5, "A"))
    assert set(scripted(torch.ones(1000)).tolist()) == {0.0, 2.0}
    assert scripted.eval()(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
