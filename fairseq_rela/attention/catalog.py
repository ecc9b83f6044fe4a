"""The table of attentions, `CATALOG`: one row each. Most of them are rows of the paper's Table 1."""

from typing import NamedTuple, Optional

from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS as KINDS  # importable from here too


class Attention(NamedTuple):
    """One row of the catalog."""

    activation: str  # a name in `activations.ACTIVATIONS`
    norm: str  # a name in `norms.NORMS`
    table1_row: Optional[int] = None  # its row in the paper's Table 1; None if it is not there
    centred: bool = False  # the keys are centred over the positions that the query sees; see `centring`
    unit: bool = False  # every head's query and key is scaled to the root mean square 1; see `centring`


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
    "topk": Attention("topk", "none"),
    "softpick": Attention("softpick", "none"),
    "softmax_unit": Attention("softmax", "none", unit=True),
    "rela_gc": Attention("relu", "gated_rmsnorm", centred=True, unit=True),
    "rela_ic": Attention("relu", "rmsnorm_init", centred=True, unit=True),
    "rexa": Attention("rectified_exp", "head_rmsnorm_init", centred=True, unit=True),
}


def attention(name: str) -> Attention:
    """The row of that name. InputError if there is none."""
    try:
        return CATALOG[name]
    except KeyError:
        raise InputError(f"unknown attention '{name}'; known are {', '.join(CATALOG)}") from None
