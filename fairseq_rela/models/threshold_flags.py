"""The flags of thresholds: their help, their meaning, and the check that a model can have such a threshold."""

from typing import Optional

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.threshold import WARMUP, ThresholdSetting
from fairseq_rela.errors import InputError

THRESHOLD_FLAGS = {
    "rela_threshold": (
        "NUMBER|learn",
        "subtract this number from the scores of pointwise attention; learn: one number per head, learned in training",
    ),
    "rela_target_sparsity": ("SHARE", "drive thresholds until this share of each layer's weights is 0, e.g. 0.9"),
    "rela_sparsity_warmup": ("N", f"let the target rise from 0 within N updates (default: {WARMUP})"),
}


def threshold_setting(args) -> Optional[ThresholdSetting]:
    """The setting that the flags ask for. None if none is given, as in checkpoints older than these flags."""
    return ThresholdSetting.of(*(getattr(args, name, None) for name in THRESHOLD_FLAGS))


def check_threshold(args, *kinds: str) -> None:
    """InputError if a threshold flag has a bad value, or if the model's attentions cannot have such a threshold."""
    setting = threshold_setting(args)
    if setting is None:
        return
    flag = "--rela-threshold" if setting.target is None else "--rela-target-sparsity"
    names = list(dict.fromkeys(str(getattr(args, f"{kind}_attn")) for kind in kinds))
    pointwise = [name for name in names if ACTIVATIONS[attention(name).activation].pointwise]
    if not pointwise:
        raise InputError(
            f"{flag}: {', '.join(names)} cannot have a threshold, because it compares each score with its row; choose "
            "an attention with ReLU, GeLU or leaky ReLU"
        )
    never_zero = [name for name in pointwise if not ACTIVATIONS[attention(name).activation].exact_zeros]
    if setting.target is not None and never_zero:
        raise InputError(f"{flag}: weights of {', '.join(never_zero)} are not exactly 0; choose an attention with ReLU")
    if setting.target is not None and getattr(args, "cross_self_attention", False):
        raise InputError(f"{flag} does not go with --cross-self-attention; give --rela-threshold, or leave that out")
