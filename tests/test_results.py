"""RESULTS.md is filled row by row, from the files of runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = "LR=0.1\nWARMUP=3\nNORM=pre\nDROPOUT=0.3\nATTENTION_DROPOUT=0.0\nWEIGHT_DECAY=0.0\nFLAGS={flags}\n"
sys.path.insert(0, str(ROOT / "examples"))

import curves  # noqa: E402
import results_file  # noqa: E402
from results_file import Table  # noqa: E402
from results_tables import SCORES, TRIALS  # noqa: E402

SMALL = Table("small", 2, ("set", "name", "value"), "A small table")


def results(*words, status=0, **variables):
    command = [sys.executable, str(ROOT / "examples/results.py"), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def rows(path, table):
    """The rows of a table of the file, as lists of cells."""
    lines = path.read_text().splitlines()
    lines = lines[lines.index(table.comment) + 3 :]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:end]]


def make_run(directory, losses, flags=""):
    directory.mkdir()
    (directory / "settings").write_text(SETTINGS.format(flags=flags))
    (directory / "train.log").write_text(
        "".join(
            f"x | valid | {json.dumps({'valid_nll_loss': str(loss), 'valid_num_updates': str(at)})}\n"
            for at, loss in losses.items()
        )
    )
    return directory


def make_results(directory, updates, bleu, text):
    """What generate.sh leaves behind."""
    directory.mkdir(exist_ok=True)
    (directory / "average.settings").write_text(f"AVERAGE=5\nUPDATES={updates}\n")
    (directory / "bleu.json").write_text(json.dumps({"score": bleu, "signature": "nrefs:1|tok:13a"}))
    (directory / "translation.de").write_text(text)


# --- tables in a file


def test_a_row_is_added_or_replaces_the_one_with_its_key(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text(f"# R\n{SMALL.comment}\n| set | name | value |\n|---|---|---|\n| m | a | 1 |\n\nWords.\n")
    results_file.put(str(path), SMALL, ["m", "b", "x|y"])
    results_file.put(str(path), SMALL, ["m", "a", 2])
    assert path.read_text() == (
        f"# R\n{SMALL.comment}\n| set | name | value |\n|---|---|---|\n| m | a | 2 |\n| m | b | x\\|y |\n\nWords.\n"
    )
    results_file.remove(str(path), SMALL, ["m", "a"])
    results_file.remove(str(path), SMALL, ["m", "none"])
    assert rows(path, SMALL) == [["m", "b", "x\\|y"]]
    assert os.listdir(str(tmp_path)) == ["RESULTS.md"]


def test_a_missing_table_is_added_with_its_title(tmp_path):
    path = tmp_path / "RESULTS.md"
    results_file.put(str(path), SMALL, ["m", "a", 1])
    assert path.read_text() == (
        f"# Results\n\n## A small table\n\n{SMALL.comment}\n| set | name | value |\n|---|---|---|\n| m | a | 1 |\n"
    )


@pytest.mark.parametrize(
    "content, said",
    [
        (f"{SMALL.comment}\n| set | name | worth |\n|---|---|---|\n", "the heading of table 'small' is not "),
        ("<!-- table: small, key: 1 -->\n| set |\n", "the comment of table 'small' is not "),
    ],
)
def test_a_table_of_another_form_is_refused_and_nothing_is_lost(tmp_path, content, said):
    path = tmp_path / "RESULTS.md"
    path.write_text(content)
    with pytest.raises(Exception, match=said):
        results_file.put(str(path), SMALL, ["m", "a", 1])
    assert path.read_text() == content


# --- trials


def test_trials_are_compared_after_as_many_updates(tmp_path):
    late = make_run(tmp_path / "late", {2: 5.0, 4: 4.0, 6: 1.0})
    early = make_run(tmp_path / "early", {2: 5.5, 4: 3.5}, flags="--fp16")
    assert results("best", 4, late, early) == f"{early}\n{late}\n"
    assert results("best", 2, late, early) == f"{late}\n{early}\n"
    path = tmp_path / "RESULTS.md"
    results("trial", path, "m", 4, "b", f"softmax,1={early}")
    variables = "`LR=0.1 WARMUP=3 NORM=pre DROPOUT=0.3 ATTENTION_DROPOUT=0.0 --fp16`"
    assert rows(path, TRIALS) == [["m", "softmax", "b", "1", "4", variables, "3.500"]]


def test_mistakes_are_told_in_one_line(tmp_path):
    path, run = tmp_path / "RESULTS.md", make_run(tmp_path / "run", {2: 5.0})
    assert [
        results("trial", path, "m", 4, "a", f"softmax,1={run}", status=1),
        results("trial", path, "m", 4, "a", f"softmax,1={tmp_path}/none", status=1),
    ] == [
        f"results.py: {run}/train.log has no validation loss after 4 updates\n",
        f"results.py: {tmp_path}/none/train.log is missing; train this run first\n",
    ]
    assert not path.exists()


# --- the budget


REFERENCE = "a man rides a bicycle down the street .\ntwo dogs play in the snow .\n"


@pytest.mark.slow
def test_seeds_are_averaged_and_a_run_that_is_too_short_is_a_trial(tmp_path):
    """Softmax and rela_g have two seeds; rela_i is still training; rela_gc has results at an earlier update."""
    path, reference = tmp_path / "RESULTS.md", tmp_path / "test.de"
    reference.write_text(REFERENCE)
    named = []
    for name, bleu in (("softmax", (30.0, 32.0)), ("rela_g", (29.0, 30.5))):
        for seed, score in zip("12", bleu):
            run = make_run(tmp_path / f"{name}{seed}", {4: 3.0 + int(seed) / 10})
            make_results(run, 4, score, REFERENCE if name == "softmax" else REFERENCE.replace("dogs", "cats"))
            named.append(f"{name},{seed}={run}")
    short = make_run(tmp_path / "rela_i1", {2: 5.0, 3: 4.5})
    longer = make_run(tmp_path / "rela_gc1", {4: 2.0, 8: 1.0})
    make_results(longer / "at4", 4, 31.5, REFERENCE)
    named += [f"rela_i,1={short}", f"rela_gc,1={longer}/at4", f"relu,1={tmp_path}/nothing"]
    results("record", path, "m", 4, "s", reference, *named)

    scores = [row[2:8] + row[10:] for row in rows(path, SCORES)]
    assert scores == [
        ["softmax", "s", "1 2", "31.00", "30.00 to 32.00", "-", "3.150"],
        ["rela_g", "s", "1 2", "29.75", "29.00 to 30.50", "-1.25", "3.150"],
        ["rela_gc", "s", "1", "31.50", "-", "+1.50", "2.000"],  # compared with seed 1 of softmax
    ]
    from results_tables import RUNS, SEEDS

    seeds = {tuple(row[2:5:2]): row[5:8] for row in rows(path, SEEDS)}
    assert list(seeds) == [("softmax", "1"), ("rela_g", "1"), ("rela_gc", "1"), ("softmax", "2"), ("rela_g", "2")]
    assert seeds["softmax", "1"][2] == "-" and seeds["softmax", "1"][1].startswith("± ")
    assert 0 < float(seeds["rela_g", "2"][2]) <= 1
    assert [row[2] for row in rows(path, RUNS)] == ["softmax", "softmax", "rela_g", "rela_g", "rela_gc"]
    assert [row[1:5] + row[6:] for row in rows(path, TRIALS)] == [["rela_i", "s", "1", "3", "4.500"]]

    # it has come to the budget: the row of the trial goes
    with open(str(short / "train.log"), "a") as log:
        log.write('{"valid_nll_loss": "4.0", "valid_num_updates": "4"}\n')
    make_results(short, 4, 28.0, REFERENCE)
    results("record", path, "m", 4, "s", reference, *named)
    assert rows(path, TRIALS) == [] and ["rela_i", "s", "1", "28.00"] in [row[2:6] for row in rows(path, SCORES)]


@pytest.mark.slow
def test_seeds_of_several_machines_are_averaged_together(tmp_path):
    """Seed 1 of both attentions was recorded elsewhere; here are seed 2 of rela_g, and then seed 2 of softmax."""
    from results_tables import ATTENTION

    path, reference = tmp_path / "RESULTS.md", tmp_path / "test.de"
    reference.write_text(REFERENCE)
    runs = {}
    for name, seed, score in (("softmax", 1, 30), ("rela_g", 1, 29), ("softmax", 2, 34), ("rela_g", 2, 31)):
        run = make_run(tmp_path / f"{name}{seed}", {4: 3.0 + seed / 10})
        make_results(run, 4, score, REFERENCE.replace("dogs", f"{seed} cats"))
        runs[name, seed] = f"{name},{seed}={run}"
    missing = f"softmax,1={tmp_path}/nothing"
    results("record", path, "m", 4, "s", reference, runs["softmax", 1], runs["rela_g", 1])
    attention = [["m", "4", "rela_g", "s", "1 3", *"1234567"]]
    results_file.put(str(path), ATTENTION, attention[0])

    results("record", path, "m", 4, "s", reference, missing, runs["rela_g", 2])
    assert [row[2:8] + row[10:] for row in rows(path, SCORES)] == [
        ["softmax", "s", "1", "30.00", "-", "-", "3.100"],
        ["rela_g", "s", "1 2", "30.00", "29.00 to 31.00", "-1.00", "3.150"],  # of seed 1, which both have
    ]
    assert rows(path, ATTENTION) == attention  # the mean of more seeds than are here

    results("record", path, "m", 4, "s", reference, missing, runs["softmax", 2])
    assert [row[2:8] + row[10:] for row in rows(path, SCORES)] == [
        ["softmax", "s", "1 2", "32.00", "30.00 to 34.00", "-", "3.150"],
        ["rela_g", "s", "1 2", "30.00", "29.00 to 31.00", "-2.00", "3.150"],
    ]


def test_analyses_are_those_of_the_most_seeds_that_are_together(tmp_path):
    """Seed 1 was analysed elsewhere. Seeds 2 and 3, which are here, take its place; one of them alone does not."""
    from results_tables import ATTENTION

    path, reference = tmp_path / "RESULTS.md", tmp_path / "test.de"
    reference.write_text(REFERENCE)
    rates = {"encoder": [0.5], "decoder": [0.25], "cross": [0.75]}
    here = []
    for seed in (2, 3):
        run = make_run(tmp_path / f"rela_g{seed}", {4: 3.0})
        make_results(run, 4, 30, REFERENCE)
        (run / "analysis").mkdir()
        model = {"sparsity": rates, "null_rate": {"cross": [0.01 * seed]}, "diversity": {"cross": [0.5]}}
        (run / "analysis/metrics.json").write_text(json.dumps({"models": {"rela_g": model}}))
        here.append(f"rela_g,{seed}={run}")
    results_file.put(str(path), ATTENTION, ["m", "4", "rela_g", "s", "1", *"1234567"])
    both = ["m", "4", "rela_g", "s", "2 3", "50.0", "25.0", "75.0", "2.5", "-", "0.500", "-"]

    results("record", path, "m", 4, "s", reference, *here)
    assert rows(path, ATTENTION) == [both]
    results("record", path, "m", 4, "s", reference, here[0])
    assert rows(path, ATTENTION) == [both]


def test_rows_are_read_as_they_were_put(tmp_path):
    path, cells = str(tmp_path / "file.md"), ["m", "a|b", "x | y", "-", "1", "`c`", "2"]
    assert results_file.rows(path, TRIALS) == []
    results_file.put(path, TRIALS, cells)
    assert results_file.rows(path, TRIALS) == [cells] and results_file.rows(path, SCORES) == []


def test_results_of_another_update_are_not_taken(tmp_path):
    path, run = tmp_path / "RESULTS.md", make_run(tmp_path / "run", {4: 3.0, 8: 2.0})
    make_results(run, 8, 30.0, REFERENCE)
    results("record", path, "m", 4, "s", tmp_path / "test.de", f"softmax,1={run}")
    assert not path.exists()


def test_error_of_an_aligner(tmp_path):
    """Two sentences; gold from 1. Forward misses one sure link; reverse adds one that is wrong."""
    (tmp_path / "gold").write_text("1-1 2-2 1p2\n1-1\n")
    (tmp_path / "forward").write_text("0-0\n0-0\n9-9\n")  # text after the gold sentences is not looked at
    (tmp_path / "reverse").write_text("0-0 1-1\n0-0 1-0\n9-9\n")
    path = tmp_path / "RESULTS.md"
    results("aligner", path, "h", "some", tmp_path / "gold", 1, tmp_path / "forward", tmp_path / "reverse")
    # forward: 1 − (2 + 2) / (2 + 3); reverse: 1 − (3 + 3) / (4 + 3); both: 0-0 1-1 and 0-0 1-0, the same as reverse
    assert "| h | some | 20.0 | 14.3 | 14.3 |\n" in path.read_text()


# --- figures


def test_the_mean_curve_has_the_updates_that_all_seeds_have(tmp_path):
    assert curves.mean_curve([[(1, 4.0), (2, 3.0)], [(1, 5.0), (2, 4.0), (3, 2.0)]]) == [(1, 4.5), (2, 3.5)]
    run = make_run(tmp_path / "run", {10: 5.0, 20: 4.0})
    curves.main(str(tmp_path / "figures/x.png"), "title", f"softmax={run},{run}", f"rela_g={run}")
    assert (tmp_path / "figures/x.png").read_bytes().startswith(b"\x89PNG")


def test_a_training_that_went_on_validated_some_updates_twice(tmp_path):
    from run_files import validation_curve

    run = make_run(tmp_path / "run", {2: 5.0, 4: 4.0})
    with open(str(run / "train.log"), "a") as log:
        log.write('{"valid_nll_loss": "3.5", "valid_num_updates": "4"}\n')
    assert validation_curve(str(run)) == [(2, 5.0), (4, 3.5)]


def test_minutes_are_added_over_the_parts_of_a_training(tmp_path):
    from run_files import minutes

    (tmp_path / "train.log").write_text(
        "a line without a time\n"
        "2026-01-31 23:50:00 | INFO | fairseq_cli.train | {'_name': None}\n"
        '2026-01-31 23:59:00 | INFO | valid | {"valid_nll_loss": "5", "valid_num_updates": "2"}\n'
        "2026-02-01 00:02:00 | INFO | train_inner | then it was killed\n"
        "2026-02-03 11:59:59 | INFO | fairseq.tasks.text_to_speech | before the settings\n"
        "2026-02-03 12:00:00 | INFO | fairseq_cli.train | {'_name': None}\n"
        '2026-02-03 12:03:30 | INFO | valid | {"valid_nll_loss": "4", "valid_num_updates": "4"}\n'
        "2026-02-03 12:30:00 | INFO | train_inner | more than was asked for\n"
    )
    assert minutes(str(tmp_path), 2) == 9.0
    assert minutes(str(tmp_path), 4) == 15.5


def test_the_tables_of_the_file_are_those_of_the_code():
    import results_tables

    text = (ROOT / "examples/RESULTS.md").read_text(encoding="utf-8")
    for table in vars(results_tables).values():
        if isinstance(table, Table):
            assert f"{table.comment}\n| {' | '.join(table.columns)} |\n" in text, table.name
