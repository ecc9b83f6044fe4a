"""`fairseq-rela filter`, from files to files."""

import gzip
import json
import math
import re

import numpy as np
import pytest
from analysis_samples import SENTENCES, one_head, write_dump

from fairseq_rela.analysis.filtering import pair_score
from fairseq_rela.analysis.nulls import null_rate
from fairseq_rela.analysis.pair_features import attention_entropy, model_scores, pair_blocks, pairs_of
from fairseq_rela.cli import main
from fairseq_rela.dump.statistics import StatsWriter
from fairseq_rela.errors import InputError
from fairseq_rela.recording.dump import AttentionDump

HEAD = "id\trank\tsource_length\ttarget_length\tcross.0.null\tcross.0.sparsity\tcross.1.null\tcross.1.sparsity\n"


@pytest.fixture
def corpus(tmp_path):
    """Four pairs; by the statistics pair 2 is the best, then 0, 3, 1."""
    (tmp_path / "text.de").write_bytes(b"eins\nzwei\xff\ndr\xe2\x80\xa8ei\nvier\n")  # not UTF-8, and U+2028: passed on
    (tmp_path / "text.en").write_bytes(b"one\ntwo\nthree\nfour\n")
    lines = [
        "1\t0\t3\t4\t0.5\t0\t1\t0",
        "0\t0\t3\t4\t0.5\t0\t0\t0",
        "3\t0\t2\t4\t0.5\t0\t0.5\t0",
        "2\t0\t2\t2\t0\t0\t0\t0",
    ]
    (tmp_path / "stats.tsv").write_text(HEAD + "\n".join(lines) + "\n")
    return tmp_path


def split(corpus, *options, stats="stats.tsv"):
    text = ["--source", str(corpus / "text.de"), "--target", str(corpus / "text.en")]
    return main(["filter", str(corpus / stats), *text, "--out", str(corpus / "out"), *options])


def test_best_half_is_kept_in_order(corpus, capsys):
    assert split(corpus, "--keep", "0.5") == 0
    written = {path.name: path.read_bytes() for path in (corpus / "out").iterdir()}
    assert written == {
        "kept.de": b"eins\ndr\xe2\x80\xa8ei\n",
        "kept.en": b"one\nthree\n",
        "dropped.de": b"zwei\xff\nvier\n",
        "dropped.en": b"two\nfour\n",
        "ranking.tsv": b"id\tscore\n2\t0\n0\t0.25\n3\t0.5\n1\t0.75\n",
    }
    assert "kept 2 of 4 pairs" in capsys.readouterr().out


def test_threshold_gzip_and_pairs_without_a_score(corpus, capsys):
    (corpus / "text.de.gz").write_bytes(gzip.compress((corpus / "text.de").read_bytes() + b"extra\n"))
    (corpus / "text.en.gz").write_bytes(gzip.compress((corpus / "text.en").read_bytes() + b"more\n"))
    text = ["--source", str(corpus / "text.de.gz"), "--target", str(corpus / "text.en.gz")]
    out = corpus / "out"
    assert main(["filter", str(corpus / "stats.tsv"), *text, "--out", str(out), "--max-score", "0.5"]) == 0
    assert (out / "kept.en").read_text() == "one\nthree\nfour\n"
    assert (out / "dropped.en").read_text() == "two\nmore\n"
    assert "1 pairs have no score" in capsys.readouterr().err


def scores_by_id(path):
    scores = {id: score for b in pair_blocks(path) for id, score in zip(b.ids.tolist(), pair_score(b.null).tolist())}
    return [scores[id] for id in range(len(scores))]


def test_dump_and_its_statistics_give_the_same_scores(tmp_path):
    dump = write_dump(tmp_path / "dump", seed=3, ids=[2, 0, 3, 1])
    with StatsWriter(str(tmp_path / "stats.tsv"), {"cross": [0, 1], "encoder": [0, 1]}) as stats:
        for r in AttentionDump(dump):
            stats.add(r.id, r.source_length, r.target_length, encoder=r.encoder, cross=r.cross)
    by_hand = [null_rate(record.cross).mean() for record in AttentionDump(dump)]
    assert scores_by_id(dump) == pytest.approx(by_hand, abs=1e-6)
    assert scores_by_id(str(tmp_path / "stats.tsv")) == pytest.approx(by_hand, abs=1e-6)
    pairs, listed = pairs_of(dump), pairs_of(str(tmp_path / "stats.tsv"))
    assert pairs.null.mean(axis=2) == pytest.approx(listed.null[:, :, 0], abs=1e-6)
    assert pairs.mass == pytest.approx(
        np.stack([r.cross.sum(axis=(2, 3)) / len(r.target) for r in AttentionDump(dump)])
    )
    assert pairs.length_ratio.tolist() == listed.length_ratio.tolist()
    assert pairs.length_ratio[0] == pytest.approx(abs(math.log(2 / 4)))


@pytest.mark.parametrize(
    "row, said",
    [
        ("0\t0\t1\t1\t0.5\t0\tx\t0", "line 3: 'x' is not a number"),
        ("0\t0\t1\t1\t0.5\tnan\t0\t0", "line 3: 'nan' is not a number"),
        ("0\t0\t1\t1\t0.5\t0\t0.5.5\t0", "line 3: could not convert string to float"),
        ("0\t0\t1\t1\t0.5\t0\t0", "line 3: truncated or changed: 7 fields, not 8"),
        ("0\t0\t1\t1\t0.5\t0\t1.5\t0", "line 3: cross.1.null is 1.5; a null rate is between 0 and 1"),
        ("3\t0\t1\t1\t0.5\t0\t0\t0", "line 3: pair 3 occurs twice"),
        ("1.5\t0\t1\t1\t0.5\t0\t0\t0", "line 3: id cannot be 1.5"),
        ("-1\t0\t1\t1\t0.5\t0\t0\t0", "line 3: id cannot be -1"),
        ("0\t0\t1\t1\t\t0\t0\t0", "line 3: could not convert"),
        ("999999999\t0\t1\t1\t0.5\t0\t0\t0", "has pair 999999999, but"),
    ],
)
def test_bad_statistics_are_named_and_nothing_is_written(corpus, capsys, row, said):
    (corpus / "stats.tsv").write_text(HEAD + "3\t0\t1\t1\t0.5\t0\t0\t0\n" + row + "\n")
    assert split(corpus, "--keep", "0.5") == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err and "stats.tsv" in err
    assert sorted(path.name for path in corpus.iterdir()) == ["stats.tsv", "text.de", "text.en"]


@pytest.mark.parametrize(
    "content, said",
    [
        (b"\xef\xbb\xbf" + HEAD.encode(), "line 1: begins with a byte-order mark"),
        (b"nonsense\n", "line 1: not statistics of attention"),
        (b"", "line 1: not statistics"),
        (HEAD.encode(), "has no pair"),
        (HEAD.replace("cross", "decoder").encode() + b"0\t0\t1\t1\t0\t0\t0\t0\n", "no null rates of cross attention"),
    ],
)
def test_files_that_are_no_statistics(corpus, capsys, content, said):
    (corpus / "stats.tsv").write_bytes(content)
    assert split(corpus, "--keep", "0.5") == 1
    assert said in capsys.readouterr().err
    assert not (corpus / "out").exists()


@pytest.mark.parametrize(
    "options, said",
    [
        ([], "give one of --keep SHARE and --max-score X"),
        (["--keep", "0.5", "--max-score", "1"], "give one of"),
        (["--keep", "50"], "--keep is 50; a share is between 0 and 1"),
        (["--evaluate"], "--shuffled is needed"),
        (["--keep", "0.5", "--labels", "text.labels"], "--labels is for --evaluate and --select"),
    ],
)
def test_options_that_do_not_go_together(corpus, capsys, options, said):
    assert split(corpus, *options) == 1
    assert said in capsys.readouterr().err


def test_texts_of_different_lengths(corpus, capsys):
    (corpus / "text.en").write_text("one\ntwo\n")
    assert split(corpus, "--keep", "0.5") == 1
    assert "text.en: ends before line 3" in capsys.readouterr().err
    assert sorted(path.name for path in corpus.iterdir()) == ["stats.tsv", "text.de", "text.en"]


def test_partial_statistics_leave_out_a_line_cut_short(corpus):
    text = (corpus / "stats.tsv").read_text()
    (corpus / "stats.tsv.partial").write_text(text + "7\t0\t1")
    assert scores_by_id(str(corpus / "stats.tsv.partial")) == [0.25, 0.75, 0, 0.5]


# Evaluation

TRUE = [np.ones((len(target), len(source))) for source, target in SENTENCES]


@pytest.fixture
def dumps(tmp_path):
    """True pairs attend everywhere; of shuffled ones the second half of the queries are null."""
    wrong = [matrix.copy() for matrix in TRUE]
    for matrix in wrong:
        matrix[len(matrix) // 2 :] = 0
    one = {"layers": 1, "heads": 1, "kinds": ["cross"]}
    true = write_dump(tmp_path / "true", cross=one_head(TRUE), **one)
    shuffled = write_dump(tmp_path / "shuffled", cross=one_head(wrong), **one)
    return true, shuffled


def test_evaluation(tmp_path, dumps, capsys):
    (tmp_path / "scores").write_text("S-0\ta\nH-0\t-1\tx\nH-1\t-1\tx\nH-2\t-1\tx\nH-3\t-1\tx\nH-3\t-9\tx\n")
    (tmp_path / "wrong").write_text("-2\n-3\n-1\n-1\n")
    sharp, flat = (
        write_dump(tmp_path / name, attention="softmax", layers=1, heads=1, kinds=["cross"], cross=one_head(matrices))
        for name, matrices in (("sharp", [np.eye(*m.shape) for m in TRUE]), ("flat", [m / m.shape[1] for m in TRUE]))
    )
    options = ["--scores", str(tmp_path / "scores"), "--shuffled-scores", str(tmp_path / "wrong")]
    options += ["--softmax", sharp, "--shuffled-softmax", flat, "--out", str(tmp_path / "out")]
    assert main(["filter", dumps[0], "--shuffled", dumps[1], "--evaluate", *options]) == 0
    printed = capsys.readouterr().out
    assert "4 true and 4 shuffled pairs" in printed
    actual = json.loads((tmp_path / "out" / "evaluation.json").read_text())["evaluation"]
    rates = {row["score"]: row["auroc"] for row in actual}
    rates = {score: rate for score, rate in rates.items() if "coverage" not in score and "absent" not in score}
    assert rates == {
        "null rate of cross attention": 1.0,
        "baseline: length ratio": 0.5,  # the same lengths
        "baseline: model score per token": 0.75,  # two of four lower, two equal: (2 + 2/2) / 4
        "baseline: attention entropy": 1.0,
    }
    assert all(row["low"] <= row["auroc"] <= row["high"] for row in actual)


def test_selection_is_written_and_used(tmp_path, dumps, capsys):
    out = tmp_path / "selected"
    assert main(["filter", dumps[0], "--shuffled", dumps[1], "--select", "--out", str(out)]) == 0
    assert "chosen on even pairs" in capsys.readouterr().out
    chosen = json.loads((out / "selection.json").read_text())
    assert chosen["terms"][0]["measure"] in ("null", "mass")
    assert chosen["steps"][0]["auroc"] == 1.0
    records = list(AttentionDump(dumps[1]))
    (tmp_path / "text.a").write_text("".join(" ".join(r.source[:-1]) + "\n" for r in records))
    (tmp_path / "text.b").write_text("".join(" ".join(r.target[:-1]) + "\n" for r in records))
    split_options = ["--source", str(tmp_path / "text.a"), "--target", str(tmp_path / "text.b"), "--keep", "0.5"]
    selected = ["--selection", str(out / "selection.json"), "--out", str(tmp_path / "out")]
    assert main(["filter", dumps[1], *split_options, *selected]) == 0
    assert (tmp_path / "out" / "kept.a").read_text().count("\n") == 2
    (out / "selection.json").write_text("{}")
    assert main(["filter", dumps[1], *split_options, *selected]) == 1
    assert "not written by filter --select" in capsys.readouterr().err


# One file of mixed pairs, with labels

LABELS = ["clean", "shuffled", "clean", "truncated", "clean", "shuffled", "truncated", "clean"]
# by pair: source length, target length, null rates of the two layers
MIXED = [
    (4, 4, 0, 0),
    (4, 4, 1, 0.5),
    (4, 4, 0.5, 0),
    (8, 2, 0, 0.5),
    (4, 4, 0, 1),
    (4, 8, 1, 1),
    (6, 3, 0, 0),
    (4, 4, 0.5, 0),
]


@pytest.fixture
def mixed(tmp_path):
    """Statistics of labelled pairs, last pair first; a ninth was labelled but not recorded."""
    rows = [f"{i}\t0\t{s}\t{t}\t{first}\t0\t{second}\t0\n" for i, (s, t, first, second) in enumerate(MIXED)]
    (tmp_path / "stats.tsv").write_text(HEAD + "".join(reversed(rows)))
    (tmp_path / "pairs.labels").write_text("\n".join([*LABELS, "foreign"]) + "\n")
    (tmp_path / "scores").write_text("-1\n-3\n-2\n-1\n-1\n-4\n-0.5\n-1\n")
    return tmp_path


def measure(directory, *options, pairs="stats.tsv"):
    labels = str(directory / "pairs.labels")
    return main(["filter", str(directory / pairs), "--labels", labels, "--out", str(directory / "out"), *options])


def rates_by_label(directory):
    """{label: {score: AUROC}} of evaluation.json, and under "" those of all wrong pairs."""
    written = json.loads((directory / "out" / "evaluation.json").read_text())
    actual = {"": written["evaluation"], **written["by_label"]}
    assert all(row["low"] <= row["auroc"] <= row["high"] for rows in actual.values() for row in rows)
    return {label: {row["score"]: row["auroc"] for row in rows} for label, rows in actual.items()}


def test_labelled_pairs_together_and_by_label(mixed, capsys):
    assert measure(mixed, "--evaluate", "--scores", str(mixed / "scores")) == 0
    # null rates: clean 0, 0.25, 0.5, 0.25; shuffled 0.75, 1; truncated 0.25 (above one, level with two), 0 (with one)
    # length ratios: clean 0; shuffled 0 and ln 2; truncated ln 4 and ln 2
    # scores: clean -1, -2, -1, -1; shuffled -3, -4; truncated -1 (level with three of four) and -0.5
    assert rates_by_label(mixed) == {
        "": {
            "null rate of cross attention": (8 + 2.5) / 16,
            "baseline: length ratio": (6 + 8) / 16,
            "baseline: model score per token": (8 + 1.5) / 16,
        },
        "shuffled": {
            "null rate of cross attention": 1.0,
            "baseline: length ratio": 6 / 8,
            "baseline: model score per token": 1.0,
        },
        "truncated": {
            "null rate of cross attention": 2.5 / 8,
            "baseline: length ratio": 1.0,
            "baseline: model score per token": 1.5 / 8,
        },
    }
    written = json.loads((mixed / "out" / "evaluation.json").read_text())
    assert written["labels"] == {"clean": 4, "shuffled": 2, "truncated": 2}
    assert (written["true"], written["wrong"]) == (4, 4)
    printed = capsys.readouterr()
    assert re.sub(r"\[.{5}, .{5}\]", "[....., .....]", printed.out) == (
        "8 pairs: 4 clean, 2 shuffled, 2 truncated; AUROC: 0.5 is chance, 1 separates them all\n"
        "                                 all wrong              shuffled  truncated\n"
        "null rate of cross attention     0.656  [....., .....]     1.000      0.312\n"
        "baseline: length ratio           0.875  [....., .....]     0.750      1.000\n"
        "baseline: model score per token  0.594  [....., .....]     1.000      0.188\n"
    )
    assert printed.err == f"fairseq-rela filter: 1 labelled pairs are not in {mixed / 'stats.tsv'}\n"


def test_selection_by_labels_is_chosen_on_even_pairs_and_measured_on_odd_ones(mixed, capsys):
    assert measure(mixed, "--select") == 0
    # Null rates of even pairs: clean 0, 0.25 and 0.5, wrong 0, so low ones look bad; of odd pairs: clean 0.25, wrong
    # 0.75, 0.25 and 1. No layer separates the even pairs better than their mean.
    written = json.loads((mixed / "out" / "selection.json").read_text())
    assert [(term["layer"], term["head"], term["sign"]) for term in written["terms"]] == [(None, None, -1)]
    rates = [(step["development"], step["auroc"]) for step in written["steps"]]
    assert rates == [pytest.approx((1 / 6, 5 / 6)), pytest.approx((5 / 6, 1 / 6))]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("8 pairs: 4 clean, 2 shuffled, 2 truncated")
    assert printed[1] == "chosen on even pairs, AUROC there; on odd pairs"
    (mixed / "pairs.labels").write_text("clean\nx\nx\nx\nclean\nx\nx\nx\n")
    assert measure(mixed, "--select") == 1
    assert "stats.tsv: has no clean pair with an odd id; --select needs both" in capsys.readouterr().err


def test_the_same_pairs_by_labels_and_by_two_dumps_give_the_same(tmp_path):
    draw = np.random.RandomState(5)
    cross = [np.where(draw.rand(2, 3, len(t), 1) < 0.4, 0, draw.rand(2, 3, len(t), len(s))) for s, t in SENTENCES * 2]
    half = len(SENTENCES)
    true = write_dump(tmp_path / "true", kinds=["cross"], cross=cross[:half])
    shuffled = write_dump(tmp_path / "shuffled", kinds=["cross"], cross=cross[half:])
    write_dump(tmp_path / "both", SENTENCES * 2, kinds=["cross"], cross=cross)
    (tmp_path / "pairs.labels").write_text("clean\n" * half + "shuffled\n" * half)
    for name, scores in (("true-scores", "1\n2\n3\n5\n"), ("wrong-scores", "4\n1\n1\n2\n")):
        (tmp_path / name).write_text(scores)
    (tmp_path / "both-scores").write_text("1\n2\n3\n5\n4\n1\n1\n2\n")
    options = ["--scores", str(tmp_path / "true-scores"), "--shuffled-scores", str(tmp_path / "wrong-scores")]
    options += ["--evaluate", "--select", "--out", str(tmp_path / "two")]
    assert main(["filter", true, "--shuffled", shuffled, *options]) == 0
    assert measure(tmp_path, "--evaluate", "--select", "--scores", str(tmp_path / "both-scores"), pairs="both") == 0
    two, one = (json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("two", "out"))
    assert set(two) == {"true", "shuffled", "evaluation", "selection"}  # as before there were labels
    assert one["evaluation"] == one["by_label"]["shuffled"] == two["evaluation"]
    assert one["selection"] == two["selection"]


@pytest.mark.parametrize(
    "labels, said",
    [
        ("clean\nshuffled\n", "pairs.labels: has 2 lines, but {stats} has pair 7: 8 lines are needed"),
        ("clean\n" * 3 + "shuffled\n" * 4, "pairs.labels: has 7 lines, but {stats} has pair 7: 8 lines"),
        (
            "clean\nshuffled\n \n" + "clean\n" * 5,
            "pairs.labels, line 3: is empty; a label is clean, or a word for what is wrong",
        ),
        ("b\na\n" * 4 + "clean\n", "pairs.labels: no pair of {stats} is clean, but a, b; true pairs have that label"),
        ("clean\n" * 8 + "shuffled\n", "pairs.labels: all 8 pairs of {stats} are clean; wrong pairs, with other"),
    ],
)
def test_labels_that_do_not_fit(mixed, capsys, labels, said):
    (mixed / "pairs.labels").write_text(labels)
    assert measure(mixed, "--evaluate") == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and said.format(stats=mixed / "stats.tsv") in printed.err
    assert printed.out == "" and not (mixed / "out").exists()


@pytest.mark.parametrize("flag", ["--shuffled", "--shuffled-scores", "--shuffled-softmax"])
def test_labels_and_shuffled_pairs_do_not_go_together(mixed, capsys, flag):
    assert measure(mixed, "--evaluate", flag, str(mixed / "stats.tsv")) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"--labels and {flag} do not go together" in err


# Entropy of the dumps' own rows


def softmax_dump(path, flat):
    """Rows of cross attention that are all on one key or, where `flat` says so of a pair, the same on every key."""
    rows = [m / m.shape[1] if even else np.eye(1, m.shape[1]).repeat(len(m), 0) for m, even in zip(TRUE, flat)]
    return write_dump(path, attention="softmax", layers=1, heads=1, kinds=["cross"], cross=one_head(rows))


def entropy_rates(directory, *command):
    assert main(["filter", *command, "--evaluate", "--out", str(directory / "out")]) == 0
    written = json.loads((directory / "out" / "evaluation.json").read_text())["evaluation"]
    return [row["auroc"] for row in written if row["score"] == "baseline: attention entropy"]


def test_entropy_is_of_the_pairs_own_dumps_unless_others_are_given(tmp_path, dumps):
    sharp, flat = softmax_dump(tmp_path / "sharp", [0] * 4), softmax_dump(tmp_path / "flat", [1] * 4)
    half = softmax_dump(tmp_path / "half", [0, 0, 1, 1])
    assert entropy_rates(tmp_path, sharp, "--shuffled", flat) == [1.0]
    assert entropy_rates(tmp_path, flat, "--shuffled", sharp) == [0.0]
    assert entropy_rates(tmp_path, sharp, "--shuffled", half) == [0.75]  # two higher, two equal
    assert entropy_rates(tmp_path, flat, "--shuffled", sharp, "--softmax", sharp, "--shuffled-softmax", half) == [0.75]
    assert entropy_rates(tmp_path, dumps[0], "--shuffled", dumps[1]) == []  # rectified rows are not distributions
    assert entropy_rates(tmp_path, sharp, "--shuffled", dumps[1]) == []


def test_entropy_of_labelled_pairs(tmp_path, dumps, capsys):
    half = softmax_dump(tmp_path / "half", [0, 1, 0, 0])
    (tmp_path / "pairs.labels").write_text("clean\nshuffled\nclean\ntruncated\n")
    for pairs, options in (("half", []), ("true", ["--softmax", half])):
        assert measure(tmp_path, "--evaluate", *options, pairs=pairs) == 0
        rates = rates_by_label(tmp_path)
        assert {label: actual["baseline: attention entropy"] for label, actual in rates.items()} == {
            "": 0.75,
            "shuffled": 1.0,
            "truncated": 0.5,
        }
    assert measure(tmp_path, "--evaluate", pairs="true") == 0
    assert "baseline: attention entropy" not in rates_by_label(tmp_path)[""]


def test_shuffle_writes_the_same_sources_with_other_targets(tmp_path, capsys):
    (tmp_path / "dev.de").write_text("".join(f"s{i}\n" for i in range(9)))
    (tmp_path / "dev.en").write_text("".join(f"t{i}\n" for i in range(9)))
    files = ["--source", str(tmp_path / "dev.de"), "--target", str(tmp_path / "dev.en"), "--out", str(tmp_path / "out")]
    assert main(["filter", "--shuffle", *files]) == 0
    assert (tmp_path / "out" / "shuffled.de").read_text() == (tmp_path / "dev.de").read_text()
    moved = (tmp_path / "out" / "shuffled.en").read_text().split()
    assert sorted(moved) == [f"t{i}" for i in range(9)]
    assert all(word != f"t{i}" for i, word in enumerate(moved))


def test_entropy_hand_computed_and_only_of_distributions(tmp_path, dumps):
    flat = [m / m.shape[1] for m in TRUE]
    dump = write_dump(tmp_path / "s", attention="softmax", layers=1, heads=1, kinds=["cross"], cross=one_head(flat))
    assert attention_entropy(dump) == pytest.approx(
        {number: math.log(len(source)) for number, (source, _) in enumerate(SENTENCES)}, rel=1e-6
    )
    with pytest.raises(InputError, match="rows of rela_g are not distributions"):
        attention_entropy(dumps[0])


def test_scores_that_are_none_are_named(tmp_path):
    for text, said in (
        ("-1\nx\n", "line 2: 'x' is not a score"),
        ("H-0\n", "line 1: 'H-0' is not a score"),
        ("nan\n", "pair 0 is"),
    ):
        (tmp_path / "scores").write_text(text)
        with pytest.raises(InputError, match=said):
            model_scores(str(tmp_path / "scores"))
