"""Norms in a dump: read as they were written, with the zeros of the weights; dumps without norms are as before."""

import dataclasses
import json
import zipfile

import numpy as np
import pytest
from dump_samples import make_info, make_sentence, same_bits, write_dump
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.cli import main
from fairseq_rela.dump import AttentionDump, DumpWriter
from fairseq_rela.dump.info import DumpInfo
from fairseq_rela.dump.segment import pack, pack_like, unpack
from fairseq_rela.errors import InputError


def with_norms(info: DumpInfo, kinds=("encoder", "decoder", "cross")) -> DumpInfo:
    rows = {kind: dataclasses.replace(row, norms=kind in kinds) for kind, row in info.kinds.items()}
    return dataclasses.replace(info, kinds=rows)


def norms_of(weights):
    return {kind: np.abs(array) * np.float32(1.5) for kind, array in weights.items()}


def write(path, ids=range(5), kinds=("encoder", "decoder", "cross")):
    info = with_norms(make_info(), kinds)
    with DumpWriter(str(path), info) as writer:
        for id in ids:
            source, target, weights = make_sentence(id)
            norms = {kind: array for kind, array in norms_of(weights).items() if kind in kinds}
            writer.add(id, source, target, **weights, norms=norms)
    return AttentionDump(str(path))


def test_read_as_written(tmp_path):
    dump = write(tmp_path / "dump")
    dump.verify()
    for record in dump:
        expected = norms_of(make_sentence(record.id).weights)
        for kind, array in expected.items():
            assert same_bits(record.norms(kind), array)
            assert same_bits(record.weights(kind), make_sentence(record.id).weights[kind])
        assert same_bits(record.cross_norms, expected["cross"]) and same_bits(record.encoder_norms, expected["encoder"])
        assert same_bits(record.decoder_norms, expected["decoder"])


def test_norms_of_one_kind_only(tmp_path, capsys):
    dump = write(tmp_path / "dump", kinds=["cross"])
    assert dump[0].cross_norms is not None and dump[0].encoder_norms is None and dump[0].decoder_norms is None
    assert json.loads((tmp_path / "dump" / "dump.json").read_text())["kinds"]["cross"]["norms"] is True
    assert main(["dump-info", str(tmp_path / "dump"), "--verify"]) == 0
    out = capsys.readouterr().out
    assert out.count(", with norms") == 1
    with pytest.raises(InputError, match="no such kind of attention: sideways"):
        dump[0].norms("sideways")


VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45, float("inf"), float("nan"), 3e38])


@given(st.lists(st.tuples(VALUES, VALUES), max_size=40))
def test_any_values_under_any_mask(pairs):
    weights, norms = (np.array([pair[i] for pair in pairs], np.float32) for i in (0, 1))
    mask, _ = pack(weights)
    read = unpack(mask, pack_like(norms, mask), norms.shape)
    for weight, norm, found in zip(weights, norms, read):
        assert found.tobytes() == (norm if weight != 0 else np.float32(0)).tobytes()


def test_a_dump_without_norms_is_as_before(tmp_path):
    dump = write_dump(tmp_path / "dump", range(3))
    assert "norms" not in (tmp_path / "dump" / "dump.json").read_text()
    with zipfile.ZipFile(tmp_path / "dump" / "shard0-00000.npz") as archive:
        assert not [name for name in archive.namelist() if "norms" in name]
    assert dump[0].cross_norms is None and dump[0].norms("encoder") is None


def test_the_model_is_the_same_with_and_without_norms(tmp_path):
    info = make_info()
    assert with_norms(info).kinds == info.kinds
    write(tmp_path / "dump", range(2))
    with pytest.raises(InputError, match=r"kinds\.encoder\.norms is True there and None in this run"):
        DumpWriter(str(tmp_path / "dump"), info, resume=True)


@pytest.mark.parametrize(
    "norms, message",
    [
        (lambda norms: {}, "sentence 9 lacks encoder norms; the dump is of encoder, cross"),
        (
            lambda norms: {**norms, "decoder": norms["cross"]},
            "sentence 9 has decoder norms",
        ),
        (lambda norms: {**norms, "cross": norms["cross"][:1]}, "the cross norms of sentence 9 are"),
        (lambda norms: {**norms, "cross": norms["cross"].astype(float)}, "the cross norms of sentence 9 are float64"),
    ],
)
def test_wrong_norms_are_refused_and_nothing_is_added(tmp_path, norms, message):
    info = with_norms(make_info(), ["encoder", "cross"])
    source, target, weights = make_sentence(9)
    right = {kind: array for kind, array in norms_of(weights).items() if kind != "decoder"}
    with DumpWriter(str(tmp_path / "dump"), info) as writer:
        with pytest.raises(InputError, match=message):
            writer.add(9, source, target, **weights, norms=norms(right))
        writer.add(9, source, target, **weights, norms=right)
    assert AttentionDump(str(tmp_path / "dump")).ids.tolist() == [9]


def rewritten(path, change):
    """Change the arrays of a segment, by their names, and store them again."""
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)


def test_damaged_norms_are_told(tmp_path):
    write(tmp_path / "dump")
    segment = tmp_path / "dump" / "shard0-00000.npz"

    def flip(arrays):
        arrays["cross_norms"] = arrays["cross_norms"] + 1

    rewritten(segment, flip)
    dump = AttentionDump(str(tmp_path / "dump"))
    assert np.isfinite(dump[1].cross).all()  # the weights are whole
    with pytest.raises(InputError, match="the cross_norms of sentence 1 has a wrong checksum"):
        _ = dump[1].cross_norms


def test_an_index_with_another_number_of_norms_is_told(tmp_path):
    write(tmp_path / "dump")

    def shorten(arrays):
        arrays["index"]["cross_norms"][2, 1] -= 1

    rewritten(tmp_path / "dump" / "shard0-00000.npz", shorten)
    with pytest.raises(InputError, match="does not have as many cross norms as values"):
        AttentionDump(str(tmp_path / "dump"))


def test_a_wrong_field_is_told(tmp_path):
    write(tmp_path / "dump")
    path = tmp_path / "dump" / "dump.json"
    path.write_text(path.read_text().replace('"norms": true', '"norms": "yes"'))
    with pytest.raises(InputError, match=r'kinds\.encoder\.norms is "yes", not true or false'):
        AttentionDump(str(tmp_path / "dump"))
