"""Thresholds, which control the sparsity: weights α = act(s − θ), with a threshold θ for each head.

θ is *fixed*, *learned* with the other parameters, or *driven* until a given share of the weights is 0. A driven
threshold is not a constant. It grows with query and key, θ = c ‖q‖ ‖k‖ / √d_h, so a weight is 0 unless the cosine of
query and key is above c. A constant does not work there: the model grows its scores until they pass it.

θ enters as one more column of queries and keys, s − θ = scale · [q, −θ/scale] [k, 1]ᵀ or scale · [q, −c ‖q‖] [k, ‖k‖]ᵀ.
So every way to compute scores from queries and keys supports thresholds: by tiles, step by step, in TorchScript. A key
that is padding is the zero vector, its further column included. Its score stays exactly 0 for any θ, and act(0) = 0.
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
    """What the threshold flags ask for: either `value` (θ, or "learn"), or `target` with `warmup`.

    `target` is the share of weights that should be 0 after `warmup` updates.
    """

    value: Union[float, str, None] = None
    target: Optional[float] = None
    warmup: int = 0

    @classmethod
    def of(cls, value, target, warmup) -> Optional["ThresholdSetting"]:
        """From the values of --rela-threshold, --rela-target-sparsity, --rela-sparsity-warmup. None without any."""
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
    """The threshold of one attention module: `theta` (H,), and the columns that it adds to queries and keys.

    `theta` holds θ, or c if the threshold is driven.
    """

    __constants__ = ("driven",)

    def __init__(self, heads: int, setting: ThresholdSetting):
        super().__init__()
        self.heads = heads
        self.setting = setting
        self.driven = setting.target is not None
        if setting.value == LEARN:
            self.theta = nn.Parameter(torch.zeros(heads))
        else:
            # A fixed threshold is not saved with the weights, so --model-overrides can set another on a trained model.
            value = 0.0 if setting.value is None else float(setting.value)
            self.register_buffer("theta", torch.full((heads,), value), persistent=self.driven)
        self.updates = 0
        # (B, T). The decoder sets it, because fairseq's layers tell attention about padded keys only.
        self.padded_queries: Optional[Tensor] = None

    def _apply(self, fn, *args):
        """Keep buffers in float32: half precision would lose the small steps of a driven θ."""
        super()._apply(fn, *args)
        for name, buffer in self._buffers.items():
            self._buffers[name] = None if buffer is None else at_least_float32(buffer)
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name, value in self.state_dict().items():  # a checkpoint without thresholds is loaded as one with θ = 0
            state_dict.setdefault(prefix + name, torch.zeros_like(value))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.jit.unused
    def keep_heads(self, heads: List[int]) -> None:
        """Keep only these heads, in this order. The others are pruned."""
        self.heads = len(heads)
        kept = self.theta.detach()[heads]
        self.theta = nn.Parameter(kept) if isinstance(self.theta, nn.Parameter) else kept

    def query_column(self, q: Tensor, scale: float, key_size: float = 1.0) -> Tensor:
        """The further column of the queries (T, B, H, d_h): −θ/scale (H, 1), or −c ‖q‖ (T, B, H, 1) if driven.

        `key_size` is ‖k‖ if it is the same for all keys. The column of the keys may then be 1.
        """
        theta = self.theta.view(-1, 1)
        if self.driven:
            return -theta * key_size * at_least_float32(q).norm(2, dim=[-1], keepdim=True)
        return -theta / scale

    def key_column(self, k: Tensor) -> Tensor:
        """The further column of the keys (S, B, H, d_h): 1 (1, 1), or ‖k‖ (S, B, H, 1) if driven."""
        if self.driven:
            return at_least_float32(k).norm(2, dim=[-1], keepdim=True)
        return torch.ones(1, 1, dtype=k.dtype, device=k.device)

    # What follows is for a driven threshold only.

    QUERIES = 256  # about this many queries of a batch are counted, or all if there are fewer
    RATE = 0.2  # the size of a step

    @torch.jit.unused
    def set_num_updates(self, updates: int) -> None:
        """fairseq calls this before each update."""
        self.updates = updates

    @torch.jit.unused
    def target(self) -> Optional[float]:
        """The share of weights that should be 0 at this update. It rises from 0 to the setting's target."""
        share, warmup = self.setting.target, self.setting.warmup
        return share if share is None or self.updates >= warmup else share * self.updates / warmup

    @torch.jit.unused
    @torch.no_grad()
    def drive(
        self, q: Tensor, k: Tensor, beside_q: Tensor, beside_k: Tensor, causal: bool, self_attention: bool
    ) -> None:
        """Move c so that the share of zeros comes nearer to the target. The zeros of some queries are counted.

        With ρ the target, it is one step of gradient descent on the pinball loss of the cosines x,
        E[max(ρ (x − c), (ρ − 1)(x − c))]. Its minimum is where a share ρ of the cosines is below c, and its derivative
        is the share of zeros minus ρ. Only c is updated by it:

            c ← c + RATE · (ρ − share of zeros)

        All heads of a layer have the same c, so one head may be dense while another is sparse. As long as ρ rises, c
        does not go below 0, so at first the model learns as it would without a target.

        Args:
            q: (B × H, T, d_h), k: (B × H, S, d_h). Padded keys are zero vectors
            beside_q, beside_k: their further columns, (B × H, T, c) and (B × H, S, c), 0 for padded keys. The
                threshold's is the last
            causal: query t sees keys 0 … t only
            self_attention: queries and keys are the same tokens, so the padding of the keys is that of the queries
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
        if self_attention:
            visible = visible & present[:, chosen].unsqueeze(2)
        elif self.padded_queries is not None:
            visible = visible & ~self.padded_queries[:, chosen].repeat_interleave(self.heads, dim=0).unsqueeze(2)

        zeros = ((scores <= 0) & visible).sum() / visible.sum().clamp(min=1)
        self.theta.add_(self.RATE * (target - zeros) * visible.any())
        if self.updates < self.setting.warmup:
            self.theta.clamp_(min=0)
