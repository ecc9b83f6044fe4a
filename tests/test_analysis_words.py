"""Pieces to words, and word weights from subword weights."""

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.words import merge_rule, merged, shifted, word_weights
from fairseq_rela.errors import InputError

CASES = [
    # rule, pieces, words, word of each piece
    ("bpe", ["un@@", "know@@", "n", "words", "</s>"], ["unknown", "words"], [0, 0, 0, 1, -1]),
    ("bpe", ["a", "</s>"], ["a"], [0, -1]),
    ("bpe", ["cut@@", "</s>"], ["cut"], [0, -1]),
    ("bpe", ["cut@@", "</s>", "b"], ["cut", "b"], [0, -1, 1]),
    ("bpe", ["<unk>", "a@@", "<unk>", "b", "</s>"], ["<unk>", "a<unk>", "b"], [0, 1, 1, 2, -1]),
    ("bpe", ["@@", "a"], ["@@", "a"], [0, 1]),
    ("bpe", ["<0xE2>@@", "<0x82>@@", "<0xAC>", "5"], ["€", "5"], [0, 0, 0, 1]),
    ("sentencepiece", ["▁un", "known", "▁words", "</s>"], ["unknown", "words"], [0, 0, 1, -1]),
    ("sentencepiece", ["▁", "<0xE2>", "<0x82>", "<0xAC>", "5", "▁a"], ["€5", "a"], [0, 0, 0, 0, 0, 1]),
    ("sentencepiece", ["▁a", "<unk>", "▁", "<unk>"], ["a<unk>", "<unk>"], [0, 0, 1, 1]),
    ("sentencepiece", ["▁", "▁a", "▁", "</s>"], ["a"], [0, 0, 0, -1]),
    ("sentencepiece", ["no", "mark", "▁b"], ["nomark", "b"], [0, 0, 1]),
    ("sentencepiece", ["▁", "<0xFF>"], ["\ufffd"], [0, 0]),
    ("none", ["a@@", "▁b"], ["a@@", "▁b"], [0, 1]),
    ("bpe", ["</s>"], [], [-1]),
    ("sentencepiece", ["</s>"], [], [-1]),
    ("bpe", [], [], []),
]


@pytest.mark.parametrize("rule, pieces, text, of_piece", CASES)
def test_words_written_out(rule, pieces, text, of_piece):
    words = merged(pieces, rule)
    assert words.text == text
    assert words.of_piece.tolist() == of_piece


def test_rule_is_told_from_the_pieces():
    assert merge_rule([["a", "b"], ["c@@", "d"]]) == "bpe"
    assert merge_rule([["a"], ["▁c", "d"]]) == "sentencepiece"
    assert merge_rule([["a", "b"]]) == "none"
    assert merged(["▁c", "d"]).text == ["cd"]


def test_unknown_rule_names_those_there_are():
    with pytest.raises(InputError, match="auto, bpe, sentencepiece, none"):
        merged(["a"], "wordpiece")


plain = st.text("abcß漢", min_size=1, max_size=3)


@given(st.lists(st.lists(plain, min_size=1, max_size=4), max_size=6))
def test_bpe_spells_what_sed_would(sentence):
    pieces = [part + ("@@" if i + 1 < len(word) else "") for word in sentence for i, part in enumerate(word)]
    assert merged([*pieces, "</s>"], "bpe").text == " ".join(pieces).replace("@@ ", "").split()


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁cd", "<unk>"]), max_size=10))
def test_sentencepiece_spells_what_its_decoder_would(pieces):
    words = merged([*pieces, "</s>"], "sentencepiece")
    spelled = [word for word in words.text if word]
    assert spelled == "".join(pieces).replace("▁", " ").split()
    assert (np.diff(words.of_piece[:-1]) >= 0).all()  # words are runs of pieces
    if spelled:
        assert words.text == spelled  # no word without letters beside those with


def test_word_weights_sum_over_source_and_average_over_target():
    source = merged(["a@@", "b", "c", "</s>"], "bpe")
    target = merged(["x", "y@@", "z", "</s>"], "bpe")
    weights = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [1, 0, 1, 0], [9, 9, 9, 9]], dtype=np.float32)
    assert word_weights(weights, source, target).tolist() == [[3, 3], [6, 4]]
    assert word_weights(weights, source, target, eos=True).tolist() == [[3, 3, 4], [6, 4, 4]]
    # shifted: x reads row 1; yz reads rows 2 and 3
    assert word_weights(weights, source, shifted(target)).tolist() == [[11, 7], [9.5, 5]]


def test_shifted_leaves_out_the_row_a_cut_target_does_not_have():
    target = merged(["x", "y"], "bpe")  # no </s>: token y has no row after it
    source = merged(["a", "b"], "bpe")
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert word_weights(weights, source, shifted(target)).tolist() == [[3, 4], [0, 0]]


@given(st.data())
def test_word_weights_equal_loops(data):
    bpe = st.lists(st.sampled_from(["a", "b@@", "c"]), min_size=1, max_size=6).map(lambda p: [*p, "</s>"])
    source_pieces, target_pieces = data.draw(bpe), data.draw(bpe)
    source, target = merged(source_pieces, "bpe"), merged(target_pieces, "bpe")
    seed = data.draw(st.integers(0, 99))
    weights = np.random.RandomState(seed).randn(2, 3, len(target_pieces), len(source_pieces))
    actual = word_weights(weights, source, target)
    for j in range(len(target.text)):
        rows = [t for t, word in enumerate(target.of_piece) if word == j]
        for i in range(len(source.text)):
            columns = [s for s, word in enumerate(source.of_piece) if word == i]
            for layer in range(2):
                for head in range(3):
                    slow = sum(weights[layer, head, t, s] for t in rows for s in columns) / len(rows)
                    assert actual[layer, head, j, i] == pytest.approx(slow, abs=1e-12)
