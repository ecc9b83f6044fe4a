"""From scores to weights: the paper's Equation 3 (softmax) and Equation 5 (ReLU), and what else is compared.

A *pointwise* activation weighs every score by itself and has f(0) = 0, so a masked score is set to 0
before it. A *rowwise* one weighs a score against its row; its rows are distributions over the keys.
An activation is one line in `ACTIVATIONS`.
"""

from typing import Callable, NamedTuple, Optional

import torch
from torch import Tensor, nn

from fairseq_rela.errors import InputError


def widened(x: Tensor) -> Tensor:
    """`x` in float32 if it is half precision, else as it is (float64 stays float64)."""
    if x.dtype == torch.float16 or x.dtype == torch.bfloat16:
        return x.float()
    return x


class FromEntmax(nn.Module):
    """A mapping of the `entmax` package over the last dimension: `sparsemax` or `entmax15`."""

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


class InPlace(NamedTuple):
    """A pointwise activation whose derivative the weights tell, so that they may overwrite the scores.

    Where a weight is 0, its derivative is too.
    """

    forward: Callable[[Tensor], Tensor]  # scores → weights, in their memory
    backward: Callable[[Tensor, Tensor], Tensor]  # gradient of the weights, weights → of the scores, in its memory


class Activation(NamedTuple):
    """How scores (…, T, S) become weights (…, T, S)."""

    build: Callable[[], nn.Module]
    pointwise: bool
    in_place: Optional[InPlace] = None  # only for speed


RELU = InPlace(torch.relu_, lambda grad, weights: torch.ops.aten.threshold_backward(grad, weights, 0, grad_input=grad))


ACTIVATIONS = {
    "softmax": Activation(lambda: nn.Softmax(dim=-1), pointwise=False),
    "sparsemax": Activation(lambda: FromEntmax("sparsemax"), pointwise=False),
    "entmax15": Activation(lambda: FromEntmax("entmax15"), pointwise=False),
    "relu": Activation(nn.ReLU, pointwise=True, in_place=RELU),
    "gelu": Activation(nn.GELU, pointwise=True),
    "leaky_relu": Activation(nn.LeakyReLU, pointwise=True),
}
