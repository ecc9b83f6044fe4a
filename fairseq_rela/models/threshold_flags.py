"""The flags of thresholds: their help, their meaning, and the check that a model can have such a threshold."""

from typing import Optional

from fairseq_rela.attention.activations import ACTIVATIONS, Activation
from fairseq_rela.attention.catalog import CATALOG, attention
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


def _activation(name: str) -> Activation:
    return ACTIVATIONS[attention(name).activation]


def check_threshold(args, *kinds: str) -> None:
    """InputError if a threshold flag has a bad value, or if the model's attentions cannot have such a threshold."""
    setting = threshold_setting(args)
    if setting is None:
        return
    flag = "--rela-threshold" if setting.target is None else "--rela-target-sparsity"
    names = list(dict.fromkeys(str(getattr(args, f"{kind}_attn")) for kind in kinds))
    pointwise = [name for name in names if _activation(name).pointwise]
    if not pointwise:
        choices = ", ".join(name for name in CATALOG if _activation(name).pointwise)
        raise InputError(
            f"{flag}: {', '.join(names)} cannot have a threshold, because it compares each score with its row; choose "
            f"one of {choices}"
        )
    never_zero = [name for name in pointwise if not _activation(name).exact_zeros]
    if setting.target is not None and never_zero:
        sparse = (name for name in CATALOG if _activation(name).pointwise and _activation(name).exact_zeros)
        raise InputError(
            f"{flag}: weights of {', '.join(never_zero)} are not exactly 0; choose one of {', '.join(sparse)}"
        )
    if setting.target is not None and getattr(args, "cross_self_attention", False):
        raise InputError(f"{flag} does not go with --cross-self-attention; give --rela-threshold, or leave that out")
