"""--attn-dump-resume: recorded sentences are not translated again, and each restart gets further than the last."""

import multiprocessing
import os
import re
import signal

import pytest
from fairseq import checkpoint_utils, options
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import preprocess
from fairseq_runs import USER_DIR, command, fairseq_generate, fairseq_interactive, fairseq_train, tagged
from waiting import until

from fairseq_rela.cli import main as fairseq_rela
from fairseq_rela.dump import writer
from fairseq_rela.dump.statistics import read_stats
from fairseq_rela.errors import InputError
from fairseq_rela.recording.dump import AttentionDump

pytestmark = pytest.mark.slow

SENTENCES, BATCH = 40, 10
TASK = ["--task", "translation_attention", "--batch-size", BATCH]
SMALL = ["--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16]
SMALL += ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--no-epoch-checkpoints", "--max-update", 60]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    sizes = ["--train", "120", "--valid", "10", "--test", str(SENTENCES), "--lexicon", "50", "--max-clauses", "1"]
    assert fairseq_rela(["toy-corpus", str(directory / "text"), *sizes]) == 0
    files = [f"--{split}pref={directory / 'text' / split}" for split in ("train", "valid", "test")]
    arguments = ["-s", "src", "-t", "tgt", *files, "--destdir", str(directory / "bin"), "--workers", "1"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return directory / "bin"


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    fairseq_train(data, directory, *SMALL, "--disable-validation")
    return directory / "checkpoint_last.pt"


def searched(monkeypatch, most=None):
    """The ids of the sentences of each search from now on; with `most`, an interrupt takes the place of the next."""
    batches, original = [], TranslationTask.inference_step

    def search(self, generator, models, sample, *args, **options):
        if len(batches) == most:
            raise KeyboardInterrupt
        batches.append(sample["id"].tolist() if "id" in sample else None)
        return original(self, generator, models, sample, *args, **options)

    monkeypatch.setattr(TranslationTask, "inference_step", search)
    return batches


def interrupted(data, checkpoint, *flags, after):
    """A run that ends after some searches; the sentences that it translated."""
    with pytest.MonkeyPatch.context() as patch:
        batches = searched(patch, after)
        with pytest.raises(KeyboardInterrupt):
            fairseq_generate(data, checkpoint, *TASK, *flags)
    return {id for batch in batches for id in batch}


def texts(lines, tag):
    """{sentence: its text}, of the lines of fairseq-generate with this tag."""
    return {id: fields[-1] for id, fields in tagged(lines, tag).items()}


def test_hypotheses_come_from_the_dump_and_the_output_is_complete(data, checkpoint, tmp_path, monkeypatch):
    unbroken = fairseq_generate(data, checkpoint, *TASK)
    to = ["--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "s.tsv"]
    done = interrupted(data, checkpoint, *to, after=3)
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 1 and done | set(batches[0]) == set(range(SENTENCES))
    for tag in ("S", "T", "H", "D"):
        assert texts(lines, tag) == texts(unbroken, tag)
    assert lines[-1] == unbroken[-1], "the same BLEU"
    for tag in ("H", "D", "P"):
        actual, expected = tagged(lines, tag), tagged(unbroken, tag)
        assert actual.keys() == expected.keys()
        for id in actual:
            scores, words = actual[id][0].split(), expected[id][0].split()
            assert scores == (["nan"] * len(words) if id in done else words)
    dump = AttentionDump(tmp_path / "dump")
    assert dump.ids.tolist() == list(range(SENTENCES))
    assert len(list(read_stats(tmp_path / "s.tsv"))) == SENTENCES
    again = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 1, "nothing is left to translate"
    assert texts(again, "H") == texts(unbroken, "H") and again[-1] == unbroken[-1]


def test_several_hypotheses(data, checkpoint, tmp_path, monkeypatch):
    to = ["--attn-dump", tmp_path / "dump", "--attn-dump-nbest", 3, "--nbest", 3]
    unbroken = fairseq_generate(data, checkpoint, *TASK, "--nbest", 3)
    interrupted(data, checkpoint, *to, after=2)
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 2

    def printed(lines):
        return [(line.split("\t")[0], line.split("\t")[-1]) for line in lines if line.startswith("H-")]

    assert printed(lines) == printed(unbroken) and len(printed(lines)) == 3 * SENTENCES


def test_a_batch_of_which_some_is_recorded(data, checkpoint, tmp_path, monkeypatch):
    """It is translated again, and what is printed is what is recorded, even if the search draws at random."""
    to = ["--attn-dump", tmp_path / "dump", "--sampling", "--beam", 1, "--seed", 5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer.DumpWriter, "_is_due", lambda self: len(self._pending) == 7)
        # as if it was killed: what is in memory is lost. It must be dropped here, because the task of the first run is
        # collected at some later time, and then closes its writer once more.
        patch.setattr(writer.DumpWriter, "close", writer.DumpWriter._renew)
        interrupted(data, checkpoint, *to, after=2)
    before = {record.id: record.target for record in AttentionDump(tmp_path / "dump")}
    assert len(before) == 14
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 3
    dump = AttentionDump(tmp_path / "dump")
    assert {record.id: record.target for record in dump if record.id in before} == before
    # a sample may hold <s>, which fairseq does not print
    targets = {record.id: [token for token in record.target[:-1] if token != "<s>"] for record in dump}
    assert targets == {id: text.split() for id, text in texts(lines, "H").items()}


def test_the_reference_is_not_scored_again(data, checkpoint, tmp_path, monkeypatch):
    """With statistics alone, because the reference is in the data."""
    to = ["--attn-dump-stats", tmp_path / "s.tsv", "--score-reference"]
    unbroken = fairseq_generate(data, checkpoint, *TASK, "--score-reference")
    interrupted(data, checkpoint, *to, after=3)
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 1
    assert texts(lines, "H") == texts(unbroken, "H") and len(list(read_stats(tmp_path / "s.tsv"))) == SENTENCES


def test_statistics_alone_hold_no_hypotheses(data, checkpoint, tmp_path, monkeypatch):
    """What is in them is neither translated nor printed."""
    to = ["--attn-dump-stats", tmp_path / "s.tsv"]
    done = interrupted(data, checkpoint, *to, after=3)
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 1
    assert texts(lines, "H").keys() == set(range(SENTENCES)) - done
    stats = (tmp_path / "s.tsv").read_bytes()
    assert sorted(pair.id for pair in read_stats(tmp_path / "s.tsv")) == list(range(SENTENCES))
    fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 2, "the last batch, because fairseq must translate something"
    assert (tmp_path / "s.tsv").read_bytes() == stats


def test_shards(data, checkpoint, tmp_path, monkeypatch):
    to = ["--attn-dump-stats", tmp_path / "s.tsv", "--distributed-world-size", 2, "--distributed-rank", 1]
    done = interrupted(data, checkpoint, *to, after=1)
    batches = searched(monkeypatch)
    fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 1 and not done & set(batches[0])
    assert {pair.id for pair in read_stats(tmp_path / "s.shard1.tsv")} == done | set(batches[0])


def test_what_only_a_search_knows_is_searched(data, checkpoint, tmp_path, monkeypatch):
    to = ["--attn-dump", tmp_path / "dump", "--print-alignment", "hard"]
    unbroken = fairseq_generate(data, checkpoint, *TASK, "--print-alignment", "hard")
    interrupted(data, checkpoint, *to, after=3)
    batches = searched(monkeypatch)
    lines = fairseq_generate(data, checkpoint, *TASK, *to, "--attn-dump-resume")
    assert len(batches) == 4 and tagged(lines, "A") == tagged(unbroken, "A")


def test_typed_sentences(data, checkpoint, tmp_path, monkeypatch):
    typed = [text for _, text in sorted(texts(fairseq_generate(data, checkpoint), "S").items())][:6]
    (tmp_path / "typed").write_text("".join(line + "\n" for line in typed[:4]))
    flags = [*TASK[:2], "--batch-size", 2, "--buffer-size", 2, "--attn-dump", tmp_path / "dump", "--attn-dump-resume"]
    first = fairseq_interactive(data, checkpoint, tmp_path / "typed", *flags)
    (tmp_path / "typed").write_text("".join(line + "\n" for line in typed))
    batches = searched(monkeypatch)
    lines = fairseq_interactive(data, checkpoint, tmp_path / "typed", *flags)
    assert len(batches) == 1
    assert {id: text for id, text in texts(lines, "H").items() if id < 4} == texts(first, "H")
    (tmp_path / "typed").write_text(f"{typed[1]}\n")
    with pytest.raises(
        InputError, match=r"dump: sentence 0 is '.* </s>' there and '.* </s>' in this run; name another"
    ):
        fairseq_interactive(data, checkpoint, tmp_path / "typed", *flags)


MODES = {
    "dump": ["--attn-dump", "dump"],
    "dump and statistics": ["--attn-dump", "dump", "--attn-dump-stats", "s.tsv"],
    "statistics": ["--attn-dump-stats", "s.tsv"],
    "statistics of the reference": ["--attn-dump-stats", "s.tsv", "--score-reference"],
}


def _translate_one_batch(data, checkpoint, directory, flags):
    """In a process of its own, to be killed: after the first search it waits for its end."""
    os.chdir(directory)
    writer.DumpWriter._is_due = lambda self: True
    original = TranslationTask.inference_step
    searches = []

    def search(self, *args, **options):
        if searches:
            (directory / "waiting").touch()
            signal.pause()
        searches.append(1)
        return original(self, *args, **options)

    TranslationTask.inference_step = search
    fairseq_generate(data, checkpoint, *TASK, *flags, "--attn-dump-resume")


def recorded(directory):
    """How many sentences a killed run has kept in each of its files."""
    kept = {}
    if (directory / "dump").exists():
        kept["dump"] = len(AttentionDump(directory / "dump"))
    for name in ("s.tsv", "s.tsv.partial"):
        if (directory / name).exists():
            kept["statistics"] = len(list(read_stats(directory / name)))
    return kept


@pytest.mark.parametrize("mode", MODES)
def test_killed_after_each_batch(data, checkpoint, tmp_path, mode):
    """Every run is killed in its second search. Each keeps one batch more."""
    expected = 0
    for _ in range(SENTENCES // BATCH - 1):
        (tmp_path / "waiting").unlink() if (tmp_path / "waiting").exists() else None
        child = multiprocessing.get_context("fork").Process(
            target=_translate_one_batch, args=(data, checkpoint, tmp_path, MODES[mode])
        )
        child.start()
        until((tmp_path / "waiting").exists, child.is_alive)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        expected += BATCH
        assert set(recorded(tmp_path).values()) == {expected}
    child = multiprocessing.get_context("fork").Process(
        target=_translate_one_batch, args=(data, checkpoint, tmp_path, MODES[mode])
    )
    child.start()
    child.join()
    assert child.exitcode == 0 and set(recorded(tmp_path).values()) == {SENTENCES}
    assert not (tmp_path / "s.tsv.partial").exists()


# Flags that are wrong are told before a model is loaded

WRONG = {
    "kinds": (["--attn-dump", "d", "--attn-dump-kinds", "crss"], "no such kind of attention: crss"),
    "layers": (["--attn-dump", "d", "--attn-dump-layers", "first"], "--attn-dump-layers first: not numbers of layers"),
    "no hypothesis": (["--attn-dump", "d", "--attn-dump-nbest", 0], "--attn-dump-nbest 0: record at least 1"),
    "beam": (["--attn-dump", "d", "--attn-dump-nbest", 9], "--attn-dump-nbest 9: --beam is 4; ask for at most 4"),
    "reference": (["--attn-dump", "d", "--attn-dump-nbest", 2, "--score-reference"], "there is one reference"),
    "nothing": (["--attn-dump-resume"], "--attn-dump-resume needs --attn-dump DIR or --attn-dump-stats FILE.tsv"),
    "a file": (["--attn-dump", "file"], "--attn-dump file: is not a directory"),
    "a directory": (["--attn-dump-stats", "."], r"--attn-dump-stats \.: is a directory; name a file"),
    "no directory": (["--attn-dump-stats", "no/s.tsv"], "no/s.tsv: cannot be written: no is not a directory"),
    "statistics": (["--attn-dump-stats", "file"], "file: exists already; name a new file"),
    "partial": (["--attn-dump-stats", "s.tsv"], r"s\.tsv\.partial: left by a killed run, or being written now"),
    "a dump": (["--attn-dump", "made"], "made: already has a dump; give --attn-dump-resume"),
    "kinds twice": (
        ["--attn-dump", "d", "--attn-dump-kinds", "cross,cross"],
        "the kind of --attn-dump-kinds cross is named twice; name it once",
    ),
    "no name": (["--attn-dump", ""], "--attn-dump: the name is empty; give one, or leave out the flag"),
    "no name of statistics": (["--attn-dump-stats", ""], "--attn-dump-stats: the name is empty; give one"),
    "in a file": (["--attn-dump", "file/new/dump"], "--attn-dump file/new/dump: file is not a directory"),
    "one name for both": (
        ["--attn-dump", "both", "--attn-dump-stats", "./both"],
        r"--attn-dump-stats \./both: is the directory of --attn-dump; name a file",
    ),
    "a link to nothing": (["--attn-dump-stats", "link"], "link is there and is not a file; name a new file"),
    "a pipe": (["--attn-dump-stats", "pipe", "--attn-dump-resume"], "pipe is there and is not a file"),
    "a pipe for the rest": (["--attn-dump-stats", "p", "--attn-dump-resume"], r"p\.partial is there and is not a file"),
    "an ensemble": (["--attn-dump", "pair", "--path", "a.pt:b.pt"], "model1: already has a dump"),
}


@pytest.fixture
def occupied(tmp_path, monkeypatch):
    """A directory where some names are taken already, as the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("file", "s.tsv.partial"):
        (tmp_path / name).touch()
    for name in ("made", "pair/model1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "shard0-00000.npz").touch()
    (tmp_path / "link").symlink_to("nothing")
    for name in ("pipe", "p.partial"):
        os.mkfifo(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_wrong_flags_are_told_before_a_model_is_loaded(data, occupied, monkeypatch, name):
    loaded = []
    monkeypatch.setattr(checkpoint_utils, "load_model_ensemble", lambda *_, **__: loaded.append(1))
    flags, match = WRONG[name]
    with pytest.raises(InputError, match=match) as error:
        fairseq_generate(data, "model.pt", *TASK, *flags)
    assert not loaded and "\n" not in str(error.value)
    assert isinstance(error.value, SystemExit) and error.value.code == f"error: {error.value}"


def test_the_commands_end_in_one_line(data, checkpoint, tmp_path):
    """As processes: no traceback, whether the flags are wrong for every model or for this one."""
    where = [data, "--user-dir", USER_DIR, *TASK[:2], "--path", checkpoint, "--cpu"]
    where += ["--required-batch-size-multiple", 1, "--attn-dump", tmp_path / "dump"]
    for program, flags, match in (
        ("fairseq-generate", ["--attn-dump-layers", "x"], "error: --attn-dump-layers x: not numbers of layers"),
        ("fairseq-generate", ["--attn-dump-layers", "7"], "error: the encoder attention has no layer 7"),
        ("fairseq-interactive", ["--attn-dump-kinds", "x"], "error: --attn-dump-kinds: no such kind of attention: x"),
    ):
        printed = command(program, *where, *flags, stdin="", check=False)
        assert re.match(match, printed.splitlines()[-1]), printed[-2000:]
        assert "Traceback" not in printed
