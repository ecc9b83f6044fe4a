"""From scores to weights: softmax (paper, Equation 1), ReLU (Equation 3) and the activations they are compared with.

A *pointwise* activation f computes each weight from its own score, and f(0) = 0. To mask a position, its score is set
to 0 before f. A *rowwise* activation compares each score with the other scores of its row. Its rows are distributions
over the keys, except those of softpick, which may be null. An activation is one line in the table `ACTIVATIONS`.
"""

import math
from typing import Callable, NamedTuple, Optional

import torch
from torch import Tensor, nn

from fairseq_rela.errors import InputError


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 if it is half precision, else as it is (float64 stays float64)."""
    if x.dtype == torch.float16 or x.dtype == torch.bfloat16:
        return x.float()
    return x


class FromEntmax(nn.Module):
    """A function of the `entmax` package over the last dimension: `sparsemax` or `entmax15`."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        try:
            import entmax
        except ImportError:
            raise InputError(f"attention '{name}' comes from the entmax package: pip install entmax") from None
        self.function = getattr(entmax, name)

    def forward(self, scores: Tensor) -> Tensor:
        return self.function(scores, dim=-1)

    def __prepare_scriptable__(self):
        raise InputError(
            f"attention '{self.name}' cannot be scripted: the entmax package's functions are Python autograd "
            "functions, which TorchScript does not take; script a model without it, or run this one unscripted"
        )


TOPK = 8  # how many scores of a row top-k attention keeps, unless a flag says otherwise


class TopK(nn.Module):
    """Softmax over the k largest scores of a row. The other weights are 0.

    From the explicit sparse Transformer (Zhao et al., 2019). Scores that equal the k-th largest are kept too.
    """

    def __init__(self, k: int = TOPK):
        super().__init__()
        if k < 1:
            raise InputError(f"--attn-topk {k}: give at least 1, the number of keys that a query attends to")
        self.k = k

    def forward(self, scores: Tensor) -> Tensor:
        smallest_kept = scores.topk(min(self.k, scores.size(-1)), dim=-1)[0][..., -1:]
        return scores.masked_fill(scores < smallest_kept, -math.inf).softmax(dim=-1)

    def extra_repr(self) -> str:
        return f"k={self.k}"


class Softpick(nn.Module):
    """Rectified softmax: relu(eˣ − 1) / Σ |eˣ − 1| (Zuhri et al., 2025). A row without a positive score is null.

    With m = max(0, largest score), numerator and denominator are divided by e^m, so nothing overflows. Both parts are
    computed by expm1, which is exact for small scores. Masked scores (−inf, or float32's least number) do not count in
    the sum. ε = 1e-8 bounds the gradient of a row whose scores are all near 0.
    """

    __constants__ = ("LEAST",)

    LEAST = -3.4e38  # a score below this is masked

    def forward(self, scores: Tensor) -> Tensor:
        positive, negative = scores.relu(), scores.clamp(max=0.0)
        largest = positive.amax(dim=-1, keepdim=True)
        numerator = (positive - largest).exp() * -torch.expm1(-positive)
        below_zero = (-largest).exp() * -torch.expm1(negative)
        total = (numerator + below_zero.masked_fill(scores < self.LEAST, 0.0)).sum(dim=-1, keepdim=True)
        return numerator / (total + 1e-8)


class RectifiedExp(nn.Module):
    """max(0, eˢ − 1): softmax's exponential, moved down so that scores of 0 and below get the weight 0 exactly.

    ReLU is linear: a score twice as large gets twice the weight, so a head is sharp only if nearly all its scores are
    negative. Here a large score outweighs many small ones. Scores above 10 count as 10. The largest weight, 22,025, is
    then finite in float16.
    """

    __constants__ = ("HIGHEST",)

    HIGHEST = 10.0

    def forward(self, scores: Tensor) -> Tensor:
        return scores.clamp(0.0, self.HIGHEST).expm1()


class InPlace(NamedTuple):
    """A faster form of a pointwise activation whose derivative can be computed from the weights alone.

    The scores are then not needed again, so the weights overwrite them. Where a weight is 0, its derivative is 0 too.
    """

    forward: Callable[[Tensor], Tensor]  # scores → weights, in the memory of the scores
    backward: Callable[[Tensor, Tensor], Tensor]  # gradient of the weights, weights → gradient of the scores, in place


class Activation(NamedTuple):
    """How scores (…, T, S) become weights (…, T, S)."""

    build: Callable[..., nn.Module]
    pointwise: bool
    distribution: bool = False  # each row sums to 1
    exact_zeros: bool = False  # some weights are exactly 0, so their share can be driven to a target
    in_place: Optional[InPlace] = None  # the same function, faster; optional
    takes_k: bool = False  # `build` takes one argument: how many scores of a row to keep


RELU = InPlace(torch.relu_, lambda grad, weights: torch.ops.aten.threshold_backward(grad, weights, 0, grad_input=grad))


def _rectified_exp_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """The derivative is eˢ = weight + 1 between the two bounds, and 0 outside."""
    inside = (weights > 0) & (weights < 22025.0)  # e¹⁰ − 1, rounded down
    return grad.mul_(inside).addcmul_(grad, weights)


RECTIFIED_EXP = InPlace(lambda scores: scores.clamp_(0.0, RectifiedExp.HIGHEST).expm1_(), _rectified_exp_backward)


ACTIVATIONS = {
    "softmax": Activation(lambda: nn.Softmax(dim=-1), pointwise=False, distribution=True),
    "sparsemax": Activation(lambda: FromEntmax("sparsemax"), pointwise=False, distribution=True, exact_zeros=True),
    "entmax15": Activation(lambda: FromEntmax("entmax15"), pointwise=False, distribution=True, exact_zeros=True),
    "topk": Activation(TopK, pointwise=False, distribution=True, exact_zeros=True, takes_k=True),
    "softpick": Activation(Softpick, pointwise=False, exact_zeros=True),
    "relu": Activation(nn.ReLU, pointwise=True, exact_zeros=True, in_place=RELU),
    "rectified_exp": Activation(RectifiedExp, pointwise=True, exact_zeros=True, in_place=RECTIFIED_EXP),
    "gelu": Activation(nn.GELU, pointwise=True),
    "leaky_relu": Activation(nn.LeakyReLU, pointwise=True),
}
