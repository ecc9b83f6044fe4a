"""Centred keys: the means, what they may depend on, and every way to compute the same scores."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.attention import row_parts
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.centring import common_mean, mean_so_far, running_mean, running_sum, unit_size, visible_mean
from fairseq_rela.attention.multihead import RelaMultiheadAttention

CENTRED = [name for name, row in CATALOG.items() if row.centred]
each_centred = pytest.mark.parametrize("name", CENTRED)


def keys(length, sentences=2, seed=0):
    torch.manual_seed(seed)
    return torch.randn(length, sentences, 2, 3, dtype=torch.float64)


def attention(name, **options):
    torch.manual_seed(0)
    module = RelaMultiheadAttention(name, 12, 3, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def test_unit_size_by_hand():
    assert unit_size(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5])
    assert unit_size(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert unit_size(torch.tensor([3e4, 4e4], dtype=torch.float16)).tolist() == pytest.approx([0.8486, 1.131], abs=1e-3)


@pytest.mark.parametrize("contiguous", [True, False])
def test_gradient_of_unit_size_by_parts(monkeypatch, contiguous):
    monkeypatch.setattr(row_parts, "ELEMENTS", 8)  # two rows of four at a time
    torch.manual_seed(0)
    leaf, grad = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True), torch.randn(3, 5, 4).double()
    x = leaf if contiguous else leaf.transpose(0, 1)
    grad = grad if contiguous else grad.transpose(0, 1)
    (expected,) = torch.autograd.grad(x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt(), leaf, grad)
    (found,) = torch.autograd.grad(unit_size(x), leaf, grad)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2**18 - 1), st.integers(0, 99))
def test_means_are_of_the_keys_that_are_seen(length, bits, seed):
    k = keys(length, seed=seed)
    padding = torch.tensor([[bits >> (9 * n + s) & 1 for s in range(length)] for n in range(2)]) > 0
    hidden = torch.ones(length, length).triu(1) > 0
    common, running, visible = common_mean(k, padding), running_mean(k, padding), visible_mean(k, padding, hidden)
    for n in range(2):
        present = ~padding[n]
        whole = k[present, n].mean(0) if present.any() else torch.zeros(2, 3).double()
        assert torch.allclose(common[0, n], whole)
        for t in range(length):
            seen = present & (torch.arange(length) <= t)
            expected = k[seen, n].mean(0) if seen.any() else torch.zeros(2, 3).double()
            assert torch.allclose(running[t, n], expected) and torch.allclose(visible[t, n], expected)
    nothing = torch.zeros(2, length) > 0
    assert torch.allclose(common_mean(k, None), common_mean(k, nothing))
    assert torch.allclose(running_mean(k, None), running_mean(k, nothing))
    assert torch.allclose(visible_mean(k, None, hidden), visible_mean(k, nothing, hidden))


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 11])
def test_running_sum_in_blocks(length):
    x = torch.randn(length, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(running_sum(x, block=4), x.cumsum(0))
    if length:
        assert torch.autograd.gradcheck(lambda x: running_sum(x, block=4), x)


def test_mean_so_far_goes_on_where_it_stopped():
    k, saved = keys(5), {}
    padding = torch.tensor([[0, 0, 0, 0, 0], [0, 1, 0, 0, 1]]) > 0
    full = running_mean(k, padding)
    for t in range(5):
        step = mean_so_far(k[t : t + 1], padding[:, t : t + 1] if padding[:, t].any() else None, saved)
        assert torch.allclose(step[0], full[t])
    assert saved["prev_key_count"].flatten().tolist() == [5, 3]


@each_centred
@pytest.mark.parametrize("need_weights", [True, False], ids=["dense", "streaming"])
def test_a_common_part_of_all_scores_changes_nothing(name, need_weights):
    """What softmax ignores, these rows ignore: a constant added to every key (here of a row without one size)."""
    module = attention(name, encoder_decoder_attention=True)
    module.unit = False
    x, y = torch.randn(4, 2, 12).double(), torch.randn(5, 2, 12).double()
    before, _ = module(x, y, y, need_weights=need_weights)
    with torch.no_grad():  # W(y + c) = Wy + Wc: values must stay as they are
        moved = y + torch.linalg.solve(module.k_proj.weight, torch.randn(12).double())
        module.v_proj.bias -= module.v_proj.weight @ (moved - y)[0, 0]
    after, _ = module(x, moved, moved, need_weights=need_weights)
    assert torch.allclose(before, after, atol=1e-9)


@each_centred
@pytest.mark.parametrize("need_weights", [True, False], ids=["dense", "streaming"])
def test_no_future_leaks_into_the_mean(name, need_weights):
    module = attention(name, self_attention=True, causal=True)
    x = torch.randn(7, 2, 12).double()
    mask = torch.full((7, 7), -torch.inf).triu(1)
    before, _ = module(x, x, x, attn_mask=mask, need_weights=need_weights)
    x[4] += 1
    after, _ = module(x, x, x, attn_mask=mask, need_weights=need_weights)
    assert torch.equal(before[:4], after[:4]) and not torch.equal(before[4:], after[4:])


@pytest.mark.parametrize("unit, centred", [(True, True), (True, False), (False, True)])
def test_streamed_equals_dense_with_its_gradients(unit, centred):
    """Also of rows that have only one of the two."""
    module = attention("rela_gc", self_attention=True, causal=True)
    module.unit, module.centred = unit, centred
    padding = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]) > 0
    mask = torch.full((6, 6), -torch.inf).triu(1)
    results = []
    for asked in (True, False):
        torch.manual_seed(1)
        x = torch.randn(6, 2, 12, dtype=torch.float64, requires_grad=True)
        module.zero_grad()
        out, _ = module(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=asked)
        out[:4].square().sum().backward()
        results.append([out[:4], x.grad, *(p.grad for p in module.parameters())])
    for dense, streamed in zip(*results):
        assert torch.allclose(dense, streamed, rtol=1e-9, atol=1e-9)


@each_centred
def test_the_beam_takes_its_sums_along(name):
    """Two hypotheses that change places in the middle of a search."""
    module, x = attention(name, self_attention=True), torch.randn(4, 2, 12).double()
    state = {}
    for t in range(2):
        module(x[t : t + 1], None, None, incremental_state=state)
    module.reorder_incremental_state(state, torch.tensor([1, 0]))
    step, _ = module(x[2:3], None, None, incremental_state=state)
    swapped = torch.cat([x[:2].flip(1), x[2:3]])
    full, _ = module(swapped, swapped, swapped, attn_mask=torch.full((3, 3), -torch.inf).triu(1))
    assert torch.allclose(step[0], full[2], atol=1e-9)


@each_centred
def test_a_lone_key_is_weighed_by_the_bias_alone(name):
    module = attention(name, self_attention=True)
    x = torch.randn(1, 1, 12).double()
    _, weights = module(x, x, x, need_head_weights=True)
    q, bias = unit_size(module.q_proj(x).view(3, 4)), module.k_proj.bias.view(3, 4)
    assert torch.allclose(weights.flatten(), module.activation((q * bias).sum(-1) / 2), atol=1e-9)


@each_centred
def test_cross_self_attention_and_language_models(name, build, batch):
    joint = build(f"transformer_{name}", cross_self_attention=True, no_cross_attention=True).double().eval()
    out, _ = joint(**batch)
    changed = dict(batch, prev_output_tokens=batch["prev_output_tokens"].clone())
    changed["prev_output_tokens"][0, 3] = 9
    assert torch.isfinite(out).all()
    assert torch.allclose(joint(**changed)[0][0, :3], out[0, :3], atol=1e-12)  # nothing of the future
