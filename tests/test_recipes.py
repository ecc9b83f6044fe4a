"""The recipes, from archives laid out like the originals to analyses, tables and results."""

import re
from itertools import takewhile
from pathlib import Path

import original_archives
import pytest
import torch
from original_archives import GOLD, LAYOUTS, TEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
TINY = "--encoder-layers 1 --decoder-layers 1 --num-workers 0".split()
SHORT = "--max-len-a 0 --max-len-b 8 --num-workers 0".split()


def lines(file):
    return Path(file).read_text(encoding="utf-8").splitlines()


def pairs(prefix, langs):
    return list(zip(*(lines(f"{prefix}.{lang}") for lang in langs)))


# --- from archives to analyses


@pytest.fixture(scope="module")
def done(recipe, tmp_path_factory):
    """done(dataset): the directory of a recipe that ran from end to end, and the text that was in the archives."""
    made = {}

    def run(dataset):
        if dataset not in made:
            directory = tmp_path_factory.mktemp(dataset)
            text = original_archives.make(dataset, directory / "data", directory / "toy")
            variables = {"DATA_DIR": directory / "data", "OUT": directory / "out"}
            if dataset == "wmt14_en_de":  # the very files that are expected, so that `sacrebleu -t` is asked
                (directory / "SHA256").write_text(original_archives.checksums(directory / "data"))
                variables.update(CHECKSUMS=directory / "SHA256", GOLD_DIR=rwth(text, directory / "DeEn"))
            if dataset == "hansards_en_fr":
                variables["SAMPLE"] = f"60 8 {TEST}"
            recipe("prepare.sh", dataset, **variables)
            recipe("train.sh", dataset, "rela_g", *TINY, **variables)
            printed = recipe("generate.sh", dataset, "rela_g", *SHORT, **variables)
            printed += recipe("analyze.sh", dataset, "rela_g", "--no-figures", **variables)
            made[dataset] = directory / "out", text, variables, printed
        return made[dataset]

    return run


def rwth(text, directory):
    """Gold alignments as RWTH gives them out: in Latin-1, the German word first, from 1."""
    directory.mkdir()
    first = text.next
    for lang, actual in text.take("gold", GOLD).items():
        (directory / lang).write_bytes(original_archives.plain(actual, "latin-1"))
    rows = []
    for line in text.links[first : first + GOLD]:
        links = (link.split("-") for link in line.split())
        rows.append(" ".join(f"{int(target) + 1}-{int(source) + 1}" for source, target in links))
    (directory / "alignmentDeEn.talp").write_bytes(original_archives.plain(rows))
    return directory


@pytest.mark.parametrize("dataset", sorted(LAYOUTS))
def test_from_archives_to_analyses(done, dataset):
    out, text, _, printed = done(dataset)
    for split in ("train", "valid", "test"):
        actual = pairs(out / "text" / split, text.langs)
        if dataset == "hansards_en_fr":
            assert len(actual) == {"train": 60, "valid": 8, "test": TEST}[split]
            assert set(actual) < set(text.splits["all"])
        else:
            assert actual == text.splits[split]
    run = out / "transformer_rela_g_tiny.seed1"
    assert len(lines(run / f"translation.{text.langs[1]}")) == TEST
    scores = {row.split("\t")[0]: row.split("\t")[2] for row in lines(run / "score.txt")}
    assert "tok:none" in scores.get("tokenised BLEU", "tok:none")
    if dataset in ("hansards_en_fr", "multi30k_bpe_en_de"):
        assert list(scores) == ["tokenised BLEU"]
    else:
        assert "tok:13a" in scores["BLEU"]
    analyses = dict(row.split("\t") for row in lines(run / "analysis.txt"))
    assert {"cross sparsity %", "cross null %", "shuffled null %", "cross diversity", "AUROC"} <= set(analyses)
    assert all(f"{name}\t{value}" in printed for name, value in analyses.items())
    assert (run / "analysis" / "report.html").exists()
    assert ("AoL shifted" in analyses) == (dataset in ("hansards_en_fr", "wmt14_en_de"))
    assert not list(out.rglob("*.part"))


def test_sacrebleu_has_its_own_test_set_without_a_download(done):
    """It was asked for wmt14/full by name, and wrote its text from the archive that was unpacked for it."""
    out, text, _, _ = done("wmt14_en_de")
    assert lines(out / "sacrebleu/wmt14/full/wmt14_full.en-de.ref") == [pair[1] for pair in text.splits["test"]]


def test_text_that_comes_in_pieces_is_scored_in_words(done):
    out, text, _, _ = done("multi30k_bpe_en_de")
    assert "@@ " in lines(out / "pieces/test.de")[0] and not (out / "pieces/spm.model").exists()
    assert lines(out / "text/test.words.de") == [pair[1].replace("@@ ", "") for pair in text.splits["test"]]
    translation = (out / "transformer_rela_g_tiny.seed1/translation.de").read_text()
    assert translation.split() and "@@ " not in translation


def test_gold_alignments(done):
    out, text, _, _ = done("hansards_en_fr")
    assert pairs(out / "text/gold", text.langs) == text.splits["gold"]
    assert lines(out / "text/gold.links") == text.gold_links
    rela = done("wmt14_en_de")[0] / "transformer_rela_g_tiny.seed1/analysis/metrics.json"
    assert "gold-base:1|gold-order:tgt-src" in rela.read_text()


def test_what_is_done_is_not_done_again(done, recipe):
    out, _, variables, _ = done("multi30k_en_de")
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    recipe("prepare.sh", "multi30k_en_de", **variables)
    said = recipe("train.sh", "multi30k_en_de", "rela_g", *TINY, **variables)
    assert said == "[multi30k_en_de] transformer_rela_g_tiny, seed 1: trained before, 3 updates\n"
    recipe("generate.sh", "multi30k_en_de", "rela_g", *SHORT, **variables)
    recipe("analyze.sh", "multi30k_en_de", "rela_g", "--no-figures", **variables)
    changed = {file.name for file, time in before.items() if file.stat().st_mtime_ns != time}
    assert changed <= {"score.txt", "analysis.txt"}


def test_more_updates_go_on_where_training_stopped(done, recipe):
    out, _, variables, _ = done("multi30k_en_de")
    variables = {**variables, "TAG": "more"}
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **variables)
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **variables)
    run = out / "transformer_softmax_tiny.more.seed1"
    first = (run / "average.pt").read_bytes()
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **{**variables, "UPDATES": "5"})
    log = (run / "train.log").read_text()
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d+ @ 3 updates\)", log)
    assert (run / "trained").read_text() == "5\n"
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **{**variables, "UPDATES": "5"})
    assert (run / "average.pt").read_bytes() != first


def test_other_settings_are_kept_apart(done, recipe):
    _, _, variables, _ = done("multi30k_en_de")
    out = variables["OUT"]
    said = recipe("train.sh", "multi30k_en_de", "rela_g", *TINY, fails=True, **{**variables, "LR": "1", "UPDATES": "4"})
    assert said == (
        f"train.sh: {out}/transformer_rela_g_tiny.seed1 was made with LR=0.005; "
        "remove it, or set TAG or OUT to keep both\n"
    )
    said = recipe("prepare.sh", "multi30k_en_de", fails=True, **{**variables, "PIECES": "99"})
    assert said == f"prepare.sh: {out} was made with PIECES=120; remove it, or set OUT to keep both\n"


# --- the paper's tables


def test_a_table_says_which_row_failed(done, recipe, path):
    out, _, variables, _ = done("multi30k_en_de")
    printed = recipe("paper/table3.sh", "multi30k_en_de", *TINY, **{**variables, "ATTENTIONS": "nonsense rela_g"})
    table = [row.split("\t") for row in lines(out / "paper/table3.nonsense+rela_g.tsv")]
    assert [row[0] for row in table] == ["", "nonsense", "rela_g"]
    assert table[0][1] == "BLEU" and set(table[1][1:]) == {"-"} and re.fullmatch(r"\d+\.\d", table[2][1])
    assert "\t".join(table[2]) in printed


def test_models_side_by_side(done, recipe):
    out, _, variables, _ = done("hansards_en_fr")
    recipe("paper/analysis.sh", "hansards_en_fr", *TINY, **{**variables, "ATTENTIONS": "rela_g", "SEEDS": "1"})
    assert (out / "paper/analysis-word.rela_g.seeds1/report.html").exists()
    heading, row = (row.split("\t") for row in lines(out / "paper/analysis.rela_g.seeds1.tsv"))
    assert row[0] == "rela_g" and {"tokenised BLEU", "AoL shifted", "AUROC"} < set(heading)


# --- an earlier update


def test_an_earlier_update_is_averaged_and_translated_beside_the_last(done, recipe, plugin):
    out, _, variables, _ = done("multi30k_en_de")
    variables = {**variables, "TAG": "kept", "UPDATES": "5"}
    run = out / "transformer_softmax_tiny.kept.seed1"
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **variables, KEEP="-1")
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **variables)
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **variables, AT="2")
    assert (run / "average.settings").read_text() == "AVERAGE=2\nUPDATES=5\n"
    assert (run / "at2/average.settings").read_text() == "AVERAGE=2\nUPDATES=2\n"
    assert len(lines(run / "at2/translation.de")) == TEST and (run / "at2/score.txt").exists()
    names = [f"checkpoint_*_{update}.pt" for update in (1, 2)]
    kept = [path for name in names for path in (run / "checkpoints").glob(name)]
    expected = [torch.load(str(path))["model"] for path in kept]
    average = torch.load(str(run / "at2/average.pt"))["model"]
    assert len(kept) == 2
    for name, tensor in average.items():
        mean = sum(model[name].double() for model in expected) / 2
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-7)

    before = (run / "at2/average.pt").stat().st_mtime_ns
    recipe("train.sh", "multi30k_en_de", "softmax", *TINY, **{**variables, "UPDATES": "6"})
    for path in kept:
        path.unlink()
    recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, **variables, AT="2")
    assert (run / "at2/average.pt").stat().st_mtime_ns == before, "it stays right when training goes on"
    said = recipe("generate.sh", "multi30k_en_de", "softmax", *SHORT, fails=True, **variables, AT="1")
    assert re.fullmatch(
        rf"generate.sh: {run} has no checkpoint of update 1 \(it keeps those of [\d, ]+\); "
        r"train with KEEP=-1, which keeps all checkpoints\n",
        said,
    )


# --- results on real text


def table_rows(path, name):
    """The rows of a table of RESULTS.md, as dictionaries."""
    text = lines(path)
    start = next(i for i, line in enumerate(text) if line.startswith(f"<!-- table: {name},"))
    heading, _, *rows = takewhile(lambda line: line.startswith("|"), text[start + 1 :])
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in (heading, *rows)]
    return [dict(zip(cells[0], row)) for row in cells[1:]]


def test_results_from_trials_to_figures(done, recipe, tmp_path):
    """All steps on a few sentences: rows for each run, and nothing is trained twice."""
    _, _, variables, _ = done("hansards_en_fr")
    results = tmp_path / "RESULTS.md"
    variables = {**variables, "RESULTS": results, "TRIAL_UPDATES": "1", "UPDATES": "2", "ATTENTIONS": "softmax rela_g"}
    variables["BEAM"] = "1"  # a model that has learnt nothing goes on to the longest length
    settings = ["lr0.005-drop0.1", "lr0.005-prenorm"]
    variables["SETTINGS"] = " ".join(settings)
    printed = recipe("results.sh", "hansards_en_fr", "trials", "runs", "tables", "figures", **variables)
    assert re.search(r"rela_g, best first: lr0\.005-\S+ lr0\.005-\S+\n", printed)

    trials = table_rows(results, "trials")
    assert [(row["attention"], row["setting"], row["updates"]) for row in trials] == [
        (attention, setting, "1") for attention in ("softmax", "rela_g") for setting in settings
    ]
    variables_of = [row["as variables and flags of `train.sh`"] for row in trials]
    assert "NORM=post DROPOUT=0.1 ATTENTION_DROPOUT=0.1" in variables_of[0]
    assert "NORM=pre DROPOUT=0.1 ATTENTION_DROPOUT=0.0" in variables_of[1]
    scores, seeds, attention, alignment, runs = (
        table_rows(results, name) for name in ("scores", "seeds", "attention", "alignment", "runs")
    )
    for rows in (scores, seeds, attention, alignment, runs):
        assert [(row["attention"], row["updates"]) for row in rows] == [("softmax", "2"), ("rela_g", "2")]
    assert "tok:none" in runs[0]["signature"]
    assert seeds[0]["p"] == "-" and 0 < float(seeds[1]["p"]) <= 1, "the first is compared with nothing"
    assert attention[0]["cross zeros %"] == "0.0" and float(attention[1]["cross zeros %"]) > 0
    assert 0 <= float(alignment[1]["best row, held out"]) <= 100
    by_norms = table_rows(results, "alignment by norms")
    assert [row["attention"] for row in by_norms] == ["softmax", "rela_g"]
    assert by_norms[1]["best row by weights, held out"] == alignment[1]["best row, held out"]
    assert 0 <= float(by_norms[1]["best row by norms, held out"]) <= 100
    assert re.fullmatch(r"(normal|shifted), layer \d, (mean of heads|head \d)", alignment[1]["which (per seed)"])
    for figure in ("validation", "sparsity", "alignment", "diversity", "null_rate"):
        assert (tmp_path / f"figures/hansards_en_fr-{figure}.png").stat().st_size > 1000

    again = recipe("results.sh", "hansards_en_fr", "trials", "runs", "tables", **variables)
    assert again.count("trained before") == 6 and "translate the test set" not in again
    assert table_rows(results, "trials") == trials and table_rows(results, "scores") == scores
    more = {**variables, "UPDATES": "3", "SEEDS": "", "ATTENTIONS": "softmax"}
    recipe("results.sh", "hansards_en_fr", "tables", **more)
    added = [row for row in table_rows(results, "trials") if row not in trials]
    assert [(row["attention"], row["updates"]) for row in added] == [("softmax", "2"), ("rela_g", "2")]
    assert table_rows(results, "scores") == scores, "a run that is too short for the budget has no row there"


def test_the_second_table_takes_the_long_runs_at_an_earlier_update(recipe, tmp_path):
    said = [
        recipe("results.sh", "wmt14_en_de", fails=True, OUT=tmp_path),
        recipe("results.sh", "multi30k_en_de", "trail", fails=True, OUT=tmp_path),
        recipe("results.sh", "multi30k_en_de", fails=True, OUT=tmp_path, ATTENTIONS="rela_x"),
    ]
    assert said[:2] == [
        "results.sh: no results are kept for wmt14_en_de; known are hansards_en_fr multi30k_bpe_en_de multi30k_en_de\n",
        "results.sh: unknown step 'trail'; known are trials runs ablation tables figures eflomal\n",
    ]
    assert said[2].startswith("results.sh: unknown attention 'rela_x'; known are softmax, ")
    usual = dict.fromkeys(("UPDATES", "SAVE_INTERVAL", "AVERAGE", "WARMUP"), "")
    printed = recipe(
        "results.sh", "multi30k_en_de", "--dry-run", OUT=tmp_path, RESULTS=tmp_path / "R.md", **usual, SIZE="tiny"
    ).splitlines()
    trained = [line for line in printed if " fairseq-train " in line]

    def count(*parts):
        return sum(all(part in line for part in parts) for line in trained)

    assert count("--max-update 400 ") == 5 * 5
    assert count("--max-update 4000 ") == 15 and count("--max-update 4000 ", "--keep-interval-updates -1 ") == 5
    assert count("--max-update 2000 ") == 8 and len(trained) == 25 + 15 + 8
    averaged = [
        line for line in printed if line.startswith("fairseq-rela average") and "{1600,1700,1800,1900,2000}" in line
    ]
    assert len(averaged) == 2 * 13 and sum("/at2000/average.pt" in line for line in averaged) == 2 * 5
    assert list(tmp_path.iterdir()) == []
