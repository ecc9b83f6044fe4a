"""Tags carried over along word links: every rule by an example, and what must hold for any text, tags and links."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.markup import parsed_markup, without_tags
from fairseq_rela.analysis.tag_transfer import transferred
from fairseq_rela.cli import main


def moved(source, target, links, **options):
    pairs = frozenset(tuple(map(int, link.split("-"))) for link in links.split())
    return transferred(parsed_markup(source), target.split(), pairs, **options)


STRAIGHT = "0-0 1-1 2-2 3-3"
CASES = {
    "one pair": ("das <b>alte Haus</b> dort", "the old house there", STRAIGHT, "the <b>old house</b> there"),
    "the whole line": ("<b>a b</b>", "x y", "0-0 1-1", "<b>x y</b>"),
    "another order": ("<b>a</b> b <i>c</i>", "z y x", "0-2 1-1 2-0", "<i>z</i> y <b>x</b>"),
    "attributes": ('<a href="x y">a</a> b', "p q", "0-1 1-0", 'p <a href="x y">q</a>'),
    "a word with several links": ("<b>a</b> b", "x y z", "0-0 0-1 1-2", "<b>x y</b> z"),
    "tags inside a word": ("un<b>klar</b>e Lage", "unclear situation", "0-0 1-1", "<b>unclear</b> situation"),
    "tags with spaces around them": ("<b> a </b> b", "x y", "0-0 1-1", "<b>x</b> y"),
    # nested
    "nested": ("<b>a <i>b</i></b> c", "x y z", "0-0 1-1 2-2", "<b>x <i>y</i></b> z"),
    "nested around the same words": ("<b><i>a</i></b>", "x", "0-0", "<b><i>x</i></b>"),
    "nested, in another order": ("<b>a <i>b</i></b> c", "z y x", "0-2 1-1 2-0", "z <b><i>y</i> x</b>"),
    "the same name inside itself": ("<b>a <b>b</b></b>", "x y", "0-0 1-1", "<b>x <b>y</b></b>"),
    # crossing
    "crossing in the source": ("<b>a <i>b</b> c</i>", "x y z", "0-0 1-1 2-2", "<b>x <i>y</i></b> <i>z</i>"),
    "crossing by word order": (
        "<b>a b</b> <i>c d</i>", "w x y z", "0-0 1-2 2-1 3-3", "<b>w</b> <i>x</i> <b>y</b> <i>z</i>",
    ),
    "one target word for two elements": ("<b>a</b> <i>b</i>", "x", "0-0 1-0", "<b><i>x</i></b>"),
    # empty tags
    "an empty tag before a word": ("a <x/> b", "y x", "0-1 1-0", "<x/>y x"),
    "an empty tag at the end of a word": ("a<x/> b", "y x", "0-1 1-0", "y x<x/>"),
    "an empty tag at the end of the line": ("a b <x/>", "y x", "0-1 1-0", "y<x/> x"),
    "an empty tag at the beginning": ("<x/> a b", "x y", "0-0 1-1", "<x/>x y"),
    "an empty tag inside an element": ("<b>a <x/></b> b", "x y", "0-0 1-1", "<b>x<x/></b> y"),
    "an empty tag before an element": ("<x/> <b>a</b>", "x", "0-0", "<x/><b>x</b>"),
    "an empty tag first in an element": ("<b><x/> a</b>", "x", "0-0", "<b><x/>x</b>"),
    "an empty tag behind an element": ("<b>a</b><x/> b", "x y", "0-0 1-1", "<b>x</b><x/> y"),
    "an empty element": ("a <b></b> b", "x y", "0-0 1-1", "x <b></b>y"),
    "nested empty elements": ("a <b><i></i><x/></b> b", "x y", "0-0 1-1", "x <b><i></i><x/></b>y"),
    "crossing empty elements": ("<b><i></b></i> a", "x", "0-0", "<b><i></i></b><i></i>x"),
    "two empty tags keep their order": ("a <x/><y/> b", "q p", "0-1 1-0", "<x/><y/>q p"),
    # words that are linked to nothing
    "an element without links": ("a <b>b</b> c", "x y", "0-0 2-1", "x <b></b>y"),
    "an element without links, last": ("a <b>b</b>", "x y", "0-0", "x<b></b> y"),
    "an empty tag between words without links": ("a b <x/> c d", "x y", "0-0 3-1", "x <x/>y"),
    "nearer to the left": ("a <x/> b c", "y x", "0-1 2-0", "y x<x/>"),
    "an element without links inside another": ("<b>a <i>b</i></b> c", "y x", "0-1 2-0", "y <b>x<i></i></b>"),
    "an empty tag in an element without links": ("a <b>b<x/></b> c", "x y", "0-0 2-1", "x <b><x/></b>y"),
    "no links at all": ("<b>a</b> b <x/>", "x y", "", "<b></b>x y<x/>"),
    "no target words": ("<b>a</b> <x/>", "", "", "<b></b><x/>"),
    "no source words": ("<b></b>", "x y", "", "<b></b>x y"),
    # discontinuous links
    "two runs": ("<b>a</b> b", "x y z", "0-0 0-2 1-1", "<b>x</b> y <b>z</b>"),
    "a gap of words without links": ("<b>a</b> b", "x y z w", "0-0 0-2 1-3", "<b>x y z</b> w"),
    "nested in two runs": ("<b>a <i>b</i></b> c", "x y z", "0-0 1-2 1-0 2-1", "<b><i>x</i></b> y <b><i>z</i></b>"),
    # tags without their other half
    "a start tag alone": ("a <br> b", "y x", "0-1 1-0", "<br>y x"),
    "an end tag alone": ("a </b> b", "y x", "0-1 1-0", "y x</b>"),
    "the last start tag is ended": ("<b>a <b>b</b>", "x y", "0-0 1-1", "<b>x <b>y</b>"),
    # what is no tag
    "less than": ("a < b <i>c</i>", "x < y z", "0-0 1-1 2-2 3-3", "x < y <i>z</i>"),
    "other brackets": ("<3 <- <b>x<y</b> </> <a b> <!-- -->", "<3 x<y", "0-0 2-1", "<3 <b>x<y</b>"),
    "entities": ("<b>a&amp;b</b> & &lt;i&gt;", "a&amp;b & &lt;i&gt;", "0-0 1-1 2-2", "<b>a&amp;b</b> & &lt;i&gt;"),
    "an unfinished tag": ('<a href="x>a</a> b', "p q", "0-0 1-1", "p q</a>"),
    "no tags": ("a b", "x  y", "0-0 1-1", "x y"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_by_example(name):
    source, target, links, expected = CASES[name]
    assert moved(source, target, links) == expected


def test_whole():
    assert moved("<b>a</b> b", "x y z", "0-0 0-2 1-1", whole=True) == "<b>x y z</b>"
    crossing = moved("<b>a</b> <i>b</i>", "w x y z", "0-0 0-2 1-1 1-3", whole=True)
    assert crossing == "<b>w <i>x y</i></b> <i>z</i>"


@pytest.mark.parametrize(
    "line, plain",
    [
        ("<b>ein</b>  Haus <x/>", "ein Haus"),
        ("un<b>klar</b>", "unklar"),
        ("a < b > c </x/> <1> &lt;b&gt;", "a < b > c </x/> <1> &lt;b&gt;"),
        ("<a href='1' id = \"2\" />x</a >", "x"),
        ("", ""),
    ],
)
def test_without_tags(line, plain):
    assert without_tags(line) == plain
    assert parsed_markup(line).words == plain.split()


TAGS = ["<b>", "</b>", "<i>", "</i>", '<a id="1">', "</a>", "<x/>", "<b>", "</b>"]
PIECES = st.lists(st.one_of(st.sampled_from(TAGS), st.sampled_from(["w", "<", "&", " ", " ", " "])), max_size=25)


def tags_of(text):
    return re.findall(r"</?(?:b|i|a)(?: id=\"1\")?>|<x/>", text)


def halves(line):
    """(elements, lone tags) of a line, counted by their texts: an end tag ends the last open tag of its name."""
    opened, pairs, alone = {}, [], []
    for tag in tags_of(line):
        name = tag.strip("</>").split()[0]
        if tag == "<x/>":
            alone.append(tag)
        elif not tag.startswith("</"):
            opened.setdefault(name, []).append(tag)
        elif opened.get(name):
            pairs.append(opened[name].pop())
        else:
            alone.append(tag)
    return pairs, alone + [tag for tags in opened.values() for tag in tags]


@given(PIECES, st.integers(0, 6), st.data(), st.booleans())
def test_nothing_is_lost_the_text_stays_and_tags_nest(pieces, targets, data, whole):
    line = "".join(pieces)
    markup = parsed_markup(line)
    words = [f"t{i}" for i in range(targets)]
    pairs = st.tuples(st.integers(0, max(len(markup.words) - 1, 0)), st.integers(0, max(targets - 1, 0)))
    links = frozenset(data.draw(st.lists(pairs, max_size=12))) if markup.words and targets else frozenset()
    result = transferred(markup, words, links, whole)
    assert without_tags(result) == " ".join(words)
    pairs_before, alone_before = halves(line)
    pairs_after, alone_after = halves(result)
    if not any(tag in ("<b>", "<i>", '<a id="1">', "</b>", "</i>", "</a>") for tag in alone_before):
        assert sorted(alone_after) == sorted(alone_before)
        assert set(pairs_after) == set(pairs_before) and len(pairs_after) >= len(pairs_before)
        opened = []  # every end tag ends the tag that was opened last
        for tag in tags_of(result):
            if tag.startswith("</"):
                assert opened.pop() == tag.strip("</>")
            elif tag != "<x/>":
                opened.append(tag.strip("<>").split()[0])
        assert opened == []
    for element in markup.elements:
        own = {t for s, t in links if element.first <= s <= element.last}
        if own and not whole and len(pairs_before) == 1 and not alone_before:
            inside = re.findall(rf"{re.escape(element.start)}(.*?){re.escape(element.end)}", result)
            covered = {int(word[1:]) for part in inside for word in part.split()}
            assert own <= covered and covered - own <= set(range(targets)) - {t for _, t in links}


# the command


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    source = write(tmp_path / "source", "<b>das</b> Haus\n\nalt & <x/> <3\n")
    target = write(tmp_path / "target", "the house\nx\nold & <3\n")
    return [source, target, write(tmp_path / "links", "0-0 1p1\n\n0-0 1-1 2-2\n")]


def test_from_files_to_output(files, tmp_path, capsys):
    assert main(["tag-transfer", *files]) == 0
    expected = "<b>the</b> house\nx\nold & <x/><3\n"
    assert capsys.readouterr().out == expected
    assert main(["tag-transfer", *files, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == expected
    assert main(["tag-transfer", files[0], "--strip"]) == 0
    assert capsys.readouterr().out == "das Haus\n\nalt & <3\n"


def test_bases_and_directions(files, tmp_path, capsys):
    links = write(tmp_path / "turned", "2-1 1-2\n\n1-1\n")  # target first, from 1
    assert main(["tag-transfer", *files[:2], links, "--links-base", "1", "--links-reverse"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "the <b>house</b>"


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda files: files[:2], "give SOURCE, TARGET and LINKS, or SOURCE with --strip"),
        (lambda files: [*files, "--strip"], "--strip reads SOURCE alone"),
        (lambda files: [files[0], *files[2:0:-1]], "target, line 1: 'the' is not a link"),
        (lambda files: [files[0], write_short(files), files[2]], "short: has 1 lines, but"),
        (lambda files: [*files, "--links-base", "1"], "links, line 1: link 0-0 has index 0"),
        (lambda files: [*files, "--links-reverse"], None),
        (lambda files: [*files[:2], write_beyond(files)], "line 2: source word 0 is linked to target word 0 (counted"),
    ],
)
def test_wrong_input_is_one_line(files, capsys, change, said):
    status = main(["tag-transfer", *change(files)])
    err = capsys.readouterr().err
    if said is None:
        assert status == 0
    else:
        assert status == 1 and err.count("\n") == 1 and said in err


def write_short(files):
    from pathlib import Path

    return write(Path(files[0]).parent / "short", "x\n")


def write_beyond(files):
    from pathlib import Path

    return write(Path(files[0]).parent / "beyond", "0-0\n0-0\n\n")
