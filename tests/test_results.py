"""RESULTS.md is filled row by row, from what runs left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE = """# Results
<!-- table: trials, key: 3 -->
| set | attention | setting | variables | updates | validation |
|---|---|---|---|---|---|
| m | softmax | a | `x` | 4 | 3.000 |

Words.

<!-- table: alignment, key: 2 -->
| set | aligner | there | back | both |
|---|---|---|---|---|
"""
SETTINGS = "LR=0.1\nWARMUP=3\nNORM=pre\nDROPOUT=0.3\nATTENTION_DROPOUT=0.0\nWEIGHT_DECAY=0.0\nFLAGS={flags}\n"


def results(*words, status=0):
    command = [sys.executable, str(ROOT / "examples/results.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text(FILE)
    return path


def make_run(directory, losses, flags=""):
    directory.mkdir()
    (directory / "settings").write_text(SETTINGS.format(flags=flags))
    (directory / "train.log").write_text(
        "".join(
            f'x | valid | {json.dumps({"valid_nll_loss": str(loss), "valid_num_updates": str(at)})}\n'
            for at, loss in losses.items()
        )
    )
    return directory


def test_a_row_is_added_or_takes_the_place_of_its_like(file):
    results("row", file, "trials", "m", "rela_g", "a", "`y|z`", 4, "2.500")
    results("row", file, "trials", "m", "softmax", "a", "`x`", 8, "1.000")
    assert file.read_text() == FILE.replace(
        "| m | softmax | a | `x` | 4 | 3.000 |\n",
        "| m | softmax | a | `x` | 8 | 1.000 |\n| m | rela_g | a | `y\\|z` | 4 | 2.500 |\n",
    )
    results("row", file, "alignment", "h", "eflomal", 1, 2, 3)  # an empty table, at the end of the file
    assert file.read_text().endswith("|---|---|---|---|---|\n| h | eflomal | 1 | 2 | 3 |\n")
    assert os.listdir(str(file.parent)) == ["RESULTS.md"]


def test_rows_that_do_not_fit_are_refused_in_one_line_and_nothing_is_lost(file, tmp_path):
    run = make_run(tmp_path / "run", {2: 5.0})
    assert [
        results("row", file, "trials", "m", "rela_g", status=1),
        results("row", file, "trial", "m", status=1),
        results("trial", file, 4, f"m,softmax,a={run}", status=1),
        results("trial", file, 4, f"m,softmax,a={tmp_path}/none", status=1),
    ] == [
        f"results.py: {file}: a row of 'trials' has 6 cells, not 2\n",
        f"results.py: {file} has no table 'trial': a comment <!-- table: trial, key: 2 --> stands before it\n",
        f"results.py: {run}/train.log has no validation loss after 4 updates\n",
        f"results.py: {tmp_path}/none/settings is missing: has this run been made?\n",
    ]
    assert file.read_text() == FILE


def test_trials_are_compared_after_as_many_updates(file, tmp_path):
    late = make_run(tmp_path / "late", {2: 5.0, 4: 4.0, 6: 1.0})
    early = make_run(tmp_path / "early", {2: 5.5, 4: 3.5}, flags="--fp16")
    assert results("best", 4, late, early) == f"{early}\n{late}\n"
    assert results("best", 2, late, early) == f"{late}\n{early}\n"
    results("trial", file, 4, f"m,softmax,b={early}")
    said = "LR=0.1 WARMUP=3 NORM=pre DROPOUT=0.3 ATTENTION_DROPOUT=0.0 --fp16"
    assert f"| m | softmax | b | `{said}` | 4 | 3.500 |\n" in file.read_text()


def test_error_of_an_aligner(file, tmp_path):
    """Two sentences; gold from 1. Forward misses one sure link; reverse adds one that is wrong."""
    (tmp_path / "gold").write_text("1-1 2-2 1p2\n1-1\n")
    (tmp_path / "forward").write_text("0-0\n0-0\n9-9\n")  # text after the gold sentences is not looked at
    (tmp_path / "reverse").write_text("0-0 1-1\n0-0 1-0\n9-9\n")
    results("aer", file, "h", "some", tmp_path / "gold", 1, tmp_path / "forward", tmp_path / "reverse")
    # forward: 1 − (2 + 2) / (2 + 3); reverse: 1 − (3 + 3) / (4 + 3); both: 0-0 1-1 and 0-0 1-0, the same as reverse
    assert "| h | some | 20.0 | 14.3 | 14.3 |\n" in file.read_text()
