"""fairseq's own workflow, from text to a score, on a corpus of a few hundred sentences."""

import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys

import pytest
import torch
from fairseq_runs import (
    ROOT,
    TRAINING,
    USER_DIR,
    command,
    corpus,
    fairseq_generate,
    fairseq_train,
    fairseq_validate,
    tagged,
    train_on_two,
)
from waiting import files, sizes, until

from fairseq_rela.cli import main as fairseq_rela
from fairseq_rela.models import TransformerRelaModel
from fairseq_rela.models.layers import FUSED_COPIES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    sizes = ["--train", 200, "--valid", 20, "--test", 13, "--max-clauses", 1]
    return corpus(tmp_path_factory.mktemp("workflow"), *sizes)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Three epochs of rela_g, with --eval-bleu."""
    save_dir = tmp_path_factory.mktemp("trained")
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 4, "max_len_b": 20}', "--eval-bleu-print-samples"]
    fairseq_train(data, save_dir, "--max-epoch", 3, *bleu, "--best-checkpoint-metric", "bleu")
    return save_dir


def weights(checkpoint):
    """The weights without what only fairseq 0.12.2 has: an uninitialised number, and copies that are 0 at first."""
    unused = {"_float_tensor", *FUSED_COPIES}
    model = torch.load(str(checkpoint))["model"]
    return {name: weight for name, weight in model.items() if name.rpartition(".")[2] not in unused}


def newest_update(save):
    """The number of updates of the newest checkpoint that is there."""
    names = (re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", name) for name in files(save))
    return max((int(name[1]) for name in names if name), default=0)


def last_line(text):
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("arch", ["transformer_rela_g_tiny", "transformer"])
def test_resuming_gives_the_very_weights_of_an_unbroken_run(data, tmp_path, arch):
    """As exactly as fairseq's own transformer does: within an epoch (at the next it draws its batches anew)."""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    small = ["--encoder-embed-dim", 32, "--decoder-embed-dim", 32]
    fairseq_train(data, unbroken, "--max-update", 6, *small, arch=arch)
    fairseq_train(data, broken, "--max-update", 3, *small, arch=arch)
    halfway = weights(broken / "checkpoint_last.pt")
    fairseq_train(data, broken, "--max-update", 6, *small, arch=arch)
    expected, actual = weights(unbroken / "checkpoint_last.pt"), weights(broken / "checkpoint_last.pt")
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    assert not torch.equal(halfway["encoder.embed_tokens.weight"], actual["encoder.embed_tokens.weight"])


def test_average_generate_interactive_validate_score(data, trained, tmp_path, capsys):
    average = tmp_path / "average.pt"
    assert fairseq_rela(["average", str(trained), "--num-epoch-checkpoints", "2", "--output", str(average)]) == 0
    two, three = weights(trained / "checkpoint2.pt"), weights(trained / "checkpoint3.pt")
    for name, weight in weights(average).items():
        assert torch.allclose(weight.double(), (two[name].double() + three[name].double()) / 2, atol=1e-7)

    lines = fairseq_generate(data, average)
    hypotheses = tagged(lines, "D")
    assert sorted(hypotheses) == list(range(13))
    assert lines[-1].startswith("Generate test with beam=4: BLEU4 = ")
    one_by_one = tagged(fairseq_generate(data, average, "--batch-size", 1), "D")
    assert {i: h[1] for i, h in one_by_one.items()} == {i: h[1] for i, h in hypotheses.items()}

    source = tagged(lines, "S")
    typed = "".join(f"{source[i][0]}\n" for i in range(3))
    answers = command(
        "fairseq-interactive", data, "--user-dir", USER_DIR, "--path", average, "--cpu",
        *"--beam 4 --lenpen 0.6 --max-len-b 30".split(), stdin=typed,
    )  # fmt: skip
    answers = tagged(answers.splitlines(), "D")
    assert [answers[i][1] for i in range(3)] == [hypotheses[i][1] for i in range(3)]

    fairseq_validate(data, average, "--max-tokens", 400)

    (tmp_path / "hyp").write_text("".join(f"{hypotheses[i][1]}\n" for i in range(13)))
    reference = tagged(lines, "T")
    (tmp_path / "ref").write_text("".join(f"{reference[i][0]}\n" for i in range(13)))
    words = [sys.executable, "-m", "sacrebleu", tmp_path / "ref", "-i", tmp_path / "hyp", "-tok", "none"]
    score = json.loads(command(*words))
    bleu = float(re.search(r"BLEU4 = ([\d.]+)", lines[-1])[1])
    assert score["score"] == pytest.approx(bleu, abs=1.5)  # they smooth differently


def test_alignments_and_reference_scores(data, trained):
    best = trained / "checkpoint_best.pt"
    hard = fairseq_generate(data, best, "--print-alignment")
    soft = fairseq_generate(data, best, "--print-alignment", "soft")
    source, hypotheses = tagged(hard, "S"), tagged(hard, "H")
    for i, (links,) in tagged(hard, "A").items():
        words, produced = len(source[i][0].split()), len(hypotheses[i][1].split())
        for link in links.split():
            s, t = map(int, link.split("-"))
            assert 0 <= s < words and 0 <= t < produced
    for i, (rows,) in tagged(soft, "A").items():
        table = [[float(weight) for weight in row.split(",")] for row in rows.split()]
        assert len(table) == len(hypotheses[i][1].split()) + 1
        assert {len(row) for row in table} == {len(source[i][0].split()) + 1}
        assert all(weight >= 0 and math.isfinite(weight) for row in table for weight in row)
        linked = {int(t): int(s) for s, t in (link.split("-") for link in tagged(hard, "A")[i][0].split())}
        for t, row in enumerate(table[:-1]):  # without </s>
            if max(row[:-1]) > 0:
                assert row[linked[t]] == max(row[:-1])
    scored = fairseq_generate(data, best, "--score-reference")
    targets = tagged(scored, "T")
    for i, hypothesis in tagged(scored, "H").items():
        assert hypothesis[1] == targets[i][0].replace("<<unk>>", "<unk>")  # fairseq marks a reference's so


def test_an_ensemble_of_two_checkpoints(data, trained):
    pair = f"{trained / 'checkpoint2.pt'}{os.pathsep}{trained / 'checkpoint3.pt'}"
    assert sorted(tagged(fairseq_generate(data, pair), "D")) == list(range(13))


def test_from_python(data, trained):
    model = TransformerRelaModel.from_pretrained(str(trained), "checkpoint_best.pt", data_name_or_path=str(data))
    lines = fairseq_generate(data, trained / "checkpoint_best.pt", "--lenpen", 1)
    source, hypotheses = tagged(lines, "S"), tagged(lines, "D")
    for i in range(3):
        assert model.translate(source[i][0], beam=4, max_len_b=30) == hypotheses[i][1]


def test_flags_reach_the_model(data, tmp_path):
    flags = ["--encoder-attn", "rela_i", "--decoder-attn", "entmax15", "--cross-attn", "sparsemax"]
    fairseq_train(data, tmp_path, "--max-update", 2, *flags, arch="transformer_softmax_tiny")
    names = set(weights(tmp_path / "checkpoint_last.pt"))
    assert "encoder.layers.0.self_attn.norm.gain" in names
    assert not any(name.startswith("decoder") and ".norm." in name for name in names)
    assert sorted(tagged(fairseq_generate(data, tmp_path / "checkpoint_last.pt"), "H")) == list(range(13))


def test_an_unknown_attention_is_answered_with_the_known_ones(data, tmp_path, capsys):
    with pytest.raises(SystemExit):
        fairseq_train(data, tmp_path / "new", "--encoder-attn", "rela_x")
    said = capsys.readouterr().err
    assert "--encoder-attn" in said and "'rela_x'" in said and "'rela_g_leaky_relu'" in said
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_of_another_architecture_is_refused_and_stays(data, trained, tmp_path):
    checkpoint = tmp_path / "checkpoint_last.pt"
    shutil.copy(str(trained / "checkpoint_last.pt"), str(checkpoint))
    before = checkpoint.read_bytes()
    with pytest.raises(Exception, match="architectures match"):
        fairseq_train(data, tmp_path, "--max-epoch", 4, arch="transformer_softmax_tiny")
    assert checkpoint.read_bytes() == before


@pytest.mark.skipif(torch.__version__ < "2", reason="this torch has no float16 bmm on a CPU")
def test_float16_training(data, tmp_path):
    fairseq_train(data, tmp_path, "--max-update", 5, "--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", 4)
    assert all(torch.isfinite(w).all() for w in weights(tmp_path / "checkpoint_last.pt").values())


def test_user_dir_by_name_from_the_repository(data, tmp_path):
    train = ["fairseq-train", data, "--user-dir", "fairseq_rela", "--arch", "transformer_rela_i_tiny", *TRAINING]
    command(*train, "--save-dir", tmp_path, "--max-update", 2, cwd=ROOT)
    generate = ["fairseq-generate", data, "--user-dir", "fairseq_rela", "--path", tmp_path / "checkpoint_last.pt"]
    assert "Generate test with beam=5" in last_line(command(*generate, "--cpu", "--max-len-b", 20, cwd=ROOT))


# fairseq is imported once, and each user dir has a process of its own
TRAIN_WITH_EACH = """
import os, sys
from fairseq_cli.train import cli_main
for user_dir in sys.argv[1].split(os.pathsep):
    child = os.fork()
    if child == 0:
        sys.argv[1:] = [*sys.argv[2:], "--user-dir", user_dir]
        cli_main()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, user_dir
"""


def test_user_dir_by_name_from_anywhere_after_a_regular_install(data, tmp_path):
    """Beside fairseq, as pip puts them; a copy of fairseq, since this environment's must not change."""
    import fairseq
    import fairseq_cli

    site, elsewhere, source = tmp_path / "site", tmp_path / "elsewhere", tmp_path / "source"
    elsewhere.mkdir()
    tracked = ["setup.py", "README.md", "fairseq_rela"]
    source.mkdir()
    for name in tracked:
        origin = ROOT / name
        copy = shutil.copytree if origin.is_dir() else shutil.copy
        copy(str(origin), str(source / name))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command(*install, "--target", site, source)
    for package in (fairseq, fairseq_cli):
        origin = os.path.dirname(package.__file__)
        shutil.copytree(origin, str(site / package.__name__), ignore=shutil.ignore_patterns("examples", "__pycache__"))
    run = {"cwd": elsewhere, "PYTHONPATH": str(site)}
    printed = command(sys.executable, "-m", "fairseq_rela.cli", "user-dir", **run)
    assert printed.strip() == str(site / "fairseq_rela")
    user_dirs = os.pathsep.join(["fairseq_rela", printed.strip()])
    train = [data, *TRAINING, "--arch", "transformer_rela_g_tiny", "--save-dir", tmp_path / "save", "--max-update", 1]
    command(sys.executable, "-c", TRAIN_WITH_EACH, user_dirs, *train, **run)


@pytest.mark.parametrize("short_numbers", [False, True])
def test_hydra_with_the_shipped_config(data, tmp_path, short_numbers):
    where = ["--config-dir", f"{USER_DIR}/config", "--config-name", "rela_g_tiny", f"common.user_dir={USER_DIR}"]
    short = ["optimization.max_update=3", "common.cpu=true", "dataset.num_workers=0", f"task.data={data}"]
    small = [f"checkpoint.save_dir={tmp_path}/save", "+model.encoder_layers=1", "+model.cross_attn=relu_rmsnorm"]
    small += ["common.bf16=true"] if short_numbers else []
    command("fairseq-hydra-train", *where, *short, *small, f"hydra.run.dir={tmp_path}", cwd=tmp_path)
    checkpoint = tmp_path / "save" / "checkpoint_last.pt"
    trained = weights(checkpoint)
    gate = trained["decoder.layers.3.self_attn.norm.gate"].float()
    assert gate.equal(gate.bfloat16().float()) == short_numbers
    names = set(trained)
    assert "encoder.layers.1.fc1.weight" not in names
    assert "decoder.layers.3.encoder_attn.norm.gain" in names
    assert sorted(tagged(fairseq_generate(data, checkpoint), "H")) == list(range(13))


def test_two_processes_train_as_one_does_with_two_batches_an_update_and_resume(data, tmp_path):
    train_on_two(data, tmp_path / "two", "--dropout", 0, "--max-epoch", 1)
    fairseq_train(data, tmp_path / "one", "--dropout", 0, "--max-epoch", 1, "--update-freq", 2)
    one, two = weights(tmp_path / "one" / "checkpoint1.pt"), weights(tmp_path / "two" / "checkpoint1.pt")
    for name in one:
        assert torch.allclose(one[name], two[name], atol=1e-3), name
    resumed = train_on_two(data, tmp_path / "two", "--dropout", 0, "--max-epoch", 2)
    assert "Loaded checkpoint" in resumed and (tmp_path / "two" / "checkpoint2.pt").exists()


def test_a_training_killed_at_any_moment_resumes(data, tmp_path):
    """It saves after every update: the moments fall in updates and in saves."""
    save, chance = tmp_path / "save", random.Random(5)
    every_update = ["--save-interval-updates", 1, "--keep-interval-updates", 2, "--disable-validation"]
    every_update += ["--encoder-embed-dim", 32, "--decoder-embed-dim", 32]
    for attempt in range(3):
        arguments = (data, save, *every_update, "--max-update", 1000)
        child = multiprocessing.get_context("fork").Process(target=fairseq_train, args=arguments)
        child.start()
        until(lambda: newest_update(save) >= 5 * attempt + 5, child.is_alive)  # noqa: B023
        for _ in range(chance.randrange(6)):
            before = sizes(save)
            until(lambda: sizes(save) != before, child.is_alive)  # noqa: B023
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    reached = newest_update(save)
    words = ["fairseq-train", data, "--user-dir", USER_DIR, "--arch", "transformer_rela_g_tiny", *TRAINING]
    resumed = command(*words, "--save-dir", save, *every_update, "--max-update", reached + 3)
    assert "Loaded checkpoint" in resumed and f"num_updates {reached + 3}" in resumed
    assert "num_updates=5," not in resumed
    assert all(torch.isfinite(w).all() for w in weights(save / "checkpoint_last.pt").values())
