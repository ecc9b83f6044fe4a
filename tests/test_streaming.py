"""Streaming attention against attention written out: the same numbers, and no T × S tensor on the way."""

import pickle

import pytest
import torch
from torch import nn

from fairseq_rela.attention import row_parts, streaming
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.norms import GatedRMSNorm, gated_rms_norm, rms_norm
from fairseq_rela.attention.streaming import equal_side, spans, streaming_attention, tiling

POINTWISE = [name for name, row in ACTIVATIONS.items() if row.pointwise]
each_activation = pytest.mark.parametrize("name", POINTWISE)
SCALE = 0.3


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of at most 8 × 8 and 128 elements, so that short sequences have many."""
    monkeypatch.setattr(streaming, "CPU_TILE", 128)
    monkeypatch.setattr(streaming, "FULL_SIDE", 8)
    monkeypatch.setattr(streaming, "CAUSAL_SIDES", (4, 8))


def inputs(heads, queries, keys, dtype=torch.float64, by_head=True, width=6, seed=0):
    """q, k, v (N, T or S, d_h); in the layout of fairseq's projections, (T, N, d_h), unless `by_head`."""
    torch.manual_seed(seed)
    made = [torch.randn(length, heads, width).to(dtype).transpose(0, 1) for length in (queries, keys, keys)]
    return [(x.contiguous() if by_head else x).requires_grad_() for x in made]


def plain(name, q, k, v, causal=False, mask=1.0):
    scores = q @ k.transpose(1, 2) * SCALE
    weights = ACTIVATIONS[name].build()(scores.tril() if causal else scores)
    return (weights * mask) @ v


def streamed(name, q, k, v, causal=False, dropout=0.0):
    row = ACTIVATIONS[name]
    return streaming_attention(q, k, v, row.build(), row.in_place, causal, SCALE, dropout)


def with_gradients(attention, tensors):
    out = attention(*tensors)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(out)
    return [out, *torch.autograd.grad(out, tensors, grad)]


def assert_same(actual, expected, tolerance):
    for a, b in zip(actual, expected):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert (a - b).abs().max() <= tolerance * max(1.0, b.abs().max()) if a.numel() else True


SHAPES = [
    pytest.param(5, 8, 8, id="one tile"),
    pytest.param(3, 16, 24, id="tiles divide"),
    pytest.param(7, 19, 29, id="ragged"),
    pytest.param(4, 33, 5, id="fewer keys"),
    pytest.param(3, 1, 21, id="one query"),
    pytest.param(3, 21, 1, id="one key"),
    pytest.param(1, 1, 1, id="one of each"),
    pytest.param(3, 4, 0, id="no keys"),
    pytest.param(3, 0, 4, id="no queries"),
    pytest.param(0, 3, 4, id="no heads"),
]


@each_activation
@pytest.mark.parametrize("heads, queries, keys", SHAPES)
@pytest.mark.parametrize("by_head", [True, False])
def test_equals_attention_written_out(small_tiles, name, heads, queries, keys, by_head):
    tensors = inputs(heads, queries, keys, by_head=by_head)
    expected = with_gradients(lambda *x: plain(name, *x), tensors)
    assert_same(with_gradients(lambda *x: streamed(name, *x), tensors), expected, 1e-12)


@each_activation
@pytest.mark.parametrize(
    "queries, keys", [(1, 1), (3, 3), (8, 8), (16, 16), (31, 31), (50, 50), (0, 3), (3, 0), (31, 19), (19, 31)]
)
@pytest.mark.parametrize("by_head", [True, False])
def test_causal(small_tiles, name, queries, keys, by_head):
    tensors = inputs(5, queries, keys, by_head=by_head)
    expected = with_gradients(lambda *x: plain(name, *x, causal=True), tensors)
    assert_same(with_gradients(lambda *x: streamed(name, *x, causal=True), tensors), expected, 1e-12)


@each_activation
@pytest.mark.parametrize("causal", [False, True])
def test_float32_with_the_real_tiles(name, causal):
    """Errors no larger than a few times those of the formula in float32, against float64."""
    single = inputs(3, 700, 700, torch.float32, by_head=False, width=64)
    double = [x.detach().double().requires_grad_() for x in single]
    exact = with_gradients(lambda *x: plain(name, *x, causal=causal), double)
    formula = with_gradients(lambda *x: plain(name, *x, causal=causal), single)
    for actual, f, e in zip(with_gradients(lambda *x: streamed(name, *x, causal=causal), single), formula, exact):
        assert (actual - e).abs().max() <= 4 * (f - e).abs().max() + 1e-6


@each_activation
@pytest.mark.parametrize("causal", [False, True])
def test_gradient(small_tiles, name, causal):
    tensors = inputs(2, 9, 9, width=3)
    assert torch.autograd.gradcheck(lambda *x: streamed(name, *x, causal=causal), tensors)


def test_layouts_are_kept():
    """What the projections gave is neither copied on the way in nor rearranged on the way out."""
    tensors = inputs(4, 10, 12, by_head=False)
    out, *gradients = with_gradients(lambda *x: streamed("relu", *x), tensors)
    for x, like in zip((out, *gradients), (tensors[0], *tensors)):
        assert x.stride() == like.stride()


# dropout


def test_dropout_is_the_same_forward_and_backward(small_tiles):
    """The output is linear in the masked weights: the mask can be read off, and must be that of the gradient."""
    for causal in (False, True):
        q, k, _ = inputs(5, 19, 19)
        v = torch.eye(19, dtype=torch.float64).expand(5, 19, 19).contiguous().requires_grad_()
        q = torch.cat([q, torch.zeros(5, 19, 13, dtype=q.dtype)], dim=2).detach().requires_grad_()
        k = torch.cat([k, torch.zeros(5, 19, 13, dtype=q.dtype)], dim=2).detach().requires_grad_()
        for name in POINTWISE:
            torch.manual_seed(3)
            actual = with_gradients(lambda *x, n=name, c=causal: streamed(n, *x, c, dropout=0.4), (q, k, v))
            weights = plain(name, q, k, v, causal).detach()
            mask = torch.where(weights != 0, actual[0].detach() / weights, torch.zeros(()).double())
            near = (mask.abs() < 1e-9) | ((mask - 1 / 0.6).abs() < 1e-6)
            assert near.all() and mask.any() and (mask == 0).any()
            expected = with_gradients(lambda *x, n=name, c=causal, m=mask: plain(n, *x, c, m), (q, k, v))
            # a weight of 0 shows no mask, but has a gradient unless the activation is flat there
            assert_same(actual[:1], expected[:1], 1e-9)
            assert_same(actual[3:], expected[3:], 1e-9)
            if name == "relu" or not causal:
                assert_same(actual[1:3], expected[1:3], 1e-6)


def test_dropout_statistics_and_seeds():
    heads, length = 40, 100
    q = torch.ones(heads, length, 4)
    k, v = q / 4 / SCALE, torch.eye(length).expand(heads, length, length).contiguous()
    q4, k4 = (torch.cat([x, torch.zeros(heads, length, length - 4)], dim=2) for x in (q, k))
    torch.manual_seed(1)
    first, second = (streamed("relu", q4, k4, v, dropout=0.3) for _ in range(2))
    torch.manual_seed(1)
    again = streamed("relu", q4, k4, v, dropout=0.3)
    assert torch.equal(first, again) and not torch.equal(first, second)
    kept = (first > 0).float()
    assert torch.allclose(first, kept / 0.7)
    deviation = (0.3 * 0.7 / kept.numel()) ** 0.5
    assert kept.mean().item() == pytest.approx(0.7, abs=5 * deviation)
    for dims in ((0, 1), (1, 2), (0, 2)):  # no head, query or key is favoured
        n = kept.numel() / kept.mean(dims).numel()
        assert (kept.mean(dims) - 0.7).abs().max() < 6 * (0.3 * 0.7 / n) ** 0.5
    pairs = (kept[0] - 0.7).flatten() @ (kept[1] - 0.7).flatten() / kept[0].numel()
    assert abs(pairs.item()) < 5 * 0.21 / length


def test_no_two_tiles_drop_alike(small_tiles):
    """64 tiles of 2 heads × 8 × 8: as many masks."""
    heads, length = 8, 32
    q, k = torch.ones(heads, length, length), torch.ones(heads, length, length) / length / SCALE
    kept = streamed("relu", q, k, torch.eye(length).expand(heads, length, length).contiguous(), dropout=0.5) > 0
    masks = kept.view(heads // 2, 2, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).reshape(64, 128)
    assert len(torch.unique(masks, dim=0)) == 64


def test_dropout_of_everything():
    assert not streamed("relu", *inputs(2, 5, 5), dropout=1.0).any()


# what is in memory


def largest_tensor(run):
    """The number of elements of the largest tensor that any operation returned."""
    dispatch = pytest.importorskip("torch.utils._python_dispatch")
    sizes = []

    class Sizes(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(x, torch.Tensor):
                    sizes.append(x.numel())
            return out

    with Sizes():
        run()
    return max(sizes)


@pytest.mark.skipif(not hasattr(torch, "rms_norm"), reason="needs a newer torch's dispatch modes")
@each_activation
@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_of_all_weights(small_tiles, name, causal):
    tensors = inputs(2, 200, 200)
    streaming_size = largest_tensor(lambda: with_gradients(lambda *x: streamed(name, *x, causal, dropout=0.1), tensors))
    plain_size = largest_tensor(lambda: with_gradients(lambda *x: plain(name, *x, causal), tensors))
    assert plain_size >= 200 * 200
    assert streaming_size <= tensors[0].numel() < 200 * 200


def test_only_queries_keys_and_values_are_kept():
    tensors = inputs(2, 40, 40)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        streamed("gelu", *tensors, dropout=0.5)
    assert [x.data_ptr() for x in saved] == [x.data_ptr() for x in tensors]


def test_spans_and_tiles():
    assert [equal_side(length, 512) for length in (0, 1, 512, 513, 1025)] == [1, 1, 512, 257, 342]
    assert [s[1:] for s in spans(10, 4)] == [(0, 4), (4, 8), (8, 10)]
    assert spans(0, 4) == ()
    for heads, queries, keys, causal in [(3, 700, 700, True), (512, 32, 32, False), (1, 1, 9000, False)]:
        plan = tiling(torch.empty(heads, queries, 1), torch.empty(heads, keys, 1), causal)
        sides = [max(s.stop - s.start for s in dim) for dim in plan]
        assert max(sides[1:]) <= streaming.FULL_SIDE
        assert sides[0] <= streaming.FEWEST_HEADS or sides[0] * sides[1] * sides[2] <= streaming.CPU_TILE
        for dim, length in zip(plan, (heads, queries, keys)):
            assert [p for s in dim for p in range(s.start, s.stop)] == list(range(length))
        numbers = {plan.number(h, q, k) for h in plan.heads for q in plan.queries for k in plan.keys}
        assert len(numbers) == len(plan.heads) * len(plan.queries) * len(plan.keys)


def test_inference_mode(small_tiles):
    tensors = inputs(5, 20, 20)
    with torch.inference_mode():
        out = streamed("relu", *[x.detach().clone() for x in tensors])
    assert torch.allclose(out, plain("relu", *tensors).detach())


# in the attention module


def module(name, width=24, heads=3, dropout=0.0, **options):
    torch.manual_seed(0)
    made = RelaMultiheadAttention(name, width, heads, dropout=dropout, **options)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


ROWS = [name for name, row in CATALOG.items() if ACTIVATIONS[row.activation].pointwise]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_same_with_weights_and_without(small_tiles, name, causal):
    attention = module(name, self_attention=True, causal=True).double()
    x = torch.randn(19, 3, 24, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(3, 19, dtype=torch.bool)
    padding[1, :7] = padding[2, 11:] = True
    future = torch.full((19, 19), float("-inf")).triu(1) if causal else None
    actual = []
    for need_weights in (True, False):
        out, weights = attention(
            query=x, key=x, value=x, key_padding_mask=padding, attn_mask=future, need_weights=need_weights
        )
        assert (weights is not None) == need_weights
        actual.append([out, *torch.autograd.grad(out.square().sum(), [x, *attention.parameters()])])
    assert_same(actual[1], actual[0], 1e-9)


def test_which_calls_stream(monkeypatch):
    calls = []
    monkeypatch.setattr(RelaMultiheadAttention, "_streamed", lambda self, q, *_, **kw: calls.append(kw["causal"]) or q)
    x, future = torch.randn(4, 2, 24), torch.full((4, 4), float("-inf")).triu(1)
    decoder, encoder = (module("rela_g", self_attention=True, causal=known) for known in (True, False))
    quiet = {"query": x, "key": x, "value": x, "need_weights": False}
    encoder(**quiet)
    decoder(**quiet, attn_mask=future)
    assert calls == [False, True]
    encoder(**quiet, attn_mask=future)  # any mask that is not known to be the future's
    decoder(**{**quiet, "need_weights": True})
    decoder(**quiet, need_head_weights=True)
    decoder(**quiet, incremental_state={})
    module("softmax", self_attention=True)(**quiet)
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_float32(dtype):
    """4,096 weights of 64 and values of 8: 2,097,152, past float16's largest number and bfloat16's 8 bits."""
    q, k = torch.full((1, 2, 64), 8.0).to(dtype), torch.ones(1, 4096, 64).to(dtype) / 8 / SCALE
    v = torch.full((1, 4096, 64), 8.0).to(dtype)
    tensors = [x.requires_grad_() for x in (q, k, v)]
    out = streamed("relu", *tensors)
    assert out.dtype == torch.float32
    expected = plain("relu", *(x.float() for x in tensors))
    assert expected.max() > 65504 and torch.allclose(out, expected, rtol=1e-5)
    for x, gradient in zip(tensors, torch.autograd.grad(out, tensors, torch.full_like(out, 1e-6))):
        assert gradient.dtype == dtype and torch.isfinite(gradient).all() and x.shape == gradient.shape


def test_autocast():
    attention = module("rela_g", self_attention=True, dropout=0.1)
    x = torch.randn(9, 2, 24, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = attention(query=x, key=x, value=x, need_weights=False)
    out.float().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(p.grad.dtype == torch.float32 for p in attention.parameters())


@pytest.mark.parametrize("arch", ["transformer_rela_g", "transformer_rela_g_gelu"])
def test_checkpointed_activations_with_dropout(build, batch, arch):
    gradients = []
    for checkpointed in (False, True):
        model = build(arch, checkpoint_activations=checkpointed, attention_dropout=0.3, dropout=0.2)
        model.double().train()
        torch.manual_seed(5)
        model(**batch)[0].logsumexp(-1).sum().backward()
        gradients.append({n.replace("_fsdp_wrapped_module.", ""): p.grad for n, p in model.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-9, atol=1e-9), name


def test_in_training_nobody_asks_for_weights(build, batch, monkeypatch):
    asked = []
    weights = RelaMultiheadAttention._weights
    monkeypatch.setattr(RelaMultiheadAttention, "_weights", lambda *args: asked.append(1) or weights(*args))
    model = build("transformer_rela_g").train()
    assert model(**batch)[1]["attn"] == [None] and not asked
    attn = model(**batch, alignment_layer=0)[1]["attn"][0]
    assert attn.shape == (3, 4, 6) and asked == [1]
    assert model.eval()(**batch)[1]["attn"][0].shape == (3, 4, 6)


def test_a_model_can_be_pickled_and_its_copy_trained(build, batch):
    copy = pickle.loads(pickle.dumps(build("transformer_rela_g").train()))
    copy(**batch)[0].sum().backward()


# the norm after it


@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12), (0, 12)])
def test_gated_rms_norm_with_its_gradient_written_out(monkeypatch, shape):
    monkeypatch.setattr(row_parts, "ELEMENTS", 24)
    torch.manual_seed(0)
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in (shape, (12,), (12,))]
    if shape[0]:
        tensors[0].data[0] = 0  # a query that attends to nothing
    expected = with_gradients(lambda z, w, g: torch.sigmoid(w * z) * rms_norm(z, g, 1e-8), tensors)
    assert_same(with_gradients(lambda z, w, g: GatedRMSNorm.apply(z, w, g, 1e-8), tensors), expected, 1e-12)


@pytest.mark.parametrize("many", [True, False])
def test_gated_rms_norm_without_gradients(monkeypatch, many):
    monkeypatch.setattr(row_parts, "ELEMENTS", 24)
    monkeypatch.setattr(GatedRMSNorm, "MANY", 7 * 12 if many else 7 * 12 + 1)
    parts = []
    computed = GatedRMSNorm.computed
    monkeypatch.setattr(GatedRMSNorm, "computed", lambda *args: parts.append(args) or computed(*args))
    torch.manual_seed(0)
    z, gate, gain = torch.randn(12, 7).t().double(), *torch.randn(2, 12).double().unbind()
    with torch.no_grad():
        found = gated_rms_norm(z, gate, gain, 1e-8)
    assert len(parts) == many
    torch.testing.assert_close(found, torch.sigmoid(gate * z) * rms_norm(z, gain, 1e-8))
