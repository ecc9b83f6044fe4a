"""How large the tiles of each kernel are: chosen by device, dtype, width and lengths, never by timing.

No row of these tables makes the compiler spill registers; `report` shows it and a test keeps it so.
"""

from typing import Dict, NamedTuple, Tuple

WIDTHS = (32, 64, 128)


class Tiles(NamedTuple):
    """The sides of a tile, and how a program runs: its warps, and how many tiles are in flight."""

    queries: int
    keys: int
    warps: int
    stages: int


Table = Dict[Tuple[str, int, int], Tiles]  # (kernel, bytes of a number, width of a head)

NVIDIA: Table = {
    ("forward", 2, 32): Tiles(128, 64, 4, 2),
    ("forward", 2, 64): Tiles(128, 64, 8, 2),
    ("forward", 2, 128): Tiles(128, 32, 8, 2),
    ("query_gradients", 2, 32): Tiles(64, 64, 4, 2),
    ("query_gradients", 2, 64): Tiles(64, 64, 4, 2),
    ("query_gradients", 2, 128): Tiles(64, 64, 8, 2),
    ("key_gradients", 2, 32): Tiles(64, 64, 4, 2),
    ("key_gradients", 2, 64): Tiles(32, 128, 8, 2),
    ("key_gradients", 2, 128): Tiles(32, 64, 8, 2),
    ("forward", 4, 32): Tiles(32, 32, 8, 2),
    ("forward", 4, 64): Tiles(32, 32, 8, 2),
    ("forward", 4, 128): Tiles(32, 16, 8, 2),
    ("query_gradients", 4, 32): Tiles(32, 16, 4, 1),
    ("query_gradients", 4, 64): Tiles(32, 32, 4, 1),
    ("query_gradients", 4, 128): Tiles(16, 32, 8, 1),
    ("key_gradients", 4, 32): Tiles(16, 32, 4, 1),
    ("key_gradients", 4, 64): Tiles(32, 32, 8, 1),
    ("key_gradients", 4, 128): Tiles(16, 16, 8, 1),
}

# without causal mask, term and dropout there are registers left for more work per instruction
NVIDIA_SIMPLE: Table = {
    **NVIDIA,
    ("forward", 2, 64): Tiles(128, 64, 4, 2),
    ("forward", 2, 128): Tiles(128, 64, 8, 2),
    ("query_gradients", 2, 64): Tiles(128, 64, 8, 2),
    ("key_gradients", 2, 64): Tiles(64, 128, 8, 2),
}

# a warp has 64 threads here: with 8 of them each thread has half as many registers
AMD: Table = {
    **{("forward", 2, width): Tiles(128, 64, 4, 2) for width in WIDTHS},
    **{("query_gradients", 2, width): Tiles(64, 64 if width < 128 else 32, 4, 2) for width in WIDTHS},
    **{("key_gradients", 2, width): Tiles(64 if width < 128 else 32, 64, 4, 2) for width in WIDTHS},
    **{("forward", 4, width): Tiles(32, 32, 4, 2) for width in WIDTHS},
    **{("query_gradients", 4, width): Tiles(32, 32, 4, 1) for width in WIDTHS},
    **{("key_gradients", 4, width): Tiles(32, 32, 4, 1) for width in WIDTHS},
}

# an exponential takes registers too, where causal mask, term and dropout have left few
NVIDIA_SHARP: Table = {**NVIDIA, ("key_gradients", 2, 128): Tiles(16, 64, 8, 2)}
AMD_SHARP: Table = {**AMD, **{("key_gradients", 2, width): Tiles(32, 64, 4, 2) for width in WIDTHS}}


def side(length: int, largest: int) -> int:
    """The smallest power of two from 16 on that covers the length, at most `largest`."""
    power = 16
    while power < length and power < largest:
        power *= 2
    return power


def tiles(
    kernel: str, size: int, width: int, queries: int, keys: int, simple: bool, amd: bool, sharp: bool = False
) -> Tiles:
    """The tiles for some sequences: short ones take smaller tiles.

    Args:
        size: bytes of a number
        width: of a head
        queries, keys: the lengths
        simple: no causal mask, no term, no dropout
        sharp: weights by an exponential
    """
    if sharp and not simple:
        table = AMD_SHARP if amd else NVIDIA_SHARP
    else:
        table = AMD if amd else NVIDIA_SIMPLE if simple else NVIDIA
    largest = table[kernel, size, width]
    shorter = largest._replace(queries=side(queries, largest.queries), keys=side(keys, largest.keys))
    if 2 * shorter.queries * shorter.keys <= largest.queries * largest.keys and size == 2:
        return shorter._replace(warps=4)
    return shorter


def norm_tile(width: int) -> Tuple[int, int]:
    """How many rows of the norm one program holds at a time, about 2,048 numbers, and its warps."""
    rows = 1
    while 2 * rows * width <= 2048:
        rows *= 2
    return rows, 4 if width <= 2048 else 8


def run_options(warps: int, amd: bool) -> Dict[str, int]:
    """How a program is compiled. Left alone, NVIDIA's compiler prefers one spill to a few registers more."""
    return {"num_warps": warps} if amd else {"num_warps": warps, "maxnreg": 255}


def precision(amd: bool) -> str:
    """How float32 factors are multiplied: AMD has matrix units for them, NVIDIA's take three products of tf32."""
    return "ieee" if amd else "tf32x3"
