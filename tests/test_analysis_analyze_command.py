"""`fairseq-rela analyze`: its numbers are those of the metrics, its files are complete, and errors are one line."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from analysis_samples import SENTENCES, one_head, write_dump

from fairseq_rela.analysis import tally
from fairseq_rela.analysis.alignment import alignment_error_rate, layer_or_head, word_links
from fairseq_rela.analysis.diversity import TAUS, query_diversity
from fairseq_rela.analysis.links import parsed_links
from fairseq_rela.analysis.words import merged
from fairseq_rela.cli import main
from fairseq_rela.dump.zeros import null_rows, visible_positions
from fairseq_rela.kinds import KINDS
from fairseq_rela.recording.dump import AttentionDump, DumpWriter

GOLD = ["0-0 1p1", "0-0 0-2", "", "0-0 1-1"]


def analyze(out, *words):
    """metrics.json of an analysis without figures."""
    assert main(["analyze", *map(str, words), "--out", str(out), "--no-figures"]) == 0
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))


def fails(out, capsys, *words):
    """The one line that says why an analysis is not done; nothing is left behind."""
    before = sorted(os.listdir(out.parent))
    assert main(["analyze", *map(str, words), "--out", str(out), "--no-figures"]) == 1
    assert sorted(os.listdir(out.parent)) == before
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.fixture
def gold(tmp_path):
    (tmp_path / "gold").write_text("\n".join(GOLD) + "\n")
    return tmp_path / "gold"


@pytest.mark.parametrize("attention", ["rela_g", "softmax", "rela_g_gelu"])
def test_numbers_equal_the_metrics_over_the_corpus(tmp_path, attention):
    dump = write_dump(tmp_path / "dump", attention=attention, seed=1)
    measured = analyze(tmp_path / "out", dump)["models"]["dump"]
    for kind in KINDS:
        zeros = seen = nulls = queries = 0
        differ = dict.fromkeys(TAUS, 0)
        for record in AttentionDump(dump):
            weights = record.weights(kind)
            visible = visible_positions(kind, *weights.shape[2:])
            mask = np.ones(weights.shape[2:], dtype=bool) if visible is None else visible
            zeros = zeros + ((weights == 0) & mask).sum(axis=(2, 3))
            seen += mask.sum()
            nulls = nulls + null_rows(weights, visible).sum(axis=2)
            queries += weights.shape[2]
            for tau, value in query_diversity(weights, visible, attention == "softmax", TAUS).items():
                differ[tau] = differ[tau] + value.sum(axis=1)
        assert np.array(measured["sparsity_heads"][kind]) == pytest.approx(zeros / seen)
        assert np.array(measured["sparsity"][kind]) == pytest.approx((zeros / seen).mean(axis=1))
        assert np.array(measured["null_rate_heads"][kind]) == pytest.approx(nulls / queries)
        assert np.array(measured["null_rate"][kind]) == pytest.approx((nulls / queries).mean(axis=1))
        assert np.array(measured["null_rate_variance"][kind]) == pytest.approx((nulls / queries).var(axis=1))
        assert np.array(measured["diversity"][kind]) == pytest.approx(differ[1.0] / queries)
        for tau in TAUS:
            assert np.array(measured["diversity_tau"][kind][f"{tau:g}"]) == pytest.approx(differ[tau] / queries)
    assert np.isfinite([value for kind in KINDS for value in measured["diversity"][kind]]).all()


def test_alignment_equals_links_one_at_a_time(tmp_path, gold):
    dump = write_dump(tmp_path / "dump", seed=2)
    metrics = analyze(tmp_path / "out", dump, "--gold", gold)
    golds = [parsed_links(line) for line in GOLD]
    records = list(AttentionDump(dump))
    for eos in ("drop", "null"):
        for rows in ("normal", "shifted"):
            measured = metrics["models"]["dump"]["alignment_eos"][eos][rows]
            for layer in range(2):
                rates = []
                for head in (0, 1, 2, None):
                    links = [
                        word_links(layer_or_head(r.cross, layer, head), merged(r.source), merged(r.target), rows, eos)
                        for r in records
                    ]
                    rates.append(alignment_error_rate(links, golds))
                assert measured["heads"][layer] == pytest.approx(rates[:3])
                assert measured["best_head"][layer] == pytest.approx(min(rates[:3]))
                assert measured["layer"][layer] == pytest.approx(rates[3])
                chosen = measured["held_out"]["best_head_index"][layer]
                links = [
                    word_links(r.cross[layer, chosen], merged(r.source), merged(r.target), rows, eos) for r in records
                ]
                held_out = alignment_error_rate(links[1::2], golds[1::2])
                assert measured["held_out"]["best_head"][layer] == pytest.approx(held_out)
            assert measured["AoL"] == pytest.approx(np.mean(measured["layer"]))
            assert measured["AoH"] == pytest.approx(np.mean(measured["best_head"]))
    assert metrics["models"]["dump"]["alignment"] == metrics["models"]["dump"]["alignment_eos"]["drop"]
    assert "eos:drop" in metrics["signature"] and "merge:bpe-bpe" in metrics["signature"]
    null = analyze(tmp_path / "null", dump, "--gold", gold, "--eos", "null")
    assert null["models"]["dump"]["alignment"] == metrics["models"]["dump"]["alignment_eos"]["null"]


def test_gold_counted_from_1_and_reversed_is_the_same_gold(tmp_path, gold):
    dump = write_dump(tmp_path / "dump", seed=2)
    turned = [" ".join(f"{int(w[2]) + 1}{w[1]}{int(w[0]) + 1}" for w in line.split()) for line in GOLD]
    (tmp_path / "turned").write_text("\n".join(turned) + "\n")
    plain = analyze(tmp_path / "a", dump, "--gold", gold)["models"]
    options = ["--gold-base", "1", "--gold-reverse"]
    assert analyze(tmp_path / "b", dump, "--gold", tmp_path / "turned", *options)["models"] == plain


def test_uniform_identity_and_null_attention(tmp_path, gold):
    uniform = one_head([np.full((len(t), len(s)), 1 / len(s)) for s, t in SENTENCES])
    uniform = [np.repeat(np.repeat(weights, 2, axis=0), 3, axis=1) for weights in uniform]
    for attention in ("softmax", "rela_g"):
        dump = write_dump(tmp_path / attention, attention=attention, kinds=["cross"], cross=uniform)
        measured = analyze(tmp_path / "out", dump)["models"][attention]
        assert measured["sparsity"]["cross"] == measured["null_rate"]["cross"] == [0, 0]
        assert measured["diversity"]["cross"] == pytest.approx([0, 0], abs=1e-12)
    nothing = [np.zeros_like(weights) for weights in uniform]
    dump = write_dump(tmp_path / "nothing", kinds=["cross"], cross=nothing)
    measured = analyze(tmp_path / "out", dump, "--gold", gold)["models"]["nothing"]
    assert measured["sparsity"]["cross"] == measured["null_rate"]["cross"] == [1, 1]
    assert measured["diversity"]["cross"] == [0, 0]
    assert measured["alignment"]["normal"]["layer"] == [1, 1]
    assert measured["null_after_words"] == []  # always null: no word tells anything


def test_head_that_fires_after_a_comma(tmp_path):
    sentences = [(["a", "</s>"], [*"xy", ",", *"xy", "</s>"])] * 5
    cross = []
    for _ in sentences:
        weights = np.ones((1, 2, 6, 2))
        weights[0, 1] = 0
        weights[0, 1, 3] = 1  # the row whose input is the comma
        cross.append(weights)
    dump = write_dump(tmp_path / "dump", sentences, layers=1, heads=2, kinds=["cross"], cross=cross)
    (tmp_path / "tags").write_text("N V , N V\n" * 5)
    measured = analyze(tmp_path / "out", dump, "--target-tags", tmp_path / "tags")["models"]["dump"]
    first = measured["null_after_words"][0]
    assert (first["layer"], first["head"], first["after"], first["count"], first["null_rate"]) == (0, 1, ",", 5, 0)
    assert first["head_null_rate"] == pytest.approx(5 / 6)
    assert measured["null_after_tags"][","] == {"count": 5, "null_rate_heads": [[0, 0]]}
    assert measured["null_after_tags"]["N"] == {"count": 10, "null_rate_heads": [[0, 1]]}
    assert measured["null_after_tags"]["</s>"]["count"] == 5  # the start of the sentence


def test_seeds_are_averaged_with_their_spread(tmp_path, gold):
    dumps = [write_dump(tmp_path / f"seed{seed}", seed=seed) for seed in range(3)]
    metrics = analyze(tmp_path / "out", *(f"m={dump}" for dump in dumps), "--gold", gold)["models"]
    single = [analyze(tmp_path / f"out{i}", dump, "--gold", gold)["models"][f"seed{i}"] for i, dump in enumerate(dumps)]
    assert list(metrics) == ["m"]
    values = np.array([one["sparsity"]["cross"] for one in single])
    assert metrics["m"]["sparsity"]["cross"] == pytest.approx(values.mean(axis=0))
    assert metrics["m"]["spread"]["sparsity"]["cross"] == pytest.approx(values.std(axis=0, ddof=1))
    rates = [one["alignment"]["shifted"]["AoH"] for one in single]
    assert metrics["m"]["alignment"]["shifted"]["AoH"] == pytest.approx(np.mean(rates))
    assert metrics["m"]["seeds"] == 3
    assert [run["sparsity"] for run in metrics["m"]["runs"]] == [one["sparsity"] for one in single]


def test_names_and_shuffled_targets(tmp_path, capsys):
    paths = [write_dump(tmp_path / name / "dump", seed=i) for i, name in enumerate("ab")]
    shuffled = write_dump(tmp_path / "wrong", seed=7)
    measured = analyze(tmp_path / "out", *paths, "--shuffled", f"b/dump={shuffled}")["models"]
    assert list(measured) == ["a/dump", "b/dump"]
    assert "null_rate_shuffled" not in measured["a/dump"]
    alone = analyze(tmp_path / "alone", shuffled)["models"]["wrong"]
    assert measured["b/dump"]["null_rate_shuffled"] == alone["null_rate"]
    assert measured["b/dump"]["null_rate_heads_shuffled"] == alone["null_rate_heads"]
    assert "given twice" in fails(tmp_path / "no", capsys, paths[0], paths[0])
    assert "does not belong to a model; the models are dump" in fails(
        tmp_path / "no", capsys, paths[0], "--shuffled", f"c={shuffled}"
    )
    other = write_dump(tmp_path / "other", heads=2)
    assert "of another model" in fails(tmp_path / "no", capsys, paths[0], "--shuffled", other)
    assert "are of different models" in fails(
        tmp_path / "no", capsys, f"m={paths[0]}", f"m={write_dump(tmp_path / 'l', layers=1)}"
    )


def test_kinds_that_were_not_recorded_are_left_out(tmp_path, gold, capsys):
    dump = write_dump(tmp_path / "dump", kinds=["encoder"])
    measured = analyze(tmp_path / "out", dump)["models"]["dump"]
    assert list(measured["sparsity"]) == ["encoder"] and "null_after_words" not in measured
    assert "has no cross attention, only encoder" in fails(tmp_path / "no", capsys, dump, "--gold", gold)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("gold", "0-0\n", "gold: has 1 lines, but {dump} has 4 sentences"),
        ("gold", "0-0\n\n9-0\n\n", "gold, line 3: source word 9 is linked to target word 0"),
        ("gold", "\n\n\n0-5\n", "gold, line 4: source word 0 is linked to target word 5"),
        ("gold", "\n\nx\n\n", "gold, line 3: 'x' is not a link"),
        ("gold", "\ufeff0-0\n\n\n\n", "gold, line 1: begins with a byte-order mark"),
        ("target-tags", "A B\nA B C\nA\nA B\n", "target-tags, line 3: 1 tags for the 2 target words"),
        ("target-tags", "A\n", "target-tags: has 1 lines"),
    ],
)
def test_files_that_do_not_fit(tmp_path, capsys, name, content, said):
    dump = write_dump(tmp_path / "dump")
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert said.format(dump=dump) in fails(tmp_path / "out", capsys, dump, f"--{name}", tmp_path / name)


def test_failing_leaves_earlier_output_as_it_was(tmp_path, capsys):
    dump = write_dump(tmp_path / "dump")
    out = tmp_path / "out"
    analyze(out, dump)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "gold").write_text("0-0\n")
    fails(out, capsys, dump, "--gold", tmp_path / "gold")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_long_sentences_are_measured_in_parts(tmp_path, monkeypatch):
    dump = write_dump(tmp_path / "dump", layers=5)
    whole = analyze(tmp_path / "whole", dump)["models"]["dump"]["diversity_tau"]
    monkeypatch.setattr(tally, "_WEIGHTS_AT_ONCE", 60)
    parts = analyze(tmp_path / "parts", dump)["models"]["dump"]["diversity_tau"]
    assert all(parts[kind][tau] == pytest.approx(whole[kind][tau], abs=1e-14) for kind in KINDS for tau in whole[kind])


def test_several_processes_count_the_same(tmp_path, gold, monkeypatch, capsys):
    dump = write_dump(tmp_path / "dump")
    (tmp_path / "tags").write_text("A B\nA , A\nA ,\nA B\n")
    options = ["--gold", gold, "--target-tags", tmp_path / "tags", "--shuffled", dump, "--min-count", "1"]
    whole = analyze(tmp_path / "whole", dump, *options)
    monkeypatch.setattr(tally, "_SENTENCES_PER_PART", 1)
    monkeypatch.setattr(tally, "_processors", lambda: 1)
    one = analyze(tmp_path / "one", dump, *options)
    monkeypatch.setattr(tally, "_processors", lambda: 2)
    two = analyze(tmp_path / "two", dump, *options)
    assert one == two  # to the last bit
    for key in ("sparsity_heads", "null_rate_heads", "null_after_words", "null_after_tags", "alignment"):
        assert whole["models"]["dump"][key] == one["models"]["dump"][key]
    # what goes wrong in another process is told as if it had been here
    cross = [np.full((2, 3, len(target), len(source)), np.inf) for source, target in SENTENCES]
    broken = write_dump(tmp_path / "broken", cross=cross)
    assert "sentence 0 has cross weights that are infinite" in fails(tmp_path / "no", capsys, broken)


def test_other_mistakes(tmp_path, capsys):
    dump = write_dump(tmp_path / "dump")
    out = tmp_path / "out"
    assert "there is no such directory" in fails(out, capsys, tmp_path / "none")
    assert "no cross layer 5" in fails(out, capsys, dump, "--heatmap", "0:cross:5:0")
    assert "no cross head 7" in fails(out, capsys, dump, "--heatmap", "0:cross:1:7")
    assert "sentence 99" in fails(out, capsys, dump, "--heatmap", "99:cross:1:0")
    assert "--tau is 0" in fails(out, capsys, dump, "--tau", "0")
    (tmp_path / "file").write_text("")
    assert "is a file" in fails(tmp_path / "file", capsys, dump)
    with pytest.raises(SystemExit):
        main(["analyze", dump, "--out", str(out), "--heatmap", "0:crosswise:1:0"])


def test_without_matplotlib_one_line_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it now fails
    dump = write_dump(tmp_path / "dump")
    assert main(["analyze", dump, "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert 'pip install ".[figures]"' in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert (analyze(tmp_path / "out", dump), (tmp_path / "out" / "report.html").exists())[1]


def test_nothing_heavy_is_imported(tmp_path):
    dump = write_dump(tmp_path / "dump")
    program = (
        "import sys; from fairseq_rela.cli import main\n"
        f"main(['analyze', {dump!r}, '--out', {str(tmp_path / 'out')!r}, '--no-figures'])\n"
        f"main(['align', {dump!r}])\n"
        "assert not {'torch', 'fairseq', 'matplotlib', 'scipy'} & set(sys.modules)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, capture_output=True)


def test_figures(tmp_path, gold):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no figures")
    sentences = [
        (["$x$", "a^_{", "<b>&", "\x07", "שלום", "w" * 300, "</s>"], ["漢", "😀", "$", "\\", "</s>"]),
        *SENTENCES[1:],
    ]
    dump = write_dump(tmp_path / "dump", sentences, attention="rela_g_gelu")
    (tmp_path / "tags").write_text("A B C D\nA , A\nA ,\nA B\n")
    (tmp_path / "gold").write_text("0-0\n\n\n\n")
    options = ["--gold", str(gold), "--target-tags", str(tmp_path / "tags"), "--shuffled", dump]
    options += ["--heatmap", "0:cross:1:2", "--heatmap", "0:decoder:0:mean"]
    assert main(["analyze", "$m/1=" + dump, "--out", str(tmp_path / "out"), *options]) == 0
    names = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert {"sparsity", "null_rate", "null_rate_variance", "diversity", "diversity_tau", "alignment"} < names
    assert sum(name.startswith("heatmap") for name in names) == 2
    assert names == {path.stem for path in (tmp_path / "out").glob("*.svg")}
    for path in (tmp_path / "out").glob("*.svg"):
        ElementTree.parse(path)  # well-formed, whatever the words
    for path in (tmp_path / "out").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 3000


def test_only_the_best_hypothesis_is_read(tmp_path):
    dump = write_dump(tmp_path / "dump")
    more = write_dump(tmp_path / "more")
    with DumpWriter(more, AttentionDump(more).info, resume=True) as writer:
        writer.add(0, ["a"], ["b"], *(np.ones((2, 3, 1, 1), dtype=np.float32) for _ in KINDS), rank=1)
    assert len(AttentionDump(more)) == 5
    found = analyze(tmp_path / "out", dump, more)["models"]
    assert found["more"]["sentences"] == 4
    assert found["more"]["null_rate_heads"] == found["dump"]["null_rate_heads"]


def test_alignment_by_norms_stands_beside_that_by_weights(tmp_path, gold):
    """Norms that are the weights of another dump have the errors of that dump."""
    one, other = write_dump(tmp_path / "one", seed=1), write_dump(tmp_path / "other", seed=2)
    full = [np.ones((2, 3, len(record.target), len(record.source))) for record in AttentionDump(one)]
    both = write_dump(tmp_path / "both", cross=full, norms=[record.cross for record in AttentionDump(other)])
    expected = analyze(tmp_path / "expected", f"m={other}", "--gold", gold)["models"]["m"]
    found = analyze(tmp_path / "found", f"m={both}", "--gold", gold)["models"]["m"]
    assert "alignment_norms" not in expected and found["alignment"] != expected["alignment"]
    assert found["alignment_norms"] == expected["alignment"]
    assert found["alignment_norms_eos"] == expected["alignment_eos"]
    # a dump of the sentences with gold links may have norms where the other dump has none
    aligned = analyze(tmp_path / "aligned", f"m={one}", "--gold", gold, "--aligned", both)["models"]["m"]
    assert aligned["alignment_norms"] == expected["alignment"]
    page = (tmp_path / "found" / "report.html").read_text()
    assert "By the norms of what source words contribute" in page
    assert "By the norms" not in (tmp_path / "expected" / "report.html").read_text()
