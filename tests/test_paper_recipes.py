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
def test_each_level_has_its_own_report(recipe, tmp_path):
    for level, name in (("subword", "analysis"), ("word", "analysis-word")):
        printed = recipe("paper/analysis.sh", "toy", "--dry-run", OUT=tmp_path, LEVEL=level, ATTENTIONS="rela_g")
        assert f"--level {level} --out {tmp_path}/paper/{name} " in printed
    said = recipe(
        "paper/analysis.sh", "toy", "--dry-run", OUT=tmp_path, LEVEL="letter", ATTENTIONS="rela_g", fails=True
    )
    assert said == "analysis.sh: LEVEL=letter is not known; give subword or word\n"
