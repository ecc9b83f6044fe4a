"""The three kinds of attention of a Transformer, and what their queries and keys are."""

from typing import Iterable

from fairseq_rela.errors import InputError

KINDS = ("encoder", "decoder", "cross")


def queries_of(kind: str) -> str:
    """The text that the queries of this kind come from: "source" or "target"."""
    return "source" if kind == "encoder" else "target"


def keys_of(kind: str) -> str:
    """The text that the keys of this kind come from: "source" or "target"."""
    return "target" if kind == "decoder" else "source"


def is_causal(kind: str) -> bool:
    """Whether query t may see keys 0 to t only."""
    return kind == "decoder"


def check_kinds(names: Iterable[str], option: str = "") -> None:
    """InputError if a name is not a kind of attention. `option` is the flag to name in the message."""
    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        prefix = f"{option}: " if option else ""
        raise InputError(f"{prefix}no such kind of attention: {', '.join(unknown)} (known are {', '.join(KINDS)})")
