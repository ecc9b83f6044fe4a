"""Part-of-speech tags for Section 5.2, by a real tagger where it is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples/paper/hanta_tags.py"
sys.path.insert(0, str(SCRIPT.parent))
from hanta_tags import tokens_of, universal  # noqa: E402


@pytest.mark.parametrize(
    "tag, language, expected",
    [
        ("VA(FIN)", "de", "AUX"),
        ("VM(INF)", "de", "AUX"),
        ("VV(PP)", "de", "VERB"),
        ("$,", "de", "$,"),
        ("VBZ", "en", "AUX"),
        ("VM0", "en", "AUX"),
        ("VVG", "en", "VERB"),
        ("NN1", "en", "NN1"),
    ],
)
def test_verbs_are_told_from_auxiliaries(tag, language, expected):
    assert universal(tag, language) == expected


def test_punctuation_at_the_end_of_a_word_is_a_token_of_its_own():
    assert [tokens_of(word) for word in ("trägt,", "„Hut“.", ",", "d'or")] == [
        ["trägt", ","],
        ["Hut", "“", "."],
        [","],
        ["d'or"],
    ]


def run(*arguments, text=""):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], input=text, capture_output=True, text=True)


def test_an_unknown_language_is_one_line():
    refused = run("fi")
    assert refused.returncode == 1 and refused.stderr == "hanta_tags.py: give a language, one of de, en\n"


def test_one_tag_for_each_word():
    pytest.importorskip("HanTa")
    tagged = run("de", text="Ein Mann, der einen Hut trägt, hat das Haus gesehen.\n\n")
    assert tagged.stdout.splitlines() == ["ART NN PRELS ART NN VERB AUX ART NN VERB", ""]
