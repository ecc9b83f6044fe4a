"""The paper's analyses: the word level, the layer attention's null rate, and gold sentences in the same report."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import SENTENCES, one_head, write_dump

from fairseq_rela.analysis.levels import at_word_level
from fairseq_rela.analysis.words import merged
from fairseq_rela.cli import main
from fairseq_rela.dump.reader import AttentionDump

ROOT = Path(__file__).resolve().parent.parent


def analyzed(out, *arguments):
    assert main(["analyze", *map(str, arguments), "--out", str(out), "--no-figures"]) in (None, 0)
    return json.loads((out / "metrics.json").read_text())


# --- word level


def units(pieces):
    """Lists of positions: one list per word, and one per marker."""
    groups, goes_on = [], False
    for position, piece in enumerate(pieces):
        if goes_on:
            groups[-1].append(position)
        else:
            groups.append([position])
        goes_on = piece.endswith("@@")
    return groups


def slow_word_level(weights, queries, keys, sees):
    """One head, (T, S): the merged weights, and None where no piece sees another."""
    return [
        [
            sum(weights[t][s] for t in query for s in key) / len(query)
            if any(sees(t, s) for t in query for s in key)
            else None
            for key in keys
        ]
        for query in queries
    ]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_word_level_equals_the_slow_reference(tmp_path, kind):
    dump = AttentionDump(write_dump(tmp_path / "dump"))
    for record in dump:
        source, target = merged(record.source, "bpe"), merged(record.target, "bpe")
        weights = record.weights(kind)
        seen = at_word_level(weights, kind, source, target)
        queries = units(record.source if kind == "encoder" else record.target)
        # the decoder's keys are its inputs: </s> and then all tokens but the last
        keys = units(["</s>", *record.target[:-1]] if kind == "decoder" else record.source)
        for layer, head in np.ndindex(*weights.shape[:2]):
            expected = slow_word_level(
                weights[layer, head].tolist(), queries, keys, lambda t, s: kind != "decoder" or s <= t
            )
            for q, row in enumerate(expected):
                for k, value in enumerate(row):
                    if value is None:
                        assert not seen.visible[q, k]
                    else:
                        assert seen.visible is None or seen.visible[q, k]
                        assert seen.weights[layer, head, q, k] == pytest.approx(value)


def test_rates_at_both_levels(tmp_path):
    """Target "x y@@ z": at word level the nulls of y@@ and z are one, and it is not null if one of them is not."""
    cross = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    dump = write_dump(tmp_path / "dump", SENTENCES[:1], layers=1, heads=1, kinds=("cross",), cross=one_head([cross]))
    pieces = analyzed(tmp_path / "pieces", dump)
    words = analyzed(tmp_path / "words", dump, "--level", "word")
    (at_pieces,), (at_words,) = pieces["models"].values(), words["models"].values()
    assert at_pieces["null_rate"]["cross"] == [2 / 4] and at_pieces["sparsity"]["cross"] == [14 / 16]
    # x, yz, </s> by ab, c, </s>: [1 0 0], [1 0 0], [0 0 0]
    assert at_words["null_rate"]["cross"] == [1 / 3] and at_words["sparsity"]["cross"] == [7 / 9]
    assert "|level:subword|" in pieces["signature"] and "|level:word|" in words["signature"]
    assert "|merge:bpe-bpe|src:sum|tgt:mean|" in words["signature"]


def test_diversity_of_softmax_stays_a_divergence_of_distributions(tmp_path):
    dump = write_dump(tmp_path / "dump", attention="softmax")
    (metrics,) = analyzed(tmp_path / "out", dump, "--level", "word")["models"].values()
    for values in metrics["diversity"].values():
        assert all(0 <= value <= np.log(3) for value in values)
    assert metrics["sparsity"]["cross"] == [0.0, 0.0]


# --- the layer attention


def test_a_layer_is_null_where_all_its_heads_are(tmp_path):
    first, second = [[0, 0], [0, 1]], [[0, 0], [0, 0]]
    dump = write_dump(
        tmp_path / "dump", [(["a", "</s>"], ["x", "</s>"])], layers=1, heads=2, kinds=("cross",),
        cross=[np.array([first, second])[None]],
    )  # fmt: skip
    (metrics,) = analyzed(tmp_path / "out", dump)["models"].values()
    assert metrics["null_rate"]["cross"] == [3 / 4] and metrics["null_rate_layer"]["cross"] == [1 / 2]
    assert "Of the layer attention" in (tmp_path / "out" / "report.html").read_text()


# --- gold sentences in the same report


def test_rates_of_the_test_set_and_alignment_of_the_gold_set(tmp_path):
    test, gold = write_dump(tmp_path / "test"), write_dump(tmp_path / "gold", SENTENCES[2:], seed=5)
    (tmp_path / "links").write_text("0-0 1-1\n0-1\n")
    both = analyzed(tmp_path / "both", f"m={test}", "--aligned", f"m={gold}", "--gold", tmp_path / "links")
    alone = analyzed(tmp_path / "alone", f"m={test}")["models"]["m"]
    aligned = analyzed(tmp_path / "aligned", f"m={gold}", "--gold", tmp_path / "links")["models"]["m"]
    actual = both["models"]["m"]
    assert actual["sparsity"] == alone["sparsity"] and actual["sentences"] == 4
    assert actual["alignment_eos"] == aligned["alignment_eos"] and actual["alignment"] == aligned["alignment"]
    assert "sentences:4|" in both["signature"] and "|aligned-sentences:2|" in both["signature"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--aligned", "m=GOLD"], "--aligned is a dump of the sentences of --gold; give --gold FILE, too"),
        (["--aligned", "n=GOLD", "--gold", "LINKS"], "--aligned n=GOLD: does not belong to a model; the models are m"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, capsys, words, said):
    dump = write_dump(tmp_path / "dump")
    (tmp_path / "links").write_text("0-0\n" * 4)
    words = [word.replace("GOLD", dump).replace("LINKS", str(tmp_path / "links")) for word in words]
    assert main(["analyze", f"m={dump}", *words, "--out", str(tmp_path / "out"), "--no-figures"]) == 1
    assert said.replace("GOLD", dump) in capsys.readouterr().err


# --- Figures 7 to 9: what is shown by default


def comma_dump(path, heads=8):
    """Three sentences with a comma as target word 1. In the second, head 3 of layer 2 fires after the comma only."""
    sentences = [(["a", "b", "c", "d", "e", "</s>"], ["x", ",", "y", "z", "w", "</s>"])] * 3
    cross = np.ones((3, 3, heads, 6, 6), dtype=np.float32)  # sentence, layer, head, query, key
    cross[0, 2, 1] = 0  # null everywhere, after the comma too: does not count
    cross[1, 2, 3] = 0
    cross[1, 2, 3, 2, 4] = 1  # row 2 is the query whose input is the comma
    cross[2, 2, 3, :2] = 0  # fewer null rows than in the second
    return write_dump(path, sentences, layers=3, heads=heads, kinds=("cross",), cross=list(cross))


def test_the_sentence_has_most_null_rows_in_heads_that_fire_after_a_comma(tmp_path):
    from fairseq_rela.analysis.examples import example_sentence, null_rows_of_firing_heads
    from fairseq_rela.analysis.reading import DumpReader

    assert example_sentence(DumpReader(comma_dump(tmp_path / "dump")), 2).id == 1
    assert example_sentence(DumpReader(write_dump(tmp_path / "short")), 1) is None  # all shorter than 6 tokens
    nulls = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]]) > 0
    assert null_rows_of_firing_heads(nulls, [1]) == 4 and null_rows_of_firing_heads(nulls, []) == 0


def test_with_tags_a_second_sentence_has_heads_that_fire_after_a_verb(tmp_path):
    """By the comma it is the second sentence; by the verb, which is word 2 of the third alone, it is the third."""
    from fairseq_rela.analysis.examples import example_sentence, verbs
    from fairseq_rela.analysis.figures import default_heat_maps
    from fairseq_rela.analysis.measurement import measurement
    from fairseq_rela.analysis.reading import DumpReader
    from fairseq_rela.analysis.tally import SentenceLines

    reader = DumpReader(comma_dump(tmp_path / "dump"))
    tags = [["X"] * 5, ["X"] * 5, ["X", "X", "VERB", "X", "X"]]
    assert example_sentence(reader, 2, verbs(tags)).id == 2
    assert example_sentence(reader, 2, verbs([["X"] * 5] * 3)) is None
    choices = [tuple(choice) for choice in default_heat_maps(reader, measurement(reader), SentenceLines("tags", tags))]
    assert choices[:4] == [(1, "cross", 2, head) for head in (0, 2, 3, 7)]
    assert choices[-4:] == [(2, "cross", 2, head) for head in (0, 2, 3, 7)]


@pytest.mark.parametrize("heads, shown", [(8, [0, 2, 3, 7]), (4, [0, 2, 3])])
def test_the_papers_layer_and_heads_come_first(tmp_path, heads, shown):
    from fairseq_rela.analysis.figures import default_heat_maps
    from fairseq_rela.analysis.measurement import measurement
    from fairseq_rela.analysis.reading import DumpReader

    reader = DumpReader(comma_dump(tmp_path / "dump", heads))
    choices = default_heat_maps(reader, measurement(reader))
    assert [tuple(choice) for choice in choices[: len(shown)]] == [(1, "cross", 2, head) for head in shown]


# --- the tables of the paper's script


def test_tables_5_and_6_and_the_figures_as_text(tmp_path):
    sys.path[:0] = [str(ROOT / "examples/paper")]
    import analysis_tables

    dumps = [f"{name}={write_dump(tmp_path / name, attention=name)}" for name in ("softmax", "rela_g")]
    (tmp_path / "links").write_text("0-0\n" * 4)
    content = analyzed(tmp_path / "out", *dumps, "--gold", tmp_path / "links", "--level", "word")
    rows = [line.split("\t") for line in analysis_tables.tables(content)]
    found = {row[0]: row[1:] for row in rows}
    rela = content["models"]["rela_g"]
    assert found["softmax encoder"][-1] == f"{np.mean(content['models']['softmax']['null_rate_layer']['encoder']):.1f}"
    assert found["Figure 3: sparsity rate, %"] == ["layer 0", "layer 1", "mean"]
    error = rela["alignment"]["shifted"]
    assert found["rela_g shifted, best head (solid)"] == [f"{100 * value:.1f}" for value in error["best_head"]]
    assert found["rela_g shifted, layer attention (dashed)"] == [f"{100 * value:.1f}" for value in error["layer"]]
    start = rows.index(next(row for row in rows if row[0] == "Table 5: AER, %"))
    assert rows[start + 1][5:] == ["75.95", "67.51", "79.38", "54.31"]
    assert rows[start + 2][0] == "rela_g" and rows[start + 2][4] == f"{100 * error['AoH']:.2f}"
    assert rows[start + 2][5:] == ["64.46", "61.64", "59.24", "52.41"]
    last = rows[rows.index(next(row for row in rows if row[0] == "Table 6: head diversity")) + 1 :]
    assert [(row[0], row[4:]) for row in last[:5]] == [
        ("softmax", ["0.56", "0.31", "0.45"]),
        ("rela_g (τ = 1)", ["1.26", "0.81", "0.78"]),
        ("rela_g (τ = 0.5)", ["0.97", "0.65", "0.69"]),
        ("rela_g (τ = 0.25)", ["0.92", "0.65", "0.71"]),
        ("rela_g (τ = 0.1)", ["0.92", "0.66", "0.72"]),
    ]
    assert last[1][1:4] == [f"{np.mean(rela['diversity_tau'][kind]['1']):.2f}" for kind in analysis_tables.KINDS]
