"""Sparsity under control: weights α = act(s − θ), with a threshold θ for each head.

θ is *fixed*, *learned* with everything else, or *driven* until a given share of the weights is 0. A driven one is not a
number but grows with query and key, θ = c ‖q‖ ‖k‖ / √d_h: a weight is 0 unless the cosine between them is above c. A
number would be outrun: what a threshold takes away, the model gets back by larger scores, and so on without end.

θ enters as one more column of queries and keys, s − θ = scale · [q, −θ/scale] [k, 1]ᵀ or scale · [q, −c ‖q‖] [k, ‖k‖]ᵀ.
Whatever computes scores from queries and keys computes these: by tiles, step by step or scripted. A key that is padding
is the zero vector with its last column too, so its score stays exactly 0, and act(0) = 0, whatever the sign of θ.
"""

import math
from typing import List, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn

from fairseq_rela.attention.activations import at_least_float32
from fairseq_rela.attention.products import factor
from fairseq_rela.errors import InputError

LEARN = "learn"
WARMUP = 10000


class ThresholdSetting(NamedTuple):
    """One of: θ itself, `learn`, or the share of weights that is to be 0 after `warmup` updates."""

    value: Union[float, str, None] = None
    target: Optional[float] = None
    warmup: int = 0

    @classmethod
    def of(cls, value, target, warmup) -> Optional["ThresholdSetting"]:
        """What --rela-threshold, --rela-target-sparsity and --rela-sparsity-warmup say; None if they say nothing."""
        if target is None:
            if warmup is not None:
                raise InputError("--rela-sparsity-warmup goes with --rela-target-sparsity; give that too")
            return None if value is None else cls(value if value == LEARN else _number("--rela-threshold", value))
        if value is not None:
            raise InputError("--rela-threshold and --rela-target-sparsity both set the threshold; give one of them")
        share = _number("--rela-target-sparsity", target)
        if not 0 < share < 1:
            raise InputError(f"--rela-target-sparsity {target}: give a share of weights above 0 and below 1")
        updates = WARMUP if warmup is None else _number("--rela-sparsity-warmup", warmup)
        if updates < 0:
            raise InputError(f"--rela-sparsity-warmup {warmup}: give a number of updates, 0 or more")
        return cls(target=share, warmup=int(updates))


def _number(flag: str, text) -> float:
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        wanted = f"a number or '{LEARN}'" if flag == "--rela-threshold" else "a number"
        raise InputError(f"{flag} {text}: give {wanted}")
    return number


class Threshold(nn.Module):
    """`theta` (H,), which is θ or, driven, c; and the columns by which it enters."""

    __constants__ = ("driven",)

    def __init__(self, heads: int, setting: ThresholdSetting):
        super().__init__()
        self.heads = heads
        self.setting = setting
        self.driven = setting.target is not None
        if setting.value == LEARN:
            self.theta = nn.Parameter(torch.zeros(heads))
        else:
            # a fixed one is a flag, not a weight: --model-overrides can try another on a trained model
            value = 0.0 if setting.value is None else float(setting.value)
            self.register_buffer("theta", torch.full((heads,), value), persistent=self.driven)
        self.updates = 0
        self.padded_queries: Optional[Tensor] = (
            None  # (B, T), set by the decoder: fairseq tells attention of padded keys only
        )

    def _apply(self, fn, *args):
        """Keep buffers in float32: half precision would lose the small steps of a driven θ."""
        super()._apply(fn, *args)
        for name, buffer in self._buffers.items():
            self._buffers[name] = None if buffer is None else at_least_float32(buffer)
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name, value in self.state_dict().items():  # a checkpoint without thresholds is one with θ = 0
            state_dict.setdefault(prefix + name, torch.zeros_like(value))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.jit.unused
    def keep_heads(self, heads: List[int]) -> None:
        """Prune: keep these heads, in this order."""
        self.heads = len(heads)
        kept = self.theta.detach()[heads]
        self.theta = nn.Parameter(kept) if isinstance(self.theta, nn.Parameter) else kept

    def query_column(self, q: Tensor, scale: float, key_size: float = 1.0) -> Tensor:
        """What stands beside each head's query (T, B, H, d_h): −θ/scale (H, 1) or −c ‖q‖ (T, B, H, 1).

        `key_size`: ‖k‖ where it is the same for all keys, so that their column may be 1."""
        theta = self.theta.view(-1, 1)
        if self.driven:
            return -theta * key_size * at_least_float32(q).norm(2, dim=[-1], keepdim=True)
        return -theta / scale

    def key_column(self, k: Tensor) -> Tensor:
        """What stands beside each head's key (S, B, H, d_h): 1 or ‖k‖ (S, B, H, 1)."""
        if self.driven:
            return at_least_float32(k).norm(2, dim=[-1], keepdim=True)
        return torch.ones(1, 1, dtype=k.dtype, device=k.device)

    # --- a driven θ

    QUERIES = 256  # at least so many are looked at, or all there are
    RATE = 0.2

    @torch.jit.unused
    def set_num_updates(self, updates: int) -> None:
        """fairseq tells its models so before each update."""
        self.updates = updates

    @torch.jit.unused
    def target(self) -> Optional[float]:
        """The share of weights that is to be 0 at this update: it rises from 0 to the one asked for."""
        share, warmup = self.setting.target, self.setting.warmup
        return share if share is None or self.updates >= warmup else share * self.updates / warmup

    @torch.jit.unused
    @torch.no_grad()
    def drive(self, q: Tensor, k: Tensor, beside_q: Tensor, beside_k: Tensor, causal: bool, own: bool) -> None:
        """Move c so that the share of zeros gets nearer to the target, by what some queries of this batch show.

        A step down the slope of the pinball loss of the cosines x, E[max(ρ (x − c), (ρ − 1)(x − c))], which is least
        where a share ρ of them is below c. Its derivative is the share of zeros less ρ, and nothing but c follows it:

            c ← c + RATE · (ρ − share of zeros)

        It is one c for all heads, so that one may stay dense where another is sparse. While ρ still rises, c does not
        go below 0: what a model learns first, it learns as if nobody drove it.

        Args:
            q: (B × H, T, d_h), k: (B × H, S, d_h); padded keys are zeroed
            beside_q, beside_k: their columns, (B × H, T, c) and (B × H, S, c); last those above, 0 for padded keys
            causal: query t sees keys 0 … t only
            own: queries and keys are of the same tokens, so that padding is known of both
        """
        target = self.target()
        if target is None or q.size(1) == 0:
            return
        rows = q.size(0) // self.heads
        step = max(1, q.size(1) * rows // self.QUERIES)
        chosen = torch.arange(self.updates % step % q.size(1), q.size(1), step, device=q.device)
        wide = at_least_float32(beside_k)
        scores = torch.bmm(at_least_float32(beside_q[:, chosen]), wide.transpose(1, 2))
        scores = scores + torch.bmm(factor(q[:, chosen]), factor(k).transpose(1, 2))
        present = beside_k[..., -1].ne(0)  # (B × H, S)
        visible = present.unsqueeze(1).expand_as(scores)
        if causal:
            visible = visible & (torch.arange(k.size(1), device=q.device) <= chosen.unsqueeze(1))
        if own:
            visible = visible & present[:, chosen].unsqueeze(2)
        elif self.padded_queries is not None:
            visible = visible & ~self.padded_queries[:, chosen].repeat_interleave(self.heads, dim=0).unsqueeze(2)

        zeros = ((scores <= 0) & visible).sum() / visible.sum().clamp(min=1)
        self.theta.add_(self.RATE * (target - zeros) * visible.any())
        if self.updates < self.setting.warmup:
            self.theta.clamp_(min=0)
