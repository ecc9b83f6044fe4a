"""examples/beyond/both_directions.py: where two directions are read, and the error rates of their links."""

import subprocess
import sys
from pathlib import Path

import pytest
from analysis_samples import LENGTHS, PLAIN, TURNED, with_one_good_head, write_dump

TOOL = Path(__file__).resolve().parent.parent / "examples" / "beyond" / "both_directions.py"


def both_directions(method, *words):
    return subprocess.run([sys.executable, str(TOOL), method, *map(str, words)], capture_output=True, text=True)


@pytest.fixture
def dumps(tmp_path):
    """By weights, layer 1, head 2, normal rows and layer 0, head 1, shifted rows are right; by norms, two others."""
    models = (
        ("forward", PLAIN, with_one_good_head(PLAIN, 1, 2, False, 1), with_one_good_head(PLAIN, 0, 0, False, 3)),
        ("backward", TURNED, with_one_good_head(TURNED, 0, 1, True, 2), with_one_good_head(TURNED, 1, 1, False, 4)),
    )
    return [
        write_dump(tmp_path / name, sentences, layers=2, heads=3, kinds=["cross"], cross=cross, norms=norms)
        for name, sentences, cross, norms in models
    ]


@pytest.fixture
def gold(tmp_path):
    """Word i is linked to word i; in sentence 1, whose target has a word more, source word 2 also to target word 3."""
    lines = [" ".join(f"{i + 1}-{i + 1}" for i in range(min(pair))) for pair in LENGTHS]
    lines[1] += " 3-4"
    path = tmp_path / "gold"
    path.write_text("".join(f"{line}\n" for line in lines))
    return ["--gold", path, "--gold-base", 1]


def test_rows_are_found_by_gold_and_by_agreement_and_odd_sentences_scored(dumps, gold):
    done = both_directions("intersect", *dumps, *gold)
    assert done.returncode == 0, done.stderr
    # 5 links, all of them sure, and 6 sure links in sentences 1 and 3: 1 - (5 + 5) / (5 + 6)
    rates = ["9.1", "9.1", "9.1"]
    by_weights = ["layer 1, head 2, normal rows", "layer 0, head 1, shifted rows"]
    by_norms = ["layer 0, head 0, normal rows", "layer 1, head 1, normal rows"]
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["", "AER source to target", "AER target to source", "AER of both", "source to target", "target to source"],
        ["weights, chosen by gold links", *rates, *by_weights],
        ["weights, chosen by agreement", *rates, *by_weights],
        ["norms, chosen by gold links", *rates, *by_norms],
        ["norms, chosen by agreement", *rates, *by_norms],
    ]


def test_the_half_that_is_scored_does_not_choose(tmp_path):
    """Head 0 is right in the even sentences, head 1 in the odd ones: head 0 is read."""
    weights = [with_one_good_head([pair], 0, number % 2, False, 7)[0][:1, :2] for number, pair in enumerate(PLAIN)]
    forward = write_dump(tmp_path / "f", PLAIN, layers=1, heads=2, kinds=["cross"], cross=weights, norms=weights)
    turned = [matrix.transpose(0, 1, 3, 2) for matrix in weights]
    backward = write_dump(tmp_path / "b", TURNED, layers=1, heads=2, kinds=["cross"], cross=turned, norms=turned)
    gold = tmp_path / "gold"
    gold.write_text("".join(" ".join(f"{i}-{i}" for i in range(min(pair))) + "\n" for pair in LENGTHS))
    done = both_directions("union", forward, backward, "--gold", gold)
    row = done.stdout.splitlines()[1].split("\t")
    assert row[4] == "layer 0, head 0, normal rows" and float(row[1]) > 0


def test_what_is_wrong_is_one_line(dumps, gold, tmp_path):
    other = write_dump(tmp_path / "other", TURNED[:2], layers=2, heads=3, kinds=["cross"])
    for words, said in (
        (
            ["both", *dumps, *gold],
            "SYMMETRIZE=both is not known; give intersect, union, grow-diag, grow-diag-final-and",
        ),
        (["union", dumps[0], other, *gold], "have different sentences: only one has sentence 2"),
        (["union", dumps[0], tmp_path / "none", *gold], "none"),
        (["union", *dumps, "--gold", tmp_path / "missing"], "missing"),
    ):
        done = both_directions(*words)
        assert done.returncode == 1 and done.stdout == ""
        assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
