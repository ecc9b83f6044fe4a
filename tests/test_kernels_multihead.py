"""Attention modules compute by the kernels what they compute by tiles. Triton's interpreter stands in for a GPU."""

import os
import subprocess
import sys

import pytest
import torch

from fairseq_rela.attention import kernels

pytest.importorskip("triton")
if not kernels.available():
    pytest.skip("this torch is too old for the kernels", allow_module_level=True)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
runs = pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own, by the interpreter")


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="the tests below run in this process")
def test_all_below_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout[-3000:]


def outputs(name, kind, threshold):
    """The output of an attention of two heads of width 32, and every gradient."""
    from fairseq_rela.attention.multihead import RelaMultiheadAttention

    torch.manual_seed(0)
    options = {"self_attention": True, "causal": True} if kind == "causal" else {"encoder_decoder_attention": True}
    module = RelaMultiheadAttention(name, 64, 2, threshold=threshold, **options)
    x, y = torch.randn(5, 2, 64, requires_grad=True), torch.randn(7, 2, 64, requires_grad=True)
    if kind == "causal":
        y = x
    padding = torch.zeros(2, len(y), dtype=torch.bool)
    padding[1, -2:] = True
    mask = torch.zeros(1, 1).expand(5, 5) if kind == "causal" else None
    out, _ = module(x, y, y, key_padding_mask=padding, attn_mask=mask, need_weights=False)
    out[:3].square().sum().backward()
    return [out, x.grad, y.grad, *(parameter.grad for parameter in module.parameters())]


@runs
@pytest.mark.parametrize("kind", ["cross", "causal"])
@pytest.mark.parametrize("name, learn", [("rela_g", False), ("rela_g", True), ("rela_gc", False)])
def test_the_same_by_kernels_and_by_tiles(name, learn, kind, monkeypatch):
    from fairseq_rela.attention.threshold import ThresholdSetting

    threshold = ThresholdSetting("learn") if learn else None
    calls = []
    attention = kernels.attention
    monkeypatch.setattr(kernels, "attention", lambda *args: calls.append(args) or attention(*args))
    by_kernels = outputs(name, kind, threshold)
    assert len(calls) == 1
    monkeypatch.setenv(kernels.SWITCH, "0")
    by_tiles = outputs(name, kind, threshold)
    assert len(calls) == 1
    for kernel, tile in zip(by_kernels, by_tiles):
        assert torch.allclose(kernel, tile, rtol=1e-4, atol=1e-5 * tile.abs().max().item() + 1e-7)
