"""Null rates after parts of speech and commas (Section 5.2): the user's tags, marked and tabled."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from analysis_samples import write_dump

from fairseq_rela.cli import main

ROOT = Path(__file__).resolve().parent.parent


def tags(*words, fails=False):
    environment = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PATH": "/usr/bin:/bin", "RECIPE": "tags.sh"}
    command = [sys.executable, str(ROOT / "examples/paper/tags.py"), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_words_that_end_in_a_comma_are_commas(tmp_path):
    (tmp_path / "text").write_text("he said, yes ,\nno\n")
    (tmp_path / "tags").write_text("PRON VERB INTJ PUNCT\nINTJ\n")
    assert tags("mark", tmp_path / "tags", tmp_path / "text") == "PRON , INTJ ,\nINTJ\n"
    (tmp_path / "tags").write_text("PRON VERB INTJ\nINTJ\n")
    said = tags("mark", tmp_path / "tags", tmp_path / "text", fails=True)
    assert said == f"tags.sh: {tmp_path}/tags, line 1: 3 tags for 4 words; one tag per word\n"


def test_a_head_that_fires_after_commas_only(tmp_path):
    """Head 1 of layer 0 is null but after the comma; head 0 is never null."""
    sentences = [(["a", "b", "</s>"], ["he", ",", "is", "</s>"])] * 6
    cross = np.ones((6, 1, 2, 4, 3), dtype=np.float32)
    cross[:, 0, 1] = 0
    cross[:, 0, 1, 2, 0] = 1  # row 2: the input is the comma
    cross[:, 0, 0, 1] = 0  # head 0 is null after "he"
    dump = write_dump(tmp_path / "dump", sentences, layers=1, heads=2, kinds=("cross",), cross=list(cross))
    (tmp_path / "tags").write_text("PRON , AUX\n" * 6)
    words = ["analyze", dump, "--target-tags", tmp_path / "tags", "--out", tmp_path / "out", "--no-figures"]
    assert main([str(word) for word in words]) in (None, 0)
    lines = [
        line.split("\t") for line in tags("table", tmp_path / "out/metrics.json", "PRON", "VERB", ",").splitlines()
    ]
    assert lines[1:4] == [
        ["PRON", "6", "100.0%", "layer 0 head 1", "100.0%", "75.0%"],
        ["VERB", "0"],
        [",", "6", "0.0%", "layer 0 head 1", "0.0%", "75.0%"],
    ]


def test_tags_of_the_embedded_corpus_come_from_its_grammar(tmp_path):
    from fairseq_rela.corpus.lexicon import Lexicon

    assert main(["toy-corpus", str(tmp_path / "toy"), "--train", "5", "--valid", "1", "--test", "1"]) in (None, 0)
    options = json.loads((tmp_path / "toy/corpus.json").read_text())["options"]
    words = Lexicon(options["lexicon"], options["seed"]).words
    verb, say, noun = (words[name][3].target for name in ("V", "SAY", "N"))
    text = f"tha {noun} {verb}idum , ath wek{verb} {say}esk .\n\n"
    command = [sys.executable, str(ROOT / "examples/paper/toy_tags.py"), str(tmp_path / "toy")]
    environment = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True)
    assert done.stdout == "X X VERB PUNCT X VERB VERB PUNCT\n\n"
