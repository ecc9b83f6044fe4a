"""Pointwise attention by tiles, exactly and without the T × S weights in memory (paper, Equation 5).

    heads z = Σ_j f(scale · q k_jᵀ) v_j          over tiles of keys j

Softmax must see a whole row before it can weigh anything. A pointwise f need not: each tile of keys adds
its part to the heads and is forgotten. There are no row statistics, and nothing is rescaled. For the
backward pass only q, k, v are kept, and the seed of the dropout; scores are computed again:

    weights  a = f(s)                s = scale · q kᵀ
    dv = aᵀ dz      da = dz vᵀ       ds = scale · da ⊙ f′(s)       dq = ds k      dk = dsᵀ q

Shapes: N heads (of all sentences), T queries, S keys, width d_h; a tile is n heads × t queries × s keys.
"""

from typing import Callable, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_rela.attention.activations import InPlace, widened

# Elements in a tile. On a CPU, 1 MB of float32: more leaves the cache, less pays more for calls than for products.
CPU_TILE, DEVICE_TILE = 2**18, 2**24
# The longest side of a tile, and, where half of a tile on the diagonal is wasted, of a causal one.
FULL_SIDE = 512
CAUSAL_SIDES = (64, 256)


class Span(NamedTuple):
    """Positions start … stop − 1 of one dimension, and which span of it this is."""

    number: int
    start: int
    stop: int

    def of(self, x: Tensor, dim: int) -> Tensor:
        return x.narrow(dim, self.start, self.stop - self.start)


def spans(length: int, longest: int) -> Tuple[Span, ...]:
    """`length` positions in as few spans of at most `longest` as will do, of nearly equal size."""
    count = -(-length // longest)
    bounds = [length * i // count for i in range(count + 1)] if count else [0]
    return tuple(Span(i, *pair) for i, pair in enumerate(zip(bounds, bounds[1:])))


class Tiling(NamedTuple):
    """The spans of heads, queries and keys whose products are the tiles; chosen from shapes alone."""

    heads: Tuple[Span, ...]
    queries: Tuple[Span, ...]
    keys: Tuple[Span, ...]
    causal: bool

    def visible(self, queries: Span, keys: Span) -> bool:
        """Whether any of these queries may see any of these keys."""
        return not self.causal or keys.start < queries.stop

    def number(self, heads: Span, queries: Span, keys: Span) -> int:
        """A number no other tile has."""
        return (heads.number * len(self.queries) + queries.number) * len(self.keys) + keys.number


def tiling(heads: int, queries: int, keys: int, causal: bool, elements: int) -> Tiling:
    """Tiles of at most `elements`, or one head's where that is more."""
    side = FULL_SIDE
    if causal:
        side = min(max(queries // 4, CAUSAL_SIDES[0]), CAUSAL_SIDES[1])
    rows, columns = spans(queries, side), spans(keys, side)
    largest = max(1, -(-queries // max(1, len(rows)))) * max(1, -(-keys // max(1, len(columns))))
    return Tiling(spans(heads, max(1, elements // largest)), rows, columns, causal)


class Scratch:
    """Memory for one tile after another: a contiguous view of the size asked for, its contents left over."""

    def __init__(self, like: Tensor):
        self.memory = like.new_empty(0)

    def __call__(self, *shape: int) -> Tensor:
        size = shape[0] * shape[1] * shape[2]
        if self.memory.numel() < size:
            self.memory = self.memory.new_empty(size)
        return self.memory[:size].view(shape)


def product(a: Tensor, b: Tensor, out: Tensor, scale: float = 1.0, more: bool = False) -> Tensor:
    """out = scale · a b, or, with `more`, out + scale · a b, in the memory of `out`."""
    if not more and a.size(1) * a.size(2) * b.size(2) < 1000:
        out.zero_()  # for matrices this small torch 1.12 computes 0 · out, and what is left over may be NaN
    return torch.baddbmm(out, a, b, beta=1 if more else 0, alpha=scale, out=out)


class Sum:
    """A sum of matrix products (n, rows, d_h) that ends up in `target`, wherever that lies in memory.

    Torch's batched product is fast only into contiguous memory.
    """

    def __init__(self, target: Tensor, scratch: Optional[Scratch] = None):
        self.target = target
        self.empty = True
        if target.is_contiguous():
            self.total = target
        else:
            self.total = scratch(*target.shape) if scratch else torch.empty(target.shape).to(target)

    def add(self, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
        product(a, b, self.total, scale, more=not self.empty)
        self.empty = False

    def finish(self) -> None:
        if self.empty:
            self.target.zero_()
        elif self.total is not self.target:
            self.target.copy_(self.total)


class Dropout:
    """The mask of a tile (0 or 1/(1 − p)), the same whenever and in whatever order tiles are asked for."""

    def __init__(self, p: float, seed: int, like: Tensor):
        self.p, self.seed = p, seed
        self.generator = torch.Generator(device=like.device)
        self.scratch = Scratch(like)

    def mask(self, shape: torch.Size, tile: int) -> Tensor:
        self.generator.manual_seed(self.seed + tile)
        keep = 1.0 - self.p
        mask = self.scratch(*shape)
        return mask.bernoulli_(keep, generator=self.generator).mul_(1.0 / keep if keep > 0 else 0.0)


class Pass:
    """What the forward and the backward pass do alike: walk the tiles, and compute their scores."""

    def __init__(self, q: Tensor, k: Tensor, causal: bool, scale: float, dropout: float, seed: int):
        wide = widened(q.new_empty(0))
        elements = CPU_TILE if q.device.type == "cpu" else DEVICE_TILE
        self.tiling = tiling(q.size(0), q.size(1), k.size(1), causal, elements)
        self.scale = scale
        self.scores_memory, self.other_memory, self.sum_memory = Scratch(wide), Scratch(wide), Scratch(wide)
        self.dropout = Dropout(dropout, seed, wide) if dropout > 0 else None

    def scores(self, q: Tensor, k: Tensor, queries: Span, keys: Span) -> Tensor:
        """scale · q kᵀ (n, t, s) of a tile; the future's are 0, whose weight is 0."""
        scores = product(q, k.transpose(1, 2), self.scores_memory(q.size(0), q.size(1), k.size(1)), self.scale)
        if self.tiling.causal and keys.stop > queries.start + 1:
            scores.tril_(queries.start - keys.start)
        return scores

    def mask(self, scores: Tensor, heads: Span, queries: Span, keys: Span) -> Optional[Tensor]:
        """The dropout mask (n, t, s) of a tile, or None."""
        if self.dropout is None:
            return None
        return self.dropout.mask(scores.shape, self.tiling.number(heads, queries, keys))

    def keys_seen(self, queries: Span) -> Iterator[Span]:
        return (keys for keys in self.tiling.keys if self.tiling.visible(queries, keys))

    def queries_seeing(self, keys: Span) -> Iterator[Span]:
        return (queries for queries in self.tiling.queries if self.tiling.visible(queries, keys))


def differentiated(function: Callable[[Tensor], Tensor], scores: Tensor) -> Tuple[Tensor, Callable[[Tensor], Tensor]]:
    """f(scores), and the map from its gradient to the scores', for any f: by autograd, on this tile alone."""
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        weights = function(scores)
    return weights.detach(), lambda gradient: torch.autograd.grad(weights, scores, gradient)[0]


class StreamingAttention(torch.autograd.Function):
    """See `streaming_attention`."""

    @staticmethod
    def forward(ctx, q, k, v, function, in_place, causal, scale, dropout, seed):
        ctx.save_for_backward(q, k, v)
        ctx.options = function, in_place, causal, scale, dropout, seed
        weigh = in_place.forward if in_place else function
        out = torch.empty_like(q, dtype=widened(q.new_empty(0)).dtype)  # in the layout of q: see `streaming_attention`
        with torch.autocast(q.device.type, enabled=False):
            work = Pass(q, k, causal, scale, dropout, seed)
            for heads in work.tiling.heads:
                q_n, k_n, v_n = (widened(heads.of(x, 0)) for x in (q, k, v))
                for queries in work.tiling.queries:
                    q_t = queries.of(q_n, 1)
                    total = Sum(queries.of(heads.of(out, 0), 1), work.sum_memory)
                    for keys in work.keys_seen(queries):
                        weights = weigh(work.scores(q_t, keys.of(k_n, 1), queries, keys))
                        mask = work.mask(weights, heads, queries, keys)
                        total.add(weights if mask is None else mask.mul_(weights), keys.of(v_n, 1))
                    total.finish()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        function, in_place, causal, scale, dropout, seed = ctx.options
        wide = torch.float32 if grad.dtype == torch.float32 else grad.dtype
        dq, dk, dv = (torch.empty_like(x, dtype=wide) for x in (q, k, v))
        with torch.autocast(q.device.type, enabled=False):
            work = Pass(q, k, causal, scale, dropout, seed)
            dk_memory, dv_memory = Scratch(dk), Scratch(dk)
            for heads in work.tiling.heads:
                q_n, k_n, v_n, grad_n = (widened(heads.of(x, 0)) for x in (q, k, v, grad))
                dq_sums = [Sum(queries.of(heads.of(dq, 0), 1)) for queries in work.tiling.queries]
                for keys in work.tiling.keys:
                    k_s, v_s = keys.of(k_n, 1), keys.of(v_n, 1)
                    dk_sum = Sum(keys.of(heads.of(dk, 0), 1), dk_memory)
                    dv_sum = Sum(keys.of(heads.of(dv, 0), 1), dv_memory)
                    for queries in work.queries_seeing(keys):
                        q_t, grad_t = queries.of(q_n, 1), queries.of(grad_n, 1)
                        scores = work.scores(q_t, k_s, queries, keys)
                        if in_place:
                            weights, derive = in_place.forward(scores), None
                        else:
                            weights, derive = differentiated(function, scores)
                        weights_grad = torch.bmm(grad_t, v_s.transpose(1, 2), out=work.other_memory(*weights.shape))
                        mask = work.mask(weights, heads, queries, keys)
                        if mask is not None:
                            weights_grad.mul_(mask)
                        dv_sum.add((weights if mask is None else mask.mul_(weights)).transpose(1, 2), grad_t)
                        scores_grad = in_place.backward(weights_grad, weights) if in_place else derive(weights_grad)
                        if causal and keys.stop > queries.start + 1 and not in_place:
                            scores_grad = scores_grad.tril(queries.start - keys.start)
                        dk_sum.add(scores_grad.transpose(1, 2), q_t, scale)
                        dq_sums[queries.number].add(scores_grad, k_s, scale)
                    dk_sum.finish()
                    dv_sum.finish()
                for dq_sum in dq_sums:
                    dq_sum.finish()
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None, None, None, None


def streaming_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    function: Callable[[Tensor], Tensor],
    in_place: Optional[InPlace] = None,
    causal: bool = False,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    """f(scale · q kᵀ) v of every head, by tiles.

    Args:
        q: (N, T, d_h); k, v: (N, S, d_h); any layout: the result, and each gradient, has that of q (or k, v)
        function: a pointwise activation, f(0) = 0
        in_place: the same, faster
        causal: query t sees keys 0 … t only
        dropout: the probability of dropping a weight

    Returns: heads (N, T, d_h), in float32 where q is in half precision: weights are unbounded, and so is their sum
    """
    # from torch's CPU generator: no device is waited for, and recomputed activations draw the same again
    seed = int(torch.randint(2**31, (1,))) if dropout > 0 else 0
    return StreamingAttention.apply(q, k, v, function, in_place, causal, scale, dropout, seed)
