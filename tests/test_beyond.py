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
