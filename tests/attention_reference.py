"""Multi-head attention written out: one sentence, one head and one query at a time."""

import math

import torch

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG


def reference(module, x, y, visible, theta=None):
    """The output (T, d) for queries x (T, d), keys and values y (S, d) and visible (T, S); θ is subtracted by head."""
    row, width = CATALOG[module.name], module.head_dim
    act, q, k, v = ACTIVATIONS[row.activation].build(), module.q_proj(x), module.k_proj(y), module.v_proj(y)
    heads = []
    for h in range(module.num_heads):
        part = slice(h * width, (h + 1) * width)
        q_h, k_h = (unit_size(q[:, part]), unit_size(k[:, part])) if row.unit else (q[:, part], k[:, part])
        weights = torch.zeros(visible.shape, dtype=x.dtype)
        for t in range(len(x)):
            seen = visible[t] > 0
            if seen.any():
                keys = k_h[seen]
                if row.centred:
                    keys = keys - keys.mean(0) + module.k_proj.bias[part]
                scores = keys @ q_h[t] / math.sqrt(width)
                weights[t, seen] = act(scores if theta is None else scores - theta[h].to(x.dtype))
        heads.append(weights @ v[:, part])
    return module.out_proj(module.norm(torch.cat(heads, dim=-1)))


def unit_size(x):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
