"""Names and kinds of files that would break a command: pipes, devices, endless lines, odd names. One line each."""

import gzip
import os
import shutil
import threading
import tracemalloc

import pytest
from analysis_samples import write_dump
from hostile_samples import assert_one_line, run_command

from fairseq_rela.analysis import lines
from fairseq_rela.atomic import write_text_atomically
from fairseq_rela.cli import main
from fairseq_rela.dump.statistics import StatsWriter
from fairseq_rela.errors import InputError

ZERO = "/dev/zero"
needs_zero = pytest.mark.skipif(not os.path.exists(ZERO), reason="this system has no /dev/zero")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("paths")
    write_dump(path / "dump", seed=1)
    (path / "gold").write_text("0-0\n" * 4)
    (path / "labels").write_text("clean\nshuffled\n" * 2)
    (path / "text").write_text("one\ntwo\nthree\nfour\n")
    with StatsWriter(path / "stats.tsv", {"cross": [0]}) as stats:
        for id, null in enumerate((0.5, 0.25, 0.75, 0)):
            stats.add_rates(id, 3, 4, [null, 0.5])
    return path


def fails(capsys, words, *parts):
    assert main([str(word) for word in words]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and all(str(part) in err for part in parts), err


def splitting(files, out, pairs=None, source=None, target=None):
    text = ["--source", source or files / "text", "--target", target or files / "text"]
    return ["filter", pairs or files / "stats.tsv", *text, "--keep", "0.5", "--out", out]


# Pipes and devices


@pytest.mark.parametrize("which", ["pairs", "source", "target"])
def test_a_pipe_that_would_be_read_twice(files, tmp_path, capsys, which):
    """Opening a pipe without a writer waits forever, so this also shows that it is not opened."""
    os.mkfifo(tmp_path / "pipe")
    words = splitting(files, tmp_path / "out", **{which: tmp_path / "pipe"})
    fails(capsys, words, f"{tmp_path / 'pipe'}: is a pipe or a device, and it has to be read more than once")
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["dump.json", "shard0-00000.npz"])
def test_a_pipe_in_a_dump(files, tmp_path, capsys, name):
    shutil.copytree(files / "dump", tmp_path / "dump")
    (tmp_path / "dump" / name).unlink()
    os.mkfifo(tmp_path / "dump" / name)
    fails(capsys, ["dump-info", tmp_path / "dump"], tmp_path / "dump" / name, "is a pipe or a device")


def test_a_pipe_that_is_read_once_is_an_input_as_any_other(files, tmp_path, capsys):
    """As in `fairseq-rela aer <(…) gold`."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("0-0\n" * 4,))
    writer.start()
    assert main(["aer", str(tmp_path / "pipe"), str(files / "gold")]) == 0
    writer.join()
    assert capsys.readouterr().out.endswith("\n0.000000\n")


@needs_zero
@pytest.mark.parametrize(
    "words",
    [
        ["aer", ZERO, "gold"],
        ["aer", "gold", ZERO],
        ["analyze", "dump", "--gold", ZERO, "--no-figures", "--out", "OUT"],
        ["analyze", "dump", "--target-tags", ZERO, "--no-figures", "--out", "OUT"],
        ["align", "dump", "--dev", "dump", "--dev-gold", ZERO],
        ["filter", "stats.tsv", "--evaluate", "--labels", ZERO],
        ["filter", "stats.tsv", "--evaluate", "--labels", "labels", "--scores", ZERO],
        ["filter", "--shuffle", "--source", ZERO, "--target", "text", "--out", "OUT"],
    ],
)
def test_a_line_that_never_ends(files, tmp_path, capsys, words):
    paths = {name: files / name for name in os.listdir(files)}
    tracemalloc.start()
    fails(capsys, [{**paths, "OUT": tmp_path / "out"}.get(w, w) for w in words], f"{ZERO}, line 1: has 10000000 bytes")
    assert tracemalloc.get_traced_memory()[1] < 5 * lines.LONGEST_LINE
    tracemalloc.stop()
    assert os.listdir(tmp_path) == []


def test_a_small_file_that_unpacks_to_one_long_line(files, tmp_path, capsys):
    with gzip.open(tmp_path / "text.gz", "wb") as file:
        for _ in range(12):
            file.write(bytes(1 << 20))
    fails(capsys, splitting(files, tmp_path / "out", source=tmp_path / "text.gz"), "text.gz, line 1: has 10000000")


def test_the_longest_line(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 6)  # with its end
    (tmp_path / "text").write_bytes(b"1234\n\n123\r\n12")
    assert list(lines.raw_lines(str(tmp_path / "text"))) == [b"1234", b"", b"123", b"12"]
    (tmp_path / "text").write_bytes(b"1\n123456")
    with pytest.raises(InputError, match="text, line 2: has 6 bytes or more"):
        list(lines.raw_lines(str(tmp_path / "text")))


def test_a_long_line_in_statistics(files, tmp_path, capsys):
    whole = (files / "stats.tsv").read_bytes()
    (tmp_path / "stats.tsv").write_bytes(whole + b"1" * (2 * lines.LONGEST_LINE))
    tracemalloc.start()
    fails(capsys, splitting(files, tmp_path / "out", pairs=tmp_path / "stats.tsv"), "stats.tsv, line 6: truncated")
    assert tracemalloc.get_traced_memory()[1] < 10 * lines.LONGEST_LINE
    tracemalloc.stop()


# Names


@pytest.mark.parametrize(
    "name, shown",
    [("two\nlines", r"two\nlines"), ("a\x1b[2Jb", r"a\x1b[2Jb"), ("a\u2028b", r"a\u2028b"), ("a\rb", r"a\rb")],
)
def test_a_name_is_shown_in_one_line(tmp_path, capsys, name, shown):
    assert main(["aer", str(tmp_path / name), "gold"]) == 1
    assert capsys.readouterr().err == f"fairseq-rela aer: {tmp_path}/{shown}: No such file or directory\n"


def test_an_empty_name(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["align", files / "dump", "--out", ""], ["analyze", files / "dump", "--no-figures", "--out", ""]):
        fails(capsys, words, "the name of a file is empty: No such file or directory")
    fails(capsys, ["aer", "", files / "gold"], "the name of a file is empty")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["é" * 120, "y" * 250, "語" * 80])
def test_a_name_that_is_nearly_too_long(tmp_path, name):
    """The temporary name beside it must not be longer than a name may be, in bytes."""
    write_text_atomically(str(tmp_path / name), "text")
    assert (tmp_path / name).read_text() == "text"


# Files that are not ours


def test_a_partial_file_of_somebody_else_stays(tmp_path):
    """Only the beginning of our own heading is what a killed run leaves."""
    (tmp_path / "s.tsv.partial").write_text("notes without a line end")
    with pytest.raises(InputError, match=r"s\.tsv\.partial: its statistics are of other kinds or layers"):
        StatsWriter(tmp_path / "s.tsv", {"cross": [0]}, resume=True)
    assert (tmp_path / "s.tsv.partial").read_text() == "notes without a line end"
    (tmp_path / "s.tsv.partial").write_text("id\trank\tsou")
    with StatsWriter(tmp_path / "s.tsv", {"cross": [0]}, resume=True) as stats:
        stats.add_rates(0, 1, 1, [0.5, 0.5])
    assert (tmp_path / "s.tsv").read_text().splitlines()[1] == "0\t0\t1\t1\t0.5\t0.5"


SMALL = ["--train", "3", "--valid", "0", "--test", "0", "--max-clauses", "1"]


def test_a_description_that_names_other_files_removes_none(tmp_path, capsys):
    out = tmp_path / "corpus"
    assert main(["toy-corpus", str(out), *SMALL]) == 0
    (out / "thesis.tex").write_text("kept")
    text = (out / "corpus.json").read_text()
    (out / "corpus.json").write_text(
        text.replace('"train.src": {', '"thesis.tex": {}, "..": {}, "": {}, "train.src": {')
    )
    assert main(["toy-corpus", str(out), *SMALL, "--seed", "2", "--force"]) == 0
    assert (out / "thesis.tex").read_text() == "kept"
    assert sorted(os.listdir(out)) == ["corpus.json", "thesis.tex", "train.align", "train.src", "train.tgt"]


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "null", '{"generator": "fairseq-rela toy-corpus"}', "9" * 5000])
def test_a_description_that_is_none(tmp_path, capsys, text):
    (tmp_path / "corpus.json").write_text(text)
    fails(capsys, ["toy-corpus", tmp_path, *SMALL], "corpus.json exists and is not a file of a toy corpus")
    assert (tmp_path / "corpus.json").read_text() == text


@needs_zero
def test_a_description_that_never_ends(tmp_path):
    (tmp_path / "corpus.json").symlink_to(ZERO)
    assert_one_line(run_command("toy-corpus", tmp_path, *SMALL, memory=1 << 30), "corpus.json exists")
