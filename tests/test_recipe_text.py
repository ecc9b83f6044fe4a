"""Parallel text from original files: examples/parallel_text.py."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pairs(prefix, langs):
    return list(zip(*(Path(f"{prefix}.{lang}").read_text(encoding="utf-8").splitlines() for lang in langs)))


def parallel_text(*words):
    command = [sys.executable, str(ROOT / "examples/parallel_text.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "source, said",
    [
        (b"a\n", "{target} does not: they are not translations of each other"),
        (b"", "{target} does not"),
        (b"a\n\xe9\n", "{source}, line 2, is not utf-8"),
    ],
)
def test_text_that_is_not_parallel_is_named(tmp_path, source, said):
    files = {"source": tmp_path / "x.en", "target": tmp_path / "x.fr"}
    files["source"].write_bytes(source)
    files["target"].write_bytes(b"b\nc\n")
    done = parallel_text("extract", "--langs", "en", "fr", "--out", tmp_path / "out", *files.values())
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert said.format(**files) in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.en", "x.fr"]


def test_pairs_that_are_left_out(tmp_path):
    (tmp_path / "x.en").write_text("a b\n\na b c d\nseen\nkept  too\n")
    (tmp_path / "x.fr").write_text("A\nB\nA\nvu\nà\u2028 part\n", encoding="utf-8")
    (tmp_path / "y.en").write_text("seen\n")
    (tmp_path / "y.fr").write_text("vu\n")
    flags = f"--langs en fr --min-words 1 --max-ratio 2 --unlike {tmp_path}/y --out {tmp_path}/out".split()
    done = parallel_text("extract", *flags, tmp_path / "x.en", tmp_path / "x.fr")
    assert done.stdout == f"{tmp_path}/out: 2 of 5 pairs\n"
    assert pairs(tmp_path / "out", ("en", "fr")) == [("a b", "A"), ("kept too", "à part")]
