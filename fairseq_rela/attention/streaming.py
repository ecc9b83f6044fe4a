"""Pointwise attention by tiles, exactly and without the T × S weights in memory (paper, Equation 5).

    heads z = Σ_j f(scale · q k_jᵀ) v_j          over tiles of keys j

Softmax must see a whole row before it can weigh anything. A pointwise f need not: each tile of keys adds
its part to the heads and is forgotten. There are no row statistics, and nothing is rescaled. For the
backward pass only q, k, v are kept, and the seed of the dropout; scores are computed again:

    weights  a = f(s)                s = scale · q kᵀ
    dv = aᵀ dz      da = dz vᵀ       ds = scale · da ⊙ f′(s)       dq = ds k      dk = dsᵀ q

Shapes: N heads (of all sentences), T queries, S keys, width d_h; a tile is n heads × t queries × s keys.
"""

from typing import Callable, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_rela.attention.activations import InPlace, widened
from fairseq_rela.attention.parallel import for_each

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
    """The spans of heads, queries and keys whose products are the tiles."""

    heads: Tuple[Span, ...]
    queries: Tuple[Span, ...]
    keys: Tuple[Span, ...]

    def number(self, heads: Span, queries: Span, keys: Span) -> int:
        """A number no other tile has."""
        return (heads.number * len(self.queries) + queries.number) * len(self.keys) + keys.number


def tiling(q: Tensor, k: Tensor, causal: bool) -> Tiling:
    """Tiles for queries (N, T, d_h) and keys (N, S, d_h), chosen by their shapes and what kind of device it is."""
    side = min(max(q.size(1) // 4, CAUSAL_SIDES[0]), CAUSAL_SIDES[1]) if causal else FULL_SIDE
    queries, keys = spans(q.size(1), side), spans(k.size(1), side)
    rows, columns = (max((s.stop - s.start for s in dim), default=1) for dim in (queries, keys))
    elements = CPU_TILE if q.device.type == "cpu" else DEVICE_TILE
    return Tiling(spans(q.size(0), max(1, elements // (rows * columns))), queries, keys)


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


class Part(NamedTuple):
    """A place in a larger piece of memory, from element `start` on."""

    memory: Tensor
    start: int

    def __call__(self, *shape: int) -> Tensor:
        return self.memory.view(-1)[self.start : self.start + shape[0] * shape[1] * shape[2]].view(shape)


class Sum:
    """A sum of matrix products (n, rows, d_h) that ends up in `target`, wherever that lies in memory.

    Torch's batched product is fast only into contiguous memory.
    """

    def __init__(self, target: Tensor, scratch: Callable[..., Tensor]):
        self.target = target
        self.empty = True
        self.total = target if target.is_contiguous() else scratch(*target.shape)

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


class How(NamedTuple):
    """What is to be computed, of q, k and v: see `streaming_attention`."""

    function: Callable[[Tensor], Tensor]
    in_place: Optional[InPlace]
    causal: bool
    scale: float
    dropout: float
    seed: int


class Tiles:
    """The tiles of some heads, and their scores and dropout masks; each thread has its own, with its own memory."""

    def __init__(self, how: How, plan: Tiling, like: Tensor):
        self.how, self.plan = how, plan
        self.scratch = {name: Scratch(like) for name in ("scores", "gradient", "dq", "dk", "dv", "heads")}
        self.dropout = Dropout(how.dropout, how.seed, like) if how.dropout > 0 else None

    def visible(self, queries: Span, keys: Span) -> bool:
        """Whether any of these queries may see any of these keys."""
        return not self.how.causal or keys.start < queries.stop

    def hide_future(self, tile: Tensor, queries: Span, keys: Span) -> Tensor:
        """Zero what belongs to keys that come after the query."""
        if self.how.causal and keys.stop > queries.start + 1:
            tile.tril_(queries.start - keys.start)
        return tile

    def scores(self, q: Tensor, k: Tensor, queries: Span, keys: Span) -> Tensor:
        """scale · q kᵀ (n, t, s) of a tile; the future's are 0, whose weight is 0."""
        memory = self.scratch["scores"](q.size(0), q.size(1), k.size(1))
        return self.hide_future(product(q, k.transpose(1, 2), memory, self.how.scale), queries, keys)

    def mask(self, weights: Tensor, heads: Span, queries: Span, keys: Span) -> Optional[Tensor]:
        """The dropout mask (n, t, s) of a tile, or None."""
        if self.dropout is None:
            return None
        return self.dropout.mask(weights.shape, self.plan.number(heads, queries, keys))

    def forward(self, chosen: Sequence[Span], q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        """The chosen heads of `out` (N, T, d_h): z = f(s) v, summed over tiles of keys."""
        weigh = self.how.in_place.forward if self.how.in_place else self.how.function
        for heads in chosen:
            q_n, k_n, v_n = (widened(heads.of(x, 0)) for x in (q, k, v))
            for queries in self.plan.queries:
                q_t = queries.of(q_n, 1)
                total = Sum(queries.of(heads.of(out, 0), 1), self.scratch["heads"])
                for keys in self.plan.keys:
                    if self.visible(queries, keys):
                        weights = weigh(self.scores(q_t, keys.of(k_n, 1), queries, keys))
                        mask = self.mask(weights, heads, queries, keys)
                        total.add(weights if mask is None else mask.mul_(weights), keys.of(v_n, 1))
                total.finish()

    def backward(
        self, chosen: Sequence[Span], qkv: Sequence[Tensor], grad: Tensor, gradients: Sequence[Tensor]
    ) -> None:
        """The chosen heads of dq (N, T, d_h), dk and dv (N, S, d_h), from those of the output's, `grad` (N, T, d_h)."""
        for heads in chosen:
            q, k, v, dz = (widened(heads.of(x, 0)) for x in (*qkv, grad))
            dq, dk, dv = (heads.of(x, 0) for x in gradients)
            dq_memory = self.scratch["dq"](*dq.shape)  # for all its tiles, which are summed over the outer loop
            dq_sums = [
                Sum(queries.of(dq, 1), Part(dq_memory, queries.start * dq.size(0) * dq.size(2)))
                for queries in self.plan.queries
            ]
            for keys in self.plan.keys:
                k_s, v_s = keys.of(k, 1), keys.of(v, 1)
                dk_sum, dv_sum = Sum(keys.of(dk, 1), self.scratch["dk"]), Sum(keys.of(dv, 1), self.scratch["dv"])
                for queries in self.plan.queries:
                    if self.visible(queries, keys):
                        q_t, dz_t = queries.of(q, 1), queries.of(dz, 1)
                        weights, derive = self.differentiated(self.scores(q_t, k_s, queries, keys))
                        da = product(dz_t, v_s.transpose(1, 2), self.scratch["gradient"](*weights.shape))
                        mask = self.mask(weights, heads, queries, keys)
                        if mask is not None:
                            da.mul_(mask)
                        dv_sum.add((weights if mask is None else mask.mul_(weights)).transpose(1, 2), dz_t)
                        ds = self.hide_future(derive(da), queries, keys)
                        dk_sum.add(ds.transpose(1, 2), q_t, self.how.scale)
                        dq_sums[queries.number].add(ds, k_s, self.how.scale)
                dk_sum.finish()
                dv_sum.finish()
            for dq_sum in dq_sums:
                dq_sum.finish()

    def differentiated(self, scores: Tensor) -> Tuple[Tensor, Callable[[Tensor], Tensor]]:
        """f(s), and the map from its gradient to that of s. Where f has no faster way: by autograd, on this tile."""
        if self.how.in_place is not None:
            weights, backward = self.how.in_place.forward(scores), self.how.in_place.backward
            return weights, lambda gradient: backward(gradient, weights)
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            weights = self.how.function(scores)
        return weights.detach(), lambda gradient: torch.autograd.grad(weights, scores, gradient)[0]


class StreamingAttention(torch.autograd.Function):
    """See `streaming_attention`."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, how: How) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.how = how
        out = torch.empty_like(q, dtype=widened(q.new_empty(0)).dtype)
        plan = tiling(q, k, how.causal)
        with torch.autocast(q.device.type, enabled=False):
            for_each(lambda heads: Tiles(how, plan, out).forward(heads, q, k, v, out), plan.heads, q.device)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        qkv = ctx.saved_tensors
        gradients = [torch.empty_like(x, dtype=grad.dtype) for x in qkv]
        plan = tiling(*qkv[:2], ctx.how.causal)
        with torch.autocast(grad.device.type, enabled=False):
            for_each(
                lambda heads: Tiles(ctx.how, plan, grad).backward(heads, qkv, grad, gradients), plan.heads, grad.device
            )
        return (*(d.to(x.dtype) for d, x in zip(gradients, qkv)), None)


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
    return StreamingAttention.apply(q, k, v, How(function, in_place, causal, scale, dropout, seed))
