"""Multi-head attention with any row of the catalog. It takes the place of fairseq's (paper, Section 4).

    scores  s = (X Wq)(Y Wk)ᵀ / √d_h        per head, T × S; the keys may be centred, see `centring`
    weights α = act(s), masked positions exactly 0        or act(s − θ), see `threshold`
    heads   z = [α¹V¹ … α^H V^H]            concatenated, T × d
    output    = norm(z) Wo

Shapes: T queries, S keys, B hypotheses, N sentences (B = N × beam in beam search, else B = N),
H heads of width d_h, d = H × d_h.
"""

from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

from fairseq_rela.attention.activations import ACTIVATIONS, at_least_float32
from fairseq_rela.attention.centring import mean_so_far, running_mean, visible_mean
from fairseq_rela.attention.masks import check_mask, hidden_by, joined_padding
from fairseq_rela.attention.pointwise import kernel_attention, pointwise_attention
from fairseq_rela.attention.products import product32
from fairseq_rela.attention.scored import ScoredAttention


class RelaMultiheadAttention(ScoredAttention):
    """fairseq's `MultiheadAttention` with a `forward` of our own.

    Projections, incremental state and the names of parameters are fairseq's. Its `forward` is not used, because it
    calls `F.multi_head_attention_forward`, which always computes softmax.
    """

    __constants__ = (*ScoredAttention.__constants__, "LEAST")

    # The lowest finite number of float32. Rowwise activations always compute in float32 or float64.
    LEAST = -3.4028234663852886e38

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """The output and, if they are asked for, the weights. The arguments are those of fairseq's attention.

        Args:
            query: (T, B, d)
            key, value: (S, B, d). None in self-attention, or once `static_kv` has cached them
            key_padding_mask: (B, S), true where a key is padding
            attn_mask: (T, S), additive (−1e4 or less hides a key) or boolean (true hides a key). In a causal attention
                any square mask means "no future", and its values are not read
            need_weights: also return the mean of the weights over heads, (B, T, S)
            need_head_weights: also return the weights of every head, (H, B, T, S)
            before_softmax: not supported, because there may be no softmax

        Returns: output (T, B, d), weights or None
        """
        assert not before_softmax, "before_softmax: weights here are act(scores), which need not be a softmax"
        if not torch.jit.is_scripting():  # TorchScript does not compile this block
            check_mask(attn_mask)
            asked = need_weights or need_head_weights
            if not asked and incremental_state is None and self._streams(attn_mask):
                return self._streamed(query, key, value, key_padding_mask, causal=attn_mask is not None), None
        tgt_len, bsz, _ = query.size()
        if attn_mask is not None and self._hides_future(attn_mask):
            attn_mask = torch.ones(tgt_len, tgt_len, dtype=torch.bool, device=query.device).triu(1)
        k, v, padding, mean = self._keys_values(
            query, key, value, key_padding_mask, incremental_state, static_kv, hidden_by(attn_mask)
        )
        q = self._scored_queries(query, mean)
        sentences, src_len, width = k.size(0), k.size(2), k.size(3)
        beam = bsz // sentences  # hypotheses of one sentence share its keys: their queries become rows

        q = q.view(tgt_len, sentences, beam, self.num_heads, width)
        q = q.permute(1, 3, 2, 0, 4).reshape(sentences * self.num_heads, beam * tgt_len, width)
        k, v = k.view(-1, src_len, width), v.view(-1, src_len, self.head_dim)
        if not torch.jit.is_scripting() and incremental_state is None:
            d = self.head_dim
            self._drive_threshold(q[..., :d], k[..., :d], q[..., d:], k[..., d:], causal=attn_mask is not None)
        heads, weights = torch.jit.annotate(Optional[Tensor], None), torch.jit.annotate(Optional[Tensor], None)
        if not torch.jit.is_scripting() and not (need_weights or need_head_weights):
            heads = self._one_launch(q, k, v, attn_mask, padding)
        if heads is None:
            scores = torch.bmm(q * self.scaling, k.transpose(1, 2))
            scores = scores.view(sentences, self.num_heads, beam, tgt_len, src_len)
            weights = self._weights(scores, attn_mask, padding)
            heads = self._weighted_values(self.dropout_module(weights).view(-1, beam * tgt_len, src_len), v)
        heads = heads.view(sentences, self.num_heads, beam, tgt_len, self.head_dim)
        heads = heads.permute(3, 0, 2, 1, 4).reshape(tgt_len, bsz, -1)
        output = self.out_proj(self.norm(heads).to(query.dtype))

        if weights is None or not (need_weights or need_head_weights):
            return output, None
        shown = weights.permute(1, 0, 2, 3, 4).reshape(self.num_heads, bsz, tgt_len, src_len)
        return output, shown if need_head_weights else shown.mean(dim=0)

    def _weighted_values(self, weights: Tensor, v: Tensor) -> Tensor:
        """The heads, from weights (N × H, rows, S) and values (N × H, S, d_h)."""
        if self.normed and (v.dtype == torch.float16 or v.dtype == torch.bfloat16):
            # weights are unbounded: their sum over many keys passes float16's 65,504 and bfloat16's 8 bits
            return product32(weights, v)
        return torch.bmm(weights, v)

    @torch.jit.unused
    def _one_launch(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], padding: Optional[Tensor]
    ) -> Optional[Tensor]:
        """The heads by one GPU kernel, as in a step of beam search; None where there is none for this."""
        dropout = self.dropout_module.p if self.training or self.dropout_module.apply_during_inference else 0.0
        if not self.pointwise or attn_mask is not None or padding is not None:
            return None
        d = self.head_dim
        beside_q, beside_k = (q[..., d:], k[..., d:]) if q.size(2) > d else (None, None)
        return kernel_attention(
            self.activation_name, q[..., :d], k[..., :d], v, beside_q, beside_k, False, self.scaling, dropout
        )

    @torch.jit.unused
    def _streams(self, attn_mask: Optional[Tensor]) -> bool:
        """Whether it can be computed by tiles: the activation is pointwise, and only the future may be masked."""
        return self.pointwise and (attn_mask is None or self._hides_future(attn_mask))

    def _hides_future(self, attn_mask: Tensor) -> bool:
        return self.causal and attn_mask.size(0) == attn_mask.size(1)

    @torch.jit.unused
    def _streamed(
        self, query: Tensor, key: Optional[Tensor], value: Optional[Tensor], padding: Optional[Tensor], causal: bool
    ) -> Tensor:
        """The output (T, B, d) without the weights. They are computed by tiles and are never all in memory."""
        if self.self_attention:
            key = value = query
        assert key is not None and value is not None
        padding = None if padding is None else padding.to(torch.bool)
        k = self._projected_keys(key)
        mean = running_mean(k, padding) if self.centred and causal else None
        k, columns = self._keys(k, padding, own_mean=causal)
        if padding is not None:
            padding = padding.t().unsqueeze(-1).unsqueeze(-1)
            if ACTIVATIONS[self.activation_name].in_place is not None and not self._needed_unmasked(causal):
                k.detach().masked_fill_(padding, 0.0)  # autograd need not know: where a weight is 0, its gradient is 0
            else:
                k = k.masked_fill(padding, 0.0)
        beside_k = self._columns_by_head(columns, k, padding)
        q, columns = self._queries(query, mean)
        beside_q = self._columns_by_head(columns, q, None)
        q, k = self._by_head(q), self._by_head(k)
        if beside_q is not None and beside_k is not None:
            self._drive_threshold(q, k, beside_q, beside_k, causal)
        dropout = self.dropout_module.p if self.training or self.dropout_module.apply_during_inference else 0.0
        v = self._by_head(self.v_proj(value))
        heads = pointwise_attention(self.activation_name, q, k, v, beside_q, beside_k, causal, self.scaling, dropout)
        heads = heads.transpose(0, 1).reshape(query.size(0), query.size(1), -1)
        return self.out_proj(self.norm(heads).to(query.dtype))

    @torch.jit.unused
    def _needed_unmasked(self, causal: bool) -> bool:
        """Whether a gradient needs the keys as they are, without padding taken out: that of their size."""
        sized = self.unit and (causal or not self.centred)
        return sized or (self.threshold is not None and self.threshold.driven)

    def _keys_values(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        padding: Optional[Tensor],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
        static_kv: bool,
        hidden: Optional[Tensor],
    ) -> Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        """Everything there is to attend to, from earlier decoding steps and from this one.

        Keys and values of earlier steps are read from the incremental state, and the new ones are saved there.

        Returns:
            keys (N, H, S, w)
            values (N, H, S, d_h)
            padding (N, S). None for a pointwise activation, for which padded keys are set to the zero vector here
            mean of the keys (T or 1, N, H, d_h), if each query of a centred row has its own; else None
        """
        saved: Dict[str, Optional[Tensor]] = {}
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
        past_k = saved["prev_key"] if "prev_key" in saved else None
        past_v = saved["prev_value"] if "prev_value" in saved else None
        past_padding = saved["prev_key_padding_mask"] if "prev_key_padding_mask" in saved else None
        if static_kv and past_k is not None and past_v is not None:
            return past_k, past_v, past_padding, None

        key, value, padding = self._inputs(query, key, value, padding, incremental_state is not None)
        k, mean = self._projected_keys(key), torch.jit.annotate(Optional[Tensor], None)
        own_mean = hidden is not None or (incremental_state is not None and not static_kv)
        if self.centred and own_mean:
            mean = mean_so_far(k, padding, saved) if hidden is None else visible_mean(k, padding, hidden)
        k, v = self._split_heads(self._scored_keys(k, padding, own_mean)), self._split_heads(self.v_proj(value))
        if padding is not None and self.pointwise:
            k = k.masked_fill(padding.unsqueeze(1).unsqueeze(3), 0.0)
            padding = None
        if past_k is not None and past_v is not None:
            padding = joined_padding(past_padding, padding, past_k, k)
            k = torch.cat([past_k, k], dim=2)
            v = torch.cat([past_v, v], dim=2)
        elif static_kv and incremental_state is not None:
            k, v = k.contiguous(), v.contiguous()  # copied once here, because every later step reads them
        if incremental_state is not None:
            saved["prev_key"] = k
            saved["prev_value"] = v
            saved["prev_key_padding_mask"] = padding
            self._set_input_buffer(incremental_state, saved)
        return k, v, padding, mean

    def _inputs(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        padding: Optional[Tensor],
        searching: bool,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """The inputs of the key and value projections, (S, N, d) each, and their padding (N, S).

        In beam search all hypotheses of a sentence have the same encoder output. Only one copy per sentence is kept.
        """
        if self.self_attention:
            key, value = query, query
        assert key is not None and value is not None
        if padding is not None:
            # In TorchScript fairseq passes a tensor without dimensions instead of None.
            padding = None if padding.dim() == 0 else padding.to(torch.bool)
        # `beam_size` keeps its value after a search, also when training continues. Hence the check of `searching`.
        beam = self.beam_size if searching and self.encoder_decoder_attention else 1
        if beam > 1 and key.size(1) == query.size(1):
            key = key[:, ::beam]
            value = key
            if padding is not None:
                padding = padding[::beam]
        return key, value, padding

    def _weights(self, scores: Tensor, attn_mask: Optional[Tensor], padding: Optional[Tensor]) -> Tensor:
        """act(scores) with hidden positions exactly 0. Scores and weights are (N, H, beam, T, S)."""
        blocked = hidden_by(attn_mask)
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            scores = scores + attn_mask
        if padding is not None:
            padding = padding.view(padding.size(0), 1, 1, 1, padding.size(1))
            blocked = padding if blocked is None else blocked | padding
        if self.pointwise:
            if blocked is not None:
                scores = scores.masked_fill(blocked, 0.0)
            return self.activation(scores)
        scores32 = at_least_float32(scores)
        if blocked is None:
            return self.activation(scores32).to(scores.dtype)
        # The lowest finite number, not −inf: a row that sees nothing must become null, not NaN.
        scores32 = scores32.masked_fill(blocked, self.LEAST)
        return self.activation(scores32).masked_fill(blocked, 0.0).to(scores.dtype)
