"""A dump while it is being made: killed, resumed, in several processes at once."""

import os
import random

import numpy as np
import pytest
from dump_samples import add_sentence, assert_holds, make_info, start_python, write_dump
from waiting import HANGS, files, until

from fairseq_rela.recording.dump import AttentionDump, DumpWriter

pytestmark = pytest.mark.slow

WRITE = """
import sys
from dump_samples import add_sentence, make_info
from fairseq_rela.recording.dump import DumpWriter
path, shard, shards, count = sys.argv[1], *map(int, sys.argv[2:])
with DumpWriter(path, make_info(), shard=shard, resume=True, segment_bytes=6000) as writer:
    print("ready", flush=True)
    for id in range(shard, count, shards):
        if not writer.done(id):
            add_sentence(writer, id)
"""


def segments(path):
    """The names of the files that hold sentences."""
    return {name for name in files(path, ".npz") if name.startswith("shard")}


def running(child):
    return lambda: child.poll() is None


@pytest.mark.parametrize("moment", ["after some segments", "in a write"])
def test_killed_again_and_again(tmp_path, moment):
    """Several runs, each killed and resumed: the dump has complete sentences only, and in the end each one once."""
    rng, held = random.Random(0), 0
    for _ in range(4):
        before, more = len(segments(tmp_path)), rng.randint(1, 6)
        child = start_python(WRITE, tmp_path, 0, 1, 100_000)
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        until(lambda: len(segments(tmp_path)) >= before + more, running(child))  # noqa: B023
        if moment == "in a write":
            until(lambda: files(tmp_path, ".tmp"), running(child))
        child.kill()
        assert child.wait() == -9
        child.communicate()
        dump = AttentionDump(tmp_path)
        assert_holds(dump, range(len(dump)), begin=held)
        assert len(dump) >= held + more, "nothing that was there is lost"
        held = len(dump)
    leftovers = files(tmp_path, ".tmp")
    child = start_python(WRITE, tmp_path, 0, 1, held + 10)
    child.communicate(timeout=HANGS)
    assert child.returncode == 0
    assert_holds(AttentionDump(tmp_path), range(held + 10))
    assert not files(tmp_path, ".tmp"), leftovers


@pytest.mark.parametrize("moment", ["write", "os.fsync", "os.link", "os.unlink"])
def test_killed_at_each_step_of_a_segment(tmp_path, moment):
    """The process is killed inside each step of writing the second segment."""
    code = f"""
import os, signal, sys
from dump_samples import add_sentence, make_info
from fairseq_rela import atomic
from fairseq_rela.dump import segment
from fairseq_rela.recording.dump import DumpWriter
def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
writer = DumpWriter(sys.argv[1], make_info())
for id in (0, 1):
    add_sentence(writer, id)
writer.flush()
add_sentence(writer, 2)
if {moment!r} == "write":
    segment._write_array = die
else:
    atomic.os.{moment.split(".")[-1]} = die
writer.flush()
"""
    child = start_python(code, tmp_path)
    _, error = child.communicate(timeout=HANGS)
    assert child.returncode == -9, error
    published = moment == "os.unlink"  # the link was made before
    assert_holds(AttentionDump(tmp_path), range(3 if published else 2))
    assert_holds(write_dump(tmp_path, [7], resume=True), [*range(3 if published else 2), 7])
    assert not any(name.endswith(".tmp") for name in os.listdir(tmp_path))


def test_resume_records_nothing_twice(tmp_path):
    info = make_info()
    write_dump(tmp_path, [4, 0, 8], info, segment_bytes=1)
    write_dump(tmp_path, [1], info, shard=1)
    before = {name: os.stat(tmp_path / name).st_mtime_ns for name in os.listdir(tmp_path)}
    with DumpWriter(tmp_path, info, resume=True) as writer:
        assert [id for id in range(10) if writer.done(id)] == [0, 1, 4, 8]
        assert not writer.done(0, rank=1) and writer.done(np.int64(4))
        for id in range(10):
            if not writer.done(id):
                add_sentence(writer, id)
                assert writer.done(id)
    assert_holds(AttentionDump(tmp_path), range(10))
    assert all(os.stat(tmp_path / name).st_mtime_ns == mtime for name, mtime in before.items())


def test_resume_of_nothing_is_a_beginning(tmp_path):
    assert_holds(write_dump(tmp_path / "a" / "b", [1, 2], resume=True), [1, 2])


def test_nothing_to_write_is_a_dump_too(tmp_path):
    assert_holds(write_dump(tmp_path, []), [])


def test_an_error_outside_keeps_what_was_finished(tmp_path):
    with pytest.raises(KeyError), DumpWriter(tmp_path, make_info()) as writer:
        add_sentence(writer, 1)
        raise KeyError
    assert_holds(AttentionDump(tmp_path), [1])


def test_shards_written_at_once_are_one_dump(tmp_path):
    children = [start_python(WRITE, tmp_path, shard, 3, 150) for shard in range(3)]
    for child in children:
        _, error = child.communicate(timeout=HANGS)
        assert child.returncode == 0, error
    dump = AttentionDump(tmp_path)
    assert_holds(dump, range(150))
    assert {os.path.basename(segment.path).split("-")[0] for segment in dump.segments} == {"shard0", "shard1", "shard2"}


def test_a_dump_can_be_read_while_it_is_written(tmp_path):
    child = start_python(WRITE, tmp_path, 0, 1, 100_000)
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    held = 0
    for _ in range(5):
        before = len(segments(tmp_path))
        until(lambda: len(segments(tmp_path)) > before, running(child))  # noqa: B023
        dump = AttentionDump(tmp_path)
        assert_holds(dump, range(len(dump)), begin=held)
        assert len(dump) > held
        held = len(dump)
    child.kill()
    child.communicate()
