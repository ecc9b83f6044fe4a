"""What counts as visible, as zero and as null, for torch tensors on any device.

The definitions are those of `dump.zeros`, and the tests compare the two. The counting runs where the weights are,
so only the counts leave the device.

Shapes: L layers, H heads, B sentences, T queries, S keys.
"""

from typing import NamedTuple, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_rela.dump.zeros import share

_ALL_BUT_THE_SIGN = 0x7FFFFFFF


def visible_positions(queries: Tensor, keys: Tensor, causal: bool = False) -> Tensor:
    """(B, T, S), true where a query may see a key.

    Args:
        queries, keys: (B, T) and (B, S), false where there is padding
        causal: query t sees keys 0 to t only
    """
    visible = queries.unsqueeze(2) & keys.unsqueeze(1)
    return visible & torch.ones_like(visible[0]).tril() if causal else visible


class Counts(NamedTuple):
    """Counts of each layer, head and sentence, (L, H, B)."""

    attending: Tensor  # queries with at least one weight that is not 0
    nonzero: Tensor  # weights that are not 0
    size: Tensor  # Σ |α|, float64


def count(weights: Tensor, visible: Tensor) -> Counts:
    """Count in the visible positions, (B, T, S), of weights (L, H, B, T, S)."""
    # The bits are compared, as in `dump.zeros.is_nonzero`: a device may treat subnormals as zeros. The mask clears
    # the sign, which leaves |α|, and clears every bit of what is not visible, whatever value is there.
    mask = visible.to(torch.int32).neg() & _ALL_BUT_THE_SIGN
    layers = []
    for layer in weights:  # one layer at a time: this makes copies of it
        bits = layer.float().view(torch.int32) & mask  # (H, B, T, S)
        nonzero, sizes = bits.ne(0).sum(dim=3), bits.view(torch.float32).sum(dim=3)  # (H, B, T) each
        layers.append((nonzero.ne(0).sum(dim=2), nonzero.sum(dim=2), sizes.double().sum(dim=2)))
    return Counts(*map(torch.stack, zip(*layers)))


def null_and_sparsity(
    weights: Tensor, queries: Tensor, keys: Tensor, causal: bool = False
) -> Tuple[np.ndarray, np.ndarray]:
    """The null rate and the sparsity rate of each sentence and layer, (B, L) each.

    Args:
        weights: (L, H, B, T, S)
        queries, keys, causal: as in `visible_positions`
    """
    layers, heads = weights.shape[:2]
    visible = visible_positions(queries, keys, causal)
    totals = torch.stack([visible.any(dim=2).sum(dim=1), visible.sum(dim=(1, 2))])  # (2, B)
    counts = count(weights, visible)
    # One transfer of (2 + 2 L, B) numbers, because each transfer waits for the device.
    numbers = torch.cat([totals, counts.attending.sum(dim=1), counts.nonzero.sum(dim=1)]).cpu().numpy()
    (rows, positions), attending, nonzero = np.split(numbers, [2, 2 + layers])
    null = share(heads * rows - attending, heads * rows)
    return null.T, share(heads * positions - nonzero, heads * positions).T
