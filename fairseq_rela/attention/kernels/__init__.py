"""ReLU and rectified exponential attention, and their norms, as GPU kernels, written in Triton.

`usable` and `norm_usable` tell whether they take some tensors; where they do not, the caller computes with torch
(`attention.streaming`, `attention.norms`). FAIRSEQ_RELA_KERNELS=0 turns them off. Importing this package needs
neither Triton nor a new torch: the modules beside this one are imported when the first kernel is used.
"""

import functools
import os
from typing import Optional

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SHARP = {"relu": False, "rectified_exp": True}  # activation → whether it has an exponential
WIDTHS = (32, 64, 128)  # of a head
WIDEST_NORM = 4096
SWITCH = "FAIRSEQ_RELA_KERNELS"


@functools.lru_cache(maxsize=None)
def available() -> bool:
    """Whether Triton and a torch that it works with are installed."""
    if not hasattr(torch, "library") or not hasattr(torch.library, "custom_op"):
        return False
    try:
        from fairseq_rela.attention.kernels import ops  # noqa: F401
    except ImportError:
        return False
    return True


@functools.lru_cache(maxsize=None)
def runs_on(device: torch.device) -> bool:
    """Whether kernels run there: NVIDIA from compute capability 8.0 on, AMD, or a CPU under TRITON_INTERPRET=1."""
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def enabled(x: Tensor) -> bool:
    """Whether there are kernels for the device and dtype of x, and they are not turned off."""
    wanted = os.environ.get(SWITCH, "1") != "0"
    return wanted and x.dtype in DTYPES and runs_on(x.device) and available()


def usable(q: Tensor, k: Tensor, v: Tensor, activation: str) -> bool:
    """Whether `attention` can compute this. No value of a tensor is read, so nothing waits for the GPU.

    Args:
        q: (N, T, d_h); k, v: (N, S, d_h)
        activation: its name in `activations.ACTIVATIONS`; there are kernels for those in `SHARP`
    """
    same = q.dtype == k.dtype == v.dtype and q.device == k.device == v.device
    widths = q.size(2) == k.size(2) == v.size(2) and q.size(2) in WIDTHS
    some = q.numel() > 0 and k.numel() > 0
    return activation in SHARP and same and widths and some and enabled(q)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row_term: Optional[Tensor] = None,
    column_term: Optional[Tensor] = None,
    causal: bool = False,
    scale: float = 1.0,
    dropout: float = 0.0,
    activation: str = "relu",
    seed: Optional[int] = None,
) -> Tensor:
    """f(scale · (q kᵀ − a bᵀ)) v of every head, with gradients of all five.

    A key that is padding is the zero vector, and its b is 0: its weight is then exactly 0.

    Args:
        q: (N, T, d_h); k, v: (N, S, d_h); any strides
        row_term, column_term: a (N, T) and b (N, S), both or neither; float32 keeps them exact
        causal: query t sees keys 0 … t only; T = S
        scale: above 0
        dropout: the probability of dropping a weight
        activation: f, by its name: a key of `SHARP`
        seed: of the dropout; drawn from torch's CPU generator if it is None

    Returns: heads (N, T, d_h) in float32, laid out in memory like q
    """
    from fairseq_rela.attention.kernels import ops

    assert (row_term is None) == (column_term is None), "row_term and column_term: give both or neither"
    assert not causal or q.size(1) == k.size(1), f"causal: {q.size(1)} queries but {k.size(1)} keys"
    drawn = None
    if dropout > 0:  # drawn on the CPU, which does not wait for the GPU; recomputed activations get the same seed again
        drawn = torch.randint(2**31, (1,), device="cpu") if seed is None else torch.tensor([seed], device="cpu")
    return ops.attention(q, k, v, row_term, column_term, drawn, causal, scale, dropout, SHARP[activation])


def norm_usable(z: Tensor, gain: Optional[Tensor] = None) -> bool:
    """Whether `gated_rms_norm` can compute this."""
    together = gain is None or z.device == gain.device
    return z.numel() > 0 and z.size(-1) <= WIDEST_NORM and together and enabled(z)


def gated_rms_norm(
    z: Tensor, gate: Optional[Tensor], gain: Optional[Tensor], eps: float, dtype: Optional[torch.dtype] = None
) -> Tensor:
    """σ(gate ⊙ z) ⊙ z / √(mean(z²) + eps) ⊙ gain over the last dimension, in float32 inside.

    Args:
        z: (…, d); gate, gain: (d,); without a gate, plain RMSNorm; without a gain, nothing is multiplied
        dtype: of the result; that of z if None. What follows is a product in half precision: asking for that here
            saves one pass over memory

    Returns: (…, d)
    """
    from fairseq_rela.attention.kernels import ops

    rows = z.reshape(-1, z.size(-1))
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    gate, gain = (None if x is None else x.contiguous() for x in (gate, gain))
    return ops.gated_rms_norm(rows, gate, gain, eps, dtype or z.dtype)[0].view(z.shape)
