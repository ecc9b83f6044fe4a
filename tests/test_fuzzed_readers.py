"""Real files, mutated: every reader gives an InputError in one line or a right result, with bounded memory.

Bytes are flipped, cut out, repeated and inserted, and numbers are replaced by hostile ones. What once broke a reader is
kept as an example. The runs are the same every time. `resource.setrlimit` bounds memory and time while a command runs.
"""

import contextlib
import gzip
import io
import json
import math
import os
import re
import resource
import shutil
import signal
import time
import zipfile

import numpy as np
import pytest
import unhurried  # noqa: F401
from analysis_samples import write_dump
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairseq_rela.cli import main
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.dump.statistics import StatsWriter
from fairseq_rela.errors import InputError

SECONDS = 60  # of the processor that a command may take; it takes a fraction of a second
MEMORY = 1 << 30  # bytes that a command may take in addition to what the tests have taken already
NUMBERS = [
    "-1",
    "0",
    "1",
    "2",
    "nan",
    "1e999",
    "-0.0",
    "1.5",
    "9" * 5000,
    str(2**31),
    str(2**62),
    str(2**63),
    "999999999",
]
BYTES = [
    b"\0",
    b"\n",
    b"\t",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"]",
    b'"',
    b" ",
    b"\r",
    b"-",
    "٣".encode(),
    b"\x80\x02]q",
]

few = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def mutations(draw):
    """A function that damages bytes."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["flip", "cut", "end", "repeat", "insert", "number"]),
                st.floats(0, 1, exclude_max=True),
                st.integers(1, 40),
                st.integers(0, 1000),
            ),
            min_size=1,
            max_size=4,
        )
    )
    return steps


def mutated(data: bytes, steps) -> bytes:
    for what, place, size, choice in steps:
        at = int(place * len(data))
        if what == "flip":
            data = data[:at] + bytes([(data[at] if data else 0) ^ (1 + choice % 255)]) + data[at + 1 :]
        elif what == "cut":
            data = data[:at] + data[at + size :]
        elif what == "end":
            data = data[:at]
        elif what == "repeat":
            data = data[:at] + data[at : at + size] * (2 + choice % 5) + data[at + size :]
        elif what == "insert":
            data = data[:at] + BYTES[choice % len(BYTES)] + data[at:]
        else:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data))
            if numbers:
                match = numbers[int(place * len(numbers))]
                data = data[: match.start()] + NUMBERS[choice % len(NUMBERS)].encode() + data[match.end() :]
    return data


@contextlib.contextmanager
def bounded():
    """At most `MEMORY` more bytes of address space than now, and `SECONDS` more of the processor."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    limits = {resource.RLIMIT_AS: now + MEMORY, resource.RLIMIT_CPU: math.ceil(time.process_time()) + SECONDS}
    before = {each: resource.getrlimit(each) for each in limits}
    handler = signal.signal(signal.SIGXCPU, _took_too_long)
    for each, most in limits.items():
        resource.setrlimit(each, (most, before[each][1]))
    try:
        yield
    finally:
        for each, old in before.items():
            resource.setrlimit(each, old)
        signal.signal(signal.SIGXCPU, handler)


def _took_too_long(*_):
    raise AssertionError(f"a command took more than {SECONDS} s of the processor")


def test_the_limits_are_enforced():
    """A loop without an end, and a list as large as the memory."""
    with pytest.raises(AssertionError, match="more than"), bounded():
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()), resource.RLIM_INFINITY))
        while True:
            pass
    with pytest.raises(MemoryError), bounded():
        bytearray(2 * MEMORY)


def runs(words, *right) -> bool:
    """Whether a command succeeds. If not, it must end with 1 and one line that is not about memory."""
    out, err = io.StringIO(), io.StringIO()
    with bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    lines = err.getvalue().splitlines()
    if status == 0:
        return True
    assert status == 1 and len(lines) == 1, (status, err.getvalue())
    assert "not enough memory" not in lines[0] and ".tmp" not in lines[0], lines
    assert any(str(name) in lines[0] for name in right), (lines, right)
    assert len(lines[0]) < 700
    return False


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzzed")
    write_dump(path / "dump", seed=1)
    records = list(AttentionDump(str(path / "dump")))
    for side in ("source", "target"):
        lines = [" ".join(getattr(record, side)) for record in records]
        (path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (path / "gold").write_text("0-0\n0-0\n0-0 1p1\n0-0\n")
    (path / "tags").write_text("A B\nA B C\nA B\nA B\n")
    (path / "labels").write_text("clean\nshuffled\nclean\nshuffled\n")
    (path / "scores").write_text("-0.5\n-0.25\n-0.125\n-1\n")
    (path / "text").write_text("one\ntwo\nthree\nfour\n")
    with StatsWriter(path / "stats.tsv", {"encoder": [0], "cross": [0, 1]}) as stats:
        for id, null in enumerate((0.5, 0.25, 0.75, 0)):
            stats.add_rates(id, 3, 4, [0.1, 0.2, null, 0.5, 0.5, null])
    return path


# The dump


@few
@given(mutations())
def test_dump_json(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("dump") / "d"
    shutil.copytree(files / "dump", path)
    text = mutated((path / "dump.json").read_bytes(), steps)
    (path / "dump.json").write_bytes(text)
    runs(["dump-info", path], path)
    runs(["align", path], path)
    runs(["dump-info", path, "--json", "--verify"], path)


def same_dump(left, right):
    for a, b in zip(left, right):
        if (a.id, a.rank, a.source, a.target) != (b.id, b.rank, b.source, b.target):
            return False
        if any(a.weights(kind).tobytes() != b.weights(kind).tobytes() for kind in left.info.kinds):
            return False
    return len(left) == len(right)


@few
@given(mutations())
def test_a_segment_is_the_same_or_refused(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("dump") / "d"
    shutil.copytree(files / "dump", path)
    segment = path / "shard0-00000.npz"
    segment.write_bytes(mutated(segment.read_bytes(), steps))
    try:
        with bounded():
            assert same_dump(AttentionDump(path), AttentionDump(files / "dump"))
    except InputError as error:
        assert "\n" not in str(error) and "shard0-00000.npz" in str(error)


@few
@given(
    st.sampled_from(["id", "rank", "source_length", "target_length", "text", "cross_mask", "cross_values", "text_crc"]),
    st.integers(0, 3),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300) | st.sampled_from([2**31, 2**32, 2**61]),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
)
def test_an_index_with_other_numbers_but_right_checksums_of_the_zip(files, tmp_path_factory, field, row, first, second):
    """The file is right in itself: only the checks of the index stand between its numbers and the memory."""
    path = tmp_path_factory.mktemp("dump") / "d"
    shutil.copytree(files / "dump", path)
    with np.load(path / "shard0-00000.npz") as file:
        arrays = {name: file[name] for name in file.files}
    value = [first, second] if field in ("text", "cross_mask", "cross_values") else first
    arrays["index"][field][row] = value if field != "text_crc" else first % 2**32
    np.savez(path / "shard0-00000.npz", **arrays)
    if runs(["dump-info", path, "--verify"], path):
        runs(["align", path, "--out", path / "links"], path)
        runs(
            ["filter", path, "--source", files / "text", "--target", files / "text", "--keep=1", "--out", path / "o"],
            path,
        )


def test_tokens_that_are_not_tokens(files, tmp_path):
    """Found by hand: a text with a right checksum that is not two lists of strings."""
    import zlib

    for text in (b"{}", b"[[1,2,3,4],[1,2,3,4]]", b"[" * 70, b'["abcd", "efgh"]', b"[null, null]", b"\xff" * 40):
        path = tmp_path / str(zlib.crc32(text))
        shutil.copytree(files / "dump", path)
        with np.load(path / "shard0-00000.npz") as file:
            arrays = {name: file[name] for name in file.files}
        begin = int(arrays["index"]["text"][0][0])
        arrays["text"][begin : begin + len(text)] = np.frombuffer(text, np.uint8)
        arrays["index"]["text"][0] = begin, begin + len(text)
        arrays["index"]["text_crc"][0] = zlib.crc32(text)
        np.savez(path / "shard0-00000.npz", **arrays)
        assert not runs(["dump-info", path, "--verify"], path)
    assert json.loads("[]") == []


# Text files


@few
@given(mutations())
@example([("repeat", 0.7421875, 2, 0)])  # a number with two points, in a column that is not needed
def test_statistics(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("stats")
    (path / "stats.tsv").write_bytes(mutated((files / "stats.tsv").read_bytes(), steps))
    stats = path / "stats.tsv"
    text = ["--source", files / "text", "--target", files / "text"]
    if runs(["filter", stats, *text, "--keep", "0.5", "--out", path / "out"], stats):
        rows = [line.split("\t") for line in (path / "out" / "ranking.tsv").read_text().splitlines()[1:]]
        heading, *lines = stats.read_text().splitlines()
        columns = [n for n, name in enumerate(heading.split("\t")) if re.fullmatch(r"cross\.\d+\.null", name)]
        fields = [line.split("\t") for line in lines]
        means = {int(each[0]): np.mean([float(each[n]) for n in columns]) for each in fields if float(each[1]) == 0}
        ranked = sorted((mean, id) for id, mean in means.items())
        assert [int(id) for id, _ in rows] == [id for _, id in ranked]
    runs(["filter", stats, "--evaluate", "--labels", files / "labels"], stats, "labels")


@few
@given(mutations(), st.sampled_from(["hyp", "gold"]))
def test_links(files, tmp_path_factory, steps, which):
    path = tmp_path_factory.mktemp("links")
    for name in ("hyp", "gold"):
        data = (files / "gold").read_bytes()
        (path / name).write_bytes(mutated(data, steps) if name == which else data)
    runs(["aer", path / "hyp", path / "gold"], path)
    (path / "gold").write_bytes(mutated((files / "gold").read_bytes(), steps))
    runs(["align", files / "dump", "--dev", files / "dump", "--dev-gold", path / "gold", "--out", path / "l"], path)


@few
@given(mutations())
def test_gold_and_tags_of_analyze(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("analyze")
    for option, name in (("--gold", "gold"), ("--target-tags", "tags")):
        (path / name).write_bytes(mutated((files / name).read_bytes(), steps))
        runs(["analyze", files / "dump", option, path / name, "--no-figures", "--out", path / "out"], path / name)


@few
@given(mutations())
def test_labels_and_scores(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("labels")
    for name in ("labels", "scores"):
        (path / name).write_bytes(mutated((files / name).read_bytes(), steps))
    measure = ["filter", files / "stats.tsv", "--evaluate"]
    runs([*measure, "--labels", path / "labels"], path / "labels")
    runs([*measure, "--labels", files / "labels", "--scores", path / "scores"], path / "scores")


@few
@given(mutations())
@example([])
def test_a_selection(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("selection")
    whole = b'{"terms": [{"measure": "null", "layer": 0, "head": 1, "sign": -1, "centre": 0.25, "scale": 0.5}]}'
    (path / "s.json").write_bytes(mutated(whole, steps))
    text = ["--source", files / "source", "--target", files / "target", "--keep", "0.5", "--out", path / "out"]
    done = runs(["filter", files / "dump", "--selection", path / "s.json", *text], path / "s.json")
    assert done or steps


@few
@given(mutations())
def test_a_text_in_gzip(files, tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("gzip")
    (path / "text.gz").write_bytes(mutated(gzip.compress((files / "text").read_bytes(), mtime=0), steps))
    words = ["filter", files / "stats.tsv", "--source", path / "text.gz", "--target", files / "text"]
    if runs([*words, "--keep", "1", "--out", path / "out"], path / "text.gz"):
        assert (path / "out" / "kept.target").read_bytes() == (files / "text").read_bytes()


@few
@given(mutations())
def test_statistics_that_are_continued(files, tmp_path_factory, steps):
    """What is continued keeps every line that it had, or is refused and stays as it was."""
    path = tmp_path_factory.mktemp("stats") / "s.tsv"
    partial = path.with_name("s.tsv.partial")
    damaged = mutated((files / "stats.tsv").read_bytes(), steps)
    partial.write_bytes(damaged)
    try:
        with bounded(), StatsWriter(path, {"encoder": [0], "cross": [0, 1]}, resume=True) as stats:
            stats.add_rates(7, 1, 1, [0.5] * 6)
    except InputError as error:
        assert "\n" not in str(error) and "s.tsv.partial" in str(error) and partial.read_bytes() == damaged
    else:
        complete = damaged[: damaged.rfind(b"\n") + 1] or (files / "stats.tsv").read_bytes().split(b"\n")[0] + b"\n"
        assert path.read_bytes() == complete + b"7\t0\t1\t1" + b"\t0.5" * 6 + b"\n"


@few
@given(mutations())
def test_the_description_of_a_corpus(tmp_path_factory, steps):
    """Files that are not of a corpus stay, whatever is in its description."""
    path = tmp_path_factory.mktemp("corpus")
    small = ["--train", "1", "--valid", "0", "--test", "0", "--lexicon", "50", "--max-clauses", "1"]
    whole = json.dumps(
        {"generator": "fairseq-rela toy-corpus", "version": 1, "options": {}, "files": {"train.src": {}}}
    )
    (path / "corpus.json").write_bytes(mutated(whole.encode(), steps))
    (path / "notes").write_text("kept")
    runs(["toy-corpus", path, *small], path)
    runs(["toy-corpus", path, *small, "--force"], path)
    assert (path / "notes").read_text() == "kept"


# Checkpoints


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """The checkpoint of a tiny stock Transformer, in torch's zip format and in its older one."""
    from argparse import Namespace

    import torch
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    import fairseq_rela.models  # noqa: F401

    sizes = {"embed_dim": 4, "ffn_embed_dim": 4, "layers": 1, "attention_heads": 1}
    flags = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    args = Namespace(**flags)
    ARCH_CONFIG_REGISTRY["transformer"](args)
    dictionary = Dictionary()
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = ARCH_MODEL_REGISTRY["transformer"].build_model(args, task)
    cfg = {"model": Namespace(_name="transformer", arch="transformer", **flags)}
    path = tmp_path_factory.mktemp("stock")
    for name, zipped in (("zip.pt", True), ("old.pt", False)):
        content = {"model": model.state_dict(), "args": None, "cfg": cfg}
        torch.save(content, path / name, _use_new_zipfile_serialization=zipped)
    return path


def checkpoint_commands(path):
    ran = runs(["average", path, "--output", path.parent / "average.pt"], path)
    runs(["convert", "--from", path, "--to", "rela_g", "--output", path.parent / "new.pt"], path)
    return ran


@few
@given(mutations(), st.sampled_from(["zip.pt", "old.pt"]))
def test_checkpoints(stock, tmp_path_factory, steps, name):
    path = tmp_path_factory.mktemp("checkpoint") / name
    path.write_bytes(mutated((stock / name).read_bytes(), steps))
    checkpoint_commands(path)


@few
@given(mutations())
@example([("number", 0.0, 1, 580)])  # the name of a function with 5,000 digits made a message as long
def test_the_pickle_inside_a_checkpoint(stock, tmp_path_factory, steps):
    """The zip around it is right, so only the unpickler can find the damage."""
    path = tmp_path_factory.mktemp("checkpoint") / "a.pt"
    with zipfile.ZipFile(stock / "zip.pt") as archive, zipfile.ZipFile(path, "w") as damaged:
        for member in archive.namelist():
            data = archive.read(member)
            damaged.writestr(member, mutated(data, steps) if member.endswith("data.pkl") else data)
    checkpoint_commands(path)


def test_the_undamaged_files_are_read(files, stock, tmp_path):
    shutil.copy(stock / "zip.pt", tmp_path / "a.pt")
    shutil.copy(stock / "old.pt", tmp_path / "b.pt")
    assert checkpoint_commands(tmp_path / "a.pt") and checkpoint_commands(tmp_path / "b.pt")
    assert runs(["dump-info", files / "dump", "--verify"])
    assert os.path.exists(tmp_path / "new.pt")
