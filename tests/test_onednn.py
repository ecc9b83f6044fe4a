"""examples/onednn.py, which runs a command with oneDNN's matrix products."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parent.parent / "examples/onednn.py"
REPORT = """\
import sys, torch
print(torch.backends.mkldnn.matmul.fp32_precision, sys.argv[1:], "fairseq_rela" in sys.modules)
"""


def run(tmp_path, *words):
    command = tmp_path / "report"
    command.write_text(f"#!{sys.executable}\n{REPORT}")
    command.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RECIPE": "train.sh"}
    return subprocess.run([sys.executable, SCRIPT, *words], env=environment, capture_output=True, text=True)


def test_command_runs_with_its_own_arguments_and_without_our_package(tmp_path):
    done = run(tmp_path, "report", "--flag", "a b")
    if "PRODUCTS=onednn" in done.stderr:  # an older torch, or a CPU with AMX
        pytest.skip(done.stderr)
    assert (done.stdout, done.stderr) == ("bf16 ['--flag', 'a b'] False\n", "")


@pytest.mark.parametrize("words, named", [(["nothing-here", "x"], "nothing-here"), ([], "")])
def test_unknown_command(tmp_path, words, named):
    done = run(tmp_path, *words)
    assert (done.returncode, done.stderr) == (1, f"train.sh: no command '{named}'; give fairseq-train …\n")


def test_products_that_round_to_bfloat16_are_refused(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import onednn

    assert onednn.in_float32()
    whole = torch.full
    monkeypatch.setattr(torch, "full", lambda *args: whole(*args).bfloat16().float())
    assert not onednn.in_float32()
