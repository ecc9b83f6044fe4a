"""`fairseq-rela align` and `fairseq-rela aer`, from files to output."""

from pathlib import Path

import numpy as np
import pytest
from analysis_samples import LENGTHS, PLAIN, SENTENCES, TURNED, one_head, with_one_good_head, write_dump

from fairseq_rela.cli import main

HANSARDS = Path(__file__).resolve().parents[2] / "shared" / "data" / "hansards" / "gold.talp"


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_aer_last_line_is_the_rate(tmp_path, capsys):
    hyp = write(tmp_path / "hyp", "0-0 1-2 3-3\n\n")
    gold = write(tmp_path / "gold", "0-0 1-1 1p2\n\n")
    assert main(["aer", hyp, gold]) == 0
    assert lines(capsys)[-1] == "0.400000"


def test_aer_bases_and_directions(tmp_path, capsys):
    hyp = write(tmp_path / "hyp", "0-1\n")
    gold = write(tmp_path / "gold", "2-1\n")
    for options, rate in (([], 1), (["--gold-base", "1"], 1), (["--gold-base", "1", "--gold-reverse"], 0)):
        assert main(["aer", hyp, gold, *options]) == 0
        assert float(lines(capsys)[-1]) == rate


def test_aer_of_words_without_a_link(tmp_path, capsys):
    target = write(tmp_path / "target", "a b c\nd e\n")
    hyp = write(tmp_path / "hyp", "0-0\n0-0 1-1\n")  # b and c have no link
    gold = write(tmp_path / "gold", "0-0 0p1\n1-0\n")  # c and e have none
    assert main(["aer", hyp, gold, "--target", target]) == 0
    expected = "words without a link: 2 of 5; gold: 2; precision 0.5000, recall 0.5000"
    assert lines(capsys)[-2] == expected
    every = write(tmp_path / "every", "0-0 0-1 0-2\n0-0 0-1\n")
    assert main(["aer", every, gold, "--target", target]) == 0
    assert lines(capsys)[-2] == "words without a link: 0 of 5; gold: 2; precision undefined, recall 0.0000"


def test_aer_of_nothing_is_a_number(tmp_path, capsys):
    empty = write(tmp_path / "empty", "\n")
    assert main(["aer", empty, empty]) == 0
    assert float(lines(capsys)[-1]) == 0


@pytest.mark.parametrize(
    "hyp, gold, options, said",
    [
        (b"0-0\n", b"0-0\n0-1\n", [], "hyp has 1 lines, but {gold} has 2"),
        (b"0-0\n0=1\n", b"0-0\n0-1\n", [], "hyp, line 2: '0=1' is not a link"),
        (b"0-0\n", b"\xef\xbb\xbf0-0\n", [], "gold, line 1: begins with a byte-order mark"),
        (b"0-0\n", b"0-0\n\n\xff\n", [], "gold, line 3: not UTF-8"),
        (b"0-0\n", b"0-0\n", ["--gold-base", "1"], "gold, line 1: link 0-0 has index 0"),
        (b"0-0\n", b"0-4\n", ["--target", "{gold}"], "gold, line 1: target word 4 is linked (counted from 0), but"),
        (b"\n\n", b"\n0-0\n", ["--target", "/dev/null"], "/dev/null has 0 lines, but {gold} has 2"),
    ],
)
def test_aer_says_what_is_wrong_in_one_line(tmp_path, capsys, hyp, gold, options, said):
    (tmp_path / "hyp").write_bytes(hyp)
    (tmp_path / "gold").write_bytes(gold)
    options = [option.format(gold=tmp_path / "gold") for option in options]
    assert main(["aer", str(tmp_path / "hyp"), str(tmp_path / "gold"), *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and said.format(gold=tmp_path / "gold") in err


def test_missing_file_is_one_line(tmp_path, capsys):
    assert main(["aer", str(tmp_path / "none"), str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# align: one layer, one head, weights written out

IDENTITY = [np.eye(4), np.eye(4, 2), np.eye(3, 5), np.eye(3)]


@pytest.fixture
def identity(tmp_path):
    return write_dump(tmp_path / "identity", layers=1, heads=1, kinds=["cross"], cross=one_head(IDENTITY))


def test_align_hand_computed(identity, capsys):
    assert main(["align", identity, "--layer", "0", "--head", "0", "--rows", "normal"]) == 0
    # sentence 0: x reads a@@ (word 0), y@@ z read b and c: both 1/2, the first wins: 0-0 0-1
    assert lines(capsys) == ["0-0 0-1", "0-0", "0-0 1-1", "0-0 1-1"]
    assert main(["align", identity, "--layer", "-1", "--head", "mean", "--rows", "normal", "--eos", "null"]) == 0
    assert lines(capsys) == ["0-0 0-1", "0-0", "0-0 1-1", "0-0 1-1"]


def test_align_by_default_reads_the_layer_before_the_last_shifted(tmp_path, capsys):
    cross = [np.zeros((3, 2, len(target), len(source))) for source, target in SENTENCES]
    for weights in cross:
        weights[1, 0, 1:] = np.eye(*weights.shape[2:])[:-1]  # only layer 1 of three has any weight
    dump = write_dump(tmp_path / "dump", layers=3, heads=2, kinds=["cross"], cross=cross)
    assert main(["align", dump]) == 0
    assert lines(capsys) == ["0-0 0-1", "0-0", "0-0 1-1", "0-0 1-1"]


def test_align_by_default_reads_the_guided_head_of_a_dump_that_has_one(tmp_path, capsys):
    cross = [np.ones((3, 2, len(target), len(source))) for source, target in SENTENCES]
    for weights, guided in zip(cross, IDENTITY):
        weights[0, 0] = guided
    options = {"guided_layer": 0}
    dump = write_dump(tmp_path / "dump", layers=3, heads=2, kinds=["cross"], cross=cross, options=options)
    assert main(["align", dump]) == 0
    assert lines(capsys) == ["0-0 0-1", "0-0", "0-0 1-1", "0-0 1-1"]
    for flags in (["--layer", "1"], ["--head", "mean", "--layer", "2"], ["--rows", "normal"]):
        assert main(["align", dump, *flags]) == 0
        assert lines(capsys) == ["0-0 0-1", "0-0 0-1 0-2", "0-0 0-1", "0-0 0-1"]  # of equal weights the first


def test_align_of_nulls_links_nothing(tmp_path, capsys):
    nothing = [np.zeros((len(target), len(source))) for source, target in SENTENCES]
    dump = write_dump(tmp_path / "nulls", layers=1, heads=1, kinds=["cross"], cross=one_head(nothing))
    assert main(["align", dump]) == 0
    assert capsys.readouterr().out == "\n\n\n\n"


def test_align_against_its_own_links_has_no_error(tmp_path, capsys):
    dump = write_dump(tmp_path / "dump", seed=4)
    out = str(tmp_path / "links")
    assert main(["align", dump, "--layer", "1", "--head", "2", "--rows", "normal", "--out", out]) == 0
    assert capsys.readouterr().out == ""
    assert main(["aer", out, out]) == 0
    assert float(lines(capsys)[-1]) == 0
    # that head is what a development set with these links leads to
    assert main(["align", dump, "--dev", dump, "--dev-gold", out]) == 0
    printed = capsys.readouterr()
    assert printed.out == Path(out).read_text()
    assert "layer 1, head 2, normal rows (AER 0.0000" in printed.err


def test_align_follows_ids_and_fills_gaps(tmp_path, capsys):
    dump = write_dump(tmp_path / "dump", layers=1, heads=1, kinds=["cross"], cross=one_head(IDENTITY), ids=[4, 1, 0, 2])
    assert main(["align", dump, "--layer", "0", "--rows", "normal"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["0-0 1-1", "0-0", "0-0 1-1", "", "0-0 0-1"]
    assert "1 sentences are not in the dump" in err


def test_both_directions(tmp_path, identity, capsys):
    turned = [(target, source) for source, target in SENTENCES]
    back = [np.eye(len(target), len(source))[:, ::-1] for source, target in turned]
    reverse = write_dump(tmp_path / "reverse", turned, layers=1, heads=1, kinds=["cross"], cross=one_head(back))
    choose = ["--layer", "0", "--head", "0", "--rows", "normal"]
    assert main(["align", reverse, *choose]) == 0
    backward = [{tuple(map(int, link.split("-")))[::-1] for link in line.split()} for line in lines(capsys)]
    forward = [{(0, 0), (0, 1)}, {(0, 0)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1)}]
    for method, combine in (("intersect", set.intersection), ("union", set.union)):
        assert main(["align", identity, *choose, "--reverse", reverse, "--symmetrize", method]) == 0
        actual = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines(capsys)]
        assert actual == [combine(f, b) for f, b in zip(forward, backward)]
    assert main(["align", identity, *choose, "--reverse", reverse]) == 0


@pytest.mark.parametrize(
    "options, said",
    [
        (["--layer", "7"], "no cross layer 7 in this dump; there are (from 0): 0"),
        (["--head", "1"], "no cross head 1 in this dump"),
        (["--dev-gold", "x"], "give --dev and --dev-gold together"),
        (["--reverse", "{dump}"], "sentence 0 goes from 1 to 3 words"),
    ],
)
def test_align_says_what_is_wrong_in_one_line(tmp_path, capsys, options, said):
    sentences = [*SENTENCES[1:], SENTENCES[0]]
    cross = one_head([np.eye(len(target), len(source)) for source, target in sentences])
    dump = write_dump(tmp_path / "dump", sentences, layers=1, heads=1, kinds=["cross"], cross=cross)
    out = tmp_path / "links"
    assert main(["align", dump, "--out", str(out), *(option.format(dump=dump) for option in options)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err
    assert not out.exists()


@pytest.mark.parametrize(
    "gold, said",
    [
        ("0-0\n", "gold: has 1 lines, but {dump} has 4 sentences"),
        ("0-0\n0-0\n4-0\n\n", "gold, line 3: source word 4 is linked to target word 0"),
        ("0-0\n0-3\n\n\n", "gold, line 2: source word 0 is linked to target word 3"),
    ],
)
def test_gold_that_does_not_fit(tmp_path, identity, capsys, gold, said):
    path = write(tmp_path / "gold", gold)
    assert main(["align", identity, "--dev", identity, "--dev-gold", path]) == 1
    assert said.format(dump=identity) in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_named(tmp_path, capsys):
    cross = one_head([np.full((len(target), len(source)), np.nan) for source, target in SENTENCES])
    dump = write_dump(tmp_path / "dump", layers=1, heads=1, kinds=["cross"], cross=cross)
    assert main(["align", dump]) == 1
    assert "sentence 0 has cross weights that are infinite or not a number" in capsys.readouterr().err


def test_hansards_gold_as_a_file(tmp_path, capsys):
    if not HANSARDS.exists():
        pytest.skip(f"{HANSARDS} is not here")
    sure = [" ".join(w for w in line.split() if "-" in w) for line in HANSARDS.read_text().splitlines()]
    hyp = write(tmp_path / "sure", "\n".join(sure) + "\n")
    assert main(["aer", hyp, str(HANSARDS), "--hyp-base", "1", "--gold-base", "1"]) == 0
    assert float(lines(capsys)[-1]) == 0


# by norms

ALL_ONES = [np.ones((len(target), len(source))) for source, target in SENTENCES]


def test_by_norms_reads_norms_and_by_weights_reads_weights(tmp_path, capsys):
    """The weights link every word to the first one, the norms are the identity."""
    dump = write_dump(
        tmp_path / "dump", layers=1, heads=1, kinds=["cross"], cross=one_head(ALL_ONES), norms=one_head(IDENTITY)
    )
    choose = ["--layer", "0", "--head", "0", "--rows", "normal"]
    assert main(["align", dump, *choose]) == 0
    # of equal weights the first wins
    assert lines(capsys) == ["0-0 0-1", "0-0 0-1 0-2", "0-0 0-1", "0-0 0-1"]
    assert main(["align", dump, *choose, "--by", "norms"]) == 0
    assert lines(capsys) == ["0-0 0-1", "0-0", "0-0 1-1", "0-0 1-1"]
    gold = write(tmp_path / "gold", "0-0 0-1\n0-0\n0-0 1-1\n0-0 1-1\n")
    for by, rate in (("norms", "0.0000"), ("weights", "0.3750")):  # 5 of 9 links and of 7
        assert main(["align", dump, "--dev", dump, "--dev-gold", gold, "--by", by]) == 0
        assert f"(AER {rate}" in capsys.readouterr().err


def test_by_norms_needs_norms(identity, capsys):
    assert main(["align", identity, "--by", "norms"]) == 1
    assert "has no norms of cross attention; dump again with --attn-dump-norms" in capsys.readouterr().err


# by agreement of two directions


def directions(tmp_path):
    """Dumps of two models: layer 1, head 2, normal rows; and layer 0, head 1, shifted rows."""
    forward, backward = with_one_good_head(PLAIN, 1, 2, False, 1), with_one_good_head(TURNED, 0, 1, True, 2)
    return [
        write_dump(tmp_path / name, sentences, layers=2, heads=3, kinds=["cross"], cross=cross)
        for name, sentences, cross in (("forward", PLAIN, forward), ("backward", TURNED, backward))
    ]


def test_choose_by_agreement(tmp_path, capsys):
    forward, backward = directions(tmp_path)
    assert main(["align", forward, "--reverse", backward, "--choose-by-agreement", "--symmetrize", "intersect"]) == 0
    out, err = capsys.readouterr()
    # 5, 3, 6 and 2 words agree: 2 × 16 of 16 + 17 words
    assert err.splitlines() == [
        f"{forward}: layer 1, head 2, normal rows (agreement 0.9697 on 4 sentences)",
        f"{backward}: layer 0, head 1, shifted rows (agreement 0.9697 on 4 sentences)",
    ]
    assert out.splitlines() == [" ".join(f"{i}-{i}" for i in range(min(pair))) for pair in LENGTHS]


def test_agreement_is_measured_on_a_few_sentences(tmp_path, capsys):
    forward, backward = directions(tmp_path)
    assert main(["align", forward, "--reverse", backward, "--choose-by-agreement", "--probe", "2"]) == 0
    assert "(agreement 1.0000 on 2 sentences)" in capsys.readouterr().err  # the first and the last one


def test_agreement_equals_a_slow_count(tmp_path):
    """Every pair of readings, one set of links at a time."""
    from fairseq_rela.analysis.alignment import ROWS, layer_or_head, word_links
    from fairseq_rela.analysis.reading import DumpReader
    from fairseq_rela.analysis.row_choice import Choice, agreed_choice

    readers = [
        DumpReader(write_dump(tmp_path / str(seed), sentences, seed=seed, layers=2, heads=2))
        for seed, sentences in ((3, PLAIN), (4, TURNED))
    ]
    choices = [Choice(layer, head, rows) for rows in ROWS for layer in (0, 1) for head in (0, 1, None)]

    def links(reader, choice):
        return [
            word_links(
                layer_or_head(record.cross, choice.layer, choice.head),
                reader.source_words(record),
                reader.target_words(record),
                choice.rows,
            )
            for record in reader
        ]

    ours, theirs = ({choice: links(reader, choice) for choice in choices} for reader in readers)
    slow = {
        (one, other): sum(len(a & {(t, s) for s, t in b}) for a, b in zip(ours[one], theirs[other]))
        for one in choices
        for other in choices
    }
    found = agreed_choice(*readers, "drop", "weights", 100)
    assert slow[found.forward, found.backward] == max(slow.values())
    assert found.agreement == pytest.approx(2 * max(slow.values()) / (16 + 17)) and found.sentences == 4


def test_a_head_that_is_mostly_null_is_not_chosen(tmp_path, capsys):
    """One word that always agrees is less than many words that mostly do."""
    every = []
    for sentences in (PLAIN, TURNED):
        cross = [np.zeros((1, 2, len(target), len(source))) for source, target in sentences]
        for weights in cross:
            weights[0, 0] = np.eye(*weights.shape[2:])
            weights[0, 0, 0] = np.eye(1, weights.shape[3], 1)  # the first word is linked wrongly
            weights[0, 1, 0, 0] = 0.1
        every.append(cross)
    dumps = [
        write_dump(tmp_path / name, sentences, layers=1, heads=2, kinds=["cross"], cross=cross)
        for name, sentences, cross in zip(("a", "b"), (PLAIN, TURNED), every)
    ]
    assert main(["align", dumps[0], "--reverse", dumps[1], "--choose-by-agreement"]) == 0
    assert "layer 0, head 0, normal rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, said",
    [
        (["--choose-by-agreement"], "--choose-by-agreement compares two directions; give --reverse DUMP, too"),
        (["--choose-by-agreement", "--reverse", "{dump}", "--layer", "0"], "leave out --layer, --head and --rows"),
        (
            ["--choose-by-agreement", "--reverse", "x", "--dev", "x", "--dev-gold", "x", "--dev-reverse", "x"],
            "--dev and --choose-by-agreement both choose",
        ),
        (["--choose-by-agreement", "--reverse", "{dump}", "--probe", "0"], "--probe is 0; give 1 or more"),
        (["--choose-by-agreement", "--reverse", "{dump}"], "sentence 1 goes from 4 to 2 words"),
    ],
)
def test_agreement_says_what_is_wrong_in_one_line(tmp_path, identity, capsys, options, said):
    other = write_dump(tmp_path / "other", [SENTENCES[i] for i in (3, 2, 1, 0)])
    assert main(["align", identity, *(option.format(dump=other) for option in options)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err


def test_other_sentences_the_other_way(tmp_path, identity, capsys):
    other = write_dump(tmp_path / "other", TURNED[:1], ids=[7])
    assert main(["align", identity, "--reverse", other, "--choose-by-agreement"]) == 1
    assert "have different sentences: only one has sentence 0" in capsys.readouterr().err
