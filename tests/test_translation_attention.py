"""Attention from fairseq's commands: --task translation_attention, on models of two layers and a tiny corpus."""

import contextlib
import gc
import hashlib
import logging
import multiprocessing
import os
import random
import re
import signal
import subprocess

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import preprocess
from fairseq_runs import (
    USER_DIR,
    command,
    environment,
    fairseq_generate,
    fairseq_interactive,
    fairseq_train,
    tagged,
)
from waiting import files, until

from fairseq_rela.cli import main as fairseq_rela
from fairseq_rela.dump import writer
from fairseq_rela.dump.statistics import read_stats
from fairseq_rela.dump.zeros import null_and_sparsity
from fairseq_rela.errors import InputError
from fairseq_rela.recording import output, recorder
from fairseq_rela.recording.dump import KINDS, AttentionDump

pytestmark = pytest.mark.slow

SENTENCES = 40
TASK = ["--task", "translation_attention"]
SMALL = ["--encoder-layers", 2, "--decoder-layers", 2, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16]
SMALL += ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--no-epoch-checkpoints", "--max-update", 60]
MODELS = {
    "rela": ("transformer_rela_g_tiny", []),
    "stock": ("transformer", []),
    "joint": ("transformer", ["--cross-self-attention", "--no-cross-attention"]),
}


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
def checkpoints(data, tmp_path_factory):
    """A checkpoint of each model, by its name."""
    directory, made = tmp_path_factory.mktemp("trained"), {}
    for name, (arch, flags) in MODELS.items():
        fairseq_train(data, directory / name, *SMALL, *flags, "--disable-validation", arch=arch)
        made[name] = directory / name / "checkpoint_last.pt"
    return made


def translations(lines):
    """All that fairseq-generate said of the sentences."""
    return [line for line in lines if re.match(r"[A-Z]-\d", line)]


def hypotheses(lines):
    """{sentence: its hypotheses' tokens, the best first}"""
    by_sentence = {}
    for line in lines:
        if line.startswith("H-"):
            id, _, text = line.split("\t")
            by_sentence.setdefault(int(id[2:]), []).append([*text.split(), "</s>"])
    return by_sentence


def sources(lines):
    return {id: [*text.split(), "</s>"] for id, (text,) in tagged(lines, "S").items()}


def teacher_forced(data, checkpoint, records):
    """The attention of a model, one sentence at a time, for the tokens in the dump."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(data)})
    model.eval()
    eos = task.target_dictionary.eos()
    for record in records:
        source = torch.tensor([[task.source_dictionary.index(token) for token in record.source]])
        target = [task.target_dictionary.index(token) for token in record.target]
        assert target[-1] == eos
        previous = torch.tensor([[eos, *target[:-1]]])
        with torch.no_grad(), recorder.record_attention(model) as recording:
            model(source, torch.tensor([source.size(1)]), previous)
        yield {kind: recording.weights(kind)[:, :, 0].numpy() for kind in KINDS}


def assert_attention_of(dump, data, checkpoint, kinds=KINDS, layers=slice(None)):
    assert tuple(dump.info.kinds) == tuple(kinds)
    for record, expected in zip(dump, teacher_forced(data, checkpoint, dump)):
        for kind in kinds:
            assert np.allclose(record.weights(kind), expected[kind][layers], rtol=1e-4, atol=1e-6)
        if "decoder" in kinds:
            assert not np.triu(record.decoder, 1).any()


def same_dumps(left, right):
    assert left.info == right.info
    assert left.ids.tolist() == right.ids.tolist() and left.ranks.tolist() == right.ranks.tolist()
    for one, other in zip(left, right):
        assert (one.source, one.target) == (other.source, other.target)
        assert all(np.allclose(one.weights(k), other.weights(k), rtol=1e-4, atol=1e-6) for k in left.info.kinds)


@pytest.mark.parametrize("name", MODELS)
def test_generate_translates_the_same_and_dumps_it(data, checkpoints, tmp_path, name):
    checkpoint = checkpoints[name]
    plain = fairseq_generate(data, checkpoint, "--batch-size", 7)
    lines = fairseq_generate(data, checkpoint, "--batch-size", 7, *TASK, "--attn-dump", tmp_path / "dump")
    assert translations(lines) == translations(plain) and len(sources(lines)) == SENTENCES
    dump = AttentionDump(tmp_path / "dump")
    dump.verify()
    assert {r.id: r.source for r in dump} == sources(lines)
    assert {r.id: [r.target] for r in dump} == hypotheses(lines)
    assert_attention_of(dump, data, checkpoint)
    info = dump.info
    assert info.model == MODELS[name][0]
    assert info.checkpoint_sha256 == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    assert info.options["beam"] == 4 and info.options["lenpen"] == 0.6 and info.options["gen_subset"] == "test"
    for kind, row in info.kinds.items():
        assert row.attention == ("rela_g" if name == "rela" else "softmax")
        assert row.distribution == (name == "stock" or (name == "joint" and kind == "encoder"))
    if name == "stock":
        sums = np.concatenate([r.weights(kind).sum(-1).ravel() for r in dump for kind in KINDS])
        assert np.allclose(sums, 1, atol=1e-5)
    if name == "joint":
        assert all(np.allclose(r.cross.sum(-1) + r.decoder.sum(-1), 1, atol=1e-5) for r in dump)


@pytest.mark.parametrize("flags", [["--sampling", "--nbest", 4, "--seed", 7], ["--retain-dropout", "--seed", 7]])
def test_chance_falls_as_without_the_dump(data, checkpoints, tmp_path, flags):
    """--retain-dropout draws in the teacher-forced pass, too."""
    plain = fairseq_generate(data, checkpoints["stock"], *flags, "--batch-size", 16)
    lines = fairseq_generate(
        data, checkpoints["stock"], *flags, "--batch-size", 16, *TASK, "--attn-dump", tmp_path / "dump"
    )
    assert translations(lines) == translations(plain)
    assert len(AttentionDump(tmp_path / "dump")) == SENTENCES


def test_score_reference(data, checkpoints, tmp_path):
    flags = ["--score-reference", "--max-tokens", 200]
    plain = fairseq_generate(data, checkpoints["rela"], *flags)
    lines = fairseq_generate(data, checkpoints["rela"], *flags, *TASK, "--attn-dump", tmp_path / "dump")
    assert translations(lines) == translations(plain)
    dump = AttentionDump(tmp_path / "dump")
    assert dump.info.options["score_reference"] is True and "beam" not in dump.info.options
    assert {r.id: " ".join(r.target[:-1]) for r in dump} == {i: h[1] for i, h in tagged(lines, "H").items()}
    assert_attention_of(dump, data, checkpoints["rela"])


def test_nbest_and_batches_taken_in_parts(data, checkpoints, tmp_path, monkeypatch):
    dump = ["--attn-dump", tmp_path / "dump", "--attn-dump-nbest", 3]
    monkeypatch.setattr(output, "MOST_WEIGHTS", 20_000)  # a few sentences
    lines = fairseq_generate(data, checkpoints["rela"], "--nbest", 3, *TASK, *dump)
    dump = AttentionDump(tmp_path / "dump")
    by_sentence = hypotheses(lines)
    assert [(r.id, r.rank) for r in dump] == [(i, rank) for i in range(SENTENCES) for rank in range(3)]
    assert all(r.target == by_sentence[r.id][r.rank] for r in dump)
    assert_attention_of(dump, data, checkpoints["rela"])


def test_an_ensemble_makes_a_dump_a_model(data, checkpoints, tmp_path):
    pair = [checkpoints["rela"], checkpoints["stock"]]
    path = os.pathsep.join(map(str, pair))
    flags = ["--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "stats.tsv"]
    lines = fairseq_generate(data, path, *TASK, *flags)
    assert translations(lines) == translations(fairseq_generate(data, path))
    for number, checkpoint in enumerate(pair):
        dump = AttentionDump(tmp_path / "dump" / f"model{number}")
        assert {r.id: [r.target] for r in dump} == hypotheses(lines)
        assert dump.info.checkpoint_sha256 == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
        assert_attention_of(dump, data, checkpoint)
        assert len(list(read_stats(tmp_path / f"stats.model{number}.tsv"))) == SENTENCES
    with pytest.raises(InputError, match="it holds 2; name one of them: model0, model1"):
        AttentionDump(tmp_path / "dump")


def test_kinds_and_layers(data, checkpoints, tmp_path):
    narrow = ["--attn-dump-kinds", "cross,encoder", "--attn-dump-layers", "-1"]
    fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "dump", *narrow)
    dump = AttentionDump(tmp_path / "dump")
    assert dump.info.kinds["cross"].layers == (1,) and dump.info.kinds["cross"].model_layers == 2
    assert_attention_of(dump, data, checkpoints["rela"], ("encoder", "cross"), slice(1, 2))


def assert_stats_of(path, dump):
    lines = {(line.id, line.rank): line for line in read_stats(path)}
    assert sorted(lines) == [(r.id, r.rank) for r in dump]
    for record in dump:
        line = lines[record.id, record.rank]
        assert (line.source_length, line.target_length) == (record.source_length, record.target_length)
        expected = {}
        for kind, row in dump.info.kinds.items():
            for layer, null, sparsity in zip(row.layers, *null_and_sparsity(record.weights(kind), kind)):
                expected.update({f"{kind}.{layer}.null": null, f"{kind}.{layer}.sparsity": sparsity})
        assert line.rates.keys() == expected.keys()
        assert all(line.rates[name] == pytest.approx(expected[name], abs=1e-5) for name in expected)


def test_statistics_with_and_without_matrices(data, checkpoints, tmp_path):
    both = ["--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "both.tsv"]
    fairseq_generate(data, checkpoints["rela"], *TASK, *both)
    assert_stats_of(tmp_path / "both.tsv", AttentionDump(tmp_path / "dump"))
    plain = fairseq_generate(data, checkpoints["rela"])
    lines = fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump-stats", tmp_path / "alone.tsv")
    assert translations(lines) == translations(plain)
    assert (tmp_path / "alone.tsv").read_text() == (tmp_path / "both.tsv").read_text()
    assert sorted(os.listdir(tmp_path)) == ["alone.tsv", "both.tsv", "dump"]


def test_shards_are_one_dump(data, checkpoints, tmp_path):
    fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "whole", "--batch-size", 7)
    to = ["--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "s.tsv", "--batch-size", 7]
    for rank in (0, 1):
        shard = ["--distributed-world-size", 2, "--distributed-rank", rank]
        fairseq_generate(data, checkpoints["rela"], *TASK, *to, *shard)
        assert not torch.distributed.is_initialized()
        assert 0 < len(AttentionDump(tmp_path / "dump")) <= SENTENCES
    dump = AttentionDump(tmp_path / "dump")
    same_dumps(dump, AttentionDump(tmp_path / "whole"))
    assert {os.path.basename(segment.path)[:6] for segment in dump.segments} == {"shard0", "shard1"}
    ids = [{line.id for line in read_stats(tmp_path / f"s.shard{rank}.tsv")} for rank in (0, 1)]
    assert sorted([*ids[0], *ids[1]]) == list(range(SENTENCES))


def test_interactive_numbers_sentences_as_it_prints_them(data, checkpoints, tmp_path):
    """In buffers, whose sentences are sorted by length into batches."""
    typed = list(sources(fairseq_generate(data, checkpoints["stock"])).values())[:11]
    (tmp_path / "typed").write_text("".join(" ".join(tokens[:-1]) + "\n" for tokens in typed))
    flags = ["--buffer-size", 5, "--batch-size", 2]
    plain = fairseq_interactive(data, checkpoints["stock"], tmp_path / "typed", *flags)
    to = ["--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "s.tsv"]
    lines = fairseq_interactive(data, checkpoints["stock"], tmp_path / "typed", *flags, *TASK, *to)

    def untimed(lines):
        return [line for line in translations(lines) if not line.startswith("W-")]

    assert untimed(lines) == untimed(plain)
    gc.collect()  # the end of the program, for what its task holds
    dump = AttentionDump(tmp_path / "dump")
    assert dump.ids.tolist() == list(range(11))
    assert {r.id: r.source for r in dump} == sources(lines) == dict(enumerate(typed))
    assert {r.id: [r.target] for r in dump} == hypotheses(lines)
    assert_attention_of(dump, data, checkpoints["stock"])
    assert_stats_of(tmp_path / "s.tsv", dump)


def test_the_commands_themselves(data, checkpoints, tmp_path):
    """Each in its own process with --user-dir; a stock checkpoint, and an interactive that is interrupted."""
    where = [data, "--user-dir", USER_DIR, *TASK, "--path", checkpoints["stock"], "--cpu", "--max-len-b", 20]
    to = ["--attn-dump", tmp_path / "generate", "--required-batch-size-multiple", 1]
    printed = command("fairseq-generate", *where, *to)
    assert "Generate test with beam=5" in printed.splitlines()[-1]
    assert len(AttentionDump(tmp_path / "generate")) == SENTENCES

    words = ["fairseq-interactive", *where, "--attn-dump", tmp_path / "interactive"]
    process = subprocess.Popen(
        [str(word) for word in words],
        env=environment(PYTHONUNBUFFERED="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    line = " ".join(AttentionDump(tmp_path / "generate")[0].source[:-1])
    process.stdin.write(f"{line}\n{line}\n")
    process.stdin.flush()
    assert any(said.startswith("P-1") for said in process.stdout)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert AttentionDump(tmp_path / "interactive").ids.tolist() == [0, 1]


def test_registered_once_under_its_name():
    assert TASK_REGISTRY["translation_attention"].__module__ == "fairseq_rela.tasks.translation_attention"


# While it runs: interrupted, killed, resumed


def test_interrupted_in_a_search_keeps_what_was_finished(data, checkpoints, tmp_path, monkeypatch):
    batches = []

    def search(self, *args, **options):
        batches.append(1)
        if len(batches) == 4:
            raise KeyboardInterrupt
        return original(self, *args, **options)

    original = TranslationTask.inference_step
    monkeypatch.setattr(TranslationTask, "inference_step", search)
    to = [*TASK, "--attn-dump", tmp_path / "dump", "--attn-dump-stats", tmp_path / "s.tsv", "--batch-size", 5]
    with pytest.raises(KeyboardInterrupt):
        fairseq_generate(data, checkpoints["rela"], *to)
    assert len(AttentionDump(tmp_path / "dump")) == 15
    assert len(list(read_stats(tmp_path / "s.tsv.partial"))) == 15
    monkeypatch.undo()
    with pytest.raises(InputError, match="dump: already has a dump; give --attn-dump-resume to continue it"):
        fairseq_generate(data, checkpoints["rela"], *to)
    fairseq_generate(data, checkpoints["rela"], *to, "--attn-dump-resume")
    dump = AttentionDump(tmp_path / "dump")
    assert dump.ids.tolist() == list(range(SENTENCES))
    assert_stats_of(tmp_path / "s.tsv", dump)
    files = sorted(os.listdir(tmp_path / "dump"))
    fairseq_generate(data, checkpoints["rela"], *to, "--attn-dump-resume")  # nothing is left to do
    assert sorted(os.listdir(tmp_path / "dump")) == files


def test_interrupted_between_searches_keeps_what_was_finished(data, checkpoints, tmp_path, monkeypatch):
    """Where the task is not asked: what it holds is written when it goes."""
    from fairseq import utils

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(utils, "post_process_prediction", interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "dump", "--batch-size", 5)
    gc.collect()
    assert len(AttentionDump(tmp_path / "dump")) == 5


def _generate_some(data, checkpoint, path):
    """In a process of its own, to be killed: one file per sentence, and after six sentences it waits for its end."""
    added = []

    def is_due(self):
        added.append(1)
        if len(added) > 6:
            signal.pause()
        return True

    writer.DumpWriter._is_due = is_due
    fairseq_generate(data, checkpoint, *TASK, "--attn-dump", path, "--attn-dump-resume", "--batch-size", 2)


def test_killed_at_random_moments_and_resumed(data, checkpoints, tmp_path):
    path, chance, held = tmp_path / "dump", random.Random(2), 0
    for _ in range(6):
        before, more = len(files(path, ".npz")), chance.randint(1, 6)
        child = multiprocessing.get_context("fork").Process(
            target=_generate_some, args=(data, checkpoints["rela"], path)
        )
        child.start()
        until(lambda: len(files(path, ".npz")) >= before + more, child.is_alive)  # noqa: B023
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        dump = AttentionDump(path)
        dump.verify()
        assert len(dump) >= held + more, "nothing that was there is lost"
        held = len(dump)
    lines = fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", path, "--attn-dump-resume")
    fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "unbroken")
    dump = AttentionDump(path)
    assert held < SENTENCES and dump.ids.tolist() == list(range(SENTENCES))
    same_dumps(dump, AttentionDump(tmp_path / "unbroken"))
    assert {r.id: [r.target] for r in dump} == hypotheses(lines)


# Errors are one line, and nothing is overwritten


def contents(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (
            ["--attn-dump-kinds", "crss"],
            r"--attn-dump-kinds: no such kind of attention: crss \(known are encoder, decoder, cross\)",
        ),
        (["--attn-dump-layers", "first"], "--attn-dump-layers first: not numbers of layers, such as 0,5 or -1"),
        (["--attn-dump-layers", "2"], "the encoder attention has no layer 2: it has 2, counted from 0"),
        (["--attn-dump-nbest", "0"], "--attn-dump-nbest 0: record at least 1"),
        (["--attn-dump-nbest", "5"], "--attn-dump-nbest 5: --beam is 4; ask for at most 4"),
        (["--attn-dump-nbest", "2", "--score-reference"], "there is one reference; ask for at most 1"),
    ],
)
def test_wrong_options(data, checkpoints, tmp_path, flags, match):
    with pytest.raises(InputError, match=match):
        fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "dump", *flags)
    assert not os.listdir(tmp_path)


def test_options_that_would_do_nothing(data, checkpoints):
    for flags in (["--attn-dump-resume"], ["--attn-dump-nbest", 2], ["--attn-dump-layers", 0]):
        with pytest.raises(InputError, match=f"{flags[0]} needs --attn-dump DIR or --attn-dump-stats FILE.tsv"):
            fairseq_generate(data, checkpoints["rela"], *TASK, *flags)


def test_not_in_training(data, tmp_path):
    with pytest.raises(InputError, match="are for fairseq-generate and fairseq-interactive; leave them out"):
        fairseq_train(data, tmp_path / "model", *SMALL, *TASK, "--attn-dump", tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


def test_a_directory_with_something_else(data, checkpoints, tmp_path, monkeypatch):
    path = tmp_path / "dump"

    def refused(match, *flags, model="rela"):
        before = contents(tmp_path)
        with pytest.raises(InputError, match=match):
            fairseq_generate(data, checkpoints[model], *TASK, "--attn-dump", path, "--attn-dump-resume", *flags)
        assert contents(tmp_path) == before

    fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", path)
    refused("has another dump: model is 'transformer_rela_g_tiny' there and 'transformer' in this run", model="stock")
    refused("has another dump: options.gen_subset is 'test' there and 'valid' in this run", "--gen-subset", "valid")
    refused("has another dump: options.beam is 4 there and 2 in this run", "--beam", 2)
    segment = path / "shard0-00000.npz"
    whole = segment.read_bytes()
    segment.write_bytes(whole[: len(whole) // 2])
    refused(r"shard0-00000\.npz: truncated or changed since it was written .*generate again with --attn-dump-resume")
    segment.write_bytes(whole)
    path = tmp_path / "dump" / "dump.json" / "dump"  # in a file: no directory can be made
    refused("dump.json is not a directory; name a new directory, or one with a dump")


def test_statistics_that_cannot_be_written(data, checkpoints, tmp_path):
    with pytest.raises(InputError, match=r"no/s\.tsv: cannot be written: .*/no is not a directory"):
        fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump-stats", tmp_path / "no" / "s.tsv")
    (tmp_path / "s.tsv").write_text("mine")
    with pytest.raises(InputError, match=r"s\.tsv: exists already; name a new file"):
        fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump-stats", tmp_path / "s.tsv")
    assert contents(tmp_path) == {tmp_path / "s.tsv": b"mine"}


def test_a_full_disk(data, checkpoints, tmp_path, monkeypatch):
    """The segments before it are complete, and the run continues when there is space again."""
    to = [*TASK, "--attn-dump", tmp_path / "dump", "--batch-size", 5]
    segments = []

    def write(self, file):
        if len(segments) == 2:
            raise OSError(28, "No space left on device")
        segments.append(1)
        return original(self, file)

    original = writer.PendingSegment.write
    monkeypatch.setattr(writer.PendingSegment, "write", write)
    monkeypatch.setattr(writer.DumpWriter, "_is_due", lambda self: len(self._pending) == 6)
    with pytest.raises(
        InputError, match="No space left on device; the segments before it are complete: free some space"
    ):
        fairseq_generate(data, checkpoints["rela"], *to)
    assert len(AttentionDump(tmp_path / "dump")) == 12
    monkeypatch.undo()
    fairseq_generate(data, checkpoints["rela"], *to, "--attn-dump-resume")
    fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "unbroken", "--batch-size", 5)
    same_dumps(AttentionDump(tmp_path / "dump"), AttentionDump(tmp_path / "unbroken"))


def test_an_id_twice(data, checkpoints, tmp_path, monkeypatch):
    def search(self, generator, models, sample, *args, **options):
        sample["id"][:] = 3
        return original(self, generator, models, sample, *args, **options)

    original = TASK_REGISTRY["translation_attention"].inference_step
    monkeypatch.setattr(TASK_REGISTRY["translation_attention"], "inference_step", search)
    with pytest.raises(InputError, match="sentence 3 is in the dump already; each sentence is recorded once"):
        fairseq_generate(data, checkpoints["rela"], *TASK, "--attn-dump", tmp_path / "dump", "--batch-size", 5)
    assert AttentionDump(tmp_path / "dump").ids.tolist() == [3]


def test_sentences_that_fairseq_leaves_out_are_told_of(data, checkpoints, tmp_path, caplog):
    """Newer fairseq drops a last batch that is too small (facebookresearch/fairseq#5036); that is not changed."""
    flags = ["--required-batch-size-multiple", 16, "--batch-size", 16]
    plain = fairseq_generate(data, checkpoints["rela"], *flags)
    with caplog.at_level(logging.WARNING):
        lines = fairseq_generate(data, checkpoints["rela"], *flags, *TASK, "--attn-dump", tmp_path / "dump")
    assert translations(lines) == translations(plain)
    left_out = SENTENCES - len(sources(lines))
    told = [r.getMessage() for r in caplog.records if "in no batch" in r.getMessage()]
    assert len(told) == (left_out > 0)
    assert not told or told[0].startswith(f"{left_out} of {SENTENCES} sentences are in no batch")
    assert {r.id: [r.target] for r in AttentionDump(tmp_path / "dump")} == hypotheses(lines)


@pytest.mark.parametrize("name", MODELS)
def test_norms_are_dumped_beside_the_weights(data, checkpoints, tmp_path, name):
    flags = ["--batch-size", 7, *TASK, "--attn-dump", tmp_path / "dump", "--attn-dump-norms"]
    fairseq_generate(data, checkpoints[name], *flags)
    dump = AttentionDump(tmp_path / "dump")
    dump.verify()
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoints[name])], {"data": str(data)})
    model.eval()
    for record in list(dump)[:5]:
        source = torch.tensor([[task.source_dictionary.index(token) for token in record.source]])
        target = [task.target_dictionary.index(token) for token in record.target]
        with torch.no_grad(), recorder.record_attention(model, norms=True) as recording:
            model(source, torch.tensor([source.size(1)]), torch.tensor([[target[-1], *target[:-1]]]))
        for kind in KINDS:
            expected = recording.norms(kind)[:, :, 0].numpy()
            assert np.allclose(record.norms(kind), expected, rtol=1e-3, atol=1e-5 * expected.max())
            assert np.array_equal(record.norms(kind) == 0, record.weights(kind) == 0)


def test_norms_need_a_dump(data, checkpoints, tmp_path):
    flags = [*TASK, "--attn-dump-stats", tmp_path / "stats.tsv", "--attn-dump-norms"]
    with pytest.raises(InputError, match="--attn-dump-norms needs --attn-dump DIR"):
        fairseq_generate(data, checkpoints["rela"], *flags)
