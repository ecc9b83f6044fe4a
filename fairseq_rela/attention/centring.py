"""Centred keys, and queries and keys scaled to one size. Both are additions of ours: the paper has neither.

Softmax does not change when all scores of a row move together: softmax(s + c) = softmax(s). ReLU does. With k̄ the
mean of the keys that a query sees, a score is q·k_j = q·(k_j − k̄) + q·k̄. The second part is the same for every key
of the row. In ReLA it switches the whole head on or off before the head has learnt to choose between keys.
Centring removes that part. The bias of the key projection, which is learnt, takes its place:

    k_j ← k_j − k̄ + b_k          so that s_j = q·(k_j − k̄) + q·b_k

The term q·b_k is a threshold that depends on the query, so a head can still attend to nothing. There is no new
parameter. The mean is over the keys that a query sees: never over padding, and never over the future.

A row of the catalog may also scale every head's query and key to the same size, before the keys are centred:
x ← x / RMS(x). Then the scores cannot grow without limit.

Where all queries see the same keys, the keys themselves are centred. Where each query has its own mean k̄_t, the same
scores come from one more column of queries and keys: q_t·(k_j − k̄_t + b_k) = [q_t, q_t·(b_k − k̄_t)] [k_j, 1]ᵀ.

Shapes: S keys, T queries, N sentences, H heads of width d_h.
"""

from typing import Dict, List, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_rela.attention import kernels
from fairseq_rela.attention.activations import at_least_float32
from fairseq_rela.attention.row_parts import row_parts


class UnitSize(torch.autograd.Function):
    """y = x r with r = 1 / √(mean(x²) + eps), and its gradient written out: dx = r (dy − y mean(dy ⊙ y)).

    It is written out for speed: autograd would read and write all of x more than twice as often.
    """

    @staticmethod
    def forward(ctx, x: Tensor, eps: float) -> Tensor:
        wide = at_least_float32(x)
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = size.mul_(size).div_(x.size(-1)).add_(eps).rsqrt_()
        y = wide * scale
        ctx.save_for_backward(y, scale)
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        y, scale = ctx.saved_tensors
        dx = torch.empty_like(y, memory_format=torch.contiguous_format)
        for dy_n, y_n, r, dx_n in row_parts(at_least_float32(grad), y, scale, dx):
            share = torch.mul(dy_n, y_n, out=dx_n).mean(-1, keepdim=True)
            torch.addcmul(dy_n, y_n, share, value=-1, out=dx_n).mul_(r)
        return dx.to(grad.dtype), None


def unit_size(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / √(mean(x²) + eps) over the last dimension: the root mean square of every head's vector becomes 1."""
    if not torch.jit.is_scripting():
        if kernels.norm_usable(x):
            return kernels.gated_rms_norm(x, None, None, eps)
        if torch.is_grad_enabled():
            return UnitSize.apply(x, eps)
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def common_mean(k: Tensor, padding: Optional[Tensor]) -> Tensor:
    """The mean (1, N, H, d_h) of the keys (S, N, H, d_h) of each sentence. `padding` (N, S) is true where to skip."""
    wide = at_least_float32(k)
    if padding is None:
        return wide.mean(0, keepdim=True)
    present = (~padding).to(wide.dtype)
    share = present / present.sum(1, keepdim=True).clamp(min=1)  # (N, S)
    mean = torch.bmm(share.unsqueeze(1), wide.flatten(2).transpose(0, 1))  # (N, 1, d): no masked copy of the keys
    return mean.view(1, k.size(1), k.size(2), k.size(3))


def running_mean(k: Tensor, padding: Optional[Tensor]) -> Tensor:
    """For every position t the mean of keys 0 … t without padding: (S, N, H, d_h) → (S, N, H, d_h)."""
    wide = at_least_float32(k)
    if padding is None:
        count = torch.arange(1, k.size(0) + 1, dtype=wide.dtype, device=k.device).view(-1, 1, 1, 1)
    else:
        present = _present(padding, wide)
        wide, count = wide * present, present.cumsum(0).clamp(min=1)
    return running_sum(wide) / count


def running_sum(x: Tensor, block: int = 64) -> Tensor:
    """`x.cumsum(0)`. On a CPU it multiplies by a triangle of ones, because torch's own is slow over dimension 0."""
    if x.device.type != "cpu":
        return x.cumsum(0)
    triangle = torch.ones(min(block, len(x)), min(block, len(x)), dtype=x.dtype).tril()
    parts: List[Tensor] = []
    for part in x.flatten(1).split(block):
        total = triangle[: len(part), : len(part)] @ part
        parts.append(total if len(parts) == 0 else total + parts[-1][-1:])
    return torch.cat(parts).view_as(x) if len(parts) > 0 else x


def visible_mean(k: Tensor, padding: Optional[Tensor], hidden: Tensor) -> Tensor:
    """For every query t the mean of the keys that it sees, (T, N, H, d_h). `hidden` (T, S) is true elsewhere."""
    wide = at_least_float32(k)
    visible = (~hidden).to(wide.dtype)
    if padding is None:
        count = visible.sum(1).view(-1, 1, 1, 1)
    else:
        present = _present(padding, wide)
        wide = wide * present
        count = torch.matmul(visible, present.flatten(1)).unsqueeze(2).unsqueeze(3)
    total = torch.matmul(visible, wide.flatten(1)).view(-1, k.size(1), k.size(2), k.size(3))
    return total / count.clamp(min=1)


def mean_so_far(k: Tensor, padding: Optional[Tensor], saved: Dict[str, Optional[Tensor]]) -> Tensor:
    """The mean (1, N, H, d_h) over the keys of earlier decoding steps and the new keys `k` (S, N, H, d_h).

    `saved` is the incremental state of the attention. It keeps the sum of all keys so far (N, H, d_h) and their number
    (N, 1, 1) for the next step. Sentences are the first dimension, so fairseq reorders both with the beam.
    """
    wide = at_least_float32(k)
    if padding is None:
        total, count = wide.sum(0), torch.full([k.size(1), 1, 1], k.size(0), dtype=wide.dtype, device=k.device)
    else:
        present = _present(padding, wide)
        total, count = (wide * present).sum(0), present.sum(0)
    past_total = saved["prev_key_sum"] if "prev_key_sum" in saved else None
    past_count = saved["prev_key_count"] if "prev_key_count" in saved else None
    if past_total is not None and past_count is not None:
        total, count = past_total + total, past_count + count
    saved["prev_key_sum"], saved["prev_key_count"] = total, count
    return (total / count.clamp(min=1)).unsqueeze(0)


def _present(padding: Tensor, like: Tensor) -> Tensor:
    """(N, S) → (S, N, 1, 1) in the dtype of `like`: 1 where there is a key, 0 where there is padding."""
    return (~padding).t().unsqueeze(2).unsqueeze(3).to(like.dtype)


def centred(k: Tensor, mean: Tensor, bias: Optional[Tensor]) -> Tensor:
    """k_j − k̄ + b_k: keys (S, N, H, d_h) with one mean (1, N, H, d_h) for all queries."""
    return k + _bias_without_mean(mean, bias).to(k.dtype)


def centring_column(q: Tensor, mean: Tensor, bias: Optional[Tensor]) -> Tensor:
    """q_t·(b_k − k̄_t) (T, B, H, 1): the further column of queries (T, B, H, d_h) whose means of keys are `mean`.

    The means are (T, B, H, d_h), or (1, B, H, d_h) in a step of decoding.
    """
    return (at_least_float32(q) * _bias_without_mean(mean, bias)).sum(-1, keepdim=True)


def _bias_without_mean(mean: Tensor, bias: Optional[Tensor]) -> Tensor:
    """b_k − k̄ (…, H, d_h)."""
    return -mean if bias is None else bias.view(mean.size(2), -1) - mean


def with_columns(x: Tensor, columns: List[Tensor]) -> Tensor:
    """x (T, B, H, d_h) with further columns, each (…, H or 1, 1), appended: (T, B, H, d_h + number of columns)."""
    if len(columns) == 0:
        return x
    shape = [x.size(0), x.size(1), x.size(2), 1]
    return torch.cat([x] + [column.to(x.dtype).expand(shape) for column in columns], dim=-1)
