"""The Python tools of the recipes with damaged files and wrong words: one line, no traceback, no endless work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def tool(name, *words, code=None):
    """(exit status, what it printed on stderr) of a tool, or of `code` beside the tools."""
    command = [sys.executable, str(EXAMPLES / name)] if code is None else [sys.executable, "-c", code]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RECIPE")}
    ended = subprocess.run(
        [*command, *map(str, words)], env={**environment, "PYTHONPATH": str(EXAMPLES)}, capture_output=True, text=True
    )
    return ended.returncode, ended.stderr


LINKS = "import sys, recipe, parallel_text\ntry: parallel_text.write_links(*sys.argv[1:])\n"
LINKS += "except recipe.RecipeError as error: recipe.fail(error)"


@pytest.mark.parametrize("line", ["99999999999 1 1 S", "x 1 1", "1 -1 1", "1 1", "1 1 1 Q", "-1 1 1 S"])
def test_gold_links_of_a_shared_task(tmp_path, line):
    (tmp_path / "gold.wa").write_text(f"1 1 1 S\n{line}\n")
    status, said = tool("", tmp_path / "gold.wa", tmp_path / "links", code=LINKS)
    assert status == 1 and said.count("\n") == 1 and f"gold.wa, line 2: '{line}' is not 'sentence i j S|P'" in said
    assert not (tmp_path / "links").exists()


def test_right_gold_links_and_none(tmp_path):
    (tmp_path / "gold.wa").write_text("1 1 1 S\n3 2 1 P\n")
    assert tool("", tmp_path / "gold.wa", tmp_path / "links", code=LINKS) == (0, "")
    assert (tmp_path / "links").read_text() == "1-1\n\n2p1\n"
    (tmp_path / "gold.wa").write_text("")
    assert tool("", tmp_path / "gold.wa", tmp_path / "links", code=LINKS) == (0, "")


@pytest.mark.parametrize("text", ["", "{", "[" * 99, "\0"])
def test_a_damaged_score(tmp_path, text):
    (tmp_path / "bleu.json").write_text(text)
    status, said = tool("table.py", "score", tmp_path)
    assert status == 1 and said.count("\n") == 1 and f"{tmp_path}/bleu.json is damaged" in said


def test_a_training_without_a_command():
    status, said = tool("training.py", "--run", "x", "--updates", "1", "--title", "x")
    assert status == 2 and said.endswith("error: give -- COMMAND\n")
