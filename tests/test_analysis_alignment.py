"""Links, error rates and symmetrisation: literals, slow implementations, NLTK and the Hansards gold."""

from pathlib import Path

import numpy as np
import pytest
import unhurried  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis.alignment import (
    EOS,
    ROWS,
    AlignmentScores,
    alignment_error_rate,
    linked_sources,
    word_links,
)
from fairseq_rela.analysis.links import Gold, check_links, parsed_links, pharaoh, read_links
from fairseq_rela.analysis.symmetrization import METHODS, grow_diag, grow_diag_final_and
from fairseq_rela.analysis.words import merged
from fairseq_rela.errors import InputError

HANSARDS = Path(__file__).resolve().parents[2] / "shared" / "data" / "hansards" / "gold.talp"


def gold(text):
    return parsed_links(text)


def test_pharaoh_written_out():
    assert parsed_links("0-1 2p0") == Gold(frozenset([(0, 1)]), frozenset([(0, 1), (2, 0)]))
    assert parsed_links("1-2", base=1, reverse=True).sure == {(1, 0)}
    assert parsed_links("  ") == Gold(frozenset(), frozenset())
    assert pharaoh(frozenset([(2, 0), (0, 1)])) == "0-1 2-0"
    assert pharaoh(frozenset([(2, 0), (0, 1)]), base=1) == "1-2 3-1"


@pytest.mark.parametrize("text", ["1", "1-", "a-b", "1--2", "1-2-3", "1:2", "-1-2", "1q2", "１-２"])
def test_what_is_no_link_is_named(text):
    with pytest.raises(InputError, match=r"f.txt, line 3: .* is not a link"):
        parsed_links(text, where="f.txt, line 3")


def test_index_0_counted_from_1_is_named():
    with pytest.raises(InputError, match="link 0-1 has index 0"):
        parsed_links("0-1", base=1)


def test_links_beyond_the_sentence_are_named():
    check_links(gold("0-0 1p2"), 2, 3, "g")
    with pytest.raises(InputError, match=r"g, line 1: source word 2 .* 2 source and 3 target words"):
        check_links(gold("0-0 2p2"), 2, 3, "g, line 1")
    with pytest.raises(InputError, match="target word 3"):
        check_links(gold("0-3"), 2, 3, "g, line 1")


def test_error_rate_hand_computed():
    # |A| = 3, |S| = 2, A∩S = {0-0}, A∩P = {0-0, 1-2}: 1 - (1 + 2) / (3 + 2)
    assert alignment_error_rate([gold("0-0 1-2 3-3").sure], [gold("0-0 1-1 1p2")]) == pytest.approx(0.4)
    assert alignment_error_rate([frozenset()], [gold("0-0")]) == 1
    assert alignment_error_rate([frozenset([(0, 0)])], [Gold(frozenset([(0, 0)]), frozenset())]) == 0  # P includes S
    assert alignment_error_rate([frozenset()], [gold("")]) == 0


links_of = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


@given(st.lists(st.tuples(links_of, links_of, links_of), min_size=1, max_size=4))
def test_error_rate_equals_nltk(sentences):
    nltk = pytest.importorskip("nltk.translate.metrics", reason="NLTK, the oracle, is not installed")
    # NLTK scores one sentence: give it the corpus as one, its words numbered apart
    hypothesis, sure, possible = set(), set(), set()
    for number, (a, s, p) in enumerate(sentences):
        for links, whole in ((a, hypothesis), (s, sure), (s | p, possible)):
            whole.update((number, i, j) for i, j in links)
    if not hypothesis and not sure:
        return
    actual = alignment_error_rate([a for a, _, _ in sentences], [Gold(s, s | p) for _, s, p in sentences])
    assert actual == pytest.approx(nltk.alignment_error_rate(sure, hypothesis, possible), abs=1e-12)


def test_hansards_gold_against_itself_and_shifted():
    if not HANSARDS.exists():
        pytest.skip(f"{HANSARDS} is not here")
    golds = read_links(str(HANSARDS), base=1)
    assert len(golds) == 447
    assert sum(len(g.sure) for g in golds) == 4038
    assert sum(len(g.possible - g.sure) for g in golds) == 13400
    assert alignment_error_rate([g.sure for g in golds], golds) == 0
    moved = [frozenset((i, j + 1) for i, j in g.sure) for g in golds]
    actual = alignment_error_rate(moved, golds)
    assert 0.5 < actual < 1
    nltk = pytest.importorskip("nltk.translate.metrics", reason="NLTK, the oracle, is not installed")
    flat = [
        {(n, i, j) for n, links in enumerate(sentences) for i, j in links}
        for sentences in ([g.sure for g in golds], moved, [g.possible for g in golds])
    ]
    assert actual == pytest.approx(nltk.alignment_error_rate(*flat), abs=1e-12)


def test_linked_sources_written_out():
    weights = np.array([[0.1, 0.7, 0.9], [0, 0, 0.5], [0, 0, 0], [0.3, 0.3, 0.1], [-0.2, -0.1, -0.3]])
    assert linked_sources(weights, "drop").tolist() == [1, -1, -1, 0, 1]
    assert linked_sources(weights, "null").tolist() == [-1, -1, -1, 0, 1]
    assert linked_sources(np.ones((2, 1)), "drop").tolist() == [-1, -1]  # a source of </s> alone


def test_identity_links_to_itself_and_nulls_to_nothing():
    words = merged(["a", "b", "c", "</s>"], "bpe")
    assert word_links(np.eye(4), words, words) == {(0, 0), (1, 1), (2, 2)}
    assert word_links(np.zeros((4, 4)), words, words) == frozenset()
    # shifted: token t reads row t + 1, whose weight is on word t + 1; the last word's row is </s>'s
    assert word_links(np.eye(4), words, words, rows="shifted") == {(0 + 1, 0), (1 + 1, 1)}
    assert word_links(np.eye(4, k=-1), words, words, rows="shifted") == {(0, 0), (1, 1), (2, 2)}


def test_scores_of_identity_and_nothing():
    words = merged(["a", "b", "</s>"], "bpe")
    cross = np.zeros((2, 3, 3, 3), dtype=np.float32)
    cross[0, 1] = np.eye(3)
    scores = AlignmentScores()
    for half in (0, 1):
        scores.add(cross, words, words, gold("0-0 1-1"), half)
    actual = scores.result("normal", "drop")
    assert actual.heads == [[1, 0, 1], [1, 1, 1]]
    assert actual.layer == [0, 1]
    assert actual.best_head == [0, 1]
    assert (actual.AoL, actual.AoH) == (0.5, 0.5)
    assert actual.best_head_index == [1, 0]
    assert actual.held_out.best_head == [0, 1]
    assert scores.best("drop") == ("normal", 0, 1, 0.0)


def test_head_chosen_on_one_half_is_scored_on_the_other():
    words = merged(["a", "b", "</s>"], "bpe")
    right, wrong = np.eye(3), np.eye(3)[[1, 0, 2]]
    scores = AlignmentScores()
    scores.add(np.stack([right, wrong])[None], words, words, gold("0-0 1-1"), 0)
    for _ in range(2):  # over all sentences the second head is the better one
        scores.add(np.stack([wrong, right])[None], words, words, gold("0-0 1-1"), 1)
    actual = scores.result("normal", "drop")
    assert actual.best_head_index == [1]
    assert actual.best_head == pytest.approx([1 / 3])
    assert actual.held_out.best_head_index == [0]
    assert actual.held_out.best_head == [1]
    only = AlignmentScores()
    only.add(np.stack([right, wrong])[None], words, words, gold("0-0 1-1"), 0)
    assert only.result("normal", "drop").held_out is None  # nothing was held out: no number is made up


@given(st.integers(0, 9999), st.sampled_from(ROWS), st.sampled_from(EOS))
def test_scores_equal_one_head_at_a_time(seed, rows, eos):
    draw = np.random.RandomState(seed)
    scores, cases = AlignmentScores(), []
    for number in range(3):
        source, target = (
            merged([*draw.choice(["a", "b@@", "c"], draw.randint(1, 6)), "</s>"], "bpe") for _ in range(2)
        )
        cross = np.maximum(draw.randn(2, 3, len(target.of_piece), len(source.of_piece)), 0).astype(np.float32)
        cross[draw.rand(*cross.shape[:3]) < 0.3] = 0
        pairs = [(i, j) for i in range(len(source.text)) for j in range(len(target.text)) if draw.rand() < 0.4]
        one = Gold(frozenset(pairs[::2]), frozenset(pairs))
        scores.add(cross, source, target, one, number % 2)
        cases.append((cross, source, target, one))
    actual = scores.heads(rows, eos)
    for layer in range(2):
        for head in range(4):
            hypotheses = [slow_links(layer, head, rows, eos, *case[:3]) for case in cases]
            expected = alignment_error_rate(hypotheses, [case[3] for case in cases])
            assert actual[layer, head] == pytest.approx(expected, abs=1e-12)


def slow_links(layer, head, rows, eos, cross, source, target):
    """The definition with loops and dictionaries; head 3 is the mean of the three."""
    matrix = cross[layer].astype(np.float64).mean(axis=0) if head == 3 else cross[layer, head].astype(np.float64)
    links = set()
    for j in range(len(target.text)):
        by_word = {}
        for t, word in enumerate(target.of_piece):
            row = t + 1 if rows == "shifted" else t
            if word != j or row >= len(matrix):
                continue
            for s, source_word in enumerate(source.of_piece):
                by_word.setdefault(int(source_word), []).append(matrix[row, s])
        totals = {word: sum(parts) for word, parts in by_word.items()}
        if eos == "drop":
            totals.pop(-1, None)
        if any(totals.values()):
            best = max(totals.values())
            winner = next(word for word in [*range(len(source.text)), -1] if totals.get(word) == best)
            if winner != -1:
                links.add((winner, j))
    return frozenset(links)


# Symmetrisation

FORWARD = parsed_links("0-0 1-1 2-1 3-3").sure
BACKWARD = parsed_links("0-0 1-1 1-2 4-4").sure


def test_symmetrisation_hand_computed():
    actual = {name: pharaoh(method(FORWARD, BACKWARD)) for name, method in METHODS.items()}
    assert actual == {
        "intersect": "0-0 1-1",
        "union": "0-0 1-1 1-2 2-1 3-3 4-4",
        # 2-1 touches 1-1 and source 2 has no link; 1-2 touches it and target 2 has none; 3-3 touches neither
        # 1-2 nor 2-1 (2-2 would), 4-4 touches nothing of the intersection
        "grow-diag": "0-0 1-1 1-2 2-1",
        "grow-diag-final-and": "0-0 1-1 1-2 2-1 3-3 4-4",
    }


def test_final_and_wants_both_words_unlinked():
    forward, backward = parsed_links("0-0 0-3").sure, parsed_links("0-0 3-3").sure
    assert pharaoh(grow_diag(forward, backward)) == "0-0"
    assert pharaoh(grow_diag_final_and(forward, backward)) == "0-0 3-3"


def koehn(size, forward, backward):
    """The pseudo-code of Koehn et al. (2005), on whole grids of booleans."""
    f, b = np.zeros((size, size), dtype=bool), np.zeros((size, size), dtype=bool)
    for grid, links in ((f, forward), (b, backward)):
        for i, j in links:
            grid[i, j] = True
    made, either = f & b, f | b
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    while True:
        before = made.sum()
        for e in range(size):
            for g in range(size):
                for de, dg in neighbours if made[e, g] else ():
                    i, j = e + de, g + dg
                    inside = 0 <= i < size and 0 <= j < size
                    if inside and either[i, j] and not (made[i].any() and made[:, j].any()):
                        made[i, j] = True
        if made.sum() == before:
            break
    grown = made.copy()
    for grid in (f, b):
        for e in range(size):
            for g in range(size):
                if grid[e, g] and not made[e].any() and not made[:, g].any():
                    made[e, g] = True
    return [frozenset(zip(*(x.tolist() for x in np.nonzero(grid)))) for grid in (grown, made)]


@given(links_of, links_of)
def test_growing_equals_the_pseudo_code(forward, backward):
    grown, final = koehn(6, forward, backward)
    assert grow_diag(forward, backward) == grown
    assert grow_diag_final_and(forward, backward) == final


@given(links_of, links_of)
def test_growing_against_nltk(forward, backward):
    """NLTK's gdfa asks whether a number is among the keys "e" and "f" of a dictionary, so that every word counts as
    unlinked and it returns the union (3.10.4 and long before). Ours lies within that, and equals it where no two links
    share a word, as no word is then linked when its link is met."""
    gdfa = pytest.importorskip("nltk.translate.gdfa", reason="NLTK, the oracle, is not installed")
    ours = grow_diag_final_and(forward, backward)
    theirs = set(gdfa.grow_diag_final_and(6, 6, pharaoh(forward), pharaoh(backward)))
    assert forward & backward <= ours <= theirs
    either = forward | backward
    if len({i for i, _ in either}) == len({j for _, j in either}) == len(either):
        assert ours == theirs
