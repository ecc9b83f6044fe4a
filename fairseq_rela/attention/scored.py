"""The queries and keys whose products are the scores, for any row of the catalog.

They are projected. Where the row asks for it, they are also scaled to one size, centred, and extended by the columns
of a threshold. `multihead` computes the scores and all that follows.
Shapes: T queries, S keys, B hypotheses, N sentences, H heads of width d_h; w = d_h plus the further columns.
"""

from typing import List, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_rela.attention.activations import ACTIVATIONS, TOPK
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.centring import centred, centring_column, common_mean, unit_size, with_columns
from fairseq_rela.attention.norms import NORMS, keep_columns
from fairseq_rela.attention.projection import Projection
from fairseq_rela.attention.threshold import Threshold, ThresholdSetting
from fairseq_rela.errors import InputError


class ScoredAttention(MultiheadAttention):
    """fairseq's attention with the activation, norm and threshold of a row of the catalog. It has no `forward` yet."""

    __constants__: Tuple[str, ...] = ("pointwise", "normed", "centred", "unit", "one_column", "causal")

    def __init__(
        self,
        name: str,
        embed_dim: int,
        num_heads: int,
        causal: bool = False,
        threshold: Optional[ThresholdSetting] = None,
        topk: int = TOPK,
        **options,
    ):
        """
        Args:
            name: a row of the catalog
            causal: a square `attn_mask` means that query t sees keys 0 … t only, as in the self-attention of a decoder.
                The mask's values are not read, because that would synchronise the GPU. It need not have any: see
                `masks.future_mask`. Without a mask every query sees every key
            threshold: what is subtracted from the scores. Only a pointwise activation has it
            topk: how many scores of a row the activation `topk` keeps
        """
        row = attention(name)
        if embed_dim % num_heads != 0:
            raise InputError(
                f"width {embed_dim} is not divisible by {num_heads} heads; choose a number of heads that divides it"
            )
        for option in ("add_bias_kv", "add_zero_attn"):
            if options.get(option):
                raise InputError(f"{option}: {name} attention cannot have the key that this adds; leave it out")
        super().__init__(embed_dim, num_heads, **options)
        for place in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, place, Projection.of(getattr(self, place)))
        self.name, self.activation_name = name, row.activation
        activation = ACTIVATIONS[row.activation]
        self.pointwise = activation.pointwise
        self.activation = activation.build(topk) if activation.takes_k else activation.build()
        self.centred, self.unit = row.centred, row.unit
        # the column of a threshold is the same for all keys, so the column of the queries' own means can hold it too
        self.one_column = row.unit or threshold is None or threshold.target is None
        self.causal = causal
        self.normed = row.norm != "none"
        self.norm = NORMS[row.norm](embed_dim, self.head_dim)
        self.threshold = Threshold(num_heads, threshold) if threshold is not None and self.pointwise else None

    def _projected_keys(self, key: Tensor) -> Tensor:
        """Inputs (S, N, d) → projected keys (S, N, H, d_h), scaled to one size if the row asks for it."""
        k = self.k_proj(key).view(key.size(0), key.size(1), self.num_heads, -1)
        return unit_size(k) if self.unit else k

    def _queries(self, query: Tensor, mean: Optional[Tensor]) -> Tuple[Tensor, List[Tensor]]:
        """Inputs (T, B, d) → projected queries (T, B, H, d_h), and their further columns, (…, H or 1, 1).

        There is one column if each query has its own `mean` of the keys (T or 1, B, H, d_h), and one for a threshold.
        If the keys have the same column for both, there is one column for both.
        """
        q = self.q_proj(query).view(query.size(0), query.size(1), self.num_heads, -1)
        if self.unit:
            q = unit_size(q)
        columns: List[Tensor] = []
        if mean is not None:
            columns.append(centring_column(q, mean, self.k_proj.bias))
        if self.threshold is not None:
            if mean is not None and self.one_column:
                size = float(self.head_dim) ** 0.5  # of every key
                columns = [columns[0] + self.threshold.query_column(q, self.scaling, size)]
            else:
                columns.append(self.threshold.query_column(q, self.scaling))
        return q, columns

    def _keys(self, k: Tensor, padding: Optional[Tensor], own_mean: bool) -> Tuple[Tensor, List[Tensor]]:
        """Projected keys (S, N, H, d_h), and the columns that are multiplied by those of the queries.

        `own_mean` says that each query of a centred row has its own mean of the keys. Otherwise all queries see the
        same keys, and the keys themselves are centred here.
        """
        columns: List[Tensor] = []
        if self.centred and own_mean:
            columns.append(torch.ones(1, 1, dtype=k.dtype, device=k.device))
        elif self.centred:
            k = centred(k, common_mean(k, padding), self.k_proj.bias)
        if self.threshold is not None and (len(columns) == 0 or not self.one_column):
            columns.append(self.threshold.key_column(k))
        return k, columns

    def _scored_queries(self, query: Tensor, mean: Optional[Tensor]) -> Tensor:
        """Queries (T, B, d) → (T, B, H, w), with their columns."""
        q, columns = self._queries(query, mean)
        return with_columns(q, columns)

    def _scored_keys(self, k: Tensor, padding: Optional[Tensor], own_mean: bool) -> Tensor:
        """Projected keys (S, N, H, d_h) → (S, N, H, w), with their columns."""
        k, columns = self._keys(k, padding, own_mean)
        return with_columns(k, columns)

    @torch.jit.unused
    def _drive_threshold(self, q: Tensor, k: Tensor, beside_q: Tensor, beside_k: Tensor, causal: bool) -> None:
        # With checkpointed activations `forward` runs twice per update. Only the second run has gradients.
        if self.threshold is not None and self.training and torch.is_grad_enabled():
            self.threshold.drive(q, k, beside_q, beside_k, causal, self_attention=self.self_attention)

    @torch.jit.unused
    def _by_head(self, x: Tensor) -> Tensor:
        """(S, B, d) or (S, B, H, w) → (B × H, S, w)."""
        return x.reshape(x.size(0), x.size(1) * self.num_heads, -1).transpose(0, 1)

    @torch.jit.unused
    def _columns_by_head(self, columns: List[Tensor], x: Tensor, padding: Optional[Tensor]) -> Optional[Tensor]:
        """The further columns of x (S, B, H, d_h) as (B × H, S, c), 0 at `padding` (S, B, 1, 1); None if none."""
        if not columns:
            return None
        shape = [*x.shape[:3], 1]
        whole = [column.expand(shape) for column in columns]
        joined = whole[0] if len(whole) == 1 else torch.cat(whole, dim=-1)
        return self._by_head(joined if padding is None else joined.masked_fill(padding, 0.0))

    def _split_heads(self, x: Tensor) -> Tensor:
        """(S, N, d) → (N, H, S, d_h), a view of the same memory where that is possible."""
        return x.reshape(x.size(0), x.size(1), self.num_heads, -1).permute(1, 2, 0, 3)

    def _adaptive_prune_heads(self, reserve_head_index: List[Tuple[int, int]]) -> None:
        """fairseq's pruning: keep the heads whose columns [begin, end) are given, in that order.

        Gate, gain and threshold are pruned with the projections. An attention with RMSNorm then computes what it
        computed before with the other heads set to 0.
        """
        if not reserve_head_index:
            raise InputError("no head is kept; keep at least one head of each attention")
        columns = torch.cat([torch.arange(begin, end) for begin, end in reserve_head_index])
        super()._adaptive_prune_heads(reserve_head_index)
        self.out_proj.in_features = self.embed_dim
        keep_columns(self.norm, columns)
        if self.threshold is not None:
            self.threshold.keep_heads([begin // self.head_dim for begin, _ in reserve_head_index])
