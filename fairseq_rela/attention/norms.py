"""The norm over the concatenated heads, which stabilises unbounded weights (paper, Section 4, Equations 4 and 5).

A norm maps heads (…, d) to (…, d). It computes in float32 if the model is in half precision, because the weights, and
so the heads, are not bounded. A norm has no bias: it maps 0 to 0, so a query that attends to nothing gives nothing. A
norm is one line in the table `NORMS`.

`scale` says by what a norm multiplies given heads: norm(z) = scale(z) ⊙ z, or scale(z) ⊙ (z − mean(z)) if it `centres`.
With the scale of a query fixed, its output is a sum over keys (see `recording.contributions`).
"""

import math
from typing import Callable, Dict, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairseq_rela.attention import kernels
from fairseq_rela.attention.activations import at_least_float32
from fairseq_rela.attention.centring import unit_size
from fairseq_rela.attention.row_parts import ELEMENTS, row_parts

if hasattr(torch, "rms_norm"):  # fused since torch 2.4

    def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x / √(mean(x²) + eps) ⊙ gain over the last dimension."""
        return torch.rms_norm(x, [x.size(-1)], gain, eps)

else:

    def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x / √(mean(x²) + eps) ⊙ gain over the last dimension."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def uniform_(vector: Tensor, fan: int) -> Tensor:
    """Fill a vector from U(−√(3/fan), √(3/fan)), whose variance is 1/fan: Xavier's initialisation."""
    bound = math.sqrt(3.0 / fan)
    return nn.init.uniform_(vector, -bound, bound)


class RMSNorm(nn.Module):
    """RMSNorm(z) = z / √(mean(z²) + 1e-8) ⊙ g (paper, Equation 4)."""

    __constants__ = ("EPS",)
    EPS = 1e-8

    centres = False

    def __init__(self, width: int, gain_init: Callable[[Tensor], Tensor] = nn.init.ones_):
        super().__init__()
        self.gain = nn.Parameter(gain_init(torch.empty(width)))

    def scale(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        return torch.rsqrt(z.square().mean(-1, keepdim=True) + self.EPS) * self.gain.to(z.dtype)

    def forward(self, heads: Tensor) -> Tensor:
        # two conditions, because TorchScript would compile the second if both stood in one
        if not torch.jit.is_scripting():  # noqa: SIM102
            if kernels.norm_usable(heads, self.gain):
                return kernels.gated_rms_norm(heads, None, self.gain, self.EPS, self.gain.dtype)
        z = at_least_float32(heads)
        return rms_norm(z, self.gain.to(z.dtype), self.EPS)


class HeadRMSNorm(nn.Module):
    """z_h / √(mean(z_h²) + 1) ⊙ g for each head h by itself (ours; the paper's RMSNorm spans all heads).

    Under a norm that spans all heads, a head with few large weights is drowned by a head with many: it has little of
    the sum of squares. Here each head has its own. The epsilon is 1 instead of 1e-8, so a head whose weights are nearly
    0 gives nearly nothing. A small epsilon would blow it up to full size.
    """

    __constants__ = ("EPS", "head_width")
    EPS = 1.0
    centres = False

    def __init__(self, width: int, head_width: int, gain_init: Callable[[Tensor], Tensor] = nn.init.ones_):
        super().__init__()
        self.gain = nn.Parameter(gain_init(torch.empty(width)))
        self.head_width = head_width

    def scale(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        by_head = z.reshape(-1, self.head_width)
        r = torch.rsqrt(by_head.square().mean(-1, keepdim=True) + self.EPS)
        return r.expand_as(by_head).reshape(z.shape) * self.gain.to(z.dtype)

    def forward(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        by_head = unit_size(z.reshape(-1, self.head_width), self.EPS)
        return by_head.view_as(z) * self.gain.to(z.dtype)


class LayerNorm(nn.Module):
    """LayerNorm(z) = (z − mean(z)) / √(var(z) + 1e-5) ⊙ g. It has no bias, so that 0 stays 0."""

    __constants__ = ("EPS",)
    EPS = 1e-5
    centres = True

    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def scale(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        return torch.rsqrt(z.var(-1, unbiased=False, keepdim=True) + self.EPS) * self.gain.to(z.dtype)

    def forward(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        return F.layer_norm(z, [z.size(-1)], self.gain.to(z.dtype), None, self.EPS)


class GatedRMSNorm(torch.autograd.Function):
    """σ(w ⊙ z) ⊙ RMSNorm(z) with its gradient written out, computed some rows at a time.

    It is written out for speed: autograd would read all of z once for every operation, and keep each result.

        n = z r      r = 1 / √(mean(z²) + eps)      σ = σ(w ⊙ z)      t = dy ⊙ σ ⊙ n ⊙ g
        dw = Σ t (1 − σ) z      dg = Σ dy σ n      dz = r (dy σ g − n mean(t)) + t (1 − σ) w
    """

    MANY = 24 * ELEMENTS  # from so many elements on, parts are faster without gradients too

    @staticmethod
    def computed(z: Tensor, gate: Tensor, gain: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
        """The result (…, d) and r (…, 1), of contiguous z."""
        out, scale = torch.empty_like(z), z.new_empty(z.shape[:-1] + (1,))
        for z_n, out_n, r in row_parts(z, out, scale):
            torch.mean(torch.mul(z_n, z_n, out=out_n), dim=-1, keepdim=True, out=r)
            r.add_(eps).rsqrt_()
            torch.mul(z_n, gate, out=out_n).sigmoid_().mul_(z_n).mul_(r).mul_(gain)
        return out, scale

    @staticmethod
    def forward(ctx, z: Tensor, gate: Tensor, gain: Tensor, eps: float) -> Tensor:
        z = z.contiguous()
        out, scale = GatedRMSNorm.computed(z, gate, gain, eps)
        ctx.save_for_backward(z, gate, gain, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        z, gate, gain, scale = ctx.saved_tensors
        dz, dgate, dgain = torch.empty_like(z), torch.zeros_like(gate), torch.zeros_like(gain)
        scratch = None
        for z_n, grad_n, r, dz_n in row_parts(z, grad, scale, dz):
            if scratch is None:  # the first part is the largest
                scratch = [torch.empty_like(z_n) for _ in range(3)]
            sigma, n, t = (x[: len(z_n)] for x in scratch)
            torch.mul(z_n, gate, out=sigma).sigmoid_()
            torch.mul(z_n, r, out=n)
            torch.mul(grad_n, sigma, out=dz_n)  # dy σ
            torch.mul(dz_n, n, out=t)
            dgain += t.sum(0)
            t.mul_(gain)
            dz_n.mul_(gain).addcmul_(n, t.mean(-1, keepdim=True), value=-1).mul_(r)
            t.addcmul_(t, sigma, value=-1)
            dz_n.addcmul_(t, gate)
            dgate += t.mul_(z_n).sum(0)
        return dz, dgate, dgain, None


def gated_rms_norm(z: Tensor, gate: Tensor, gain: Tensor, eps: float) -> Tensor:
    """σ(w ⊙ z) ⊙ RMSNorm(z), computed in the fastest way for its device and mode."""
    if kernels.norm_usable(z, gain):  # which computes in float32, and writes what the model is in
        return kernels.gated_rms_norm(z, gate, gain, eps, gain.dtype)
    z = at_least_float32(z)
    gate, gain = gate.to(z.dtype), gain.to(z.dtype)
    if torch.is_grad_enabled():
        return GatedRMSNorm.apply(z, gate, gain, eps)
    if z.device.type != "cpu":
        return torch.sigmoid(gate * z) * rms_norm(z, gain, eps)
    if z.numel() >= GatedRMSNorm.MANY:
        return GatedRMSNorm.computed(z.contiguous(), gate, gain, eps)[0]
    scale = (z * z).mean(-1, keepdim=True).add_(eps).rsqrt_()  # here torch's rms_norm is not fused
    return torch.mul(z, gate).sigmoid_().mul_(z).mul_(scale).mul_(gain)


class Gated(nn.Module):
    """σ(w ⊙ z) ⊙ norm(z) (paper, Equation 5): the gate sees the scale that the norm removes.

    The paper does not say how w is initialised. As in the authors' code, it is drawn from U(−√(3/d), √(3/d)).
    """

    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.gate = nn.Parameter(uniform_(torch.empty(width), fan=width))
        self.norm = norm
        self.centres: bool = norm.centres  # type: ignore[assignment]

    def scale(self, heads: Tensor) -> Tensor:
        z = at_least_float32(heads)
        return torch.sigmoid(self.gate.to(z.dtype) * z) * self.norm.scale(z)  # type: ignore[operator]

    def forward(self, heads: Tensor) -> Tensor:
        if not torch.jit.is_scripting():  # TorchScript cannot call a Python autograd function
            norm = self.norm
            if isinstance(norm, RMSNorm):
                return gated_rms_norm(heads, self.gate, norm.gain, norm.EPS)
        z = at_least_float32(heads)
        return torch.sigmoid(self.gate.to(z.dtype) * z) * self.norm(z)


def keep_columns(norm: nn.Module, columns: Tensor) -> None:
    """Prune a norm with its heads: keep these columns of its gain and its gate.

    RMSNorm divides by the root mean square over all columns, so its gain is multiplied by √(d / number of columns
    kept). The kept columns then come out as they did before with the other columns set to 0. LayerNorm has no such
    factor, because its mean changes too. It normalises over the columns that are left.
    """
    for part in norm.modules():
        for name, vector in list(part.named_parameters(recurse=False)):
            kept = vector.detach()[columns.to(vector.device)]
            if isinstance(part, RMSNorm):
                kept = kept * math.sqrt(len(vector) / len(columns))
            setattr(part, name, nn.Parameter(kept, requires_grad=vector.requires_grad))


# name → function from (d, d_h) to the norm. The paper draws the gain of ReLA-i from U(−√(3/d_h), √(3/d_h)) (its
# footnote 4). Here the gain has the width d of the concatenated heads.
NORMS: Dict[str, Callable[[int, int], nn.Module]] = {
    "none": lambda width, head: nn.Identity(),
    "rmsnorm": lambda width, head: RMSNorm(width),
    "rmsnorm_init": lambda width, head: RMSNorm(width, gain_init=lambda gain: uniform_(gain, fan=head)),
    "head_rmsnorm_init": lambda width, head: HeadRMSNorm(width, head, gain_init=lambda gain: uniform_(gain, fan=head)),
    "gated_rmsnorm": lambda width, head: Gated(width, RMSNorm(width)),
    "gated_layernorm": lambda width, head: Gated(width, LayerNorm(width)),
}
