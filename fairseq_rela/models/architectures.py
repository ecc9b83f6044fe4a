"""Architectures: `transformer_<placement>` and `transformer_<placement>_<size>`, and the same for language models."""

from argparse import Namespace
from typing import Callable, Dict, Mapping

from fairseq.models import register_model_architecture
from omegaconf import OmegaConf

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS

# Table 1: rows 1–10 are one attention everywhere, rows 11–13 rela_g in one place and softmax elsewhere
PLACEMENTS = {name: dict.fromkeys(KINDS, name) for name in CATALOG}
PLACEMENTS.update((f"rela_g_{kind}_only", {**dict.fromkeys(KINDS, "softmax"), kind: "rela_g"}) for kind in KINDS)


def set_defaults(args, **defaults) -> None:
    """Set the flags that are not set yet."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def set_attention(args, **names: str) -> None:
    """Set the attention of each kind, unless a flag has set it."""
    set_defaults(args, **{f"{kind}_attn": name for kind, name in names.items()})


def refuse_xformers(args, *sides: str) -> None:
    """InputError if a flag replaces the attention of a side by one of xformers'."""
    for side in sides:
        if getattr(args, f"{side}_xformers_att_config", None):
            raise InputError(f"--{side}-xformers-att-config replaces attention; leave it out and use --{side}-attn")


def register_architecture(model: str, arch: str, attention: Dict[str, str], size: Callable) -> None:
    """`--arch arch` is `model` with these attentions and the flags that `size` sets."""

    @register_model_architecture(model, arch)
    def architecture(args):
        # A config comes from hydra. `size` needs a Namespace: in the omegaconf of fairseq 0.12.2 a flag that is missing
        # from a config reads as None, and then gets no default.
        flags = Namespace(**args) if OmegaConf.is_config(args) else args
        set_attention(flags, **attention)
        size(flags)
        if flags is not args:
            set_defaults(flags, base_layers=0)  # fairseq's trainer reads it
            args.update(vars(flags))


def register_architectures(
    model: str, family: str, placements: Mapping[str, Dict[str, str]], sizes: Mapping[str, Callable]
) -> None:
    """Register `<family>_<placement>`, which has the size `base`, and `<family>_<placement>_<size>` for every size."""
    for placement, attention in placements.items():
        register_architecture(model, f"{family}_{placement}", attention, sizes["base"])
        for name, size in sizes.items():
            register_architecture(model, f"{family}_{placement}_{name}", attention, size)
