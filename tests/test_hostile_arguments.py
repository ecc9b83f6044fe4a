"""Values on the command line, links and packages that would break a command: one line each."""

import sys

import pytest
from analysis_samples import write_dump
from hostile_samples import assert_one_line, run_command

from fairseq_rela.cli import EXTRAS, main
from fairseq_rela.commands.toy_corpus import HELP


def fails(capsys, words, *parts):
    """The command ends with 1 and one line that has all of `parts`."""
    assert main([str(word) for word in words]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and all(part in err for part in parts), err


@pytest.mark.parametrize(
    "flag, value, most",
    [
        ("--lexicon", 99999999999, 1_000_000),
        ("--train", 5_000_000_000, 100_000_000),
        ("--valid", 5_000_000_000, 100_000_000),
        ("--noise", 10**30, 100_000_000),
    ],
)
def test_a_corpus_has_a_bound_and_tells_it(tmp_path, capsys, flag, value, most):
    fails(capsys, ["toy-corpus", tmp_path / "out", flag, value], f"{flag} {value} is too large: give at most {most}")
    assert not (tmp_path / "out").exists()
    assert any(str(most) in line for line in HELP.values())


def test_a_large_lexicon_shows_its_progress(monkeypatch, capsys):
    from fairseq_rela.corpus import lexicon

    labels = []
    monkeypatch.setattr(lexicon, "progress", lambda items, label, total: labels.append((label, total)) or items)
    lexicon.Lexicon(100, 1)
    assert ("stems of class N", 45) in labels


@pytest.mark.parametrize("word", ["0-" + "9" * 5_000, "9" * 5_000 + "p1", "0-1000000000"])
@pytest.mark.parametrize("file", ["hyp", "gold"])
def test_a_link_with_an_index_of_many_digits(tmp_path, capsys, word, file):
    for name in ("hyp", "gold"):
        (tmp_path / name).write_text(("0-0 " + word if name == file else "0-0") + "\n")
    fails(capsys, ["aer", tmp_path / "hyp", tmp_path / "gold"], f"{file}, line 1:", "is not a link", "at most 9 digits")


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    return write_dump(tmp_path_factory.mktemp("hostile") / "dump")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--sentences", "-1"], "--sentences is -1; give 0 or more"),
        (["--min-count", "-1"], "--min-count is -1; give 0 or more"),
        (["--tau", "nan"], "--tau is nan"),
        (["--tau", "1e300"], "τ is 1e+300, too large"),
    ],
)
def test_numbers_for_analyze(dump, tmp_path, capsys, words, said):
    fails(capsys, ["analyze", dump, "--out", tmp_path / "out", "--no-figures", *words], said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--max-score", "nan"], "--max-score is nan"),
        (["--keep", "nan"], "--keep is nan"),
        (["--keep", "0.5", "--seed", "-1"], "--seed is -1; give 0 or more"),
    ],
)
def test_numbers_for_filter(dump, tmp_path, capsys, words, said):
    for name in ("text.de", "text.en"):
        (tmp_path / name).write_text("one\ntwo\nthree\nfour\n")
    text = ["--source", tmp_path / "text.de", "--target", tmp_path / "text.en", "--out", tmp_path / "out"]
    fails(capsys, ["filter", dump, *text, *words], said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "term, said",
    [
        ({"layer": -1}, "layer of a term is -1"),
        ({"measure": "null", "layer": True}, "layer of a term is True"),
        ({"scale": 0}, "scale of a term is 0"),
        ({"centre": float("nan")}, "centre of a term is nan"),
        ({"sign": "1"}, "sign of a term is '1'"),
        ({"head": 0}, "head of a term is 0"),
    ],
)
def test_a_selection_that_was_edited(dump, tmp_path, capsys, term, said):
    import json

    whole = {"measure": "null", "layer": None, "head": None, "sign": 1, "centre": 0.0, "scale": 1.0, **term}
    (tmp_path / "selection.json").write_text(json.dumps({"terms": [whole]}))
    (tmp_path / "t").write_text("one\ntwo\nthree\nfour\n")
    text = ["--source", tmp_path / "t", "--target", tmp_path / "t", "--out", tmp_path / "out", "--keep", "0.5"]
    fails(capsys, ["filter", dump, *text, "--selection", tmp_path / "selection.json"], "selection.json", said)


def test_a_kind_named_twice_for_bertviz(dump, tmp_path, capsys):
    words = ["dump-export", dump, "--bertviz", tmp_path / "view.json", "--kinds", "cross,cross"]
    fails(capsys, words, "the kind of attention cross is named twice")


@pytest.mark.parametrize(
    "words, said",
    [
        (["op", "--rows", "-3"], "--rows -3: give 1 to"),
        (["op", "--width", "0"], "--width 0: give 1 to"),
        (["op", "--entmax-lengths", "0"], "--entmax-lengths 0: give 1 to"),
        (["decode", "--beam", "-1"], "--beam -1: give 1 to"),
        (["memory", "--heads", "99999999999"], "--heads 99999999999: give 1 to"),
        (["train", "--tokens", "0"], "--tokens 0: give 1 to"),
        (["lm", "--threads", "0"], "--threads 0: give 1 to"),
    ],
)
def test_numbers_for_bench(plugin, capsys, words, said):
    fails(capsys, ["bench", *words], said)


# Packages that are not installed

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Missing())
from fairseq_rela.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("words", [["average", "a.pt", "--output", "b.pt"], ["convert", "--help"], ["bench", "op"]])
@pytest.mark.parametrize("package", ["torch", "fairseq"])
def test_without_torch_or_fairseq(words, package):
    from fairseq_rela.checkpoints import SAFE_LOADING

    if package == "fairseq" and words[0] == "bench":
        pytest.skip("the benchmark of the operation alone does not need fairseq")
    if package == "fairseq" and words[0] == "average" and not SAFE_LOADING:
        pytest.skip("this torch has no list of safe classes, for which `average` needs fairseq")
    ended = run_command(*words, code=WITHOUT.format(packages=[package]))
    assert_one_line(ended, f"needs {package}, which is not installed", f'pip install ".[{EXTRAS[package]}]"')


def test_without_matplotlib(dump, tmp_path):
    ended = run_command("analyze", dump, "--out", tmp_path / "out", code=WITHOUT.format(packages=["matplotlib"]))
    assert_one_line(ended, 'pip install ".[figures]"', "--no-figures")


def test_the_advice_is_that_of_the_docs():
    from dump_samples import ROOT

    with open(f"{ROOT}/docs/installation.md", encoding="utf-8") as file:
        page = file.read()
    for extra in EXTRAS.values():
        assert f'pip install ".[{extra}]"' in page


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairseq_rela.commands.aer", None)
    with pytest.raises(ImportError):
        main(["aer", "a", "b"])
