"""The code passes ruff, mypy and shellcheck (settings in pyproject.toml), and errors of the set-up are one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SCRIPTS = [str(p) for p in [*sorted(ROOT.glob("examples/**/*.sh")), *sorted(ROOT.glob("tests/*.sh")), ROOT / ".ci/run"]]


CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "shellcheck": ["shellcheck", "-x", *SCRIPTS],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_tools_find_nothing_wrong(check):
    tool, *words = CHECKS[check]
    if not (BIN / tool).exists():
        pytest.skip(f"{tool} is not in this environment")
    done = subprocess.run([str(BIN / tool), *words], cwd=str(ROOT), stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


def setup(*flags, **variables):
    environment = {**os.environ, "RELA_PYTHON": "", **variables}
    return subprocess.run(
        ["bash", "examples/setup_env.sh", *flags],
        cwd=str(ROOT),
        env=environment,
        capture_output=True,
        text=True,
    )


def python_of_version(tmp_path, version):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho {version}\n")
    fake.chmod(0o755)
    return str(fake)


def test_an_unsupported_python_is_told_in_one_line(tmp_path):
    for flags, version in (([], "3.7"), (["--legacy"], "3.12")):
        done = setup(*flags, RELA_PYTHON=python_of_version(tmp_path, version), RELA_VENV=str(tmp_path / "venv"))
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert f"is Python {version}; this environment needs Python 3." in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_missing_python_is_told_in_one_line(tmp_path):
    done = setup(RELA_PYTHON=str(tmp_path / "nothing"), RELA_VENV=str(tmp_path / "venv"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "does not run" in done.stderr
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("bash", "dirname", "cat"):
        (bare / tool).symlink_to(shutil.which(tool))
    done = setup(PATH=str(bare), HOME=str(tmp_path), PYENV_ROOT=str(tmp_path))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no Python 3.11 found" in done.stderr


def test_an_environment_of_another_python_is_not_touched(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    shutil.copy(python_of_version(tmp_path, "3.6"), str(tmp_path / "venv" / "bin" / "python"))
    done = setup(RELA_PYTHON=python_of_version(tmp_path, "3.11"), RELA_VENV=str(tmp_path / "venv"))
    assert done.returncode == 1 and "holds Python 3.6, not 3.11" in done.stderr
    assert os.listdir(str(tmp_path / "venv")) == ["bin"]


def test_an_unknown_option():
    done = setup("--legcy")
    assert done.returncode == 1
    assert done.stderr == "setup_env.sh: unknown option '--legcy'; known are --legacy, --find\n"


def test_no_module_is_longer_than_300_lines():
    modules = [*ROOT.glob("fairseq_rela/**/*.py"), *ROOT.glob("examples/**/*.py")]
    assert len(modules) > 100
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 220


def test_a_missing_environment_is_told_in_one_line(tmp_path):
    """A dry run needs only Python."""
    (tmp_path / "python").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "DEVICES": "cpu"}
    environment["RELA_VENV"] = str(tmp_path / "none")

    def train(*flags):
        command = ["bash", "examples/train.sh", "toy", "rela_g", *flags]
        return subprocess.run(command, cwd=str(ROOT), env=environment, capture_output=True, text=True)

    done = train()
    assert done.returncode == 1
    assert done.stderr == "train.sh: fairseq-train was not found; run 'bash examples/setup_env.sh' first\n"
    assert "fairseq-train" in train("--dry-run").stdout
