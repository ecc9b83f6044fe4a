"""Attention alone: ReLU against torch's scaled_dot_product_attention, entmax 1.5 and sparsemax.

Each input has about --rows queries (batch × heads × T) of --width, with T each of --lengths. `limit` is the two matrix
products by the same tiles, with nothing between them; a GPU kernel has no limit. The rows `op/norm/…` compare the gated
norm over the heads with the same in plain torch. Then the floating-point operations of each attention are counted (the
purpose of the paper's Table 4). --sdpa chooses torch's implementations of softmax; `auto` lets torch choose.
"""

import argparse
import itertools
from functools import partial
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_rela.attention import kernels
from fairseq_rela.attention.activations import ACTIVATIONS, InPlace
from fairseq_rela.attention.norms import gated_rms_norm
from fairseq_rela.attention.streaming import streaming_attention
from fairseq_rela.bench.hardware import DTYPES
from fairseq_rela.bench.timing import Result, compare
from fairseq_rela.errors import InputError

HEADS = 8
ENTMAX = ("entmax15", "sparsemax")
# torch's implementations of softmax attention: their names here, and in torch
BACKENDS = {"auto": "", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
IDENTITY = InPlace(lambda scores: scores, lambda gradient, weights: gradient)

# The operations of one head, without its two products of 2·T·S·d each. A comparison, exponential or root counts as 1.
# This is our own count from the equations, for t rows of s scores.
OPERATIONS: Dict[str, Callable[[int, int, int], float]] = {
    "softmax": lambda t, s, d: 5 * t * s,  # maximum, difference, exponential, sum, division
    "rela": lambda t, s, d: t * s + 4 * t * d,  # maximum with 0; RMSNorm on the width: square, sum, product, gain
    "rela_g": lambda t, s, d: t * s + 7 * t * d,  # as rela, and the gate: product, sigmoid, product
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512, 2048], metavar="T")
    parser.add_argument("--rows", type=int, default=16384, help="batch × heads × T (default: 16384)")
    parser.add_argument("--width", type=int, default=64, help="of a head (default: 64)")
    parser.add_argument(
        "--entmax-lengths",
        type=int,
        nargs="*",
        default=[512],
        metavar="T",
        help="compare with entmax too at these lengths (default: 512)",
    )
    parser.add_argument(
        "--sdpa", nargs="+", choices=list(BACKENDS), help="(default: auto; on a GPU auto, flash and efficient)"
    )


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool, backend: str = "auto") -> Tensor:
    if not hasattr(F, "scaled_dot_product_attention"):
        raise InputError("bench op needs torch 2: this torch has no scaled_dot_product_attention to compare with")
    if backend == "auto":
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def by_head(q: Tensor, k: Tensor, v: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Each of them from (B, H, T, d_h) to (B × H, T, d_h)."""
    return q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)


def streamed(q: Tensor, k: Tensor, v: Tensor, causal: bool, in_place: Optional[InPlace]) -> Tensor:
    """ReLU attention by tiles. q, k, v: (B, H, T, d_h)."""
    return streaming_attention(*by_head(q, k, v), torch.relu, in_place, causal, q.size(-1) ** -0.5).view_as(q)


def has_kernel(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return kernels.usable(*by_head(q, k, v), "relu")


def rectified(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """ReLU attention as a model computes it: by the kernel if there is one, else by tiles. q, k, v: (B, H, T, d_h)."""
    if not has_kernel(q, k, v):
        return streamed(q, k, v, causal, ACTIVATIONS["relu"].in_place)
    return kernels.attention(*by_head(q, k, v), causal=causal, scale=q.size(-1) ** -0.5).view_as(q)


def plain_attention(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with the activation of this name, in plain torch."""
    return ACTIVATIONS[name].build()(q @ k.transpose(-1, -2) * q.size(-1) ** -0.5) @ v


def runnable(attention: Callable[[], Tensor]) -> bool:
    """Whether this implementation runs with its inputs on their device."""
    try:
        attention()
    except RuntimeError:
        return False
    return True


def contenders(
    inputs: Tuple[Tensor, Tensor, Tensor], causal: bool, entmax: Sequence[str], backends: Sequence[str]
) -> Dict[str, Callable[[], Tensor]]:
    """The attentions that are compared: name → function without arguments."""
    runs: Dict[str, Callable[[], Tensor]] = {"ours": partial(rectified, *inputs, causal)}
    softmax = {name: partial(sdpa, *inputs, causal, name) for name in backends}
    runs.update((name, run) for name, run in softmax.items() if name == "auto" or runnable(run))
    if not has_kernel(*inputs):
        runs["limit"] = partial(streamed, *inputs, causal, IDENTITY)
    runs.update((name, partial(plain_attention, name, *inputs)) for name in entmax)
    return runs


def one_pass(
    function: Callable[[], Tensor], inputs: Sequence[Tensor], grads: Optional[Dict[torch.dtype, Tensor]]
) -> None:
    """Run `function`. With `grads`, the gradient of the output for each dtype that it may have, also run backward."""
    with torch.set_grad_enabled(grads is not None):
        out = function()
    if grads is not None:
        torch.autograd.grad(out, inputs, grads[out.dtype])


def forward_and_backward(
    case: str,
    functions: Dict[str, Callable[[], Tensor]],
    inputs: Sequence[Tensor],
    first: str,
    args: argparse.Namespace,
) -> Iterator[List[Result]]:
    """Results of the forward pass, then of forward and backward together.

    A case ends with the name of its baseline, except for the baseline `first`.
    """
    wide = torch.randn(inputs[0].shape, device=inputs[0].device)
    gradients = {dtype: wide.to(dtype) for dtype in (torch.float32, inputs[0].dtype, DTYPES[args.dtype])}
    for ending, grads in (("fwd", None), ("fwdbwd", gradients)):
        runs = {name: partial(one_pass, function, inputs, grads) for name, function in functions.items()}
        others = [name for name in functions if name not in ("ours", "limit")]
        cases = {f"{case}/{ending}" + ("" if name == first else f"/{name}"): name for name in others}
        yield compare(cases, runs, args.repeats, wide.device)


def norms_compared(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    """The gated norm of the concatenated heads. Its input is float32, as in a model."""
    width = HEADS * args.width
    z = torch.randn(max(1, args.rows // HEADS), width, device=device, requires_grad=True)
    dtype, eps = DTYPES[args.dtype], 1e-8
    gate, gain = (torch.rand(width, device=device).to(dtype).requires_grad_() for _ in range(2))

    def ours() -> Tensor:
        return gated_rms_norm(z, gate, gain, eps).to(dtype)

    def plain() -> Tensor:
        return (torch.sigmoid(gate * z) * z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + eps) * gain).to(dtype)

    yield from forward_and_backward("op/norm", {"ours": ours, "plain torch": plain}, (z, gate, gain), "", args)


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    backends = args.sdpa or (["auto"] if device.type == "cpu" else list(BACKENDS))
    for length, causal in itertools.product(args.lengths, (False, True)):
        batch = max(1, args.rows // (HEADS * length))
        shape = (batch, HEADS, length, args.width)
        q, k, v = (torch.randn(shape, device=device).to(DTYPES[args.dtype]).requires_grad_() for _ in range(3))
        inputs = (q, k, v)
        entmax = ENTMAX if length in args.entmax_lengths and not causal else ()
        functions = contenders(inputs, causal, entmax, backends)
        case = f"op/T{length}/{'causal' if causal else 'full'}"
        yield from forward_and_backward(case, functions, inputs, "auto", args)
    yield from norms_compared(args, device)


def steps(args: argparse.Namespace) -> int:
    return 4 * len(args.lengths) + 2


def notes(args: argparse.Namespace, measured: List[Result]) -> List[str]:
    """The number of operations of a forward pass, with the time that was measured for it."""
    lines = ["op/T… is attention without its norm and gate; op/norm is the norm and the gate by themselves"]
    lines.append("operations of one forward pass, millions (our count from the equations; Table 4 is the paper's)")
    for length in args.lengths:
        heads = max(1, args.rows // (HEADS * length)) * HEADS
        products = 4 * length * length * args.width
        counted = ", ".join(
            f"{name} {heads * (products + extra(length, length, args.width)) / 1e6:,.0f}"
            for name, extra in OPERATIONS.items()
        )
        first = next((r for r in measured if r.case == f"op/T{length}/full/fwd"), None)
        times = ""
        if first is not None and first.ours and first.baseline:
            times = f"; measured: ours {first.ours * 1e3:.1f} ms, softmax {first.baseline * 1e3:.1f} ms"
        lines.append(f"  T {length}: {counted}{times}")
    return lines
