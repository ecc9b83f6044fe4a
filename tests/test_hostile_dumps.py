"""Dumps and statistics that were made to break a reader: one line each, and nothing large is allocated."""

import json
import re
import tracemalloc
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import write_dump as write_analysis_dump
from dump_samples import make_info, write_dump

from fairseq_rela.analysis.pair_features import pairs_of
from fairseq_rela.cli import main
from fairseq_rela.dump.info import DumpInfo
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.dump.selection import parse_layers, selected_kinds, selected_layers
from fairseq_rela.dump.statistics import StatsWriter, read_stats
from fairseq_rela.dump.writer import DumpWriter
from fairseq_rela.errors import InputError

MOST_MEMORY = 20 << 20
HEAD = "id\trank\tsource_length\ttarget_length\tcross.0.null\tcross.0.sparsity\n"


@contextmanager
def refuses(match):
    """InputError of one line that matches, with little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=match) as caught:
            yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


# Segments


@pytest.mark.parametrize("name", ["shard0-99999999999.npz", "shard7-99999999999.npz"])
def test_a_stray_segment_with_a_large_number(tmp_path, name):
    write_dump(tmp_path, [1])
    (tmp_path / name).touch()
    with refuses(rf"shard\d-0000\d\.npz: missing, although later segments are there \({re.escape(name)}\)"):
        AttentionDump(tmp_path)


def test_a_name_with_extra_zeros_is_not_that_of_a_segment(tmp_path):
    write_dump(tmp_path, [1])
    for name in ("shard0-000000.npz", "shard00-00000.npz", "shard0-0000٠.npz"):
        (tmp_path / name).touch()
    assert AttentionDump(tmp_path).ids.tolist() == [1]


def change_index(path, **values):
    """Write the segment again, right in itself, with other numbers in the first row of its index."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    for name, value in values.items():
        arrays["index"][name][0] = value
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    "values, said",
    [
        ({"id": 2**62}, "has the id 4611686018427387904"),
        ({"id": -1}, "has the id -1"),
        ({"rank": -1}, "has the rank -1"),
        ({"source_length": 2**32, "target_length": 2**32}, "has the source_length 4294967296"),
        ({"target_length": -1}, "has the target_length -1"),
        ({"text": [0, 2**40]}, "points outside of its text"),
        ({"text": [-5, 10]}, "points outside of its text"),
        ({"cross_values": [9, 2]}, "points outside of its cross_values"),
        ({"encoder_mask": [0, 2**62]}, "points outside of its encoder_mask"),
    ],
)
def test_numbers_of_an_index_that_cannot_be(tmp_path, values, said):
    change_index(write_dump(tmp_path, [1]).segments[0].path, **values)
    with refuses(rf"shard0-00000\.npz: .*{said}"):
        AttentionDump(tmp_path)


def test_lengths_whose_product_wraps(tmp_path):
    """2^32 × 2^32 weights are 0 in int64, and 0 bytes of mask: the text must be as long as the tokens need."""
    info = make_info(1, 1, ["cross"])
    path = write_dump(tmp_path, [1], info).segments[0].path
    change_index(path, source_length=2**32, target_length=2**32, cross_mask=[0, 0], cross_values=[0, 0])
    with refuses("has the source_length 4294967296"):
        AttentionDump(tmp_path)


def test_an_index_that_unpacks_to_gigabytes(tmp_path):
    path = Path(write_dump(tmp_path, [1]).segments[0].path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w") as member:
                np.lib.format.write_array(member, array)
                if name == "index":
                    for _ in range(200):
                        member.write(bytes(1 << 20))
    with refuses(r"shard0-00000\.npz: .*is compressed"):
        AttentionDump(tmp_path)


def test_an_index_whose_header_claims_more_rows_than_it_has(tmp_path):
    path = Path(write_dump(tmp_path, [1]).segments[0].path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w") as member:
                shape = (10**12,) if name == "index" else array.shape
                descr = np.lib.format.dtype_to_descr(array.dtype)
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(array.tobytes())
    with refuses(r"shard0-00000\.npz: .*bytes for 1000000000000 sentences"):
        AttentionDump(tmp_path)


# dump.json


def changed(path, **values):
    """Replace fields of dump.json by dotted names; ... removes a field."""
    content = json.loads((path / "dump.json").read_text())
    for name, value in values.items():
        inner = content
        *outer, last = name.split("__")
        for key in outer:
            inner = inner[key]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    (path / "dump.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "values, said",
    [
        ({"kinds__cross__heads": "4"}, r'kinds\.cross\.heads is "4", not a whole number from 1 to 1024'),
        ({"kinds__cross__heads": 0}, r"kinds\.cross\.heads is 0"),
        ({"kinds__cross__heads": True}, r"kinds\.cross\.heads is true"),
        ({"kinds__cross__heads": 3.0}, r"kinds\.cross\.heads is 3\.0"),
        ({"kinds__cross__heads": 10**12}, r"kinds\.cross\.heads is 1000000000000"),
        ({"kinds__cross__layers": "01"}, r'kinds\.cross\.layers is "01", not a list of whole numbers'),
        ({"kinds__cross__layers": [0, 0]}, r"kinds\.cross\.layers is \[0, 0\], not different numbers from 0 to 1"),
        ({"kinds__cross__layers": [0, 2]}, r"kinds\.cross\.layers is \[0, 2\]"),
        ({"kinds__cross__layers": []}, r"kinds\.cross\.layers is \[\]"),
        ({"kinds__cross__layers": [0, -1]}, r"kinds\.cross\.layers is \[0, -1\]"),
        ({"kinds__cross__model_layers": 10**9}, r"kinds\.cross\.model_layers is 1000000000"),
        ({"kinds__cross__model_layers": ...}, r"kinds\.cross\.model_layers is missing"),
        ({"kinds__cross__distribution": 1}, r"kinds\.cross\.distribution is 1, not true or false"),
        ({"kinds__cross__attention": None}, r"kinds\.cross\.attention is null, not text"),
        ({"kinds__cross__colour": 1}, r"kinds\.cross\.colour is not a field"),
        ({"kinds__cross": [1]}, r"kinds\.cross is \[1\], not an object"),
        ({"kinds": [1]}, r"kinds is \[1\], not an object"),
        ({"options": [1, 2]}, r"options is \[1, 2\], not an object"),
        ({"model": 5}, "model is 5, not text"),
        ({"model": ...}, "model is missing"),
        ({"model": "\ud800"}, "surrogates not allowed"),
        ({"checkpoint_sha256": 5}, "checkpoint_sha256 is 5, not text or null"),
        ({"options": {"a": "\udfff"}}, "surrogates not allowed"),
    ],
)
def test_each_field_of_dump_json_is_checked(tmp_path, values, said):
    write_dump(tmp_path, [1])
    changed(tmp_path, **values)
    with refuses(rf"dump\.json: damaged, or not of a dump \(.*{said}"):
        AttentionDump(tmp_path)


@pytest.mark.parametrize(
    "options, said",
    [
        ("[" * 10_000 + "]" * 10_000, "nested deeper than 20 levels"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested deeper than 20 levels"),
        ('{"a":' * 30 + "1" + "}" * 30, "nested deeper than 20 levels"),
        ('{"a": ' + "9" * 5_000 + "}", "a number of 5000 digits"),
        ('{"a": "' + "x" * 1_100_000 + '"}', "longer than 1000000 characters"),
    ],
    ids=["lists", "objects", "thirty levels", "digits", "long"],
)
def test_bombs_in_dump_json(tmp_path, options, said):
    write_dump(tmp_path, [1])
    text = (tmp_path / "dump.json").read_text()
    (tmp_path / "dump.json").write_text(re.sub(r'"options": \{.*?\}', '"options": ' + options, text, flags=re.S))
    with refuses(rf"dump\.json: damaged, or not of a dump \({said}"):
        AttentionDump(tmp_path)


def test_what_is_written_is_read_again():
    info = make_info(options={"a": {"b": [1, 2.5, None, "ü"]}}, checkpoint_sha256="aa")
    assert DumpInfo.from_json(info.to_json()) == info


# Ids


def test_negative_ids_are_refused_when_they_are_written(tmp_path):
    weights = np.zeros((1, 1, 1, 1), np.float32)
    with DumpWriter(tmp_path / "d", make_info(1, 1, ["cross"])) as writer:
        for id, rank in ((-1, 0), (10**9, 0), (0, -1)):
            with refuses("a sentence cannot have the (id|rank) -?1"):
                writer.add(id, ["a"], ["b"], cross=weights, rank=rank)
    with StatsWriter(tmp_path / "s.tsv", {"cross": [0]}) as stats, refuses("cannot have the id -1"):
        stats.add(-1, 1, 1, cross=weights)


def test_align_writes_no_billion_of_empty_lines(tmp_path, capsys):
    write_analysis_dump(tmp_path / "d", ids=[0, 1, 2, 999_999_999])
    assert main(["align", str(tmp_path / "d"), "--out", str(tmp_path / "links")]) == 1
    assert "has sentence 999999999, but only 4 sentences" in capsys.readouterr().err
    assert not (tmp_path / "links").exists()


# Statistics


def test_statistics_with_one_large_id(tmp_path, capsys):
    stats = tmp_path / "stats.tsv"
    stats.write_text(HEAD + "0\t0\t1\t1\t0.5\t0\n999999999\t0\t1\t1\t0.5\t0\n")
    for side in ("de", "en"):
        (tmp_path / f"text.{side}").write_text("one\ntwo\n")
    text = [f"--source={tmp_path}/text.de", f"--target={tmp_path}/text.en", f"--out={tmp_path}/out"]
    tracemalloc.start()
    assert main(["filter", str(stats), *text, "--keep", "0.5"]) == 1
    assert pairs_of(str(stats)).ids.tolist() == [0, 999999999]  # what --evaluate reads
    assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    tracemalloc.stop()
    assert "has pair 999999999, but" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "heading, said",
    [
        (HEAD.replace("sparsity", "null"), r"the column cross\.0\.null occurs twice"),
        (HEAD.replace("cross.0.null", "cross.x.null"), r"'cross\.x\.null' is not the name of a column"),
        (HEAD.replace("cross.0.null", "crass.0.null"), r"'crass\.0\.null' is not the name of a column"),
    ],
)
def test_columns_twice_or_misnamed(tmp_path, heading, said):
    path = tmp_path / "stats.tsv"
    path.write_text(heading + "0\t0\t1\t1\t0.5\t0\n")
    with refuses(said):
        pairs_of(str(path))
    with refuses(said):
        list(read_stats(str(path)))


@pytest.mark.parametrize("id", ["-1", "9" * 5_000, "1e3", "٣", "1_0"])
def test_ids_of_statistics_are_plain_numbers(tmp_path, id):
    (tmp_path / "stats.tsv").write_text(HEAD + f"{id}\t0\t1\t1\t0.5\t0\n", encoding="utf-8")
    with refuses("line 2: .* is not a whole number from 0 to 999999999"):
        list(read_stats(str(tmp_path / "stats.tsv")))


# Choices


@pytest.mark.parametrize("text, twice", [("0,0", 0), ("1,0,1", 1), ("-1,-1", -1)])
def test_a_layer_named_twice(text, twice):
    with refuses(f"the layer of --attn-dump-layers {twice} is named twice"):
        parse_layers(text, "--attn-dump-layers")


def test_a_layer_named_twice_in_two_ways_and_a_kind_twice():
    with refuses("the cross layer 3 is named twice"):
        selected_layers("cross", range(4), [3, -1])
    with refuses("the kind of attention cross is named twice"):
        selected_kinds(["encoder", "cross"], ["cross", "cross"])
