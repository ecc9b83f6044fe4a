"""Products in half precision, as a GPU takes them where there is no kernel. Here a CPU counts as one that does."""

import pytest
import torch

from fairseq_rela.attention import products, streaming
from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.products import balance, multiplies_half, product32, room
from fairseq_rela.attention.streaming import streaming_attention

if torch.__version__ < "2":
    pytest.skip("this torch has no float16 bmm on a CPU", allow_module_level=True)

from torch.utils._python_dispatch import TorchDispatchMode

HALF = {torch.float16: 1e-3, torch.bfloat16: 8e-3}
POINTWISE = [name for name, row in ACTIVATIONS.items() if row.pointwise]
SCALE = 0.2


@pytest.fixture
def on_a_gpu(monkeypatch):
    """CPU tensors in half precision are multiplied as on a GPU; tiles are small, so that there are many."""
    monkeypatch.setattr(products, "multiplies_half", lambda x: x.dtype in HALF)
    monkeypatch.setattr(streaming, "CPU_TILE", 128)
    monkeypatch.setattr(streaming, "FULL_SIDE", 16)
    monkeypatch.setattr(streaming, "CAUSAL_SIDES", (8, 16))


class Factors(TorchDispatchMode):
    """The types of all factors of matrix products."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in ("bmm", "mm", "addmm"):
            self.dtypes.add(args[-1].dtype)
        elif name == "baddbmm":
            self.dtypes |= {args[1].dtype, args[2].dtype}
        return function(*args, **(kwargs or {}))


def inputs(dtype, queries=21, keys=21, width=8):
    torch.manual_seed(0)
    made = [torch.randn(length, 3, width).to(dtype).transpose(0, 1) for length in (queries, keys, keys)]
    return [x.requires_grad_() for x in made]


def streamed(name, q, k, v, causal=False, dropout=0.0):
    row = ACTIVATIONS[name]
    return streaming_attention(q, k, v, row.build(), row.in_place, causal, SCALE, dropout)


def plain(name, q, k, v, causal=False):
    scores = q @ k.transpose(1, 2) * SCALE
    return ACTIVATIONS[name].build()(scores.tril() if causal else scores) @ v


def error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


def with_gradients(attention, tensors, grad):
    out = attention(*tensors)
    return [out, *torch.autograd.grad(out, tensors, grad.to(out))]


def test_a_cpu_multiplies_in_float32():
    assert not multiplies_half(torch.zeros(1, dtype=torch.float16))
    a_gpu = torch.zeros(1, device="meta")  # has no numbers: whatever is not a CPU
    assert multiplies_half(a_gpu.half()) and multiplies_half(a_gpu.bfloat16())
    assert not multiplies_half(a_gpu) and not multiplies_half(a_gpu.double())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("causal, queries, keys", [(False, 21, 35), (True, 21, 21), (False, 1, 5)])
def test_tiles_equal_the_formula_in_float64(on_a_gpu, name, dtype, causal, queries, keys):
    tensors = inputs(dtype, queries, keys)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    grad = torch.randn(3, queries, 8)
    expected = with_gradients(lambda *x: plain(name, *x, causal), exact, grad)
    with Factors() as factors:
        found = with_gradients(lambda *x: streamed(name, *x, causal), tensors, grad)
    assert factors.dtypes == {dtype}
    assert found[0].dtype == torch.float32 and [x.dtype for x in found[1:]] == [dtype] * 3
    assert [error(x, y) < 2 * HALF[dtype] for x, y in zip(found, expected)] == [True] * 4


def test_dropout_is_the_same_in_both_passes(on_a_gpu):
    """The heads are linear in the values: their gradient for a gradient of ones holds the same weights."""
    q, k, v = inputs(torch.bfloat16)
    heads = streamed("relu", q, k, v, dropout=0.5)
    (dv,) = torch.autograd.grad(heads, v, torch.ones_like(heads))
    assert float((dv.float() * v).sum()) == pytest.approx(float(heads.sum()), rel=2e-2)
    assert not torch.allclose(heads, streamed("relu", q, k, v), rtol=0.1)


@pytest.mark.parametrize("dtype", HALF)
def test_many_keys_and_large_scores_are_finite(monkeypatch, dtype):
    """4,096 keys, scores of ±50, with the tiles that are used: float16 ends at 65,504."""
    monkeypatch.setattr(products, "multiplies_half", lambda x: x.dtype in HALF)
    q = torch.full((1, 16, 32), 50.0 / 32).to(dtype).requires_grad_()
    k = torch.ones(1, 4096, 32).to(dtype)
    k[:, ::2] = -1.0
    v = torch.full((1, 4096, 32), 2.0).to(dtype)
    heads = streaming_attention(q, k, v, torch.relu, ACTIVATIONS["relu"].in_place)
    assert heads.unique().tolist() == [2048 * 50.0 * 2.0]
    (dq,) = torch.autograd.grad(heads, q, torch.full_like(heads, 1e-3))
    torch.testing.assert_close(dq.float(), torch.full_like(heads, 2048 * 2.0 * 32 * 1e-3), rtol=8e-3, atol=0)
    weights = torch.relu(q @ k.transpose(1, 2)).detach()
    assert product32(weights, v).unique().tolist() == [2048 * 50.0 * 2.0]


def test_a_score_that_overflows_hides_nothing_else(on_a_gpu):
    """An infinite score in the future of a query is not seen, as with float32."""
    q, k, v = inputs(torch.float16)
    q.data[:, 0], k.data[:, 1] = 300.0, 300.0  # the score of query 0 and key 1 is 144,000
    heads = streamed("relu", q, k, v, causal=True)
    assert heads[:, 0].isfinite().all()


@pytest.mark.parametrize("size, value_size", [(1e-8, 1e4), (1e-7, 1e3), (1e6, 1e-4)])
@pytest.mark.parametrize("name", POINTWISE)
def test_gradients_outside_the_range_of_float16(on_a_gpu, name, size, value_size):
    q, k, v = inputs(torch.float16)
    v = (v.detach() * value_size).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    grad = torch.randn(3, 21, 8) * size
    expected = with_gradients(lambda *x: plain(name, *x), exact, grad)
    found = with_gradients(lambda *x: streamed(name, *x), (q, k, v), grad)
    for x, y in zip(found[1:3], expected[1:3]):  # of q and k: that of v is beyond its type
        assert 1e-4 < y.abs().max() < 6e4
        assert error(x, y) < 5e-3


def test_balance_by_hand():
    q = torch.tensor([[2.0, -4.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float16)
    dz = torch.tensor([[64.0, 1.0], [1e-6, 0.0], [3.0, 3.0], [float("inf"), 0.0]])
    assert balance(q, dz).tolist() == [[4.0], [2.0**-10], [1.0], [1.0]]


def test_room_by_hand():
    assert [room(n) for n in (0, 1, 32, 33, 512, 4096)] == [1, 1, 1, 0.5, 2**-4, 2**-7]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("name", ["rela_g", "rela_gc", "rela_g_gelu"])
def test_no_product_of_a_module_is_in_float32(on_a_gpu, monkeypatch, name, asked):
    """Of queries, keys, weights and values, in both passes; the means of centred keys alone are summed in float32."""
    torch.manual_seed(0)
    half, wide = (RelaMultiheadAttention(name, 32, 2, encoder_decoder_attention=True) for _ in range(2))
    wide.load_state_dict(half.state_dict())
    half.to(torch.bfloat16)
    x, y = torch.randn(5, 2, 32), torch.randn(7, 2, 32)
    narrow = [t.to(torch.bfloat16) for t in (x, y)]
    with Factors() as factors:
        out, _ = half(narrow[0], narrow[1], narrow[1], need_weights=asked)
        out.float().square().sum().backward()
    assert factors.dtypes == {torch.bfloat16}
    assert error(out, wide(x, y, y, need_weights=asked)[0].double()) < 3e-2
