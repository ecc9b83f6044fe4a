"""Pointwise attention by tiles, exactly and without the T × S weights in memory (paper, Equation 3).

    heads z = Σ_j f(scale · q k_jᵀ) v_j          over tiles of keys j

Softmax must see a whole row before it can weigh anything. A pointwise f need not: each tile of keys adds
its part to the heads and is forgotten. There are no row statistics, and nothing is rescaled. For the
backward pass only q, k, v are kept, and the seed of the dropout; scores are computed again:

    weights  a = f(s)                s = scale · q kᵀ
    dv = aᵀ dz      da = dz vᵀ       ds = da ⊙ f′(s)       dq = scale · ds k      dk = scale · dsᵀ q

Shapes: N heads (of all sentences), T queries, S keys, width d_h. A tile is n heads × t queries × s keys in
the forward pass and n × s × t in the backward pass, where two of three sums then need no transposed product.
"""

from typing import Callable, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_rela.attention.activations import InPlace, at_least_float32
from fairseq_rela.attention.products import Scratch, Sum, balance, factor, product

# Elements in a tile: on a CPU what stays in its cache, with what the products need beside it.
CPU_TILE, DEVICE_TILE = 2**18, 2**24
# Heads in a tile at least, so that two threads have one each.
FEWEST_HEADS = 2
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


def even_side(length: int, longest: int) -> int:
    """The side with which as few spans of at most `longest` as will do are of nearly equal size."""
    return max(1, -(-length // max(1, -(-length // longest))))


def spans(length: int, side: int) -> Tuple[Span, ...]:
    """`length` positions in spans of `side`; the last may be shorter."""
    starts = range(0, length, side)
    return tuple(Span(i, start, min(start + side, length)) for i, start in enumerate(starts))


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
    queries, keys = q.size(1), k.size(1)
    if causal:  # the same sides, so that no tile but one on the diagonal holds both past and future
        rows = columns = even_side(queries, min(max(queries // 4, CAUSAL_SIDES[0]), CAUSAL_SIDES[1]))
    else:
        rows, columns = even_side(queries, FULL_SIDE), even_side(keys, FULL_SIDE)
    largest = max(CPU_TILE if q.device.type == "cpu" else DEVICE_TILE, FEWEST_HEADS * rows * columns)
    # no more than half of what q or k takes: memory is not to be spent on the two tiles of the backward pass
    heads = min(largest, max(q.numel(), k.numel()) // 2) // (rows * columns)
    return Tiling(spans(q.size(0), max(1, heads)), spans(queries, rows), spans(keys, columns))


class StreamingOptions(NamedTuple):
    """What is to be computed, of q, k and v: see `streaming_attention`."""

    function: Callable[[Tensor], Tensor]
    in_place: Optional[InPlace]
    causal: bool
    scale: float
    dropout: float
    seed: int


class Rows(NamedTuple):
    """The queries of some heads and the gradient of their output, (n, T, d_h), as factors of products."""

    q: Tensor
    dz: Tensor
    balanced_q: Tensor
    balance: Optional[Tensor]  # m (n, T, 1): `dz` is that of the output / m, `balanced_q` is q m

    @classmethod
    def of(cls, q: Tensor, grad: Tensor) -> "Rows":
        if q.dtype == torch.float16:  # what float32 holds of a gradient may be 0 or infinite there
            m = balance(q, grad)
            return cls(q, (grad / m).to(q.dtype), (q * m).to(q.dtype), m)
        return cls(q, grad.to(q.dtype), q, None)


class Tiles:
    """The tiles of one pass: their scores, weights and dropout masks, in memory that each of them uses again."""

    def __init__(self, options: StreamingOptions, plan: Tiling, past: Callable[[Tensor], Tensor], like: Tensor):
        """
        Args:
            past: keeps of a tile on the diagonal what the queries may see: `Tensor.tril_` where they are its rows
            like: a factor of the products: tiles are of its type
        """
        self.options, self.plan, self.keep_past = options, plan, past
        self.scratch = {name: Scratch(like) for name in ("scores", "gradient", "mask", "heads", "dq", "dk", "dv")}
        self.kept = (
            1.0 / (1.0 - options.dropout) if options.dropout < 1 else 0.0
        )  # what a weight that is kept is scaled by
        self.generator = torch.Generator(device=like.device) if options.dropout > 0 else None
        side = plan.queries[0].stop if options.causal and plan.queries else 0
        self.past = past(at_least_float32(like.new_ones(side, side)))

    def visible(self, queries: Span, keys: Span) -> bool:
        """Whether any of these queries may see any of these keys."""
        return not self.options.causal or keys.start < queries.stop

    def hide_future(self, tile: Tensor, queries: Span, keys: Span) -> None:
        """Zero what belongs to keys that come after the query."""
        if self.options.causal and queries.number == keys.number:
            if tile.dtype == self.past.dtype:
                tile.mul_(self.past[: tile.size(1), : tile.size(2)])
            else:  # half precision: a score may be infinite, and 0 times that is NaN
                self.keep_past(tile)

    def mask(self, heads: Span, queries: Span, keys: Span) -> Optional[Tensor]:
        """The dropout mask (n, s, t) of a tile, 0 or 1, the same whenever it is asked for; None without dropout."""
        if self.generator is None:
            return None
        mask = self.scratch["mask"](*(span.stop - span.start for span in (heads, keys, queries)))
        self.generator.manual_seed(self.options.seed + self.plan.number(heads, queries, keys))
        return mask.bernoulli_(1.0 - self.options.dropout, generator=self.generator)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        """`out` (N, T, d_h): z = f(s) v, summed over tiles of keys."""
        weigh = self.options.in_place.forward if self.options.in_place else self.options.function
        for heads in self.plan.heads:
            q_n, k_n, v_n = (factor(heads.of(x, 0)) for x in (q, k, v))
            for queries in self.plan.queries:
                q_t = queries.of(q_n, 1)
                total = Sum(queries.of(heads.of(out, 0), 1), self.scratch["heads"], weighted=True)
                for keys in self.plan.keys:
                    if self.visible(queries, keys):
                        k_s = keys.of(k_n, 1)
                        scores = self.scratch["scores"](q_t.size(0), q_t.size(1), k_s.size(1))
                        product(q_t, k_s.transpose(1, 2), scores, self.options.scale)
                        self.hide_future(scores, queries, keys)
                        weights = weigh(scores)
                        mask = self.mask(heads, queries, keys)
                        if mask is not None:
                            weights = weights.mul_(mask.transpose(1, 2))
                        total.add(weights, keys.of(v_n, 1), self.kept)
                total.finish()

    def backward(self, qkv: Sequence[Tensor], grad: Tensor, gradients: Sequence[Tensor]) -> None:
        """dq (N, T, d_h), dk and dv (N, S, d_h), from the gradient of the output, `grad` (N, T, d_h)."""
        for heads in self.plan.heads:
            q, k, v = (factor(heads.of(x, 0)) for x in qkv)
            dq, dk, dv = (heads.of(x, 0) for x in gradients)
            rows = Rows.of(q, heads.of(grad, 0))
            for keys in self.plan.keys:
                sums = Sum(keys.of(dk, 1), self.scratch["dk"]), Sum(keys.of(dv, 1), self.scratch["dv"])
                for queries in self.plan.queries:
                    if self.visible(queries, keys):
                        ds = self.tile_gradient(heads, queries, keys, rows, keys.of(k, 1), keys.of(v, 1), sums)
                        self.add_to(queries.of(dq, 1), ds.transpose(1, 2), keys.of(k, 1), first=keys.number == 0)
                for total in sums:
                    total.finish()
            if not self.plan.keys:
                dq.zero_()
            elif rows.balance is not None:
                dq.mul_(rows.balance)

    def tile_gradient(
        self, heads: Span, queries: Span, keys: Span, rows: "Rows", k: Tensor, v: Tensor, sums: Tuple[Sum, Sum]
    ) -> Tensor:
        """The gradient of a tile's scores (n, s, t), from its keys and values. Its parts of dk and dv are added to
        `sums`."""
        q, dz = queries.of(rows.q, 1), queries.of(rows.dz, 1)
        scores = self.scratch["scores"](k.size(0), k.size(1), q.size(1))
        product(k, q.transpose(1, 2), scores, self.options.scale)
        self.hide_future(scores, queries, keys)
        weights, derive = self.differentiated(scores)
        da = product(v, dz.transpose(1, 2), self.scratch["gradient"](*scores.shape), self.kept)
        mask = self.mask(heads, queries, keys)
        if mask is not None:
            da.mul_(mask)
        ds = derive(da)
        if mask is not None:
            weights = weights.mul_(mask)
        if rows.balance is not None:
            weights = weights.mul_(queries.of(rows.balance, 1).transpose(1, 2))
        dk, dv = sums
        dv.add(weights, dz, self.kept)
        if self.options.in_place is None:  # else the derivative is 0 where the weight is
            self.hide_future(ds, queries, keys)
        dk.add(ds, queries.of(rows.balanced_q, 1), self.options.scale)
        return ds

    def add_to(self, target: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
        """target = scale · a b the first time, target + scale · a b later. Every query sees the first tile of keys."""
        if target.is_contiguous() and target.dtype == a.dtype:
            product(a, b, target, self.options.scale, more=not first)
        else:
            part = product(a, b, self.scratch["dq"](*target.shape), self.options.scale)
            target.copy_(part) if first else target.add_(part)

    def differentiated(self, scores: Tensor) -> Tuple[Tensor, Callable[[Tensor], Tensor]]:
        """f(s), and the map from its gradient to that of s. Where f has no faster way: by autograd, on this tile."""
        if self.options.in_place is not None:
            weights, backward = self.options.in_place.forward(scores), self.options.in_place.backward
            return weights, lambda gradient: backward(gradient, weights)
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            weights = self.options.function(scores)
        return weights.detach(), lambda gradient: torch.autograd.grad(weights, scores, gradient)[0]


class StreamingAttention(torch.autograd.Function):
    """See `streaming_attention`."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, options: StreamingOptions) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.options = options
        out = torch.empty_like(q[..., : v.size(2)], dtype=at_least_float32(q.new_empty(0)).dtype)
        with torch.autocast(q.device.type, enabled=False):
            Tiles(options, tiling(q, k, options.causal), Tensor.tril_, factor(q[:0])).forward(q, k, v, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        qkv = ctx.saved_tensors
        gradients = [torch.empty_like(x, dtype=grad.dtype) for x in qkv]
        plan = tiling(qkv[0], qkv[1], ctx.options.causal)
        with torch.autocast(grad.device.type, enabled=False):
            Tiles(ctx.options, plan, Tensor.triu_, factor(qkv[0][:0])).backward(qkv, grad, gradients)
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
        q: (N, T, d_h); k, v: (N, S, d_h); any layout: the result, and each gradient, has that of q (or k, v);
            q and k may both be wider than v
        function: a pointwise activation, f(0) = 0
        in_place: the same, faster
        causal: query t sees keys 0 … t only
        dropout: the probability of dropping a weight

    Returns: heads (N, T, d_h), in float32 where q is in half precision: weights are unbounded, and so is their sum
    """
    # from torch's CPU generator: no device is waited for, and recomputed activations draw the same again
    seed = int(torch.randint(2**31, (1,))) if dropout > 0 else 0
    return StreamingAttention.apply(q, k, v, StreamingOptions(function, in_place, causal, scale, dropout, seed))
