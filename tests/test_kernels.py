"""The GPU kernels against a reference written out in `kernel_reference`: values and gradients.

Without a GPU, Triton's interpreter runs them on CPU tensors. It is chosen before Triton is imported, so the first test
runs this file again in a process of its own, with TRITON_INTERPRET=1; in this one the others are skipped.
"""

import functools

import pytest
import torch
from kernel_dropout import dropout_mask
from kernel_reference import (
    DEVICE,
    TOLERANCE,
    assert_near,
    compare,
    gpu,
    here_alone,
    inputs,
    pass_by_the_interpreter,
    runs,
    weights_of,
)

from fairseq_rela.attention import kernels

half, brief = torch.float16, torch.bfloat16


@pytest.mark.slow
@here_alone
def test_all_below_by_the_interpreter():
    pass_by_the_interpreter(__file__, 56)


@runs
@gpu
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    "queries, keys, width, causal, term",
    [
        (1, 1, 32, False, False),
        (1, 70, 64, False, True),
        (70, 1, 32, False, False),
        (64, 64, 64, True, False),
        (65, 63, 64, False, True),
        (150, 40, 32, False, False),
        (100, 100, 128, True, True),
    ],
)
def test_values_and_gradients(queries, keys, width, causal, term, dtype):
    compare(inputs(2, queries, keys, width, dtype, term), causal)


@runs
@gpu
def test_larger_than_a_tile_in_every_direction():
    compare(inputs(1, 260, 200, 32, half))
    compare(inputs(1, 200, 200, 64, half), causal=True)


@runs
@gpu
def test_any_strides():
    projected = torch.randn(40, 2, 3, 4, 32, device=DEVICE)  # positions, sentences, q k v, heads, width
    q, k = (projected[:, :, i].reshape(40, 8, 32).transpose(0, 1).requires_grad_() for i in range(2))
    v = torch.randn(8, 32, 40, device=DEVICE).transpose(1, 2).requires_grad_()  # columns apart
    a = torch.randn(8, 80, device=DEVICE)[:, ::2].requires_grad_()
    b = torch.ones(1, device=DEVICE).expand(8, 40).requires_grad_()
    heads = compare([q, k, v, a, b], causal=True)
    assert heads.transpose(0, 1).is_contiguous()  # laid out like q: (T, N, d_h) is a view
    compare([x.detach()[:, 1::2].requires_grad_() for x in (q, k, v)])


@runs
@gpu
def test_padding_is_a_zero_key_and_a_zero_term():
    q, k, v, a, _ = inputs(2, 20, 40, 32, half, term=True)
    a = (-a.detach().abs()).requires_grad_()  # a threshold below 0 raises every score
    padded = torch.arange(40, device=DEVICE) >= 33
    k0 = k.detach().masked_fill(padded.view(1, -1, 1), 0.0).requires_grad_()
    b0 = torch.ones(2, 40, device=DEVICE).masked_fill(padded, 0.0).requires_grad_()
    shorter = [x.detach()[:, :33].requires_grad_() for x in (k0, v, b0)]
    long = kernels.attention(q, k0, v, a, b0)
    short = kernels.attention(q, shorter[0], shorter[1], a, shorter[2])
    torch.testing.assert_close(long, short, rtol=1e-6, atol=1e-6)
    grad = torch.randn_like(long)
    dk, dv, db = torch.autograd.grad(long, (k0, v, b0), grad)
    for x, y in zip((dk, dv, db), torch.autograd.grad(short, shorter, grad)):
        torch.testing.assert_close(x[:, :33], y)
        assert x[:, 33:].eq(0).all()


@runs
@gpu
def test_null_attention_is_exactly_zero():
    q, k, v = inputs(1, 20, 30, 32, half)
    q, k = q.detach().abs().requires_grad_(), (-k.detach().abs()).requires_grad_()
    heads = kernels.attention(q, k, v)
    gradients = torch.autograd.grad(heads, (q, k, v), torch.full_like(heads, 1e6))  # past the range of float16
    assert all(x.eq(0).all() for x in (heads, *gradients))


@runs
@gpu
def test_a_diverged_model_shows_it():
    q, k, v = inputs(1, 4, 4, 32)
    q.data[0, 1, 0] = float("nan")
    heads = kernels.attention(q, k, v)
    assert heads[0, 1].isnan().all() and heads[0, 0].isfinite().all()


@runs
@gpu
def test_float16_with_many_keys_and_large_scores_is_finite():
    q = torch.full((1, 16, 32), 50.0 / 32, device=DEVICE, dtype=half).requires_grad_()
    k = torch.full((1, 4096, 32), 1.0, device=DEVICE, dtype=half)
    k[:, ::2] = -1.0  # scores of ±50
    v = torch.full((1, 4096, 32), 2.0, device=DEVICE, dtype=half).requires_grad_()
    k.requires_grad_()
    heads = kernels.attention(q, k, v)
    assert heads.eq(2048 * 50.0 * 2.0).all()  # 204,800: float16 ends at 65,504
    dq, dk, dv = torch.autograd.grad(heads, (q, k, v), torch.full_like(heads, 1e-3))
    torch.testing.assert_close(dq.float(), torch.full_like(heads, 2048 * 2.0 * 32 * 1e-3), rtol=2e-3, atol=0)
    seen, ones = k > 0, torch.ones(k.shape, device=DEVICE)
    torch.testing.assert_close(dk.float(), seen * ones * 16 * 32 * 2e-3 * 50 / 32, rtol=2e-3, atol=0)
    torch.testing.assert_close(dv.float(), seen * ones * 16 * 50 * 1e-3, rtol=2e-3, atol=0)


@runs
@gpu
@pytest.mark.parametrize("size, value_size", [(1e-8, 1e4), (1e-7, 1e3), (1e6, 1e-4)])
def test_float16_gradients_outside_its_range(size, value_size):
    """dz that float16 would round to 0 or to infinity; the values are such that dq and dk fit again."""
    q, k, v = inputs(2, 40, 40, 32, half)
    v = (v.detach() * value_size).to(half).requires_grad_()
    grad = torch.randn(2, 40, 32, device=DEVICE) * size
    heads = kernels.attention(q, k, v)
    dq, dk, _ = torch.autograd.grad(heads, (q, k, v), grad)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(weights_of(*exact[:2]) @ exact[2], exact, grad.double())
    for x, y in ((dq, expected[0]), (dk, expected[1])):
        assert 1e-3 < y.abs().max() < 6e4  # float16 holds it well
        assert_near(x, y, 5e-3)


@runs
@gpu
@pytest.mark.parametrize("causal, queries, keys", [(False, 70, 90), (True, 140, 140)])
def test_dropout_is_the_same_in_both_passes(causal, queries, keys):
    mask = dropout_mask(12345, 2, queries, keys, 0.3).to(DEVICE) / 0.7
    compare(inputs(2, queries, keys, 32, term=True), causal, dropout=0.3, seed=12345, mask=mask)


@runs
@gpu
def test_dropout_draws_from_the_cpu_generator():
    q, k, v = inputs(1, 30, 30, 32)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(kernels.attention(q, k, v, dropout=0.5))
    assert drawn[0].equal(drawn[1]) and not drawn[0].equal(drawn[2])
    assert kernels.attention(q, k, v, dropout=1.0).eq(0).all()


@runs
@gpu
def test_checkpointed_activations_drop_the_same_weights():
    from torch.utils.checkpoint import checkpoint

    q, k, v = inputs(1, 30, 30, 32)
    actual = []
    for once_more in (False, True):
        torch.manual_seed(3)
        attend = functools.partial(kernels.attention, dropout=0.5)
        heads = checkpoint(attend, q, k, v, use_reentrant=False) if once_more else attend(q, k, v)
        actual.append((heads, *torch.autograd.grad(heads.sum(), (q, k, v))))
    assert all(x.equal(y) for x, y in zip(*actual))


@runs
@gpu
@pytest.mark.parametrize(
    "dtype, out", [(torch.float32, None), (torch.float32, half), (half, half), (torch.float32, brief), (brief, brief)]
)
@pytest.mark.parametrize("width, gated", [(24, True), (512, True), (64, False)])
def test_gated_norm(width, gated, dtype, out):
    torch.manual_seed(width)
    z = (torch.randn(7, 11, width, device=DEVICE) * 3).to(dtype)
    if dtype == torch.float32:  # as attention gives it: a query that attends to nothing
        z[2] = 0
    gate, gain = torch.randn(2, width, device=DEVICE).unbind()
    leaves = [x.clone().requires_grad_() for x in ((z, gate, gain) if gated else (z, gain))]
    actual = kernels.gated_rms_norm(leaves[0], leaves[1] if gated else None, leaves[-1], 1e-8, out)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    norm = exact[0] / (exact[0].pow(2).mean(-1, keepdim=True) + 1e-8).sqrt() * exact[-1]
    expected = torch.sigmoid(exact[0] * exact[1]) * norm if gated else norm
    tolerance = TOLERANCE[out or dtype]
    assert actual.dtype == (out or dtype) and actual[z.eq(0)].eq(0).all()
    assert_near(actual, expected, tolerance)
    grad = torch.randn_like(actual)
    for x, y in zip(torch.autograd.grad(actual, leaves, grad), torch.autograd.grad(expected, exact, grad.double())):
        assert_near(x, y, tolerance)


@runs
@gpu
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_size_alone(dtype):
    """The norm without gate and gain: what gives queries and keys one size."""
    torch.manual_seed(0)
    x = (torch.randn(5, 3, 2, 32, device=DEVICE) * 4).to(dtype)
    x[0, 0] = 0
    x.requires_grad_()
    exact = x.detach().double().requires_grad_()
    found, expected = kernels.gated_rms_norm(x, None, None, 1e-6), exact / (exact.pow(2).mean(-1, True) + 1e-6).sqrt()
    assert found.dtype == dtype and found[0, 0].eq(0).all()
    assert_near(found, expected, TOLERANCE[dtype])
    grad = torch.randn(x.shape, device=DEVICE).to(dtype)
    grad[0, 0] = 0  # else this row's, of a size of 1,000, hides the others
    (dx,) = torch.autograd.grad(found, x, grad)
    assert_near(dx, torch.autograd.grad(expected, exact, grad.double())[0], TOLERANCE[dtype])


@runs
@gpu
def test_gated_norm_of_a_view():
    z = torch.randn(6, 5, 32, device=DEVICE).transpose(1, 2)  # columns apart: it is copied once
    gain = torch.ones(5, device=DEVICE)
    actual = kernels.gated_rms_norm(z, None, gain, 1e-8)
    torch.testing.assert_close(actual, z / (z.pow(2).mean(-1, keepdim=True) + 1e-8).sqrt())


@runs
@gpu
@pytest.mark.parametrize("term, dropout", [(False, 0.0), (True, 0.2)])
def test_torch_knows_the_operators(term, dropout):
    from fairseq_rela.attention.kernels import ops

    tensors = inputs(2, 9, 9, 32, term=term)
    seed = torch.tensor([7]) if dropout else None
    words = (*tensors, *[None] * (5 - len(tensors)), seed, True, 0.5, dropout, False)
    torch.library.opcheck(ops.attention, words)
    z, gate, gain = torch.randn(5, 24, device=DEVICE), *torch.randn(2, 24, device=DEVICE).unbind()
    leaves = [x.requires_grad_() for x in (z, gate.clone(), gain.clone())]
    torch.library.opcheck(ops.gated_rms_norm, (*leaves, 1e-8, torch.float32))


@runs
@gpu
def test_compiled_in_one_graph():
    q, k, v = inputs(2, 9, 9, 32)
    gain = torch.ones(32, device=DEVICE)

    def layer(q, k, v):
        return kernels.gated_rms_norm(kernels.attention(q, k, v, causal=True, dropout=0.2), gain, gain, 1e-8)

    def with_gradients(function):
        torch.manual_seed(1)
        out = function(q, k, v)
        return (out, *torch.autograd.grad(out.pow(2).sum(), (q, k, v)))

    graph = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x, y in zip(with_gradients(graph), with_gradients(layer)):
        torch.testing.assert_close(x, y)
