"""Counts of attention where the weights are, on the model's device: only the counts leave it. See `stats`.

Shapes: L layers, H heads, B sentences, T queries, S keys.
"""

from typing import NamedTuple, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_rela.recording.stats import share_of_zeros

_NOT_SIGN = 0x7FFFFFFF


def visible_positions(queries: Tensor, keys: Tensor, causal: bool = False) -> Tensor:
    """(B, T, S), true where a query may see a key.

    Args:
        queries, keys: (B, T) and (B, S), false where there is padding
        causal: query t sees keys 0 to t only
    """
    visible = queries.unsqueeze(2) & keys.unsqueeze(1)
    return visible & torch.ones_like(visible[0]).tril() if causal else visible


class Counts(NamedTuple):
    """Of each layer, head and sentence, (L, H, B)."""

    attending: Tensor  # queries with a weight that is not 0
    nonzero: Tensor  # weights that are not 0
    size: Tensor  # Σ |α|, float64


def count(weights: Tensor, visible: Tensor) -> Counts:
    """Count in what is visible, (B, T, S), of weights (L, H, B, T, S)."""
    # by bits, as `segment.is_nonzero`: a device may take subnormals for zeros. Without the sign they are |α|,
    # and none of them is what cannot be seen, whatever stands there
    shown = visible.to(torch.int32).neg() & _NOT_SIGN
    found = []
    for layer in weights:  # one at a time, since each is looked at whole
        bits = layer.float().view(torch.int32) & shown  # (H, B, T, S)
        nonzero, sizes = bits.ne(0).sum(dim=3), bits.view(torch.float32).sum(dim=3)  # (H, B, T) each
        found.append((nonzero.ne(0).sum(dim=2), nonzero.sum(dim=2), sizes.double().sum(dim=2)))
    return Counts(*map(torch.stack, zip(*found)))


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
    found = count(weights, visible)
    # (2 + 2 L, B): the only wait for the device
    counts = torch.cat([totals, found.attending.sum(dim=1), found.nonzero.sum(dim=1)]).cpu().numpy()
    (rows, seen), attending, nonzero = np.split(counts, [2, 2 + layers])
    return share_of_zeros(attending, heads * rows).T, share_of_zeros(nonzero, heads * seen).T
