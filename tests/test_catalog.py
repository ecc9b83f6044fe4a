"""The table of attentions is the documented one, and the error for an unknown name lists the known ones."""

import pytest

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import CATALOG, attention
from fairseq_rela.attention.norms import NORMS
from fairseq_rela.errors import InputError


def test_rows_are_those_of_the_papers_table():
    assert {row.table1_row: name for name, row in CATALOG.items() if row.table1_row is not None} == {
        1: "softmax",
        2: "sparsemax",
        3: "entmax15",
        4: "relu",
        5: "relu_rmsnorm",
        6: "rela_i",
        7: "rela_g",
        8: "rela_g_layernorm",
        9: "rela_g_gelu",
        10: "rela_g_leaky_relu",
    }


def test_centred_rows_are_rela_with_centred_keys_and_one_size():
    for name, plain in (("rela_gc", "rela_g"), ("rela_ic", "rela_i")):
        assert CATALOG[name] == CATALOG[plain]._replace(table1_row=None, centred=True, unit=True)
    assert CATALOG["softmax_unit"] == CATALOG["softmax"]._replace(table1_row=None, unit=True)
    assert not any(row.centred or row.unit for row in CATALOG.values() if row.table1_row is not None)


def test_every_row_names_an_activation_and_a_norm():
    for row in CATALOG.values():
        assert row.activation in ACTIVATIONS and row.norm in NORMS


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError) as error:
        attention("rela_x")
    assert "'rela_x'" in str(error.value)
    for name in CATALOG:
        assert name in str(error.value)
