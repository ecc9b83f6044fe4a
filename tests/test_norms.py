"""Every norm of the table: its equation, 0 → 0, its gradient, half precision, its number of parameters."""

import math

import pytest
import torch

from fairseq_rela.attention import norms
from fairseq_rela.attention.norms import NORMS

D, HEAD = 12, 4


def rms(z, gain):
    return z / torch.sqrt((z**2).mean(-1, keepdim=True) + 1e-8) * gain


def by_head(z, gain):
    parts = [part / torch.sqrt((part**2).mean(-1, keepdim=True) + 1.0) for part in z.split(HEAD, dim=-1)]
    return torch.cat(parts, dim=-1) * gain


def layer(z, gain):
    centred = z - z.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * gain


EQUATIONS = {
    "none": lambda z, p: z,
    "rmsnorm": lambda z, p: rms(z, p["gain"]),
    "rmsnorm_init": lambda z, p: rms(z, p["gain"]),
    "head_rmsnorm_init": lambda z, p: by_head(z, p["gain"]),
    "gated_rmsnorm": lambda z, p: torch.sigmoid(p["gate"] * z) * rms(z, p["norm.gain"]),
    "gated_layernorm": lambda z, p: torch.sigmoid(p["gate"] * z) * layer(z, p["norm.gain"]),
}


def scrambled(name, dtype=torch.float64):
    """The norm with every parameter away from its initial value."""
    torch.manual_seed(0)
    norm = NORMS[name](D, HEAD).to(dtype)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    return norm


@pytest.mark.parametrize("name", EQUATIONS)
def test_equation(name):
    norm, z = scrambled(name), torch.randn(5, D, dtype=torch.float64)
    assert torch.allclose(norm(z), EQUATIONS[name](z, dict(norm.named_parameters())), rtol=0, atol=1e-12)


def test_rmsnorm_literal():
    norm = NORMS["rmsnorm"](2, 2).double()
    assert norm(torch.tensor([3.0, 4.0], dtype=torch.float64)).tolist() == pytest.approx(
        [3 / math.sqrt(12.5), 4 / math.sqrt(12.5)]
    )


def test_the_unfused_formula_is_the_same():
    """What runs before torch 2.4."""
    z, gain = torch.randn(5, D, dtype=torch.float64), torch.randn(D, dtype=torch.float64)
    assert torch.allclose(norms.rms_norm(z, gain, 1e-8), rms(z, gain), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_zero_stays_exactly_zero_and_its_gradient_is_finite(name):
    norm, z = scrambled(name), torch.zeros(3, D, dtype=torch.float64, requires_grad=True)
    out = norm(z)
    assert out.tolist() == [[0.0] * D] * 3
    out.sum().backward()
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("name", NORMS)
def test_gradient(name):
    norm = scrambled(name)
    z = torch.randn(3, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, z)


@pytest.mark.parametrize("name", [name for name in NORMS if name != "none"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    norm = scrambled(name, torch.float32)
    z = torch.full((1, D), 3e4).to(dtype)  # its square overflows float16
    z[0, 0] = -2e4
    narrow = scrambled(name, dtype)(z)
    assert narrow.dtype == torch.float32
    norm.load_state_dict({k: v.float() for k, v in scrambled(name, dtype).state_dict().items()})
    assert torch.equal(narrow, norm(z.float()))


@pytest.mark.parametrize(
    "name, vectors",
    [
        ("none", 0),
        ("rmsnorm", 1),
        ("rmsnorm_init", 1),
        ("head_rmsnorm_init", 1),
        ("gated_rmsnorm", 2),
        ("gated_layernorm", 2),
    ],
)
def test_number_of_parameters(name, vectors):
    assert sum(p.numel() for p in NORMS[name](D, HEAD).parameters()) == vectors * D


def test_initial_values():
    d, d_h = 100_000, 250
    assert NORMS["rmsnorm"](d, d_h).gain.unique().tolist() == [1.0]
    assert NORMS["gated_rmsnorm"](d, d_h).norm.gain.unique().tolist() == [1.0]
    # the paper's bound for the gain of ReLA-i (its footnote 4), the authors' code's for the gate
    gain, gate = NORMS["rmsnorm_init"](d, d_h).gain, NORMS["gated_rmsnorm"](d, d_h).gate
    for drawn, bound in ((gain, math.sqrt(3 / d_h)), (gate, math.sqrt(3 / d))):
        assert -bound <= drawn.min() < -0.99 * bound and 0.99 * bound < drawn.max() <= bound
        assert drawn.var().item() == pytest.approx(bound**2 / 3, rel=0.02)
