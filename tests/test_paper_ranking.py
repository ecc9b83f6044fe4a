"""Ranking a corpus by null rate (Section 5.2, Figure 10), and refusing text that is not that of the pairs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import write_dump

from fairseq_rela.analysis import line_check
from fairseq_rela.analysis.line_check import check_lines
from fairseq_rela.analysis.ranking import ScoreSorter
from fairseq_rela.cli import main
from fairseq_rela.dump.statistics import StatsWriter
from fairseq_rela.errors import InputError

ROOT = Path(__file__).resolve().parent.parent


def ranking(*words, fails=False):
    environment = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PATH": "/usr/bin:/bin", "RECIPE": "ranking.sh"}
    command = [sys.executable, str(ROOT / "examples/paper/ranking.py"), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def write_stats(path, pairs):
    """(source pieces, target pieces, null rate) of every pair; a length has </s> too."""
    with StatsWriter(str(path), {"cross": [0]}) as stats:
        for number, (source, target, rate) in enumerate(pairs):
            stats.add_rates(number, source + 1, target + 1, [rate, 0.5])
    return path


# --- lines and pairs


def corpus(directory, lines):
    for lang in ("src", "tgt"):
        (directory / f"text.{lang}").write_text("".join(" ".join(["w"] * n) + "\n" for n in lines))
    return [str(directory / f"text.{lang}") for lang in ("src", "tgt")]


def test_text_with_a_pair_more_is_refused(tmp_path):
    """The long pair, line 3, was left out before fairseq-preprocess: line 3 is not pair 2."""
    text = corpus(tmp_path, [2, 3, 40, 5, 2])
    stats = write_stats(tmp_path / "stats.tsv", [(n, n, 0.5) for n in (2, 3, 5, 2)])
    said = (
        "line 3: has more words than pair 2 of .* and so have 2 of 4 lines: the text .5 lines. is not that of the pairs"
    )
    with pytest.raises(InputError, match=said):
        check_lines(str(stats), *text)
    words = [
        "filter",
        str(stats),
        "--source",
        text[0],
        "--target",
        text[1],
        "--keep",
        "0.5",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(words) == 1 and not (tmp_path / "o").exists()


def test_text_of_the_pairs_is_accepted(tmp_path):
    text = corpus(tmp_path, [2, 3, 5, 2, 9])
    check_lines(str(write_stats(tmp_path / "some.tsv", [(3, 4, 0.5), (3, 3, 0.5)])), *text)  # the rest has no score
    dump = write_dump(tmp_path / "dump", [(["a@@", "b", "</s>"], ["x", "</s>"])] * 2)
    check_lines(dump, *corpus(tmp_path, [1, 1]))
    with pytest.raises(InputError, match="line 1: has more words than pair 0"):
        check_lines(dump, *corpus(tmp_path, [2, 2]))


def test_a_rare_invisible_word_is_no_reason_to_refuse(tmp_path):
    """sentencepiece removes characters that Python counts as a word."""
    text = corpus(tmp_path, [4, *[3] * 199])
    check_lines(str(write_stats(tmp_path / "stats.tsv", [(3, 3, 0.5)] * 200)), *text)


# --- both ends


def test_ends_are_one_percent_or_ten_thousand():
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "examples/paper")]
    import ranking as module

    assert [module.end_size(n, 10_000) for n in (50, 300, 4_500_000)] == [1, 3, 10_000]
    ends = module.both_ends(np.array([0.5, np.nan, 0.1, 0.9, 0.2]), 10_000)
    assert ends["best"].tolist() == [2] and ends["worst"].tolist() == [3]


def test_share_of_wrong_pairs_at_each_end(tmp_path):
    stats = write_stats(tmp_path / "stats.tsv", [(3, 3, n / 100) for n in range(100)])
    labels = ["clean"] * 95 + ["shuffled"] * 5
    labels[0] = "truncated"
    (tmp_path / "labels").write_text("\n".join(labels) + "\n")
    lines = ranking("ends", stats, tmp_path / "labels").splitlines()
    assert lines[0] == "100 labelled pairs, 6.0% of them wrong, ranked by null rate"
    assert lines[2:5] == ["1\t100.0%\t100.0%", "5\t20.0%\t100.0%", "10\t10.0%\t50.0%"]
    (tmp_path / "labels").write_text("clean\n")
    assert "has 1 lines, but" in ranking("ends", stats, tmp_path / "labels", fails=True)


def test_a_page_to_judge(tmp_path):
    """200 pairs of which the last two are worst. Text of a corpus may hold anything."""
    pairs = [(3, 3, 0.2)] * 198 + [(3, 3, 0.8), (3, 3, 0.9)]
    stats = write_stats(tmp_path / "stats.tsv", pairs)
    source = ["▁<b> ▁fine &amp;"] * 198 + ["▁<script> alert(1) ▁bad"] * 2
    for lang in ("src", "tgt"):
        (tmp_path / f"train.{lang}").write_text("\n".join(source) + "\n", encoding="utf-8")
    ranking("select", stats, tmp_path / "train", "src", "tgt", tmp_path / "selected", "--sample", "5")
    selected = json.loads((tmp_path / "selected.json").read_text())
    assert selected["ranked"] == 200 and selected["end_size"] == 2
    assert sorted(row["id"] for row in selected["pairs"] if row["end"] == "worst") == [198, 199]
    lines = (tmp_path / "selected.src").read_text(encoding="utf-8").splitlines()
    assert lines == [source[row["id"]] for row in selected["pairs"]]
    dump = write_dump(tmp_path / "dump", [([*line.split(), "</s>"], [*line.split(), "</s>"]) for line in lines])
    printed = ranking("page", tmp_path / "selected.json", dump, tmp_path / "page.html", "--maps", "1")
    assert printed.endswith("2 and 2 pairs to judge\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1) bad" in page and "<b>" not in page.replace("<bdi>", "")
    assert page.count("<input type=checkbox>") == 4 and page.count("data:image/png;base64,") == 2
    assert "layer 1, head 2" in page  # of two layers and three heads, the last


def test_pieces_of_another_corpus_are_one_line(tmp_path):
    stats = write_stats(tmp_path / "stats.tsv", [(2, 2, 0.1)] * 3)
    for lang in ("src", "tgt"):
        (tmp_path / f"train.{lang}").write_text("a b c d\n" * 3)
    said = ranking("select", stats, tmp_path / "train", "src", "tgt", tmp_path / "selected", fails=True)
    assert said.startswith("ranking.sh: ") and said.count("\n") == 1 and "were pairs left out" in said


@pytest.mark.parametrize("run_pairs", [1, 3, 1000])
def test_pairs_in_any_order_are_compared_with_their_own_lines(tmp_path, monkeypatch, run_pairs):
    """The lengths are sorted on the disk. Pairs may be missing; one line is longer than its pair."""
    monkeypatch.setattr(line_check, "ScoreSorter", lambda directory: ScoreSorter(directory, run_pairs))
    words = np.random.RandomState(1).randint(1, 9, size=40)
    ids = [int(id) for id in np.random.RandomState(2).permutation(39) if id % 3]
    text = corpus(tmp_path, words)
    for number, longer in enumerate([None, ids[0], ids[-1]]):
        path = str(tmp_path / f"stats{number}.tsv")
        with StatsWriter(path, {"cross": [0]}) as stats:
            for id in ids:
                stats.add_rates(id, int(words[id]) + 1 - (id == longer), int(words[id]) + 1, [0.5, 0.5])
        if longer is None:
            check_lines(path, *text, str(tmp_path))
        else:
            with pytest.raises(InputError, match=f"line {longer + 1}: has more words than pair {longer} of .* 1 of 26"):
                check_lines(path, *text, str(tmp_path))
