"""The confidence measures of Rikters and Fishel (2017), against a slow reference, and as baselines of the filter."""

import json
import math

import numpy as np
import pytest
from analysis_samples import SENTENCES, write_dump

from fairseq_rela.analysis.confidence import pair_penalties, penalties
from fairseq_rela.cli import main


def slow_penalties(weights):
    """(T, S) lists, one number at a time."""
    rows = []
    for row in weights:
        total = sum(max(w, 0) for w in row)
        rows.append([max(w, 0) / total if total else 0 for w in row])
    target, source = len(rows), len(rows[0])
    coverage = [sum(rows[t][s] for t in range(target)) for s in range(source)]
    deviation = sum(math.log(1 + (1 - c) ** 2) for c in coverage) / source
    out = sum(-w * math.log(w) for row in rows for w in row if w) / target
    columns = [[rows[t][s] / coverage[s] for t in range(target)] for s in range(source) if coverage[s]]
    into = sum(-w * math.log(w) for column in columns for w in column if w) / source
    return deviation, out, into


def test_one_to_one_is_certain():
    assert penalties(np.eye(3)) == (0, 0, 0)
    assert penalties(5 * np.eye(3)[[2, 0, 1]]) == (0, 0, 0)  # whatever the scale and the order


def test_by_hand():
    """Both target tokens attend to the first of two source tokens: coverage 2 and 0."""
    actual = penalties(np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert actual == pytest.approx((math.log(2), 0.0, math.log(2) / 2))
    assert actual.total == pytest.approx(1.5 * math.log(2))
    spread = penalties(np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert spread == pytest.approx((0.0, math.log(2), math.log(2)))


def test_null_rows_leave_the_source_uncovered():
    assert penalties(np.zeros((2, 3))) == pytest.approx((math.log(2), 0.0, 0.0))


@pytest.mark.parametrize("attention", ["softmax", "rela_g", "rela_g_gelu"])
def test_equals_the_slow_reference(tmp_path, attention):
    from fairseq_rela.dump.reader import AttentionDump

    path = write_dump(tmp_path / "dump", attention=attention)
    actual = pair_penalties(path)
    assert sorted(actual) == [0, 1, 2, 3]
    for record in AttentionDump(path):
        mean = record.cross.astype(np.float64).mean(axis=(0, 1))
        assert actual[record.id] == pytest.approx(slow_penalties(mean.tolist()), abs=1e-6)


def test_baselines_of_the_filter(tmp_path, capsys):
    """Clean pairs are aligned one to one; the wrong ones attend everywhere."""
    sentences = [(["a", "b", "</s>"], ["x", "y", "</s>"])] * 4
    certain, lost = np.eye(3, dtype=np.float32), np.full((3, 3), 1 / 3, dtype=np.float32)
    rela = [np.array([[m]]) for m in (certain, lost, certain, lost)]
    dump = write_dump(tmp_path / "dump", sentences, layers=1, heads=1, kinds=("cross",), cross=rela)
    softmax = write_dump(
        tmp_path / "softmax", sentences, "softmax", layers=1, heads=1, kinds=("cross",), cross=rela[::-1]
    )
    (tmp_path / "labels").write_text("clean\nshuffled\nclean\nshuffled\n")
    words = [
        "filter",
        dump,
        "--labels",
        tmp_path / "labels",
        "--softmax",
        softmax,
        "--evaluate",
        "--out",
        tmp_path / "o",
    ]
    assert main([str(word) for word in words]) in (None, 0)
    actual = {
        each["score"]: each["auroc"] for each in json.loads((tmp_path / "o/evaluation.json").read_text())["evaluation"]
    }
    assert actual["baseline: absentmindedness out"] == actual["baseline: absentmindedness in"] == 1.0
    assert actual["baseline: absentmindedness out (softmax)"] == 0.0  # its pairs are the other way round
    assert actual["baseline: coverage deviation"] == 0.5  # both cover every source token once
    assert "baseline: coverage deviation" in capsys.readouterr().out


def test_the_names_of_the_scores(tmp_path):
    from fairseq_rela.analysis.evaluation import PairFiles, pair_scores, shuffled_sets

    dumps = [write_dump(tmp_path / name, SENTENCES, seed=seed) for seed, name in enumerate(("true", "wrong"))]
    names = [scores.name for scores in pair_scores(*shuffled_sets(*map(PairFiles, dumps)))]
    assert names[-3:] == [
        f"baseline: {name}" for name in ("coverage deviation", "absentmindedness out", "absentmindedness in")
    ]
