"""The dump on disk: what is written is read again, a zero takes one bit, and sentences are read one at a time."""

import io
import json
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from dump_samples import ROOT, add_sentence, assert_holds, make_info, make_sentence, same_bits, start_python, write_dump
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.dump import reader as dump_module
from fairseq_rela.dump.segment import Segment, pack, unpack
from fairseq_rela.errors import InputError
from fairseq_rela.recording.dump import KINDS, AttentionDump, DumpInfo, DumpWriter, KindInfo

TINY = np.float32(1e-45)  # the smallest subnormal


def bits_of_float32():
    """Any 32 bits, zeros often: subnormals, infinities and NaNs with payloads among them."""
    return st.one_of(st.just(0), st.integers(0, 2**32 - 1), st.sampled_from([1, 0x80000001, 0x7F800000, 0xFFC12345]))


@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.data())
def test_packing_is_lossless_bit_by_bit(shape, data):
    count = int(np.prod(shape))
    bits = data.draw(st.lists(bits_of_float32(), min_size=count, max_size=count))
    weights = np.array(bits, "<u4").view("<f4").reshape(shape)
    mask, values = pack(weights)
    assert mask.nbytes == (count + 7) // 8
    assert len(values) == sum(bit & 0x7FFFFFFF != 0 for bit in bits)
    assert same_bits(unpack(mask, values, shape), weights)


def test_only_zeros_are_zeros():
    weights = np.array([0.0, -0.0, TINY, -TINY, np.inf, -np.inf, -1.0, np.nan], np.float32)
    _, values = pack(weights)
    assert same_bits(values, weights[2:])
    assert not np.signbit(unpack(*pack(weights), (8,)))[1], "-0.0 comes back as 0.0"


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.sampled_from(KINDS), min_size=1),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([0, 0.5, 0.99, 1]),
    st.lists(st.integers(0, 10**9 - 1), unique=True, max_size=6),
    st.sampled_from([1, 2000, 1 << 20]),
)
def test_round_trip(tmp_path_factory, kinds, layers, heads, sparsity, ids, segment_bytes):
    path, info = tmp_path_factory.mktemp("dump") / "d", make_info(layers, heads, kinds)
    sentences = {id: make_sentence(id, info, sparsity) for id in ids}
    with DumpWriter(path, info, segment_bytes=segment_bytes) as writer:
        for id, (source, target, weights) in sentences.items():
            writer.add(id, source, target, **weights)
    dump = AttentionDump(path)
    assert dump.info == info
    assert [record.id for record in dump] == sorted(ids) and len(dump) == len(ids)
    for record in dump:
        source, target, weights = sentences[record.id]
        assert (record.source, record.target) == (source, target)
        assert (record.source_length, record.target_length) == (len(source), len(target))
        for kind in KINDS:
            array = getattr(record, kind)
            assert array is None if kind not in kinds else same_bits(array, weights[kind])


def test_kinds_may_differ_in_layers_and_heads(tmp_path):
    kinds = {
        "encoder": KindInfo("softmax", True, 2, (0, 1, 2), 3),
        "cross": KindInfo("rela_g", False, 4, (1,), 2),
    }
    dump = write_dump(tmp_path, [5], DumpInfo("transformer", kinds))
    assert dump.info.kinds == kinds
    assert dump[0].encoder.shape[:2] == (3, 2) and dump[0].cross.shape[:2] == (1, 4)
    assert dump[0].decoder is None


def test_order_lookup_and_ranks(tmp_path):
    with DumpWriter(tmp_path, make_info(), segment_bytes=1) as writer:
        for id, rank in [(9, 1), (2, 0), (9, 0), (4, 2)]:
            add_sentence(writer, id, rank)
    dump = AttentionDump(tmp_path)
    assert [(record.id, record.rank) for record in dump] == [(2, 0), (4, 2), (9, 0), (9, 1)]
    assert_holds(dump, [2, 4, 9, 9])
    assert dump[-1].rank == 1 and dump.find(9, 1).rank == 1 and dump.find(4, 2).id == 4
    with pytest.raises(IndexError):
        dump[4]
    for id, rank in [(4, 0), (3, 0), (10, 0), (9, 2), (-1, 0)]:
        with pytest.raises(InputError, match=rf"no sentence {id}.*4 records, ids 2 to 9"):
            dump.find(id, rank)


def test_tokens_of_any_alphabet(tmp_path):
    source = ["▁größ@@", "", "a\tb\n\x00", "日本", "\ud800", '"', "</s>"]
    info = make_info(1, 1, ["encoder"])
    with DumpWriter(tmp_path, info) as writer:
        writer.add(0, source, ["</s>"], encoder=np.ones((1, 1, 7, 7), np.float32))
    assert AttentionDump(tmp_path)[0].source == source


@pytest.mark.parametrize("share", [1.0, 0.99, 0.9, 0.0])
def test_a_zero_costs_at_most_a_bit(tmp_path, share):
    info = make_info(4, 8, ["encoder", "cross"])
    rng = np.random.default_rng(0)
    weights = [rng.random((4, 8, 30, 30), dtype=np.float32) * (rng.random((4, 8, 30, 30)) >= share) for _ in range(40)]
    tokens = ["a"] * 30
    with DumpWriter(tmp_path, info) as writer:
        for id, array in enumerate(weights):
            writer.add(id, tokens, tokens, encoder=array, cross=array)
    count = 2 * sum(array.size for array in weights)
    nonzero = 2 * sum(np.count_nonzero(array) for array in weights)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    text = len(json.dumps([tokens, tokens]))
    assert size <= count / 8 + 4 * nonzero + 40 * (text + 160) + 4000


def test_a_sentence_is_read_without_the_others(tmp_path):
    dump = write_dump(tmp_path, range(50))
    path = dump.segments[0].path
    row = dump.find(30)._row
    with open(path, "r+b") as file:  # overwrite every other sentence's cross values
        offset = dump.segments[0]._locate(file, "cross_values")
        first, last = (offset + 4 * int(at) for at in row["cross_values"])
        end = offset + 4 * int(dump.find(49)._row["cross_values"][1])
        for start, stop in [(offset, first), (last, end)]:
            file.seek(start)
            file.write(b"\xff" * (stop - start))
    dump = AttentionDump(tmp_path)
    assert same_bits(dump.find(30).cross, make_sentence(30).weights["cross"])
    assert same_bits(dump.find(29).decoder, make_sentence(29).weights["decoder"]), "other kinds are not touched"
    with pytest.raises(InputError, match=r"shard0-00000\.npz: .*cross of sentence 29 has a wrong checksum"):
        _ = dump.find(29).cross
    with pytest.raises(InputError, match=r"sentence 0 "):
        dump.verify()


def test_a_sentence_costs_the_bytes_it_has(tmp_path, monkeypatch):
    read = []

    class CountingFile(io.FileIO):
        def read(self, size=-1):
            read.append(size)
            return super().read(size)

    dump = write_dump(tmp_path, range(200))
    monkeypatch.setattr("fairseq_rela.dump.segment.open", CountingFile, raising=False)
    record = dump.find(100)
    assert not read, "nothing is read before it is asked for"
    assert same_bits(record.cross, make_sentence(100).weights["cross"])
    mask, values = (record._row[f"cross_{part}"] @ [-1, 1] for part in ("mask", "values"))
    assert mask + 4 * values <= sum(read) < mask + 4 * values + 600, "the weights, and the headers of two arrays"


def test_weights_are_kept_once_read(tmp_path):
    record = write_dump(tmp_path, [1])[0]
    assert record.cross is record.cross
    assert record.weights("cross") is not record.cross


def test_memory_is_a_segment(tmp_path):
    info = make_info(1, 4, ["encoder"])
    array = np.ones((1, 4, 64, 64), np.float32)
    most = 0
    with DumpWriter(tmp_path, info, segment_bytes=300_000, segment_seconds=1e9) as writer:
        for id in range(60):
            writer.add(id, ["a"] * 64, ["</s>"], encoder=array)
            most = max(most, writer._pending.bytes)
    assert most < 300_000
    assert len(AttentionDump(tmp_path).segments) == 12


def test_an_old_segment_is_closed(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fairseq_rela.dump.writer.time.monotonic", lambda: now[0])
    closed = []
    with DumpWriter(tmp_path, make_info(1, 1, ["cross"]), segment_seconds=2) as writer:
        for second in range(400):
            now[0] = float(second)
            add_sentence(writer, second)
            closed.append(len(os.listdir(tmp_path)) - 1)
    assert closed[2] == 1 and closed[9] == 4
    ages = np.diff(np.flatnonzero(np.diff(closed)))
    assert ages.max() == 8, "2 % of the run"
    assert_holds(AttentionDump(tmp_path), range(400))


def test_float16_is_taken_and_wider_refused(tmp_path):
    info, array = make_info(1, 1, ["encoder"]), np.full((1, 1, 1, 1), 0.1)
    with DumpWriter(tmp_path, info) as writer:
        writer.add(0, ["</s>"], [], encoder=array.astype(np.float16))
        with pytest.raises(InputError, match="sentence 1 are float64, not float32"):
            writer.add(1, ["</s>"], [], encoder=array)
    assert same_bits(AttentionDump(tmp_path)[0].encoder, array.astype(np.float16).astype(np.float32))


def test_a_dump_survives_pickling_and_other_processes_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".shard0-00009.npz.abc.tmp").write_bytes(b"half")
    dump = pickle.loads(pickle.dumps(write_dump(tmp_path, range(3))))
    assert_holds(dump, range(3))
    assert sorted(os.listdir(tmp_path)) == ["dump.json", "notes.txt", "shard0-00000.npz"]


@pytest.mark.parametrize("where", ["docstring", "docs"])
def test_five_lines_of_numpy(tmp_path, where):
    """The documented lines, run as they are."""
    page = Path(ROOT, "docs", "attention-dumps.md")
    text = dump_module.__doc__ if where == "docstring" else page.read_text(encoding="utf-8")
    lines = re.findall(r"^ *((?:info, file|row, cross|shape|weights, mask|weights\.reshape).* = .*)$", text, re.M)
    assert len(lines) == 5
    dump = write_dump(tmp_path / "DIR", range(4))
    names = {"np": np, "json": json}
    exec("\n".join(lines).replace("DIR", str(tmp_path / "DIR")), names)
    assert same_bits(names["weights"], dump[0].cross)
    tokens = re.search(r"source, target = json.loads[^`]*", text)[0]
    exec(tokens, names)
    assert (names["source"], names["target"]) == (dump[0].source, dump[0].target)


def test_segments_are_plain_npz(tmp_path):
    segment = write_dump(tmp_path, range(4)).segments[0]
    with np.load(segment.path, allow_pickle=False) as file:
        assert file["index"]["id"].tolist() == [0, 1, 2, 3]
        assert file["cross_values"].dtype == np.float32 and file["cross_mask"].dtype == np.uint8
    assert isinstance(segment, Segment)


BARE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "fairseq", "scipy", "tqdm"):
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Block())
import fairseq_rela.dump.statistics, fairseq_rela.cli
from dump_samples import assert_holds, write_dump
assert_holds(write_dump(sys.argv[1], range(3)), range(3))
assert fairseq_rela.cli.main(["dump-info", sys.argv[1]]) == 0
assert fairseq_rela.cli.main(["dump-export", sys.argv[1], "--bertviz", sys.argv[2]]) == 0
try:
    import torch
except ImportError:
    print("bare")
"""


def test_needs_neither_torch_nor_fairseq(tmp_path):
    out, err = (child := start_python(BARE, tmp_path / "d", tmp_path / "v.json")).communicate(timeout=60)
    assert child.returncode == 0, err
    assert out.endswith("bare\n")
