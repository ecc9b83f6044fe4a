"""Attention alone: streaming ReLU against torch's scaled_dot_product_attention, entmax 1.5 and sparsemax.

About --rows query rows (batch × heads × T) of --width, in float32, T = --lengths. `limit` is the two
matrix products by the same tiles, with nothing between them. After it, the floating-point operations
of each attention (the purpose of the paper's Table 4).
"""

import argparse
import itertools
from functools import partial
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_rela.attention.activations import ACTIVATIONS, InPlace
from fairseq_rela.attention.streaming import streaming_attention
from fairseq_rela.bench.timing import Result, compare
from fairseq_rela.errors import InputError

HEADS = 8
ENTMAX = ("entmax15", "sparsemax")
NOTHING = InPlace(lambda scores: scores, lambda gradient, weights: gradient)

# Operations of one head beside its two products of 2·T·S·d each; a comparison, exponential or root counts 1.
# Our own count, from the equations: s scores in a row, t rows.
OPERATIONS: Dict[str, Callable[[int, int, int], float]] = {
    "softmax": lambda t, s, d: 5 * t * s,  # maximum, difference, exponential, sum, division
    "rela": lambda t, s, d: t * s + 4 * t * d,  # maximum with 0; RMSNorm on the width: square, sum, product, gain
    "rela_g": lambda t, s, d: t * s + 7 * t * d,  # and the gate: product, sigmoid, product
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512, 2048], metavar="T")
    parser.add_argument("--rows", type=int, default=16384, help="batch × heads × T (default: 16384)")
    parser.add_argument("--width", type=int, default=64, help="of a head (default: 64)")
    parser.add_argument(
        "--entmax-lengths", type=int, nargs="*", default=[512], metavar="T", help="also against entmax (default: 512)"
    )


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    raise InputError("bench op needs torch 2: this torch has no scaled_dot_product_attention to compare with")


def streamed(q: Tensor, k: Tensor, v: Tensor, causal: bool, in_place: InPlace) -> Tensor:
    """q, k, v: (B, H, T, d_h)"""
    flat = (x.flatten(0, 1) for x in (q, k, v))
    return streaming_attention(*flat, torch.relu, in_place, causal, q.size(-1) ** -0.5).view_as(q)


def mapped(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with a rowwise activation."""
    return ACTIVATIONS[name].build()(q @ k.transpose(-1, -2) * q.size(-1) ** -0.5) @ v


def contenders(inputs: Tuple[Tensor, ...], causal: bool, entmax: Sequence[str]) -> Dict[str, Callable[[], Tensor]]:
    """What is compared, as functions without arguments."""
    found = {
        "ours": partial(streamed, *inputs, causal, ACTIVATIONS["relu"].in_place),
        "sdpa": partial(sdpa, *inputs, causal),
        "limit": partial(streamed, *inputs, causal, NOTHING),
    }
    found.update((name, partial(mapped, name, *inputs)) for name in entmax)
    return found


def once(attention: Callable[[], Tensor], inputs: Tuple[Tensor, ...], grad: Optional[Tensor]) -> None:
    """Forward, and backward where there is a gradient of the output."""
    with torch.set_grad_enabled(grad is not None):
        out = attention()
    if grad is not None:
        torch.autograd.grad(out, inputs, grad)


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    for length, causal in itertools.product(args.lengths, (False, True)):
        batch = max(1, args.rows // (HEADS * length))
        shape = (batch, HEADS, length, args.width)
        inputs = tuple(torch.randn(shape, device=device, requires_grad=True) for _ in range(3))
        entmax = ENTMAX if length in args.entmax_lengths and not causal else ()
        for grad in (None, torch.randn(shape, device=device)):
            case = f"op/T{length}/{'causal' if causal else 'full'}/{'fwd' if grad is None else 'fwdbwd'}"
            runs = {
                name: partial(once, attention, inputs, grad)
                for name, attention in contenders(inputs, causal, entmax).items()
            }
            cases = {case: "sdpa", **{f"{case}/{name}": name for name in entmax}}
            yield compare(cases, runs, args.repeats, device)


def steps(args: argparse.Namespace) -> int:
    return 4 * len(args.lengths)


def notes(args: argparse.Namespace, found: List[Result]) -> List[str]:
    """Operations counted, beside the forward time measured."""
    lines = ["operations of one forward pass, millions (our count from the equations; Table 4 is the paper's)"]
    for length in args.lengths:
        heads = max(1, args.rows // (HEADS * length)) * HEADS
        products = 4 * length * length * args.width
        counted = ", ".join(
            f"{name} {heads * (products + extra(length, length, args.width)) / 1e6:,.0f}"
            for name, extra in OPERATIONS.items()
        )
        measured = next((r for r in found if r.case == f"op/T{length}/full/fwd"), None)
        times = f"; measured: ours {measured.ours * 1e3:.1f} ms, softmax {measured.baseline * 1e3:.1f} ms"
        lines.append(f"  T {length}: {counted}{times if measured else ''}")
    return lines
