"""What goes beyond the paper, as recipes: each from a small corpus to its table."""

import csv

import pytest

CORPUS = "--train 200 --valid 20 --test 20 --noise 40 --max-clauses 1 --lexicon 50"
TINY = "--encoder-layers 1 --decoder-layers 1 --num-workers 0".split()


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return {"CORPUS": CORPUS, "OUT": tmp_path_factory.mktemp("toy"), "PIECES": "150", "BEAM": "1"}


def table(path):
    with open(str(path), encoding="utf-8", newline="") as file:
        return {row[""]: row for row in csv.DictReader(file, delimiter="\t")}


def test_sparsity(recipe, toy):
    variables = {**toy, "SETTINGS": "target:0.9 threshold:1e9", "SPARSITY_WARMUP": "2", "UPDATES": "12"}
    recipe("beyond/sparsity.sh", "toy", *TINY, **variables)
    rows = table(toy["OUT"] / "beyond" / "sparsity.tsv")
    assert list(rows) == ["target:0.9", "threshold:1e9"]
    for kind in ("encoder", "decoder", "cross"):
        driven, nothing = (float(row[f"{kind} sparsity %"]) for row in rows.values())
        assert 70 < driven < 100 and nothing == 100
    assert (toy["OUT"] / "beyond" / "sparsity.png").read_bytes().startswith(b"\x89PNG")
    said = recipe("beyond/sparsity.sh", "toy", fails=True, **{**toy, "SETTINGS": "much"})
    assert said.startswith("sparsity.sh: SETTINGS: 'much' is not known")


def test_warm_start(recipe, toy):
    printed = recipe("beyond/warm_start.sh", "toy", "--num-workers", 0, **toy, WARM_UPDATES="2", UPDATES="4")
    losses = printed[printed.index("\nupdates") + 1 :].splitlines()
    assert [line.split()[0] for line in losses[:5]] == ["updates", "1", "2", "3", "4"]
    (scratch, warm), (_, not_trained) = losses[2].split()[1:], losses[4].split()[1:]
    assert float(scratch) > 0 and float(warm) > 0 and not_trained == "-"
    assert sum("warm start: " in line for line in losses) == 4
    assert losses[-2].split() == ["softmax", "scratch", "warm"] and losses[-1].startswith("tokenised BLEU")


def test_language_model(recipe, toy):
    variables = {**toy, "CONTEXT": "32", "TOKENS_PER_UPDATE": "400", "MAX_TOKENS": "400", "UPDATES": "2"}
    printed = recipe("beyond/language_model.sh", "toy", "--num-workers", 0, **variables)
    header, stock, ours = (line.split("\t") for line in printed.splitlines()[-3:])
    assert header[:3] == ["attention", "parameters", "valid"]
    assert (stock[0], ours[0]) == ("stock", "rela_g")
    assert int(ours[1].replace(",", "")) - int(stock[1].replace(",", "")) == 4 * 2 * 128  # a gate and a gain a layer
    assert all(1 < float(number) < 1e5 for row in (stock, ours) for number in row[2:5])
