"""Links between words become links between pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.words import merged
from fairseq_rela.cli import main
from fairseq_rela.commands.piece_links import spread


@pytest.fixture
def files(tmp_path):
    """files(links, source, target): their paths, as the command takes them."""

    def write(links, source, target):
        for name, text in {"links": links, "source": source, "target": target}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return [str(tmp_path / "links"), "--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]

    return write


SENTENCEPIECE = ("▁the ▁un known ▁house\n▁yes\n", "▁das ▁un be kann te ▁haus\n▁ja\n")
BPE = ("the un@@ known house\nyes\n", "das un@@ be@@ kann@@ te haus\nja\n")


@pytest.mark.parametrize("source, target", [SENTENCEPIECE, BPE])
def test_every_piece_of_a_word_gets_its_links(files, capsys, source, target):
    assert main(["piece-links", *files("0-0 1-1 2p2\n\n", source, target)]) == 0
    assert capsys.readouterr().out == "0-0 1-1 1-2 1-3 1-4 2-1 2-2 2-3 2-4 3-5\n\n"


def test_base_direction_and_file(files, tmp_path):
    words = files("1-1 3-2\n1-1\n", *BPE)
    assert main(["piece-links", *words, "--base", "1", "--reverse", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == "0-0 1-5 2-5\n0-0\n"


def test_text_without_pieces(files, capsys):
    assert main(["piece-links", *files("1-0\n", "a b\n", "c d\n")]) == 0
    assert capsys.readouterr().out == "1-0\n"


@pytest.mark.parametrize(
    "links, message",
    [
        ("0-3\n\n", "line 1: target word 3 is linked, but the target has 3 words (counted from 0)"),
        ("\n1-0\n", "line 2: source word 1 is linked, but the source has 1 words"),
        ("0-0\n", "do not have the same number of lines"),
        ("0-0\n\n\n", "do not have the same number of lines"),
        ("0-x\n\n", "line 1: '0-x' is not a link"),
    ],
)
def test_links_that_do_not_fit(files, capsys, tmp_path, links, message):
    out = tmp_path / "out"
    assert main(["piece-links", *files(links, *BPE), "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and not out.exists()


PIECES = st.lists(st.sampled_from(["a", "b@@", "c@@"]), min_size=1, max_size=6)


@given(PIECES, PIECES, st.data())
def test_pieces_are_linked_just_where_their_words_are(source, target, data):
    sides = merged(source, "bpe"), merged(target, "bpe")
    pair = st.tuples(*(st.integers(0, len(words.text) - 1) for words in sides))
    links = data.draw(st.frozensets(pair))
    expected = {
        (s, t)
        for s in range(len(source))
        for t in range(len(target))
        if (int(sides[0].of_piece[s]), int(sides[1].of_piece[t])) in links
    }
    assert spread(links, *sides) == expected
