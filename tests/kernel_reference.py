"""What the tests of the attention kernels share: a reference written out in float64, and where the kernels run."""

import os
import re
import subprocess
import sys

import pytest
import torch
from kernel_interpreter import mend_bfloat16

from fairseq_rela.attention import kernels

pytest.importorskip("triton")
if not kernels.available():  # this skips the file of tests that imports it
    pytest.skip("this torch is too old for the kernels", allow_module_level=True)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED or not torch.cuda.is_available() else "cuda"
# relative to the norm of what is expected, in float64; rounding to 8, 11 or 24 bits, and sums of some hundred
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1.5e-2}

if INTERPRETED:
    mend_bfloat16()

gpu = pytest.mark.gpu
runs = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="runs where there is a GPU or the interpreter")
here_alone = pytest.mark.skipif(DEVICE == "cuda" or INTERPRETED, reason="the tests below run in this process")


def pass_by_the_interpreter(file, count):
    """Run the tests of a file in a process of its own, by Triton's interpreter: so many pass."""
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(rf"\b{count} passed", done.stdout), done.stdout[-300:]


def weights_of(q, k, a=None, b=None, causal=False, scale=1.0, mask=None, activation="relu"):
    """f(scale · (q kᵀ − a bᵀ)), 0 for the future and where the mask of the dropout is 0."""
    scores = q @ k.transpose(1, 2)
    if a is not None:
        scores = scores - a.unsqueeze(2) * b.unsqueeze(1)
    scores = scale * scores
    if activation == "rectified_exp":
        inside = (scores > 0) & (scores < 10)  # the others are constants: without a gradient
        weights = torch.where(inside, scores, (scores.detach() > 0) * 10.0).expm1()
    else:
        weights = torch.relu(scores)
    if causal:
        weights = weights.tril()
    return weights if mask is None else weights * mask


def inputs(heads, queries, keys, width, dtype=torch.float32, term=False):
    torch.manual_seed(queries + keys)
    tensors = [torch.randn(heads, n, width) for n in (queries, keys, keys)]
    tensors = [x.to(DEVICE, dtype) for x in tensors]
    if term:
        tensors += [torch.randn(heads, n, device=DEVICE) for n in (queries, keys)]
    return [x.requires_grad_() for x in tensors]


def assert_near(actual, expected, tolerance):
    error = (actual.double() - expected).norm() / expected.norm().clamp(min=1e-30)
    assert torch.isfinite(actual).all() and error < tolerance, float(error)


def compare(
    tensors, causal=False, scale=0.2, dropout=0.0, seed=None, mask=None, grad=None, tolerance=None, activation="relu"
):
    """Values and all gradients, against the reference in float64 of the same numbers."""
    heads = kernels.attention(*tensors, *[None] * (5 - len(tensors)), causal, scale, dropout, activation, seed)
    grad = torch.randn_like(heads) if grad is None else grad
    actual = torch.autograd.grad(heads, tensors, grad)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    q, k, v, *terms = exact
    expected = weights_of(q, k, *terms, causal=causal, scale=scale, mask=mask, activation=activation) @ v
    tolerance = tolerance or TOLERANCE[tensors[0].dtype]
    assert heads.dtype == torch.float32
    assert_near(heads, expected, tolerance)
    for x, y, z in zip(actual, torch.autograd.grad(expected, exact, grad.double()), tensors):
        assert x.dtype == z.dtype and x.shape == z.shape
        assert_near(x, y, tolerance)
    return heads
