"""The attentions there are: each a row of the paper's Table 1, an activation and a norm."""

from typing import NamedTuple

from fairseq_rela.errors import InputError


class Attention(NamedTuple):
    """One row: names in `activations.ACTIVATIONS` and `norms.NORMS`, and the row of Table 1 it is."""

    activation: str
    norm: str
    table1_row: int


CATALOG = {
    "softmax": Attention("softmax", "none", 1),
    "sparsemax": Attention("sparsemax", "none", 2),
    "entmax15": Attention("entmax15", "none", 3),
    "relu": Attention("relu", "none", 4),
    "relu_rmsnorm": Attention("relu", "rmsnorm", 5),
    "rela_i": Attention("relu", "rmsnorm_init", 6),
    "rela_g": Attention("relu", "gated_rmsnorm", 7),
    "rela_g_layernorm": Attention("relu", "gated_layernorm", 8),
    "rela_g_gelu": Attention("gelu", "gated_rmsnorm", 9),
    "rela_g_leaky_relu": Attention("leaky_relu", "gated_rmsnorm", 10),
}

KINDS = ("encoder", "decoder", "cross")


def attention(name: str) -> Attention:
    """The row of that name."""
    try:
        return CATALOG[name]
    except KeyError:
        raise InputError(f"unknown attention '{name}'; known are {', '.join(CATALOG)}") from None
