"""fairseq's pruning of heads, `_adaptive_prune_heads`, of every row of the catalog."""

import pytest
import torch
from attention_reference import reference

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.threshold import ThresholdSetting
from fairseq_rela.errors import InputError

WIDTH, HEADS, HEAD = 12, 3, 4
KEPT = [2, 0]  # not in order
each_row = pytest.mark.parametrize("name", CATALOG)


def attention(name, **options):
    torch.manual_seed(0)
    module = RelaMultiheadAttention(name, WIDTH, HEADS, self_attention=True, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def ranges(heads):
    """The columns of heads, as fairseq gives them."""
    return [(head * HEAD, (head + 1) * HEAD) for head in heads]


def without(module, head):
    """The same module, in which one head gives 0."""
    begin, end = ranges([head])[0]
    with torch.no_grad():
        module.v_proj.weight[begin:end] = 0
        module.v_proj.bias[begin:end] = 0
    return module


def both_paths(module, x):
    """The output with the weights and without them, which a pointwise row streams."""
    plain, _ = module(query=x, key=x, value=x, need_weights=True)
    streamed, _ = module(query=x, key=x, value=x, need_weights=False)
    return plain, streamed


@each_row
def test_a_pruned_head_is_a_head_that_gives_nothing(name):
    """All but LayerNorm, whose mean over the heads moves."""
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    pruned = attention(name)
    pruned._adaptive_prune_heads(ranges(KEPT))
    assert pruned.num_heads == 2
    for parameter in (pruned.q_proj, pruned.k_proj, pruned.v_proj):
        assert parameter.weight.shape == (8, WIDTH)
    assert pruned.out_proj.weight.shape == (WIDTH, 8)
    assert all(parameter.shape == (8,) for parameter in pruned.norm.parameters())
    for out in both_paths(pruned, x):
        assert out.shape == x.shape
        if name != "rela_g_layernorm":
            expected, _ = without(attention(name), 1)(query=x, key=x, value=x)
            assert torch.allclose(out, expected, rtol=1e-6, atol=1e-7)


@each_row
def test_a_pruned_module_equals_the_reference(name):
    pruned = attention(name)
    pruned._adaptive_prune_heads(ranges(KEPT))
    x = torch.randn(4, 1, WIDTH, dtype=torch.float64)
    expected = reference(pruned, x[:, 0], x[:, 0], torch.ones(4, 4) > 0)
    for out in both_paths(pruned, x):
        assert torch.allclose(out[:, 0], expected, rtol=1e-9, atol=1e-9)


@each_row
def test_fairseqs_own_choice_of_heads(name):
    pruned = attention(name)
    pruned._adaptive_prune_heads(pruned._get_reserve_head_index(1))
    pruned._set_skip_embed_dim_check()
    x = torch.randn(4, 1, WIDTH, dtype=torch.float64)
    _, weights = pruned(query=x, key=x, value=x, need_head_weights=True)
    assert weights.shape == (1, 1, 4, 4)


@each_row
def test_it_trains_on_saves_and_loads(name):
    pruned = attention(name).train()
    pruned._adaptive_prune_heads(ranges(KEPT))
    x = torch.randn(4, 1, WIDTH, dtype=torch.float64)
    pruned(query=x, key=x, value=x, need_weights=False)[0].pow(2).sum().backward()
    assert all(parameter.grad is not None for parameter in pruned.parameters())
    other = attention(name)
    other._adaptive_prune_heads(ranges([0, 1]))
    other.load_state_dict(pruned.state_dict())
    assert torch.equal(other.eval()(query=x, key=x, value=x)[0], pruned.eval()(query=x, key=x, value=x)[0])


def test_thresholds_go_with_their_heads():
    for setting in (ThresholdSetting("learn"), ThresholdSetting(target=0.5)):
        pruned = attention("rela_g", threshold=setting)
        with torch.no_grad():
            pruned.threshold.theta.copy_(torch.tensor([0.1, 0.2, 0.3]))
        pruned._adaptive_prune_heads(ranges(KEPT))
        assert torch.allclose(pruned.threshold.theta, torch.tensor([0.3, 0.1], dtype=pruned.threshold.theta.dtype))
        assert "threshold.theta" in pruned.state_dict()
        x = torch.randn(4, 1, WIDTH, dtype=torch.float64)
        assert pruned(query=x, key=x, value=x)[0].shape == x.shape


def test_one_at_least():
    with pytest.raises(InputError, match="no head is kept; keep at least one"):
        attention("rela_g")._adaptive_prune_heads([])
