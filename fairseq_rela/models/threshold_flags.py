"""The flags of thresholds: what they say, and whether it can be done."""

from typing import Optional

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.threshold import WARMUP, ThresholdSetting
from fairseq_rela.errors import InputError

THRESHOLD_FLAGS = {
    "rela_threshold": (
        "NUMBER|learn",
        "subtract this number from the scores of pointwise attention, or one that is learned for each head",
    ),
    "rela_target_sparsity": ("SHARE", "drive thresholds until this share of each layer's weights is 0, e.g. 0.9"),
    "rela_sparsity_warmup": ("N", f"let the target rise from 0 within N updates (default: {WARMUP})"),
}


def threshold_setting(args) -> Optional[ThresholdSetting]:
    """What the flags say about thresholds; None if they say nothing, as in checkpoints older than these flags."""
    return ThresholdSetting.of(*(getattr(args, name, None) for name in THRESHOLD_FLAGS))


def check_threshold(args, *kinds: str) -> None:
    """InputError if a threshold flag does not hold a number, or none of the model's attentions can have a threshold."""
    setting = threshold_setting(args)
    if setting is None:
        return
    flag = "--rela-threshold" if setting.target is None else "--rela-target-sparsity"
    names = list(dict.fromkeys(str(getattr(args, f"{kind}_attn")) for kind in kinds))
    pointwise = [name for name in names if ACTIVATIONS[attention(name).activation].pointwise]
    if not pointwise:
        raise InputError(
            f"{flag}: {', '.join(names)} has no threshold, since it weighs each score against its row; choose an "
            "attention with ReLU, GeLU or leaky ReLU"
        )
    never_zero = [name for name in pointwise if not ACTIVATIONS[attention(name).activation].exact_zeros]
    if setting.target is not None and never_zero:
        raise InputError(f"{flag}: weights of {', '.join(never_zero)} are not exactly 0; choose an attention with ReLU")
    if setting.target is not None and getattr(args, "cross_self_attention", False):
        raise InputError(f"{flag} does not go with --cross-self-attention; give --rela-threshold, or leave that out")
