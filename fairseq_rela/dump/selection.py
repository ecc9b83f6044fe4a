"""Choosing kinds and layers of attention by name and number."""

from typing import Collection, Iterable, List, Optional, Sequence

from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS, check_kinds


def parse_kinds(text: Optional[str]) -> Optional[List[str]]:
    """`encoder,cross` as a list; None if nothing is given, which means all kinds."""
    return None if text is None else [part.strip() for part in text.split(",")]


def parse_layers(text: Optional[str], option: str) -> Optional[List[int]]:
    """`0,5` or `-1` as a list; None if nothing is given, which means all layers. `option` is for the message."""
    try:
        layers = None if text is None else [int(part) for part in str(text).split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: not numbers of layers, such as 0,5 or -1") from None
    check_unique(f"layer of {option}", layers or [])
    return layers


def check_unique(name: str, chosen: Sequence[object]) -> None:
    """InputError if a kind or a layer is named twice. `name` says what it is."""
    twice = next((each for number, each in enumerate(chosen) if each in chosen[:number]), None)
    if twice is not None:
        raise InputError(f"the {name} {twice} is named twice; name it once")


def selected_kinds(available: Collection[str], wanted: Optional[Iterable[str]]) -> List[str]:
    """The wanted kinds in the usual order, or all that are available. InputError if one is not available."""
    chosen = list(available) if wanted is None else list(wanted)
    check_kinds(chosen)
    if not chosen:
        raise InputError(f"no kind of attention was named; known are {', '.join(KINDS)}")
    check_unique("kind of attention", chosen)
    absent = [kind for kind in chosen if kind not in available]
    if absent:
        raise InputError(f"this model has no {', '.join(absent)} attention; it has {', '.join(available)}")
    return [kind for kind in KINDS if kind in chosen]


def selected_layers(kind: str, available: Collection[int], wanted: Optional[List[int]]) -> List[int]:
    """The numbers of the wanted layers in order, or all that are available. Negative numbers count from the last."""
    if wanted is None:
        return list(available)
    if not wanted:
        raise InputError("no layer was named; layers are counted from 0, and from the last as -1, -2, …")
    depth = max(available) + 1
    numbers = sorted(layer + depth if layer < 0 else layer for layer in wanted)
    check_unique(f"{kind} layer", numbers)
    for number in numbers:
        if number not in available:
            raise InputError(
                f"the {kind} attention has no layer {number if number >= 0 else number - depth}: it has "
                f"{len(available)}, counted from 0; name other layers, or leave out the kind"
            )
    return numbers
