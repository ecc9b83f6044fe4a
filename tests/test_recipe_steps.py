"""examples/step.py: a command is run when what it makes is missing or out of date, and its output is atomic."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).resolve().parent.parent / "examples/step.py"


def step(*words, status=0, dry_run=""):
    environment = {**os.environ, "RECIPE": "some.sh", "RECIPE_DATASET": "toy", "RECIPE_DRY_RUN": dry_run}
    command = [sys.executable, str(STEP), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def set_age(path, seconds):
    """Date a file so many seconds before another time, instead of waiting for the clock."""
    os.utime(str(path), (1_000_000_000 - seconds,) * 2)


def test_it_is_run_again_when_a_source_is_newer(tmp_path):
    source, made = tmp_path / "source", tmp_path / "made"
    source.write_text("one")
    words = ["--say", "copying", "--makes", made, "--stdout", made, "--from", source, "--", "cat", source]
    assert step(*words) == "[toy] copying\n" and made.read_text() == "one"
    set_age(source, 10)
    set_age(made, 5)
    assert step(*words) == ""
    source.write_text("two")
    assert step(*words) == "[toy] copying\n" and made.read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source"]


def test_it_is_run_again_when_its_settings_change(tmp_path):
    made, settings = tmp_path / "made", tmp_path / "made.settings"

    def run(value):
        return step("--say", "x", "--makes", made, "--stdout", made, "--settings", settings, f"A={value}", "--", "echo")

    assert run(1) == "[toy] x\n"
    set_age(settings, 10)
    set_age(made, 5)
    assert run(1) == "" and run(2) == "[toy] x\n"
    assert settings.read_text() == "A=2\n"


def test_a_failed_command_makes_nothing_and_shows_the_end_of_its_log(tmp_path):
    log = tmp_path / "log"
    said = step("--makes", log, "--log", log, "--", "sh", "-c", "seq 5; exit 2", status=1)
    assert said == f"3\n4\n5\nsome.sh: 'sh … seq 5; exit 2' failed; all it printed is in {log}.part\n"
    assert not log.exists()
    said = step("--", tmp_path / "nothing", status=1)
    assert said.startswith(f"some.sh: '{tmp_path}/nothing' could not be run: ") and said.count("\n") == 1


def test_a_directory_gets_its_name_when_it_is_complete(tmp_path):
    made = tmp_path / "made"
    (tmp_path / "made.part").mkdir()
    (tmp_path / "made.part/left-over").write_text("")
    step("--makes", made, "--", "mkdir", f"{made}.part")
    assert list(made.iterdir()) == [] and not (tmp_path / "made.part").exists()


@pytest.mark.parametrize(
    "words, shown",
    [
        (["--say", "hello", "--", "echo", "a b", "it's"], "# hello\necho 'a b' 'it'\"'\"'s'\n"),
        (["--makes", "o", "--stdout", "o", "--stdin", "i", "--", "cat"], "cat < i > o\n"),
        (["--makes", "l", "--log", "l", "--remove", "d", "--", "c"], "rm -rf d\nc > l.part 2>&1\nmv l.part l\n"),
        (["--makes", "d", "--", "c", "d.part"], "rm -rf d.part\nc d.part\nmv d.part d\n"),
    ],
)
def test_a_dry_run_prints_the_commands(words, shown):
    assert step(*words, dry_run="yes") == shown
