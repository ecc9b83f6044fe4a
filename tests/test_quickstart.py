"""The main job as a user starts it, stopped in the middle and started again, and the bars it draws."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(sys.prefix)
UPDATES = 30
SMALL = {
    "CORPUS": "--train 300 --valid 20 --test 20 --noise 40 --max-clauses 1", "PIECES": "150", "UPDATES": str(UPDATES),
    "WARMUP": "10", "SAVE_INTERVAL": "5", "TOKENS_PER_UPDATE": "400", "OMP_NUM_THREADS": "1", "DEVICES": "cpu",
}  # fmt: skip

quickstart_needs_its_own_environment = pytest.mark.skipif(
    not (VENV / "rela-setup").exists() or sys.version_info[:2] != (3, 11),
    reason="this environment was not built by examples/setup_env.sh for the newer stack, which the quickstart uses",
)


def quickstart(*words, **variables):
    return subprocess.Popen(
        ["bash", str(ROOT / "examples" / "quickstart.sh"), *map(str, words)],
        env={**os.environ, "RELA_VENV": str(VENV), "RELA_PYTHON": "", **SMALL, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_that_name(path):
    commands = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(path) in words and int(directory.name) != os.getpid():
            commands.append(words.replace("\0", " "))
    return commands


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


@quickstart_needs_its_own_environment
def test_stopped_in_training_it_leaves_nothing_running_and_goes_on_where_it_was(tmp_path):
    out = tmp_path / "out"
    runs = {name: out / f"transformer_{name}_tiny.seed1" for name in ("rela_gc", "softmax")}
    first = quickstart("--small", out)
    until(lambda: all((run / "checkpoints/checkpoint_last.pt").exists() for run in runs.values()))
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode == 143
    until(lambda: not processes_that_name(out), seconds=30)
    assert not any((run / "trained").exists() for run in runs.values())

    printed, errors = (second := quickstart("--small", out)).communicate(timeout=900)
    assert second.returncode == 0, printed + errors
    for run in runs.values():
        assert re.search(r"Loaded checkpoint \S+ \(epoch \d+ @ \d+ updates\)", (run / "train.log").read_text())
        assert (run / "trained").read_text() == f"{UPDATES}\n"
        assert len((run / "translation.tgt").read_text().splitlines()) == 20
    report = out / "paper/analysis/report.html"
    assert "rela_gc" in report.read_text() and "softmax" in report.read_text()
    assert f"The report: {report}\n" in printed

    # the table says what the files hold
    table = dict(re.split(r"  +", line, maxsplit=1) for line in (out / "table.txt").read_text().splitlines()[1:])
    assert (out / "table.txt").read_text() in printed
    shown = {name: cells.split() for name, cells in table.items()}
    metrics = {name: json.loads((run / "analysis/metrics.json").read_text()) for name, run in runs.items()}
    for place, (name, run) in enumerate(runs.items()):
        (model,) = metrics[name]["models"].values()
        assert shown["AoL normal"][place] == f"{100 * model['alignment']['normal']['AoL']:.1f}"
        noisy = json.loads((run / "noisy/evaluation.json").read_text())
        assert noisy["labels"] == {"clean": 20, "foreign": 5, "inserted": 5, "shuffled": 5, "truncated": 5}
        assert shown["noise AUROC, null rate"][place] == f"{noisy['evaluation'][0]['auroc']:.3f}"
    assert shown["cross sparsity %"][1] == "0.0" and float(shown["cross sparsity %"][0]) > 0
    assert shown["noise AUROC, entropy"][0] == "-"


def test_mistakes_are_told_in_one_line(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/size").write_text("full\n")
    for words, said in (
        (["--smal"], "unknown option '--smal'; known are --small, --help"),
        ([tmp_path / "a", tmp_path / "b"], f"'{tmp_path}/a' and '{tmp_path}/b': give one directory"),
        (["--small", tmp_path / "full"], f"{tmp_path}/full holds a full run; remove it or name another directory"),
    ):
        process = quickstart(*words)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (1, f"quickstart.sh: {said}\n")


def logged(updates, **numbers):
    fields = {"num_updates": str(updates), **{name: str(value) for name, value in numbers.items()}}
    return f"2026-01-01 | INFO | train_inner | {json.dumps(fields)}\n"


def test_one_training_is_shown_every_tenth_in_a_file(tmp_path):
    log = "".join(
        logged(updates, loss=9 - updates / 10) + (logged(updates, valid_loss=8.5) if updates == 10 else "")
        for updates in range(2, 21, 2)
    )
    (tmp_path / "log").write_text(log)
    options = ["--run", tmp_path / "run", "--updates", "20", "--title", "t", "--settings", "LR=1"]
    command = [
        sys.executable,
        str(ROOT / "examples/training.py"),
        *map(str, options),
        "--",
        "cat",
        str(tmp_path / "log"),
    ]
    shown = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr.splitlines()
    assert len(shown) == 10
    assert shown[0] == f"  [{'###':-<30}] 2/20 updates, loss 8.8, valid -, … "
    assert shown[-1].startswith(f"  [{'#' * 30}] 20/20 updates, loss 7.0, valid 8.5, 0 s left")


def test_what_a_training_leaves_behind(tmp_path):
    """Its log grows, a failed one is not called trained, and other settings are refused."""
    run = tmp_path / "run"

    def train(updates, setting, *command):
        words = ["--run", run, "--updates", updates, "--title", "t", "--settings", setting, "--", *command]
        words = [sys.executable, ROOT / "examples/training.py", *words]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True)

    failed = train(4, "LR=1", "sh", "-c", "echo begun; echo broken; exit 3")
    assert failed.returncode == 1
    assert failed.stderr == f"training.py: training failed: broken (all of it is in {run}/train.log)\n"
    assert not (run / "trained").exists()
    assert train(4, "LR=1", "echo", "done").returncode == 0
    assert (run / "train.log").read_text() == "begun\nbroken\ndone\n"
    assert (run / "trained").read_text() == "4\n" and (run / "train.cmd").read_text() == "echo done\n"
    assert "trained before, 4 updates" in train(3, "LR=1", "false").stdout
    other = train(5, "LR=2", "true")
    assert other.stderr == f"training.py: {run} was made with LR=1; remove it, or set TAG or OUT to keep both\n"


def test_several_trainings_are_followed_until_it_is_killed(tmp_path):
    logs = {name: tmp_path / name for name in ("a", "b")}
    command = [sys.executable, str(ROOT / "examples/progress.py"), "20", *(f"{n}={p}" for n, p in logs.items())]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        logs["a"].write_text(logged(4, loss=5))
        logs["b"].write_text(logged(2, loss=5) + logged(2, valid_loss=6.25) + logged(4, loss=5)[:-9])  # not yet whole
        line = process.stderr.readline()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert line == f"  a [{'###':-<15}] 4, valid -; b [{'#':-<15}] 2, valid 6.25 of 20 updates\n"
