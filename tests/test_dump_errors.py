"""What can go wrong with a dump: each error is one clear line, and nothing is overwritten."""

import contextlib
import dataclasses
import errno
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from dump_samples import add_sentence, assert_holds, make_info, make_sentence, same_bits, write_dump

from fairseq_rela.errors import InputError
from fairseq_rela.recording.dump import AttentionDump, DumpInfo, DumpWriter


def contents(path):
    return {name: Path(path, name).read_bytes() for name in os.listdir(path)}


@contextlib.contextmanager
def refuses(match, path=None):
    """InputError in one line that matches; `path` stays as it was."""
    before = path and contents(path)
    with pytest.raises(InputError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert not path or contents(path) == before


def test_not_a_dump(tmp_path):
    with refuses("nowhere: not an attention dump: there is no such directory"):
        AttentionDump(tmp_path / "nowhere")
    with refuses(r"not an attention dump: it has no dump\.json"):
        AttentionDump(tmp_path)
    (tmp_path / "file").touch()
    with refuses("file: not an attention dump: it is a file"):
        AttentionDump(tmp_path / "file")


def test_an_ensemble_is_several_dumps(tmp_path):
    for name in ("model1", "model0"):
        write_dump(tmp_path / name, [1])
    with refuses("it holds 2; name one of them: model0, model1"):
        AttentionDump(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\ufffd", '{"format": 1}', '{"format": 1, "kinds": 3}', '{"format": 1, "kinds": {"self": 1}}'],
)
def test_dump_json_damaged(tmp_path, text):
    write_dump(tmp_path, [1])
    (tmp_path / "dump.json").write_text(text, encoding="utf-8")
    with refuses(r"dump\.json: damaged, or not of a dump"):
        AttentionDump(tmp_path)
    with refuses(r"dump\.json: damaged", tmp_path):
        DumpWriter(tmp_path, make_info(), resume=True)


def test_dump_json_of_a_later_format(tmp_path):
    write_dump(tmp_path, [1])
    text = (tmp_path / "dump.json").read_text()
    (tmp_path / "dump.json").write_text(text.replace('"format": 1', '"format": 2'))
    with refuses("its format is not 1"):
        AttentionDump(tmp_path)


def test_dump_json_gone(tmp_path):
    write_dump(tmp_path, [1])
    (tmp_path / "dump.json").unlink()
    with refuses(r"dump\.json: missing, although segments", tmp_path):
        DumpWriter(tmp_path, make_info(), resume=True)


@pytest.mark.parametrize("changes", [{"layers": 1}, {"heads": 1}, {"kinds": ["cross"]}])
def test_dump_json_of_another_dump(tmp_path, changes):
    write_dump(tmp_path, [1])
    (tmp_path / "dump.json").write_text(make_info(**changes).to_json())
    with refuses(r"shard0-00000\.npz: does not belong to this dump"):
        AttentionDump(tmp_path)


def test_unwritable(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "dump"):
        with refuses("cannot write a dump here: .*name a directory that can be"):
            DumpWriter(path, make_info())
    write_dump(tmp_path / "dump", [1])
    monkeypatch.setattr("fairseq_rela.atomic.open", fail_with(errno.EACCES), raising=False)
    # known when the writer is made, not when the first segment is full
    with refuses("dump: cannot write a dump here: Permission denied", tmp_path / "dump"):
        DumpWriter(tmp_path / "dump", make_info(), resume=True)


def fail_with(number):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("function", ["fsync", "link"])
def test_full_disk(tmp_path, monkeypatch, function):
    with DumpWriter(tmp_path, make_info()) as writer:
        for id in range(5):
            add_sentence(writer, id)
        writer.flush()
        before = contents(tmp_path)
        add_sentence(writer, 5)
        monkeypatch.setattr(f"fairseq_rela.atomic.os.{function}", fail_with(errno.ENOSPC))
        with refuses(r"shard0-00001\.npz: No space left on device; .*--attn-dump-resume"):
            writer.flush()
        assert contents(tmp_path) == before, "nothing half written stays"
        # leaving the `with` must not try again: it would hide the error that is on its way out
    monkeypatch.undo()
    assert_holds(AttentionDump(tmp_path), range(5))
    assert_holds(write_dump(tmp_path, range(5, 7), resume=True), range(7))


def test_another_dump_is_there(tmp_path):
    info = make_info(checkpoint_sha256="aa", fairseq_version="0.12.2")
    write_dump(tmp_path, [1], info)
    kinds = {**info.kinds, "cross": dataclasses.replace(info.kinds["cross"], attention="softmax", distribution=True)}
    for name, changes in {
        "model is 'transformer_rela' there and 'transformer' in this run": {"model": "transformer"},
        "checkpoint_sha256 is 'aa' there and 'bb' in this run": {"checkpoint_sha256": "bb"},
        "kinds.cross.attention is 'rela_g' there and 'softmax' in this run": {"kinds": kinds},
        r"kinds.encoder.layers is \[0, 1\] there and None in this run": {"kinds": {"cross": info.kinds["cross"]}},
        "options.beam is 4 there and 5 in this run": {"options": {"beam": 5}},
        "options.lenpen is None there and 2 in this run": {"options": {"beam": 4, "lenpen": 2}},
        "fairseq_version is '0.12.2' there": {"fairseq_version": "0.12.3"},
    }.items():
        for resume in (True, False):
            with refuses(name if "encoder" not in name else "kinds.encoder", tmp_path):
                DumpWriter(tmp_path, dataclasses.replace(info, **changes), shard=1, resume=resume)


def test_a_tuple_among_the_options_is_no_difference(tmp_path):
    info = make_info(options={"layers": (0, 1), "paths": {"a": 1}})
    write_dump(tmp_path, [1], info)
    assert_holds(write_dump(tmp_path, [2], info, resume=True), [1, 2])


def test_a_dump_is_there_and_resume_was_not_asked(tmp_path):
    write_dump(tmp_path, [1, 2])
    with refuses("already has a dump, 2 sentences of shard 0; give --attn-dump-resume", tmp_path):
        DumpWriter(tmp_path, make_info())


def test_no_such_kind():
    with refuses(r"no such kind of attention: self \(known are encoder, decoder, cross\)"):
        make_info(kinds=["self"])
    with refuses("at least one kind"):
        DumpInfo("m", {})


def test_an_id_twice(tmp_path):
    with DumpWriter(tmp_path, make_info()) as writer:
        add_sentence(writer, 1)
        with refuses("sentence 1 is in the dump already"):
            add_sentence(writer, 1)
        add_sentence(writer, 1, rank=1)
        with refuses("sentence 1, rank 1, is in the dump already"):
            add_sentence(writer, 1, rank=1)
    with DumpWriter(tmp_path, make_info(), shard=3) as writer, refuses("sentence 1 is in the dump already"):
        add_sentence(writer, 1)  # of another shard


def test_an_id_twice_across_shards_that_ran_at_once(tmp_path):
    with DumpWriter(tmp_path, make_info()) as left, DumpWriter(tmp_path, make_info(), shard=1) as right:
        for writer in (left, right):
            add_sentence(writer, 7)
    with refuses(r"shard1-00000\.npz: sentence 7 is in .*shard0-00000\.npz too"):
        AttentionDump(tmp_path)


def test_two_processes_of_one_shard(tmp_path):
    with DumpWriter(tmp_path, make_info()) as left:
        right = DumpWriter(tmp_path, make_info())
        add_sentence(left, 1)
        add_sentence(right, 2)
        left.flush()
        with refuses("another process writes shard 0", tmp_path):
            right.flush()
    assert_holds(AttentionDump(tmp_path), [1])


def test_shapes_must_agree(tmp_path):
    source, target, weights = make_sentence(3)
    wrong = {
        "encoder weights of sentence 3 are": {**weights, "encoder": weights["encoder"][:1]},
        "decoder weights of sentence 3 are": {**weights, "decoder": weights["decoder"][:, :2]},
        "cross weights of sentence 3 are .* make": {**weights, "cross": weights["cross"][..., 1:]},
        "lacks cross weights": {**weights, "cross": None},
    }
    with DumpWriter(tmp_path, make_info()) as writer:
        for match, given in wrong.items():
            with refuses(match):
                writer.add(3, source, target, **given)
        with refuses("encoder weights"):
            writer.add(3, source[1:], target, **weights)
        assert not writer.done(3)
        add_sentence(writer, 3)
    assert_holds(AttentionDump(tmp_path), [3])
    only_cross = DumpWriter(tmp_path / "cross", make_info(kinds=["cross"]))
    with refuses("has encoder weights; the dump is of cross"):
        only_cross.add(3, source, target, **weights)


def test_a_segment_missing(tmp_path):
    write_dump(tmp_path, range(4), segment_bytes=1)
    (tmp_path / "shard0-00001.npz").unlink()
    with refuses(r"shard0-00001\.npz: missing, although later segments are there"):
        AttentionDump(tmp_path)
    with refuses("missing", tmp_path):
        DumpWriter(tmp_path, make_info(), resume=True)


def test_truncated(tmp_path):
    path = Path(write_dump(tmp_path, range(4)).segments[0].path)
    whole = path.read_bytes()
    for length in [0, 1, 30, len(whole) // 2, len(whole) - 30, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with refuses(r"shard0-00000\.npz: truncated or changed .*restore it"):
            AttentionDump(tmp_path)
        with refuses("truncated or changed", tmp_path):
            DumpWriter(tmp_path, make_info(), resume=True)


def test_any_byte_changed_is_found_or_harmless(tmp_path):
    """Change every second byte of a segment in turn: the result is never a wrong number and never another exception."""
    info = make_info(1, 1, ["cross"])
    path = Path(write_dump(tmp_path, [1], info).segments[0].path)
    whole, damaged = path.read_bytes(), 0
    expected = make_sentence(1, info)
    for at in range(0, len(whole), 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            dump = AttentionDump(tmp_path)
            assert dump.ids.tolist() == [1]
            assert dump[0].source == expected.source and dump[0].target == expected.target
            assert same_bits(dump[0].cross, expected.weights["cross"])
        except InputError as error:
            assert "shard0-00000.npz" in str(error)
            damaged += 1
    assert damaged > len(whole) / 6, "what is left is padding, dates and sizes that nobody reads"


def test_edited_with_another_tool(tmp_path):
    """A zip that is right in itself, but not of what was written."""
    path = Path(write_dump(tmp_path, [1]).segments[0].path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["cross_values"][0] += 1
    np.savez(path, **arrays)
    with refuses("cross of sentence 1 has a wrong checksum"):
        _ = AttentionDump(tmp_path)[0].cross
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with refuses("truncated or changed since it was written"):
        AttentionDump(tmp_path)


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_rela.atomic.os.link", fail_with(errno.EPERM))
    assert_holds(write_dump(tmp_path, range(3), segment_bytes=1), range(3))
    left, right = (DumpWriter(tmp_path, make_info(), resume=True) for _ in range(2))
    for writer in (left, right):
        add_sentence(writer, 9)
    left.flush()
    with refuses("another process", tmp_path):
        right.flush()


def test_a_dump_that_goes_away_while_it_is_read(tmp_path):
    dump = write_dump(tmp_path / "d", [1])
    shutil.rmtree(tmp_path / "d")
    with refuses(r"shard0-00000\.npz: No such file"):
        _ = dump[0].cross
