"""Null and sparsity rates where the weights are, on the model's device: only the counts leave it. See `stats`."""

from typing import Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_rela.recording.stats import share_of_zeros

_NOT_SIGN = 0x7FFFFFFF


def null_and_sparsity(
    weights: Tensor, queries: Tensor, keys: Tensor, causal: bool = False
) -> Tuple[np.ndarray, np.ndarray]:
    """The null rate and the sparsity rate of each sentence and layer, (B, L) each.

    Args:
        weights: (L, H, B, T, S)
        queries, keys: (B, T) and (B, S), false where there is padding
        causal: query t sees keys 0 to t only
    """
    heads = weights.size(1)
    visible = queries.unsqueeze(2) & keys.unsqueeze(1)  # (B, T, S)
    if causal:
        visible = visible & torch.ones_like(visible[0]).tril()
    counts = [visible.any(dim=2).sum(dim=1), visible.sum(dim=(1, 2))]  # (B,) each
    for layer in weights:  # one at a time, since each is looked at whole
        # by bits, as `segment.is_nonzero`: a device may take subnormals for zeros
        nonzero = (layer.float().view(torch.int32) & _NOT_SIGN).ne(0) & visible  # (H, B, T, S)
        counts += [nonzero.any(dim=3).sum(dim=(0, 2)), nonzero.sum(dim=(0, 2, 3))]
    rows, seen, *found = torch.stack(counts).cpu().numpy()  # (B,) each: the only wait for the device
    null = np.stack([share_of_zeros(count, heads * rows) for count in found[0::2]], axis=1)
    return null, np.stack([share_of_zeros(count, heads * seen) for count in found[1::2]], axis=1)
