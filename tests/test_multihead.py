"""Multi-head attention of every row of the catalog, against a reference written out here.

A row that is added to the catalog is covered by all of these tests.
"""

import math
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from attention_reference import reference, unit_size
from fairseq.modules import MultiheadAttention
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_rela.attention import masks
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.projection import Projection
from fairseq_rela.errors import InputError

POINTWISE = [name for name, row in CATALOG.items() if ACTIVATIONS[row.activation].pointwise]
NORMED = [name for name, row in CATALOG.items() if row.norm != "none"]
each_row = pytest.mark.parametrize("name", CATALOG)


def attention(name, width=12, heads=3, dtype=torch.float64, seed=0, **options):
    """An attention with every parameter away from its initial value, in evaluation."""
    torch.manual_seed(seed)
    module = RelaMultiheadAttention(name, width, heads, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.to(dtype).eval()


def float32_error(module, x, y):
    """The largest difference of float32 and float64 outputs, (T, d), for queries x (T, d) that see all of y (S, d).

    The error of a float32 score is about ε|q||k|, however small the score is, and its weight has the same error.
    GELU(−4) is −0.0001, but it is computed from 1 + erf(−4/√2), of which float32 has only three digits. If all weights
    are that small, the norm scales them up together with their errors. Its derivative, in float64, says by how much.
    """
    heads = []
    hook = module.norm.register_forward_pre_hook(lambda _, inputs: heads.append(inputs[0].detach()))
    out = reference(module, x, y, torch.ones(len(x), len(y)) > 0)
    hook.remove()
    slopes = torch.autograd.functional.jacobian(lambda z: module.out_proj(module.norm(z)).sum(0), heads[0])  # (d, T, d)
    q, k, v = (
        projection(inputs).view(len(inputs), module.num_heads, module.head_dim)
        for projection, inputs in ((module.q_proj, x), (module.k_proj, y), (module.v_proj, y))
    )
    if CATALOG[module.name].unit:
        q, k = unit_size(q), unit_size(k)
    scores = q.norm(dim=-1) * k.norm(dim=-1).amax(0) / math.sqrt(module.head_dim)  # the largest there can be, (T, H)
    eps = torch.finfo(torch.float32).eps
    heads_error = 4 * eps * (scores.unsqueeze(-1) * v.abs().sum(0)).flatten(1)  # (T, d)
    return torch.einsum("otd,td->to", slopes.abs(), heads_error) + 1e-5 * max(1.0, out.abs().max().item())


def future_mask(length):
    """fairseq's: −inf where a key comes after the query."""
    return torch.full((length, length), -math.inf).triu(1)


lengths = st.integers(1, 7)


@each_row
@settings(max_examples=15, deadline=None)
@given(tgt_len=lengths, src_lens=st.lists(lengths, min_size=1, max_size=3), left=st.booleans(), seed=st.integers(0, 99))
@example(tgt_len=5, src_lens=[1, 1, 4], left=True, seed=1)  # GELU of one large negative score in every head
def test_cross_attention_equals_the_reference_whatever_is_padded(name, tgt_len, src_lens, left, seed):
    module = attention(name, seed=seed, kdim=12, vdim=12, encoder_decoder_attention=True)
    x = torch.randn(tgt_len, len(src_lens), 12, dtype=torch.float64)
    y = torch.randn(max(src_lens), len(src_lens), 12, dtype=torch.float64)
    padding = torch.zeros(len(src_lens), max(src_lens), dtype=torch.bool)
    for sentence, length in enumerate(src_lens):
        padding[sentence, : max(src_lens) - length] = left
        padding[sentence, length:] |= not left
    out, weights = module(query=x, key=y, value=y, key_padding_mask=padding, need_head_weights=True)
    single = attention(name, seed=seed, kdim=12, vdim=12, encoder_decoder_attention=True).float()
    out32, _ = single(query=x.float(), key=y.float(), value=y.float(), key_padding_mask=padding)
    for sentence in range(len(src_lens)):
        seen = ~padding[sentence]
        visible = torch.ones(tgt_len, int(seen.sum())) > 0
        alone = reference(module, x[:, sentence], y[seen, sentence], visible)
        assert torch.allclose(out[:, sentence], alone, rtol=1e-10, atol=1e-10)
        assert (weights[:, sentence][..., ~seen] == 0).all()
        error = (out32[:, sentence] - alone).abs()
        assert (error <= float32_error(module, x[:, sentence], y[seen, sentence])).all()


@each_row
@settings(max_examples=15, deadline=None)
@given(tgt_lens=st.lists(lengths, min_size=1, max_size=3), left=st.booleans(), seed=st.integers(0, 99))
def test_causal_self_attention_equals_the_reference_whatever_is_padded(name, tgt_lens, left, seed):
    module = attention(name, seed=seed, self_attention=True)
    longest = max(tgt_lens)
    x = torch.randn(longest, len(tgt_lens), 12, dtype=torch.float64)
    padding = torch.zeros(len(tgt_lens), longest, dtype=torch.bool)
    for sentence, length in enumerate(tgt_lens):
        padding[sentence, : longest - length] = left
        padding[sentence, length:] |= not left
    out, _ = module(query=x, key=x, value=x, key_padding_mask=padding, attn_mask=future_mask(longest))
    assert torch.isfinite(out).all()  # the queries of padding, too: on the left they have nothing to see
    for sentence in range(len(tgt_lens)):
        seen = ~padding[sentence]
        tokens = x[seen, sentence]
        alone = reference(module, tokens, tokens, torch.ones(len(tokens), len(tokens)).tril() > 0)
        assert torch.allclose(out[seen, sentence], alone, rtol=1e-10, atol=1e-10)


@each_row
@pytest.mark.parametrize("blocked", [-math.inf, -1e8, True])
def test_every_form_of_fairseqs_masks(name, blocked):
    module, x = attention(name, self_attention=True), torch.randn(4, 1, 12, dtype=torch.float64)
    hidden = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]]) > 0
    mask = hidden if blocked is True else torch.zeros(4, 4).masked_fill(hidden, blocked)
    out, weights = module(query=x, key=x, value=x, attn_mask=mask, need_head_weights=True)
    assert torch.allclose(out[:, 0], reference(module, x[:, 0], x[:, 0], ~hidden), rtol=1e-10, atol=1e-10)
    assert (weights[..., hidden] == 0).all()


@each_row
def test_the_future_mask_without_values(name):
    """A causal attention reads it as fairseq's mask. Any other attention fails on it, and cannot see the future."""
    x = torch.randn(4, 2, 12, dtype=torch.float64)
    module = attention(name, self_attention=True, causal=True)
    for options in ({"need_weights": False}, {"need_head_weights": True}):
        expected, actual = (
            module(query=x, key=x, value=x, attn_mask=mask, **options)[0]
            for mask in (future_mask(4), masks.future_mask(x))
        )
        assert torch.equal(actual, expected)
    for other in (attention(name, self_attention=True), MultiheadAttention(12, 3, self_attention=True).double()):
        with pytest.raises((RuntimeError, AssertionError)):
            other(query=x, key=x, value=x, attn_mask=masks.future_mask(x))


@each_row
def test_gradient(name):
    module = attention(name, width=4, heads=2, encoder_decoder_attention=True)
    padding = torch.tensor([[False, False, True], [False, True, True]])
    x = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: module(query=x, key=y, value=y, key_padding_mask=padding)[0], (x, y))


@each_row
@pytest.mark.parametrize("first_padded", [True, False])
def test_incremental_equals_full(name, first_padded):
    module, x = attention(name, self_attention=True, dtype=torch.float32), torch.randn(6, 3, 12)
    if first_padded:  # else the past has no mask when the first padding comes
        padding = torch.tensor([[0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 1]]) > 0
    else:
        padding = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 1]]) > 0
    full, _ = module(query=x, key=x, value=x, key_padding_mask=padding, attn_mask=future_mask(6))
    state = {}
    for t in range(6):
        now = x[t : t + 1]
        # fairseq passes a mask only where something is padding
        mask = padding[:, t : t + 1] if padding[:, t].any() else None
        step, _ = module(query=now, key=now, value=now, key_padding_mask=mask, incremental_state=state)
        assert torch.allclose(step[0], full[t], rtol=1e-5, atol=1e-5)


@each_row
def test_beams_share_their_sentences_keys(name):
    module = attention(name, encoder_decoder_attention=True)
    if not hasattr(module, "set_beam_size"):
        pytest.skip("this fairseq has no shared beams")
    y, padding = torch.randn(5, 2, 12, dtype=torch.float64), torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]) > 0
    x = torch.randn(1, 6, 12, dtype=torch.float64)
    repeated = y.repeat_interleave(3, 1)
    of_beam = {"query": x, "key": repeated, "value": repeated, "key_padding_mask": padding.repeat_interleave(3, 0)}
    plain, plain_weights = module(**of_beam, need_head_weights=True)
    module.set_beam_size(3)
    state = {}
    for _ in range(2):  # the first step projects the keys, the second has them
        out, weights = module(**of_beam, incremental_state=state, static_kv=True, need_head_weights=True)
        assert torch.allclose(out, plain, rtol=1e-10, atol=1e-12)
        assert torch.allclose(weights, plain_weights, rtol=1e-10, atol=1e-12)
    (saved,) = state.values()
    assert saved["prev_key"].size(0) == 2  # one copy per sentence
    # the beam size of the last search is still set when training goes on
    assert torch.equal(module(**of_beam)[0], plain)


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_softmax_equals_fairseqs_own(kind):
    options = {"self_attention": True} if kind == "self" else {"encoder_decoder_attention": True}
    ours = attention("softmax", **options)
    stock = MultiheadAttention(12, 3, **options).double().eval()
    stock.load_state_dict(ours.state_dict())
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    y = x if kind == "self" else torch.randn(4, 2, 12, dtype=torch.float64)
    padding = torch.zeros(2, len(y), dtype=torch.bool)
    padding[1, -1] = True
    call = {"query": x, "key": y, "value": y, "key_padding_mask": padding}
    if kind == "self":
        call["attn_mask"] = future_mask(5).double()
    (out, weights), (stock_out, stock_weights) = ours(**call), stock(**call)
    assert torch.allclose(out, stock_out, rtol=1e-12, atol=1e-12)
    assert torch.allclose(weights, stock_weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CATALOG if name != "softmax"])
def test_torchs_softmax_attention_is_never_called(name):
    module, x = attention(name, self_attention=True), torch.randn(3, 2, 12, dtype=torch.float64)
    with mock.patch.object(F, "multi_head_attention_forward", side_effect=AssertionError("softmax")):
        for training in (True, False):
            module.train(training)(query=x, key=x, value=x)
            module(query=x, key=x, value=x, need_weights=False, incremental_state={})
        stock = MultiheadAttention(12, 3, self_attention=True).double()
        with pytest.raises(AssertionError, match="softmax"):  # the replacement is really called
            stock(query=x, key=x, value=x)


@pytest.mark.parametrize("name", [name for name in POINTWISE if CATALOG[name].activation == "relu"])
def test_a_layer_that_attends_to_nothing(name):
    module = attention(name, self_attention=True)
    with torch.no_grad():  # every query is the opposite of every key
        for projection, bias in ((module.q_proj, -1.0), (module.k_proj, 1.0)):
            projection.weight.zero_()
            projection.bias.fill_(bias)
    x = torch.randn(5, 2, 12, dtype=torch.float64, requires_grad=True)
    projected = []
    module.out_proj.register_forward_pre_hook(lambda _, inputs: projected.append(inputs[0]))
    out, weights = module(query=x, key=x, value=x)
    assert not weights.any() and not projected[0].any()
    out.square().sum().backward()
    for projection in (module.q_proj, module.k_proj):
        assert not projection.weight.grad.any() and not projection.bias.grad.any()
    for parameter in module.parameters():
        assert torch.isfinite(parameter.grad).all()
    assert torch.isfinite(x.grad).all()


@each_row
def test_some_rows_null_gives_finite_gradients(name):
    module = attention(name, self_attention=True)
    x = torch.randn(6, 2, 12, dtype=torch.float64, requires_grad=True)
    out, _ = module(query=x, key=x, value=x, attn_mask=future_mask(6), key_padding_mask=torch.ones(2, 6) > 0)
    out.square().sum().backward()
    assert torch.isfinite(out).all() and torch.isfinite(x.grad).all()


def half_precision_works(dtype):
    try:
        torch.bmm(torch.ones(1, 1, 1, dtype=dtype), torch.ones(1, 1, 1, dtype=dtype))
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NORMED)
def test_half_precision_with_many_large_weights(name, dtype):
    """4,096 keys, scores up to ±50: their weighted sum passes float16's largest number."""
    if not half_precision_works(dtype):
        pytest.skip(f"this torch has no {dtype} bmm on a CPU")
    width, heads, keys = 128, 2, 4096
    narrow = attention(name, width, heads, dtype, encoder_decoder_attention=True)
    with torch.no_grad():
        for projection, size in ((narrow.q_proj, 1), (narrow.k_proj, 1), (narrow.v_proj, 8)):
            projection.weight.copy_(size * torch.eye(width))
            projection.bias.zero_()
        narrow.out_proj.weight.copy_(torch.eye(width))
        narrow.out_proj.bias.zero_()
    x, y = torch.randn(3, 1, width).to(dtype), torch.randn(keys, 1, width)
    scale = 50 * math.sqrt(width // heads)
    scores = (x.float().view(3, heads, -1).transpose(0, 1) @ y.view(keys, heads, -1).permute(1, 2, 0)).abs().max()
    y = (y * (scale / scores)).to(dtype)
    wide = attention(name, width, heads, torch.float32, encoder_decoder_attention=True)
    wide.load_state_dict({k: v.float() for k, v in narrow.state_dict().items()})
    y = y + 1  # values of one sign, so that their sum grows with the keys
    expected, weights = wide(query=x.float(), key=y.float(), value=y.float(), need_head_weights=True)
    assert weights.max() > (3 if CATALOG[name].unit else 40)  # queries and keys of one size bound the scores
    sums = 8 * (weights.abs() @ y.float().view(keys, heads, -1).permute(1, 0, 2).unsqueeze(1).abs()).max()
    assert sums > 65504
    out, _ = narrow(query=x, key=y, value=y)
    assert out.dtype == dtype and torch.isfinite(out).all()
    # three roundings lie between: of the query, of the scores and of the output
    eps = torch.finfo(dtype).eps
    assert (out.float() - expected).abs().max() <= 4 * eps * expected.abs().max()


@each_row
def test_one_query_and_one_key(name):
    module = attention(name, encoder_decoder_attention=True)
    x, y = torch.randn(1, 1, 12, dtype=torch.float64), torch.randn(1, 1, 12, dtype=torch.float64)
    out, weights = module(query=x, key=y, value=y)
    assert weights.shape == (1, 1, 1)
    assert torch.allclose(out[:, 0], reference(module, x[:, 0], y[:, 0], torch.ones(1, 1) > 0), atol=1e-10)


@each_row
def test_dropout_acts_on_the_weights(name):
    module = attention(name, dropout=0.5, encoder_decoder_attention=True)
    with torch.no_grad():
        module.v_proj.weight.zero_()
        module.v_proj.bias.fill_(1.0)  # every value is 1: a head is the sum of its weights
    x, y = torch.randn(2, 300, 12, dtype=torch.float64), torch.randn(7, 300, 12, dtype=torch.float64)
    seen = []
    module.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    _, weights = module(query=x, key=y, value=y, need_head_weights=True)
    whole, _ = seen.pop(), module.train()
    _, shown = module(query=x, key=y, value=y, need_head_weights=True)
    dropped = seen.pop()
    assert torch.equal(weights, shown)  # what is shown is what was computed, before dropout
    assert not torch.equal(whole, dropped)
    scale = whole.abs().mean().item()
    assert (dropped - whole).mean().item() == pytest.approx(0, abs=0.1 * scale)


def test_a_width_the_heads_do_not_divide():
    with pytest.raises(InputError, match="width 10 is not divisible by 3 heads"):
        RelaMultiheadAttention("rela_g", 10, 3)


# projections


@pytest.mark.parametrize("shape", [(1, 4, 24), (1, 1, 24), (2, 3, 24), (8, 24), (9, 24), (0, 24)])
def test_few_rows_are_projected_alike(shape):
    torch.manual_seed(0)
    layer = torch.nn.Linear(24, 16).double()
    made = Projection.of(layer)
    assert isinstance(made, Projection) and made.weight is layer.weight and made.bias is layer.bias
    x = torch.randn(shape, dtype=torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.no_grad():
            actual = made(x)
    finally:
        torch.set_num_threads(threads)
    assert actual.is_contiguous() and torch.allclose(actual, layer(x), atol=1e-12)
    assert made(x).requires_grad


def test_projections_of_another_kind_are_left_alone():
    attention = RelaMultiheadAttention("rela_g", 24, 3, self_attention=True, q_noise=0.1, qn_block_size=8)
    assert type(attention.q_proj) is torch.nn.Linear
    assert type(Projection.of(torch.nn.Linear(2, 2, bias=False))) is torch.nn.Linear
