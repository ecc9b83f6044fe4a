"""Every subcommand under every kind of bad file and bad output. A new subcommand is covered without a new test.

A row of `CALLS` is needed only to say which files a subcommand reads. A subcommand without a row fails a test here.
A call that cannot be tested in one of these ways, such as one that serves until it is stopped, says so in `excused`,
with the reason. The test is then skipped with it. A flag that ends such a command makes most excuses needless.
"""

import os
import signal
import subprocess
import sys
from typing import Callable, Dict, List, NamedTuple, Tuple

import pytest
from analysis_samples import write_dump
from dump_samples import ROOT
from explore_samples import write_checkpoint, write_data
from hostile_samples import assert_one_line, run_command

from fairseq_rela.cli import COMMANDS, main
from fairseq_rela.dump.statistics import StatsWriter

pytestmark = pytest.mark.slow  # starts a process for nearly every case

NEEDS_TORCH = {"average", "convert", "bench", "explore"}


class Call(NamedTuple):
    """A call that works. INPUT is replaced in turn by each bad file; OUTPUT is what the command writes."""

    words: Tuple[str, ...]
    inputs: Tuple[str, ...] = ()  # names of files and dumps in the directory of good ones
    output: str = ""  # the file or the directory that the command makes
    excused: Tuple[Tuple[str, str], ...] = ()  # (name of a test here, why it makes no sense for this call)


CALLS: Dict[str, List[Call]] = {
    "user-dir": [Call(())],
    "toy-corpus": [Call(("OUT", "--train", "300", "--valid", "3", "--test", "3"), output="OUT")],
    "dump-info": [Call(("dump",), ("dump",)), Call(("dump", "--json", "--verify"), ("dump",))],
    "dump-export": [Call(("dump", "--bertviz", "OUT"), ("dump",), "OUT")],
    "analyze": [
        Call(
            ("dump", "--out", "OUT", "--no-figures", "--gold", "gold", "--target-tags", "tags"),
            ("dump", "gold", "tags"),
            "OUT",
        )
    ],
    "explore": [  # a page to keep, because a server does not end
        Call(
            ("--path", "model.pt", "data-bin", "--text", "w1 w2", "--time-limit", "3600", "--out", "OUT"),
            ("model.pt", "data-bin"),
            "OUT",
        )
    ],
    "align": [Call(("dump",), ("dump",)), Call(("dump", "--out", "OUT"), ("dump",), "OUT")],
    "piece-links": [
        Call(
            ("gold", "--source", "text.de", "--target", "text.en", "--out", "OUT"),
            ("gold", "text.de", "text.en"),
            "OUT",
        )
    ],
    "aer": [
        Call(("gold", "gold2"), ("gold", "gold2")),
        Call(("gold", "gold", "--target", "text.en"), ("gold", "text.en")),
    ],
    "tag-transfer": [
        Call(("tagged", "text.en", "gold"), ("tagged", "text.en", "gold")),
        Call(("tagged", "--strip", "--out", "OUT"), ("tagged",), "OUT"),
    ],
    "filter": [
        Call(
            ("stats.tsv", "--source", "text.de", "--target", "text.en", "--keep", "0.5", "--out", "OUT"),
            ("stats.tsv", "text.de", "text.en"),
            "OUT",
        ),
        Call(("dump", "--evaluate", "--labels", "labels", "--out", "OUT"), ("dump", "labels"), "OUT"),
        Call(
            ("--shuffle", "--source", "text.de", "--target", "text.en", "--out", "OUT"), ("text.de", "text.en"), "OUT"
        ),
    ],
    "average": [Call(("a.pt", "b.pt", "--output", "OUT"), ("a.pt", "b.pt"), "OUT")],
    "convert": [Call(("--from", "stock.pt", "--to", "rela_g", "--output", "OUT"), ("stock.pt",), "OUT")],
    "bench": [  # `decode`, because `op` needs torch 2
        Call(
            ("decode", "--size", "tiny", "--vocabulary", "40", "--lengths", "3", "--output-length", "2")
            + ("--repeats", "1", "--json", "OUT"),
            (),
            "OUT",
        )
    ],
}
EVERY = [(name, number) for name in COMMANDS for number in range(len(CALLS.get(name, [])))]
# calls that print nothing when all is well
SILENT = {("dump-export", 0), ("align", 1), ("piece-links", 0), ("tag-transfer", 1)}
READING = [(name, number, file) for name, number in EVERY for file in CALLS[name][number].inputs]
WRITING = [(name, number) for name, number in EVERY if CALLS[name][number].output]


def test_every_command_has_a_call():
    assert set(CALLS) == set(COMMANDS) and all(CALLS.values())


@pytest.fixture(autouse=True)
def excuse(request):
    """Skip a test that a call is excused from."""
    chosen = getattr(request.node, "callspec", None)
    if chosen and "number" in chosen.params:
        call = CALLS[chosen.params["name"]][chosen.params["number"]]
        reason = dict(call.excused).get(request.node.originalname)
        if reason:
            pytest.skip(reason)


def test_excuses_are_of_tests_that_there_are():
    tests = {name for name in globals() if name.startswith("test_")}
    excuses = [excuse for calls in CALLS.values() for call in calls for excuse in call.excused]
    assert all(name in tests and len(reason) > 10 for name, reason in excuses)


@pytest.fixture(scope="module")
def good(tmp_path_factory, request):
    """A directory with one good file of every kind."""
    path = tmp_path_factory.mktemp("good")
    write_dump(path / "dump", seed=1)
    (path / "gold").write_text("0-0\n0-0\n0-0\n0-0\n")
    (path / "gold2").write_text("0-0\n\n0-0 1p1\n0-0\n")
    (path / "tagged").write_text("<b>eins</b>\nzwei\n<x/> drei\n<i>vier</i>\n")
    (path / "tags").write_text("A B\nA B C\nA B\nA B\n")
    (path / "labels").write_text("clean\nshuffled\nclean\nshuffled\n")
    for side in ("de", "en"):
        (path / f"text.{side}").write_text("one\ntwo\nthree\nfour\n" if side == "en" else "eins\nzwei\ndrei\nvier\n")
    with StatsWriter(path / "stats.tsv", {"cross": [0]}) as stats:
        for id, null in enumerate((0.5, 0.25, 0.75, 0)):
            stats.add_rates(id, 3, 4, [null, 0.5])
    return path


@pytest.fixture(scope="module")
def checkpoints(good):
    """The same directory, with checkpoints in it too."""
    from argparse import Namespace

    import torch
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
    from test_hostile_checkpoints import SMALL

    import fairseq_rela.models  # noqa: F401

    dictionary = Dictionary()
    flags = Namespace(**SMALL)
    ARCH_CONFIG_REGISTRY["transformer"](flags)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = ARCH_MODEL_REGISTRY["transformer"].build_model(flags, task)
    cfg = {"model": Namespace(_name="transformer", arch="transformer", **SMALL)}
    torch.save({"model": model.state_dict(), "args": None, "cfg": cfg}, good / "stock.pt")
    write_checkpoint(good / "model.pt", write_data(good / "data-bin"))
    for name in ("a.pt", "b.pt"):
        torch.save({"model": {"w": torch.ones(5000)}}, good / name)
    return good


def directory_for(name, request):
    return request.getfixturevalue("checkpoints" if name in NEEDS_TORCH else "good")


def words_of(call: Call, directory, out, replaced: Tuple[str, object] = ("", "")) -> List[str]:
    """The words of a call with the paths of its files. `replaced`: (name of a file, what to give instead)."""
    paths = {file: str(directory / file) for file in call.inputs}
    paths.update({"OUT": str(out), replaced[0]: str(replaced[1])})
    return [paths.get(word, word) for word in call.words]


def one_line(capsys, *parts):
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1 and ".tmp" not in err and "Traceback" not in err, err
    for part in parts:
        assert str(part) in err, err


@pytest.mark.parametrize("name, number", EVERY)
def test_it_works(name, number, request, tmp_path):
    call = CALLS[name][number]
    assert main([name, *words_of(call, directory_for(name, request), tmp_path / "out")]) == 0
    assert not call.output or (tmp_path / "out").exists()


# Bad files


def missing(path):
    pass


def directory(path):
    path.mkdir()


def looped(path):
    """A link to itself cannot be opened by anybody, root included."""
    path.symlink_to(path)


def empty(path):
    path.write_bytes(b"")


def binary(path):
    path.write_bytes(bytes(range(256)) * 40)


def endless(path):
    """A file that never ends, and has no line either."""
    path.symlink_to("/dev/zero")


BAD: List[Callable] = [missing, directory, looped, empty, binary, endless]
# bytes of a text are only copied
MAY_WORK = {("tags", empty), ("tagged", empty), ("text.de", binary), ("text.en", binary)}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name, number, file", READING)
def test_a_bad_file_is_one_line_and_nothing_is_written(name, number, file, bad, request, tmp_path, capsys):
    bad(tmp_path / "bad")
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out", (file, tmp_path / "bad"))
    status = main([name, *words])
    if status == 0:
        assert (file, bad) in MAY_WORK
        return
    assert status == 1
    one_line(capsys, f"fairseq-rela {name}: ", tmp_path / "bad")
    assert set(os.listdir(tmp_path)) <= {"bad"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name, number, file", READING)
def test_an_unreadable_file(name, number, file, request, tmp_path, capsys):
    (tmp_path / "bad").touch(mode=0)
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out", (file, tmp_path / "bad"))
    assert main([name, *words]) == 1
    one_line(capsys, tmp_path / "bad")


# Bad places to write


@pytest.mark.parametrize("name, number", WRITING)
def test_a_place_below_a_file(name, number, request, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    out = tmp_path / "file" / "out"
    assert main([name, *words_of(CALLS[name][number], directory_for(name, request), out)]) == 1
    one_line(capsys, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("name, number", WRITING)
def test_no_space(name, number, request, tmp_path):
    """No file may have more than a few bytes. The message names what was asked for, and nothing stays."""
    call = CALLS[name][number]
    words = words_of(call, directory_for(name, request), tmp_path / "out")
    ended = run_command(name, *words, file_bytes=10, memory=16 << 30, PYTHONDONTWRITEBYTECODE="1")
    assert_one_line(ended, tmp_path / "out", "File too large")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("name, number", EVERY)
def test_output_onto_a_full_disk(name, number, request, tmp_path):
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out")
    with open("/dev/full", "w") as full:
        ended = run_command(name, *words, stdout=full, memory=16 << 30)
    if ended.status == 0:
        assert (name, number) in SILENT and ended.err == ""
    else:
        assert_one_line(ended, "standard output: No space left on device")


# A reader that goes away, and an interrupt


@pytest.mark.parametrize("name, number", EVERY)
def test_a_reader_that_has_read_enough_is_no_error(name, number, request, tmp_path):
    """As in `fairseq-rela … | head`."""
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out")
    read, write = os.pipe()
    os.close(read)
    try:
        ended = run_command(name, *words, stdout=write, memory=16 << 30)
    finally:
        os.close(write)
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_for_a_reader_that_has_read_enough(name):
    read, write = os.pipe()
    os.close(read)
    ended = run_command(name, "--help", stdout=write, memory=16 << 30)
    os.close(write)
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("name, number", EVERY)
def test_closed_output(name, number, request, tmp_path):
    """As in `fairseq-rela … >&-`: there is no standard output at all."""
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out")
    code = "import os, sys; os.close(1); sys.stdout = None; from fairseq_rela.cli import main; sys.exit(main())"
    ended = run_command(name, *words, code=code, memory=16 << 30)
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("name, number", EVERY)
def test_an_interrupt_while_it_works(name, number, request, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the middle of the work: one line, status 130, nothing half written."""
    import importlib

    module = importlib.import_module(f"fairseq_rela.commands.{name.replace('-', '_')}")
    words = words_of(CALLS[name][number], directory_for(name, request), tmp_path / "out")
    real = module.run

    def interrupted(args):
        import fairseq_rela.atomic as atomic

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(atomic.os, "replace", interrupt)  # after all was computed and written
        real(args)
        raise KeyboardInterrupt  # a command without files

    monkeypatch.setattr(module, "run", interrupted)
    assert main([name, *words]) == 130
    one_line(capsys, f"fairseq-rela {name}: interrupted")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", sorted(NEEDS_TORCH))
def test_an_interrupt_while_packages_are_imported(name):
    """Importing torch takes seconds: the command can be interrupted there too."""
    code = (
        "import sys, signal, os\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a job in the background does not have
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from fairseq_rela.cli import main\n"
        "sys.exit(main())"
    )
    ended = run_command(name, "--help", code=code, memory=16 << 30)
    assert (ended.status, ended.err) == (130, f"fairseq-rela {name}: interrupted\n")


def test_the_command_without_a_subcommand_for_a_reader_that_goes_away():
    environment = {**os.environ, "PYTHONPATH": ROOT}
    code = "import sys; from fairseq_rela.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() in (0, -signal.SIGPIPE)
    process.stderr.close()
