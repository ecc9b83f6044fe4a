"""The GPU kernels of the rectified exponential max(0, e^s − 1) against a reference: values and gradients.

They are run like those of ReLU (`test_kernels`), which show what both have in common.
"""

import functools
import math

import pytest
import torch
from kernel_dropout import dropout_mask
from kernel_reference import (
    DEVICE,
    TOLERANCE,
    assert_near,
    gpu,
    here_alone,
    inputs,
    pass_by_the_interpreter,
    runs,
    weights_of,
)
from kernel_reference import compare as compare_any

from fairseq_rela.attention import kernels

half = torch.float16
attention = functools.partial(kernels.attention, activation="rectified_exp")
compare = functools.partial(compare_any, activation="rectified_exp")
exactly = functools.partial(weights_of, activation="rectified_exp")


@pytest.mark.slow
@here_alone
def test_all_below_by_the_interpreter():
    pass_by_the_interpreter(__file__, 32)


@runs
@gpu
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    "queries, keys, width, causal, term",
    [
        (1, 1, 32, False, False),
        (1, 70, 64, False, True),
        (65, 63, 64, False, True),
        (70, 70, 32, True, False),
        (100, 100, 128, True, True),
    ],
)
def test_values_and_gradients(queries, keys, width, causal, term, dtype):
    compare(inputs(2, queries, keys, width, dtype, term), causal, width**-0.5)


@runs
@gpu
def test_any_strides():
    q, k = (torch.randn(40, 4, 2, 32, device=DEVICE)[:, :, 1].transpose(0, 1).requires_grad_() for _ in range(2))
    v = torch.randn(4, 32, 40, device=DEVICE).transpose(1, 2).requires_grad_()  # columns apart
    a = torch.randn(4, 80, device=DEVICE)[:, ::2].requires_grad_()
    b = torch.ones(1, device=DEVICE).expand(4, 40).requires_grad_()
    heads = compare([q, k, v, a, b], causal=True)
    assert heads.transpose(0, 1).is_contiguous()
    compare([x.detach().to(half).requires_grad_() for x in (q, k, v)])


@runs
@gpu
@pytest.mark.parametrize("dtype", [torch.float32, half])
def test_scores_of_zero_and_below_have_no_weight_and_no_gradient(dtype):
    q, k, v = inputs(1, 20, 30, 32, dtype)
    q, k = q.detach().abs(), -k.detach().abs()
    k[:, ::2] = 0  # scores of exactly 0
    q, k = q.requires_grad_(), k.requires_grad_()
    heads = attention(q, k, v)
    gradients = torch.autograd.grad(heads, (q, k, v), torch.full_like(heads, 1e6))  # past the range of float16
    assert all(x.eq(0).all() for x in (heads, *gradients))


@runs
@gpu
def test_padding_is_a_zero_key_and_a_zero_term():
    q, k, v, a, _ = inputs(1, 20, 40, 32, half, term=True)
    a = (-a.detach().abs()).requires_grad_()  # a threshold below 0 raises every score
    padded = torch.arange(40, device=DEVICE) >= 33
    k0 = k.detach().masked_fill(padded.view(1, -1, 1), 0.0).requires_grad_()
    b0 = torch.ones(1, 40, device=DEVICE).masked_fill(padded, 0.0).requires_grad_()
    heads = attention(q, k0, v, a, b0, scale=0.2)
    short = attention(q, k0[:, :33], v[:, :33], a, b0[:, :33], scale=0.2)
    torch.testing.assert_close(heads, short, rtol=1e-6, atol=1e-6)
    for x in torch.autograd.grad(heads, (k0, v, b0), torch.randn_like(heads)):
        assert x[:, 33:].eq(0).all() and not x[:, :33].eq(0).all()


@runs
@gpu
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_scores_above_ten_count_as_ten(dtype):
    q, k, v = (torch.ones(1, n, 32, device=DEVICE, dtype=dtype).requires_grad_() for n in (3, 2, 2))
    heads = attention(q, k, v, scale=0.5)  # scores of 16
    torch.testing.assert_close(heads, torch.full_like(heads, 2 * math.expm1(10)), rtol=TOLERANCE[dtype], atol=0)
    dq, dk, dv = torch.autograd.grad(heads, (q, k, v), torch.full_like(heads, 1e-3))
    assert dq.eq(0).all() and dk.eq(0).all()
    expected = torch.full(v.shape, 3e-3 * math.expm1(10), device=DEVICE)
    torch.testing.assert_close(dv.float(), expected, rtol=TOLERANCE[dtype], atol=0)


@runs
@gpu
@pytest.mark.parametrize("size", [1e-5, 0.05])
def test_small_scores_keep_their_digits_in_float32(size):
    q, k, v = inputs(1, 20, 30, 32)
    compare([(q.detach() * size).requires_grad_(), k, v])


@runs
@gpu
def test_a_diverged_model_shows_it():
    q, k, v = inputs(1, 4, 4, 32)
    q.data[0, 1, 0] = float("nan")
    heads = attention(q, k, v, scale=0.2)
    assert heads[0, 1].isnan().all() and heads[0, 0].isfinite().all()
    dq, dk, _ = torch.autograd.grad(heads, (q, k, v), torch.ones_like(heads))
    assert dq[0, 1].isnan().all() and dq[0, 0].isfinite().all() and dk.isnan().all()


@runs
@gpu
@pytest.mark.parametrize("size, value_size", [(1e-8, 1e4), (1e6, 1e-4)])
def test_float16_gradients_outside_its_range(size, value_size):
    """dz that float16 would round to 0 or to infinity; the values are such that dq and dk fit again."""
    q, k, v = inputs(2, 40, 40, 32, half)
    v = (v.detach() * value_size).to(half).requires_grad_()
    grad = torch.randn(2, 40, 32, device=DEVICE) * size
    dq, dk, _ = torch.autograd.grad(attention(q, k, v, scale=0.2), (q, k, v), grad)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(exactly(*exact[:2], scale=0.2) @ exact[2], exact, grad.double())
    for x, y in ((dq, expected[0]), (dk, expected[1])):
        assert 1e-4 < y.abs().max() < 6e4  # float16 holds it well
        assert_near(x, y, 5e-3)


@runs
@gpu
def test_float16_rows_of_every_size_beside_each_other():
    """Each key has a weight for one query alone: the gradient of a tiny row is not lost beside that of a huge one."""
    q = (3 * torch.eye(32, device=DEVICE, dtype=half)).unsqueeze(0).requires_grad_()
    k, v = (x.detach().to(half).requires_grad_() for x in (q, torch.randn(1, 32, 32, device=DEVICE)))
    sizes = torch.logspace(-6, 2, 32, device=DEVICE).view(1, -1, 1)
    grad = torch.randn(1, 32, 32, device=DEVICE) * sizes
    actual = torch.autograd.grad(attention(q, k, v, scale=0.5), (q, k, v), grad)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(exactly(*exact[:2], scale=0.5) @ exact[2], exact, grad.double())
    for x, y in zip(actual, expected):
        for row, exact_row in zip(x[0], y[0]):
            assert_near(row, exact_row, 5e-3)


@runs
@gpu
def test_float16_with_the_largest_weights():
    """What the norm of a head leaves of its gradient is the smaller the larger the head: dz is about 1 / weight."""
    q = torch.full((1, 16, 32), 0.55, device=DEVICE, dtype=half).requires_grad_()
    k = torch.full((1, 64, 32), 0.55, device=DEVICE, dtype=half)  # scores of 9.7, weights of 16,000
    k[:, ::2] = -1.0
    v = torch.randn(1, 64, 32, device=DEVICE).to(half).requires_grad_()
    compare([q, k.requires_grad_(), v], scale=1.0, grad=torch.randn(1, 16, 32, device=DEVICE) * 5e-3, tolerance=3e-3)


@runs
@gpu
@pytest.mark.parametrize("dtype, causal", [(torch.float32, False), (half, True)])
def test_dropout_is_the_same_in_both_passes(dtype, causal):
    mask = dropout_mask(12345, 2, 70, 70, 0.3).to(DEVICE) / 0.7
    compare(inputs(2, 70, 70, 32, dtype, term=True), causal, dropout=0.3, seed=12345, mask=mask)


@runs
@gpu
def test_torch_knows_the_operator():
    from fairseq_rela.attention.kernels import ops

    words = (*inputs(2, 9, 9, 32, half, term=True), torch.tensor([7]), True, 0.5, 0.2, True)
    torch.library.opcheck(ops.attention, words)
