"""What goes beyond the paper, as recipes: each from a small corpus to its table."""

import csv

import pytest
import torch

pytestmark = pytest.mark.slow

CORPUS = "--train 200 --valid 20 --test 20 --noise 40 --max-clauses 1 --lexicon 50"
TINY = "--encoder-layers 1 --decoder-layers 1 --num-workers 0".split()


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return {"CORPUS": CORPUS, "OUT": tmp_path_factory.mktemp("toy"), "PIECES": "150", "BEAM": "1"}


def table(path):
    with open(str(path), encoding="utf-8", newline="") as file:
        return {row[""]: row for row in csv.DictReader(file, delimiter="\t")}


def test_sparsity(recipe, toy):
    variables = {**toy, "SETTINGS": "none target:0.9 tuned:0.9", "UPDATES": "12"}
    recipe("beyond/sparsity.sh", "toy", *TINY, **variables)
    rows = table(toy["OUT"] / "beyond" / "sparsity.tsv")
    assert list(rows) == ["none", "target:0.9", "tuned:0.9"]
    for kind in ("encoder", "decoder", "cross"):
        none, driven, tuned = (float(row[f"{kind} sparsity %"]) for row in rows.values())
        assert none < min(driven, tuned)
    assert (toy["OUT"] / "beyond" / "sparsity.png").read_bytes().startswith(b"\x89PNG")
    said = recipe("beyond/sparsity.sh", "toy", fails=True, **{**toy, "SETTINGS": "much"})
    assert said.startswith("sparsity.sh: SETTINGS: 'much' is not known")


def test_warm_start(recipe, toy):
    printed = recipe("beyond/warm_start.sh", "toy", "--num-workers", 0, **toy, WARM_UPDATES="2", UPDATES="4", TAG="w")
    losses = printed[printed.index("\nupdates") + 1 :].splitlines()
    assert [line.split()[0] for line in losses[:5]] == ["updates", "1", "2", "3", "4"]
    (scratch, warm), (_, not_trained) = losses[2].split()[1:], losses[4].split()[1:]
    assert float(scratch) > 0 and float(warm) > 0 and not_trained == "-"
    assert sum("warm start: " in line for line in losses) == 4
    assert losses[-2].split() == ["softmax", "scratch", "warm"] and losses[-1].startswith("tokenised BLEU")


def test_guided_alignment(recipe, toy):
    words = ["beyond/guided_alignment.sh", "toy", "rela_gc", "--num-workers", 0, "--encoder-layers", 1]
    variables = {**toy, "TOKENS_PER_UPDATE": "500"}
    recipe(*words, **variables)
    run = toy["OUT"] / "transformer_rela_gc_align_tiny.seed1"
    rows = table(run / "aligned.tsv")
    assert list(rows) == ["rela_gc, </s> dropped", "rela_gc, </s> null"]
    row = rows["rela_gc, </s> dropped"]
    assert 0 < float(row["AER"]) <= 100 and 0 < int(row["gold null words"]) < 100
    translated = (run / "generate.log").read_text().splitlines()
    assert sum(line.startswith("A-") for line in translated) == sum(line.startswith("H-") for line in translated) == 20
    logs = {file: file.stat().st_mtime_ns for file in run.rglob("*.log")}
    recipe(*words, **variables)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*.log")} == logs

    said = recipe(*words, fails=True, **{**variables, "LINKS": toy["OUT"] / "none"})
    assert said.endswith("none is not a file; give word links of the training text, or eflomal\n")


def test_what_guided_alignment_would_do_with_eflomal(recipe, tmp_path):
    printed = recipe("beyond/guided_alignment.sh", "toy", "softmax", "--dry-run", OUT=tmp_path / "out", LINKS="eflomal")
    assert not (tmp_path / "out").exists()
    assert "eflomal-align -s" in printed and "joined_links.py grow-diag-final-and" in printed
    (training,) = [line for line in printed.splitlines() if " fairseq-train " in line]
    assert "data-bin-align " in training and "--arch transformer_softmax_align_tiny " in training
    assert training.count("--load-alignments") == 1 and "--alignment-lambda 0.5 " in training


def test_both_directions(recipe, toy):
    words = ["beyond/both_directions.sh", "toy", "rela_gc", *TINY]
    variables = {**toy, "TAG": "two", "REVERSE_UPDATES": "2"}
    recipe(*words, **variables)
    forward, reverse = (toy["OUT"] / f"transformer_rela_gc_tiny.{tag}.seed1" for tag in ("two", "two-reverse"))
    rows = table(forward / "both.tsv")
    assert list(rows) == [
        f"{by}, chosen by {way}" for by in ("weights", "norms") for way in ("gold links", "agreement")
    ]
    rates = [float(row[name]) for row in rows.values() for name in row if name.startswith("AER")]
    assert len(rates) == 12 and all(0 < rate <= 100 for rate in rates)
    assert "--source-lang" in (reverse / "train.cmd").read_text()
    for run, updates in ((forward, 3), (reverse, 2)):
        assert (run / "average.pt").exists()
        assert f"UPDATES={updates}" in (run / "average.settings").read_text().split()
    logs = {file: file.stat().st_mtime_ns for run in (forward, reverse) for file in run.rglob("*.log")}
    recipe(*words, **variables)
    assert {file: file.stat().st_mtime_ns for file in logs} == logs

    said = recipe("beyond/both_directions.sh", "multi30k_en_de", fails=True, OUT=toy["OUT"] / "other")
    assert said == "both_directions.sh: multi30k_en_de has no gold alignments to score with\n"


LANGUAGE_MODEL = {"CONTEXT": "64", "TOKENS_PER_UPDATE": "500", "MAX_TOKENS": "250"}


def test_language_models_are_trained_alike_and_their_perplexity_printed(recipe, toy, plugin):
    words = ["beyond/language_model.sh", "toy", "--decoder-layers", "1", "--num-workers", "0"]
    printed = recipe(*words, **toy, **LANGUAGE_MODEL)
    table = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    assert [row[0] for row in table] == ["attention", "stock", "rela_g"]
    for row in table[1:]:
        assert all(1 < float(perplexity) < 1000 for perplexity in row[2:5]) and row[5:] == ["3", "0.01", "1"]
    parameters = [int(row[1].replace(",", "")) for row in table[1:]]
    assert parameters[1] - parameters[0] == 2 * 128  # one layer's gain and gate
    directory = toy["OUT"] / "lm-src"
    assert [line.split("\t") for line in (directory / "perplexity.tsv").read_text().splitlines()] == table
    assert not list(toy["OUT"].rglob("*.part"))
    paths = [directory / f"transformer_lm_{n}_tiny.seed1/checkpoints/checkpoint_last.pt" for n in ("rela_g", "stock")]
    ours, stock = (dict(torch.load(str(path))["cfg"]["model"]) for path in paths)
    differs = {name for name in stock if ours[name] != stock[name]}
    assert differs <= {"_name", "base_shuffle", "max_target_positions"}, differs

    logs = {file: file.stat().st_mtime_ns for file in directory.rglob("*.log")}
    again = recipe(*words, **toy, **LANGUAGE_MODEL, LR=0.5)
    assert [line.split("\t") for line in again.splitlines() if "\t" in line] == table
    assert {file: file.stat().st_mtime_ns for file in directory.rglob("*.log")} == logs


def test_what_the_language_models_recipe_would_do(recipe, tmp_path):
    variables = {"OUT": tmp_path / "out", "ATTENTIONS": "stock softmax", "SIZE": "iwslt_de_en", **LANGUAGE_MODEL}
    printed = recipe("beyond/language_model.sh", "toy", "--dry-run", **variables)
    assert not (tmp_path / "out").exists()
    training = [line for line in printed.splitlines() if " fairseq-train " in line]
    assert len(training) == 2 and printed.count(" fairseq-eval-lm ") == 6
    assert "--arch transformer_lm_softmax_iwslt_de_en --share" in training[1]
    assert "--decoder-ffn-embed-dim 1024" in training[0] and "--decoder-attention-heads 4" in training[0]


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"SIDE": "fr"}, "SIDE=fr is not known; give src or tgt"),
        ({"CONTEXT": 1024}, "a batch of 250 tokens has no sample of 1024"),
    ],
)
def test_what_is_wrong_with_a_language_models_recipe(recipe, toy, variables, message):
    assert message in recipe("beyond/language_model.sh", "toy", fails=True, **{**toy, **LANGUAGE_MODEL, **variables})
