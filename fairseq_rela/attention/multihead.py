"""Multi-head attention with any row of the catalog, in the place of fairseq's (paper, Section 3).

    scores  s = (X Wq)(Y Wk)ᵀ / √d_h        per head, T × S
    weights α = act(s), masked positions exactly 0        or act(s − θ), see `threshold`
    heads   z = [α¹V¹ … α^H V^H]            concatenated, T × d
    output    = norm(z) Wo

Shapes: T queries, S keys, B hypotheses, N sentences (B = N × beam in beam search, else B = N),
H heads of width d_h, d = H × d_h.
"""

from typing import Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.activations import ACTIVATIONS, widened
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.norms import NORMS
from fairseq_rela.attention.streaming import streaming_attention
from fairseq_rela.attention.threshold import Threshold, ThresholdSetting
from fairseq_rela.errors import InputError


def product32(a: Tensor, b: Tensor) -> Tensor:
    """The batched matrix product in float32, also where autocast would take it back to half precision."""
    if torch.jit.is_scripting():
        return torch.bmm(a.float(), b.float())
    else:
        with torch.autocast(a.device.type, enabled=False):
            return torch.bmm(a.float(), b.float())


class Projection(nn.Linear):
    """A linear layer that computes few rows, as a step of beam search has, as W xᵀ: on a CPU torch gives that to
    all its threads, and x Wᵀ to one."""

    FEW = 8

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """The same layer with the same parameters; quantisation noise, which hooks into a layer, is left alone."""
        if type(layer) is not nn.Linear or layer.bias is None or layer._forward_pre_hooks:
            return layer
        made = cls(1, 1)
        made.in_features, made.out_features = layer.in_features, layer.out_features
        made.weight, made.bias = layer.weight, layer.bias
        return made

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            few = x.numel() <= self.FEW * self.in_features and x.device.type == "cpu"
            if few and torch.get_num_threads() > 1 and not torch.is_grad_enabled():
                rows = x.reshape(-1, self.in_features)
                made = torch.addmm(self.bias.unsqueeze(1), self.weight, rows.t()).t().contiguous()
                return made.view(x.shape[:-1] + (self.out_features,))
        return F.linear(x, self.weight, self.bias)


class CatalogAttention(MultiheadAttention):
    """fairseq's `MultiheadAttention` — its projections, their names, its incremental state — with another `forward`.

    fairseq's own `forward` hands over to `F.multi_head_attention_forward`, which computes softmax
    whatever the subclass says: nothing here calls it.
    """

    __constants__ = ("pointwise", "normed", "future_masked", "BLOCKED", "LEAST")

    # fairseq's additive masks hold −inf, or −1e8 (−1e4 in half precision) where −inf would give NaN
    BLOCKED = -1e4
    # float32's least finite number; rowwise scores are never narrower
    LEAST = -3.4028234663852886e38

    def __init__(
        self,
        name: str,
        embed_dim: int,
        num_heads: int,
        future_masked: bool = False,
        threshold: Optional[ThresholdSetting] = None,
        **options,
    ):
        """`future_masked`: a square `attn_mask` hides the future, as in the self-attention of decoders, whatever is in
        it: to look would mean waiting for a GPU, and of a long text it is large.
        `threshold`: subtracted from the scores where the activation is pointwise."""
        row = attention(name)
        if embed_dim % num_heads != 0:
            raise InputError(
                f"width {embed_dim} is not divisible by {num_heads} heads; choose a number of heads that divides it"
            )
        super().__init__(embed_dim, num_heads, **options)
        for place in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, place, Projection.of(getattr(self, place)))
        self.name = name
        self.pointwise = ACTIVATIONS[row.activation].pointwise
        self.activation = ACTIVATIONS[row.activation].build()
        self.future_masked = future_masked
        self.normed = row.norm != "none"
        self.norm = NORMS[row.norm](embed_dim)
        self.threshold = Threshold(num_heads, threshold) if threshold is not None and self.pointwise else None

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
        """fairseq's interface.

        Args:
            query: (T, B, d); key, value: (S, B, d), or None once `static_kv` are cached
            key_padding_mask: (B, S), true where a key is padding
            attn_mask: (T, S), additive (blocked at −1e4 or less) or boolean (blocked where true)
            need_weights, need_head_weights: also return the weights, (B, T, S) mean over heads or (H, B, T, S)
            before_softmax: fairseq's; there need be no softmax here

        Returns: output (T, B, d), weights or None
        """
        assert not before_softmax, "before_softmax: weights here are act(scores), which need not be a softmax"
        if not torch.jit.is_scripting():  # TorchScript compiles nothing below this line
            asked = need_weights or need_head_weights
            if not asked and incremental_state is None and self._streams(attn_mask):
                return self._streamed(query, key, value, key_padding_mask, causal=attn_mask is not None), None
        tgt_len, bsz, _ = query.size()
        q = self._scored_queries(query) * self.scaling
        k, v, padding = self._keys_values(query, key, value, key_padding_mask, incremental_state, static_kv)
        sentences, src_len, width = k.size(0), k.size(2), k.size(3)
        beam = bsz // sentences  # hypotheses of one sentence share its keys: their queries become rows

        q = q.view(tgt_len, sentences, beam, self.num_heads, width)
        q = q.permute(1, 3, 2, 0, 4).reshape(sentences * self.num_heads, beam * tgt_len, width)
        k = k.view(-1, src_len, width)
        if attn_mask is not None and self._hides_future(attn_mask):
            attn_mask = torch.ones(tgt_len, src_len, dtype=torch.bool, device=query.device).triu(1)
        if not torch.jit.is_scripting() and incremental_state is None:
            self._drive_threshold(q, k, 1.0, causal=attn_mask is not None)
        scores = torch.bmm(q, k.transpose(1, 2))
        scores = scores.view(sentences, self.num_heads, beam, tgt_len, src_len)
        weights = self._weights(scores, attn_mask, padding)

        dropped = self.dropout_module(weights).view(-1, beam * tgt_len, src_len)
        v = v.view(-1, src_len, self.head_dim)
        if self.normed and (v.dtype == torch.float16 or v.dtype == torch.bfloat16):
            # weights are unbounded: their sum over many keys passes float16's 65,504 and bfloat16's 8 bits
            heads = product32(dropped, v)
        else:
            heads = torch.bmm(dropped, v)
        heads = heads.view(sentences, self.num_heads, beam, tgt_len, self.head_dim)
        heads = heads.permute(3, 0, 2, 1, 4).reshape(tgt_len, bsz, -1)
        output = self.out_proj(self.norm(heads).to(query.dtype))

        if not (need_weights or need_head_weights):
            return output, None
        shown = weights.permute(1, 0, 2, 3, 4).reshape(self.num_heads, bsz, tgt_len, src_len)
        return output, shown if need_head_weights else shown.mean(dim=0)

    @torch.jit.unused
    def _streams(self, attn_mask: Optional[Tensor]) -> bool:
        """Whether streaming attention computes this: pointwise weights, and no mask but the future's."""
        return self.pointwise and (attn_mask is None or self._hides_future(attn_mask))

    def _hides_future(self, attn_mask: Tensor) -> bool:
        return self.future_masked and attn_mask.size(0) == attn_mask.size(1)

    def _scored_queries(self, query: Tensor) -> Tensor:
        """(T, B, d) → (T, B, d), or with a threshold (T, B, H (d_h + 1))"""
        q = self.q_proj(query)
        return q if self.threshold is None else self.threshold.queries(q, self.scaling)

    def _scored_keys(self, key: Tensor) -> Tensor:
        """(S, B, d) → (S, B, d), or with a threshold (S, B, H (d_h + 1))"""
        k = self.k_proj(key)
        return k if self.threshold is None else self.threshold.keys(k)

    @torch.jit.unused
    def _drive_threshold(self, q: Tensor, k: Tensor, scale: float, causal: bool) -> None:
        # not when activations are computed a first time, to be computed again with a gradient
        if self.threshold is not None and self.training and torch.is_grad_enabled():
            self.threshold.drive(q, k, scale, causal, own=self.self_attention)

    @torch.jit.unused
    def _streamed(
        self, query: Tensor, key: Optional[Tensor], value: Optional[Tensor], padding: Optional[Tensor], causal: bool
    ) -> Tensor:
        """The output (T, B, d) where nobody asks for weights: they are never all in memory."""
        if self.self_attention:
            key = value = query
        assert key is not None and value is not None
        k, in_place = self._scored_keys(key), ACTIVATIONS[attention(self.name).activation].in_place
        if padding is not None:
            padding = padding.to(torch.bool).t().unsqueeze(-1)
            if in_place is not None:  # where the weight is 0 so is the gradient: autograd need not know
                k.detach().masked_fill_(padding, 0.0)
            else:
                k = k.masked_fill(padding, 0.0)
        q, k = self._by_head(self._scored_queries(query)), self._by_head(k)
        self._drive_threshold(q, k, self.scaling, causal)
        heads = streaming_attention(
            q,
            k,
            self._by_head(self.v_proj(value)),
            self.activation,
            in_place,
            causal,
            self.scaling,
            self.dropout_module.p if self.training or self.dropout_module.apply_during_inference else 0.0,
        )
        heads = heads.transpose(0, 1).reshape(query.size())
        return self.out_proj(self.norm(heads).to(query.dtype))

    @torch.jit.unused
    def _by_head(self, x: Tensor) -> Tensor:
        """(S, B, d) → (B × H, S, d_h), where it lies in memory"""
        return x.reshape(x.size(0), x.size(1) * self.num_heads, -1).transpose(0, 1)

    def _keys_values(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        padding: Optional[Tensor],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
        static_kv: bool,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Keys and values (N, H, S, d_h) of all there is to attend to, and its padding (N, S); with a threshold, a key
        has width d_h + 1.

        What was projected in earlier steps comes from the incremental state and stays there.
        A pointwise activation needs no padding mask after this: a padded key is the zero vector.
        """
        saved: Dict[str, Optional[Tensor]] = {}
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
        past_k = saved["prev_key"] if "prev_key" in saved else None
        past_v = saved["prev_value"] if "prev_value" in saved else None
        past_padding = saved["prev_key_padding_mask"] if "prev_key_padding_mask" in saved else None
        if static_kv and past_k is not None and past_v is not None:
            return past_k, past_v, past_padding

        if self.self_attention:
            key = query
            value = query
        assert key is not None and value is not None
        if (
            incremental_state is not None  # the beam size of the last search stays set when training goes on
            and self.encoder_decoder_attention
            and self.beam_size > 1
            and key.size(1) == query.size(1)
        ):
            # every hypothesis of a beam brings the same encoder output: keep it once a sentence
            key = key[:, :: self.beam_size]
            value = key
            if padding is not None:
                padding = padding[:: self.beam_size]
        if padding is not None and padding.dim() == 0:  # TorchScript's stand-in for None
            padding = None

        k, v = self._split_heads(self._scored_keys(key)), self._split_heads(self.v_proj(value))
        if padding is not None:
            padding = padding.to(torch.bool)
            if self.pointwise:
                k = k.masked_fill(padding.unsqueeze(1).unsqueeze(3), 0.0)
                padding = None
        if past_k is not None and past_v is not None:
            padding = self._joined_padding(past_padding, padding, past_k.size(2), k)
            k = torch.cat([past_k, k], dim=2)
            v = torch.cat([past_v, v], dim=2)
        elif static_kv and incremental_state is not None:
            k, v = k.contiguous(), v.contiguous()  # copied once, read at every step
        if incremental_state is not None:
            saved["prev_key"] = k
            saved["prev_value"] = v
            saved["prev_key_padding_mask"] = padding
            self._set_input_buffer(incremental_state, saved)
        return k, v, padding

    def _split_heads(self, x: Tensor) -> Tensor:
        """(S, N, d) → (N, H, S, d_h), where it lies in memory"""
        return x.reshape(x.size(0), x.size(1), self.num_heads, -1).permute(1, 2, 0, 3)

    def _joined_padding(
        self, past: Optional[Tensor], new: Optional[Tensor], past_len: int, new_k: Tensor
    ) -> Optional[Tensor]:
        """Padding (N, S) of the past keys and the new ones; None where nothing is padding."""
        if past is None and new is None:
            return None
        if past is None:
            past = torch.zeros(new_k.size(0), past_len, dtype=torch.bool, device=new_k.device)
        if new is None:
            new = torch.zeros(new_k.size(0), new_k.size(2), dtype=torch.bool, device=new_k.device)
        return torch.cat([past.to(torch.bool), new], dim=1)

    def _weights(self, scores: Tensor, attn_mask: Optional[Tensor], padding: Optional[Tensor]) -> Tensor:
        """act(scores) with blocked positions exactly 0; scores (N, H, beam, T, S)."""
        blocked: Optional[Tensor] = None
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                blocked = attn_mask
            else:
                blocked = attn_mask <= self.BLOCKED
                scores = scores + attn_mask
        if padding is not None:
            padding = padding.view(padding.size(0), 1, 1, 1, padding.size(1))
            blocked = padding if blocked is None else blocked | padding
        if self.pointwise:
            if blocked is not None:
                scores = scores.masked_fill(blocked, 0.0)
            return self.activation(scores)
        scores32 = widened(scores)
        if blocked is None:
            return self.activation(scores32).to(scores.dtype)
        # the least finite number, not −inf: a row with nothing to see must come out null, not NaN
        scores32 = scores32.masked_fill(blocked, self.LEAST)
        return self.activation(scores32).masked_fill(blocked, 0.0).to(scores.dtype)
