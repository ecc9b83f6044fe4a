"""The recipes of the paper's analyses: the test set and the gold set in one run, and nothing lost by another run."""

import re

import pytest


def analyze_lines(recipe, dataset, **variables):
    printed = recipe("analyze.sh", dataset, "rela_g", "--dry-run", **variables)
    (line,) = (line for line in printed.splitlines() if line.startswith("fairseq-rela analyze"))
    return line, re.findall(
        r"fairseq-generate \S+/(data-bin-\w+) --gen-subset (\w+).*--attn-dump \S+/dump/(\S+)", printed
    )


@pytest.mark.slow
def test_the_test_set_and_the_gold_set_in_one_report(recipe, tmp_path):
    (tmp_path / "DeEn").mkdir()
    line, dumps = analyze_lines(recipe, "wmt14_en_de", OUT=tmp_path, GOLD_DIR=tmp_path / "DeEn")
    assert dumps == [
        ("data-bin-test", "test", "test"),
        ("data-bin-test", "test1", "shuffled-test"),
        ("data-bin-gold", "test", "gold"),
    ]
    assert "/dump/test --shuffled " in line and "/dump/gold --gold " in line and "--gold-base 1 --gold-reverse" in line


@pytest.mark.slow
def test_without_gold_alignments_there_is_only_the_test_set(recipe, tmp_path):
    line, dumps = analyze_lines(recipe, "wmt14_en_de", OUT=tmp_path)
    assert "--gold" not in line and "--aligned" not in line and len(dumps) == 2


@pytest.mark.slow
def test_gold_alignments_that_were_given_once_stay(recipe, tmp_path):
    """Without GOLD_DIR the second time: the report keeps its alignments."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "gold.links").write_text("1-1\n")
    line, dumps = analyze_lines(recipe, "wmt14_en_de", OUT=tmp_path)
    assert "--aligned " in line and "--gold-base 1 --gold-reverse" in line and dumps[-1][-1] == "gold"


@pytest.mark.slow
def test_toys_gold_set_is_its_test_set(recipe, tmp_path):
    line, dumps = analyze_lines(recipe, "toy", OUT=tmp_path)
    assert "--aligned" not in line and "--gold " in line
    assert [name for _, _, name in dumps] == ["test", "shuffled-test", "noisy"]


@pytest.mark.slow
def test_each_choice_has_its_own_report(recipe, tmp_path):
    """Another level, attention, seed, tag or update never replaces the report of the first."""
    choices = [
        ({}, "paper/analysis-word.rela_g"),
        ({"LEVEL": "subword"}, "paper/analysis-subword.rela_g"),
        ({"SEEDS": "1 2"}, "paper/analysis-word.rela_g.seeds1+2"),
        ({"HEATMAPS": "3:cross:2:0"}, "paper/analysis-word.rela_g.maps"),
        ({"TAG": "slow"}, "paper.slow/analysis-word.rela_g"),
        ({"AT": "2"}, "paper.at2/analysis-word.rela_g"),
        ({"REPORT": tmp_path / "here"}, "here"),
    ]
    for variables, name in choices:
        variables = {"OUT": tmp_path, "ATTENTIONS": "rela_g", "SEEDS": "1 2 3", **variables}
        printed = recipe("paper/analysis.sh", "toy", "--dry-run", **variables)
        (line,) = [
            line
            for line in printed.splitlines()
            if line.startswith("fairseq-rela analyze rela_g=") and "--level" in line
        ]
        assert f" --out {tmp_path}/{name} " in line and f"--level {variables.get('LEVEL', 'word')} " in line
        assert ("/at2/dump/test" in line) == ("AT" in variables)
    said = recipe(
        "paper/analysis.sh", "toy", "--dry-run", OUT=tmp_path, LEVEL="letter", ATTENTIONS="rela_g", fails=True
    )
    assert said == "analysis.sh: LEVEL=letter is not known; give subword or word\n"


TOY = {"CORPUS": "--train 60 --valid 8 --test 12 --noise 24 --max-clauses 2", "PIECES": "90"}
TINY = "--encoder-layers 1 --decoder-layers 1 --num-workers 0".split()


@pytest.fixture(scope="module")
def toy(recipe, tmp_path_factory):
    """A directory of toy with its variables. The model is trained by the first script that needs it."""
    out = tmp_path_factory.mktemp("toy")
    return out, {**TOY, "OUT": out, "SEEDS": "1", "ATTENTIONS": "rela_g", "BEAM": "1"}


def files(directory):
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_figures_3_to_9_and_tables_5_and_6(recipe, toy):
    """At word level, then at subword level: the second report leaves the first as it was."""
    out, variables = toy
    printed = recipe("paper/analysis.sh", "toy", *TINY, **variables)
    for title in (
        "Figure 3",
        "Figure 4",
        "Table 5",
        "Figure 5",
        "Figure 6",
        "Table 6",
        "Section 5.2: null rate of the",
    ):
        assert f"\n{title}" in printed
    report = out / "paper/analysis-word.rela_g.seeds1"
    made = files(report)
    names = {file.name for file in made}
    assert {"sparsity.png", "alignment.png", "diversity.png", "null_rate.png", "report.html", "metrics.json"} <= names
    assert any(name.startswith("heatmap_rela_g_") and "_cross_layer0_head0" in name for name in names)
    assert "|level:word|" in (report / "metrics.json").read_text()
    again = recipe("paper/analysis.sh", "toy", *TINY, **variables, LEVEL="subword")
    assert "trained before" in again and "|level:subword|" in again
    assert files(report) == made


@pytest.mark.slow
def test_tags_of_toy_by_its_own_grammar(recipe, toy):
    out, variables = toy
    rows = [row.split("\t") for row in recipe("paper/tags.sh", "toy", "rela_g", *TINY, **variables).splitlines()]
    shown = {row[0]: row for row in rows if row[0] in ("AUX", "VERB", ",")}
    assert shown["AUX"] == ["AUX", "0"] and int(shown["VERB"][1]) > 12
    text = (out / "text/test.tgt").read_text()
    if "," in text:
        assert int(shown[","][1]) == text.split().count(",")
    assert (out / "transformer_rela_g_tiny.seed1/tags/report.html").exists()


@pytest.mark.slow
def test_ranking_of_toy_and_of_text_without_labels(recipe, toy):
    """toy has labelled pairs. With its own labels taken away, noise is put into the test set."""
    out, variables = toy
    printed = recipe("paper/ranking.sh", "toy", "rela_g", *TINY, **variables, SAMPLE_PAIRS="3", MAPS="1")
    assert "24 labelled pairs, 50.0% of them wrong, ranked by null rate" in printed
    assert "baseline: coverage deviation" in printed and "foreign  inserted  shuffled  truncated" in printed
    ranking = out / "transformer_rela_g_tiny.seed1/ranking"
    assert (ranking / "ranking.html").read_text().count("data:image/png;base64,") == 2
    header = (ranking / "train.tsv").read_text().splitlines()[0]
    assert header.split("\t")[4:6] == ["checksum", "encoder.0.null"]
    dry = recipe("paper/ranking.sh", "multi30k_en_de", "rela_g", "--dry-run", **{**variables, "OUT": out / "dry"})
    assert "examples/paper/noise.py" in dry and "/ranking/injected.labels --evaluate" in dry
    assert "fairseq-train" in dry, "it trains what is missing"


@pytest.mark.slow
def test_table_1_is_filled_row_by_row(recipe, toy):
    out, variables = toy
    recipe("paper/table1.sh", "toy", *TINY, **variables, ROWS="7")
    table = [row.split("\t") for row in (out / "paper/table1.tsv").read_text().splitlines()]
    assert table[0][:2] == ["", "tokenised BLEU"] and [row[0] for row in table[1:]][6] == "7 rela_g"
    assert len(table) == 14 and [row[1] != "-" for row in table[1:]] == [number == 7 for number in range(1, 14)]
