"""Pointwise attention by tiles, exactly and without the T × S weights in memory (paper, Equation 3).

    heads z = Σ_j f(scale · q k_jᵀ) v_j          over tiles of keys j

Softmax needs a whole row of scores before it can compute one weight. A pointwise f does not: each tile of keys
adds its part to the heads and is then dropped. There are no row statistics, and nothing is rescaled. For the
backward pass only q, k, v and the seed of the dropout are kept. The scores are computed again:

    weights  a = f(s)                s = scale · q kᵀ
    dv = aᵀ dz      da = dz vᵀ       ds = da ⊙ f′(s)       dq = scale · ds k      dk = scale · dsᵀ q

Shapes: N heads (of all sentences), T queries, S keys, width d_h. A tile is n heads × t queries × s keys in the
forward pass and n × s × t in the backward pass. There, two of the three sums then need no transposed product.
"""

from typing import Callable, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_rela.attention.activations import InPlace, at_least_float32
from fairseq_rela.attention.products import Scratch, Sum, balance, factor, product

# The number of elements in a tile. On a CPU a tile and the inputs of its products fit into the cache.
CPU_TILE, DEVICE_TILE = 2**18, 2**24
# A tile has at least two heads, so that two threads have work.
FEWEST_HEADS = 2
# The longest side of a tile.
FULL_SIDE = 512
# The shortest and the longest side of a causal tile: smaller, because half of a tile on the diagonal is wasted.
CAUSAL_SIDES = (64, 256)


class Span(NamedTuple):
    """Positions start … stop − 1 of one dimension. `number` counts the spans of that dimension from 0."""

    number: int
    start: int
    stop: int

    def of(self, x: Tensor, dim: int) -> Tensor:
        """The part of `x` at these positions of dimension `dim`."""
        return x.narrow(dim, self.start, self.stop - self.start)


def equal_side(length: int, longest: int) -> int:
    """The side that splits `length` into the fewest spans of at most `longest`, all of nearly equal size."""
    return max(1, -(-length // max(1, -(-length // longest))))


def spans(length: int, side: int) -> Tuple[Span, ...]:
    """`length` positions, split into spans of `side`. The last one may be shorter."""
    starts = range(0, length, side)
    return tuple(Span(i, start, min(start + side, length)) for i, start in enumerate(starts))


class Tiling(NamedTuple):
    """The spans of heads, queries and keys whose products are the tiles."""

    heads: Tuple[Span, ...]
    queries: Tuple[Span, ...]
    keys: Tuple[Span, ...]

    def number(self, heads: Span, queries: Span, keys: Span) -> int:
        """A number that no other tile has."""
        return (heads.number * len(self.queries) + queries.number) * len(self.keys) + keys.number


def tiling(q: Tensor, k: Tensor, causal: bool) -> Tiling:
    """The tiles for queries (N, T, d_h) and keys (N, S, d_h). They depend on the shapes and the type of device only."""
    queries, keys = q.size(1), k.size(1)
    if causal:  # square tiles, so that only those on the diagonal contain both past and future
        rows = columns = equal_side(queries, min(max(queries // 4, CAUSAL_SIDES[0]), CAUSAL_SIDES[1]))
    else:
        rows, columns = equal_side(queries, FULL_SIDE), equal_side(keys, FULL_SIDE)
    largest = max(CPU_TILE if q.device.type == "cpu" else DEVICE_TILE, FEWEST_HEADS * rows * columns)
    # At most half the size of q or k, so that the two tiles of the backward pass take little memory.
    heads = min(largest, max(q.numel(), k.numel()) // 2) // (rows * columns)
    return Tiling(spans(q.size(0), max(1, heads)), spans(queries, rows), spans(keys, columns))


class StreamingOptions(NamedTuple):
    """The arguments of `streaming_attention` beside q, k and v, and the seed of its dropout."""

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
    """Computes one pass, forward or backward, tile by tile. All tiles use the same scratch memory."""

    def __init__(self, options: StreamingOptions, plan: Tiling, past: Callable[[Tensor], Tensor], like: Tensor):
        """
        Args:
            past: sets the future to 0 in a tile on the diagonal: `Tensor.tril_` if queries are the rows of a tile,
                `Tensor.triu_` if they are its columns
            like: a factor of the products. Tiles have its dtype and device
        """
        self.options, self.plan, self.keep_past = options, plan, past
        self.scratch = {name: Scratch(like) for name in ("scores", "gradient", "mask", "heads", "dq", "dk", "dv")}
        # dropout multiplies the weights that it keeps by this
        self.kept_scale = 1.0 / (1.0 - options.dropout) if options.dropout < 1 else 0.0
        self.generator = torch.Generator(device=like.device) if options.dropout > 0 else None
        side = plan.queries[0].stop if options.causal and plan.queries else 0
        self.past = past(at_least_float32(like.new_ones(side, side)))

    def visible(self, queries: Span, keys: Span) -> bool:
        """Whether any of these queries may see any of these keys."""
        return not self.options.causal or keys.start < queries.stop

    def hide_future(self, tile: Tensor, queries: Span, keys: Span) -> None:
        """Set a tile to 0 where the key comes after the query."""
        if self.options.causal and queries.number == keys.number:
            if tile.dtype == self.past.dtype:
                tile.mul_(self.past[: tile.size(1), : tile.size(2)])
            else:  # half precision: a score may be infinite, and 0 times that is NaN
                self.keep_past(tile)

    def mask(self, heads: Span, queries: Span, keys: Span) -> Optional[Tensor]:
        """The dropout mask (n, s, t) of a tile, 0 or 1. Each call gives the same mask. None without dropout."""
        if self.generator is None:
            return None
        mask = self.scratch["mask"](*(span.stop - span.start for span in (heads, keys, queries)))
        self.generator.manual_seed(self.options.seed + self.plan.number(heads, queries, keys))
        return mask.bernoulli_(1.0 - self.options.dropout, generator=self.generator)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        """Write the heads z = f(s) v to `out` (N, T, d_h)."""
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
                        total.add(weights, keys.of(v_n, 1), self.kept_scale)
                total.finish()

    def backward(self, qkv: Sequence[Tensor], grad: Tensor, gradients: Sequence[Tensor]) -> None:
        """Write dq (N, T, d_h), dk and dv (N, S, d_h) to `gradients`. `grad` (N, T, d_h) is that of the output."""
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
        da = product(v, dz.transpose(1, 2), self.scratch["gradient"](*scores.shape), self.kept_scale)
        mask = self.mask(heads, queries, keys)
        if mask is not None:
            da.mul_(mask)
        ds = derive(da)
        if mask is not None:
            weights = weights.mul_(mask)
        if rows.balance is not None:
            weights = weights.mul_(queries.of(rows.balance, 1).transpose(1, 2))
        dk, dv = sums
        dv.add(weights, dz, self.kept_scale)
        if self.options.in_place is None:  # else the derivative is 0 where the weight is
            self.hide_future(ds, queries, keys)
        dk.add(ds, queries.of(rows.balanced_q, 1), self.options.scale)
        return ds

    def add_to(self, target: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
        """target = scale · a b the first time, target + scale · a b later.

        The first time is the first tile of keys, which every query sees.
        """
        if target.is_contiguous() and target.dtype == a.dtype:
            product(a, b, target, self.options.scale, more=not first)
        else:
            part = product(a, b, self.scratch["dq"](*target.shape), self.options.scale)
            target.copy_(part) if first else target.add_(part)

    def differentiated(self, scores: Tensor) -> Tuple[Tensor, Callable[[Tensor], Tensor]]:
        """f(s), and a function from the gradient of f(s) to that of s. Without `in_place` it is autograd's."""
        if self.options.in_place is not None:
            weights, backward = self.options.in_place.forward(scores), self.options.in_place.backward
            return weights, lambda gradient: backward(gradient, weights)
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            weights = self.options.function(scores)
        return weights.detach(), lambda gradient: torch.autograd.grad(weights, scores, gradient)[0]


class StreamingAttention(torch.autograd.Function):
    """`streaming_attention` with its gradient."""

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
        q: (N, T, d_h); k, v: (N, S, d_h). q and k may both be wider than v. Any memory layout: the result is laid out
            like q, and each gradient like its tensor
        function: a pointwise activation, f(0) = 0
        in_place: a faster form of the same activation
        causal: query t sees keys 0 … t only
        dropout: the probability of dropping a weight

    Returns: heads (N, T, d_h). They are float32 if q is in half precision, because the sum of weights is unbounded
    """
    # The seed comes from torch's CPU generator, which does not wait for a device. Recomputed activations get it again.
    seed = int(torch.randint(2**31, (1,))) if dropout > 0 else 0
    return StreamingAttention.apply(q, k, v, StreamingOptions(function, in_place, causal, scale, dropout, seed))
