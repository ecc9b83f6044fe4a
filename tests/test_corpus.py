"""The toy corpus: its sentences, that it is the same on every machine, and that its files are complete."""

import json
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela import cli
from fairseq_rela.corpus import grammar as grammar_module
from fairseq_rela.corpus import writing
from fairseq_rela.corpus.grammar import CLAUSES, GRAMMAR, RULES, Grammar, Sentence
from fairseq_rela.corpus.lexicon import FEATURES, MORPHEMES, SHARES, Lexicon, Word, pick
from fairseq_rela.corpus.noise import NOISE, labels, noisy_target
from fairseq_rela.corpus.options import Options, check
from fairseq_rela.corpus.writing import rows, split_of, write_corpus
from fairseq_rela.errors import InputError

SMALL = Options(train=60, valid=5, test=5, noise=16, lexicon=60)
LEXICON = Lexicon(200, seed=1)
sentences = st.builds(
    lambda seed, clauses: Grammar(LEXICON, clauses).sentence(Random(seed)), st.integers(0, 10**9), st.integers(1, 5)
)


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# --- sentences


class Script:
    """A random generator whose random() gives these numbers."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


class FewWords:
    """A lexicon with one word per class."""

    words = {  # noqa: RUF012
        "N": Word("kat", "mus", gender=1),
        "MOD": Word("dom", "hus"),
        "V": Word("vid", "sey"),
        "SAY": Word("dik", "seth"),
        "A": Word("bon", "guth"),
        "ADV": Word("nun", "jets"),
        "P": Word("re", "wek"),
        "NAME": Word("Ana", "Ana"),
        "NUM": Word("42", "42"),
    }

    def draw(self, category, random):
        return self.words[category]


# the rules that are applied, in order, each by its source side; then the sentence they make
CONSTRUCTIONS = {
    "adjective after noun, comparative of two words, dropped copula, concord": (
        ["MAIN .", "NP is ADJ", "the ADJ NOUN", "A", "N-plural", "A+more"],
        ("lo bon kat est bonir .", "thi mus guthe mey guthe .", "0-0 1-2 2-1 4-3 4-4 5-5"),
    ),
    "verb second, article dropped, object marked": (
        ["ADV INV .", "SUBJ VERB OBJ", "NAME", "V-tense-agr", "NP", "a NOUN", "N-plural"],
        ("nun Ana vid ul kat .", "jets sey Ana oth mus .", "0-0 1-2 2-1 4-4 5-5"),
    ),
    "verb last, conjunction and comma inserted": (
        ["MAIN .", "SUBJ SAY-tense-agr SUB", "NAME", "SUBJ VERB OBJ", "NAME", "will V-agr", "NAME"],
        ("Ana dik Ana vol vid Ana .", "Ana seth , ath Ana oth Ana seyesk .", "0-0 1-1 2-4 3-7 4-7 5-6 6-8"),
    ),
    "particle parted from its verb": (
        ["MAIN .", "SUBJ P+V-tense-agr OBJ", "NAME", "NAME"],
        ("Ana revid Ana .", "Ana sey oth Ana wek .", "0-0 1-1 1-4 2-3 3-5"),
    ),
    "particle joined to its verb at the end": (
        ["because SUB , INV .", "SUBJ P+V-tense-agr OBJ", "NAME", "NAME"]
        + ["SUBJ VERB OBJ", "NAME", "V-tense-agr", "NAME"],
        (
            "kar Ana revid Ana , Ana vid Ana .",
            "hwy Ana oth Ana weksey , sey Ana oth Ana .",
            "0-0 1-1 2-4 3-3 4-5 5-7 6-6 7-9 8-10",
        ),
    ),
    "negation twice, compound of one word, article of its last noun's gender": (
        ["MAIN .", "SUBJ not VERB OBJ", "NAME", "V-tense-agr", "NP", "the MOD N-plural"],
        ("Ana no vid lo dom kat .", "Ana ney sey oth thi husomus ney .", "0-0 1-1 1-6 2-2 3-4 4-5 5-5 6-7"),
    ),
    "question, order of possessor": (
        ["do INV ?", "SUBJ VERB OBJ", "NP", "NAME poss NOUN", "N-dim-plural", "V-tense-agr", "NAME"],
        ("ede Ana sa katin vid Ana ?", "sey thi musyl ov Ana oth Ana ?", "1-4 2-3 3-2 4-0 5-6 6-7"),
    ),
    "relative clause, its pronoun of the noun's gender": (
        ["ORDER !", "V OBJ", "NP", "the NOUN RELATIVE", "N-plural", "who VERB OBJ", "V-tense-agr", "NAME"],
        ("vid lo kat ki vid Ana !", "oth thi mus , wi oth Ana sey sey !", "0-8 1-1 2-2 3-4 4-7 5-6 6-9"),
    ),
    "pronoun of a gender named before": (
        ["TWICE .", "NP VERB1 OBJ1 and it VERB2 OBJ2", "a NOUN", "N-plural"]
        + ["V-tense-agr", "NAME", "V-tense-agr", "NAME"],
        ("ul kat vid Ana e se vid Ana .", "mus sey oth Ana jan hji sey oth Ana .", "1-0 2-1 3-3 4-4 5-5 6-6 7-8 8-9"),
    ),
    "two main clauses, a preposition that agrees": (
        ["MAIN .", "SUBJ VERB OBJ and MAIN", "NAME", "V-tense-agr", "NAME"]
        + ["SUBJ VERB OBJ PLACE", "NAME", "V-tense-agr", "NAME", "at NP", "the NOUN", "N-plural"],
        (
            "Ana vid Ana e Ana vid Ana na lo kat .",
            "Ana sey oth Ana , jan Ana sey eth thi mus oth Ana .",
            "0-0 1-1 2-3 3-5 4-6 5-7 6-12 7-8 8-9 9-10 10-13",
        ),
    ),
    "preposition that follows": (
        ["MAIN .", "SUBJ VERB OBJ PLACE", "NAME", "V-tense-agr", "NAME", "from NP", "NUM N-plural"],
        ("Ana vid Ana da 42 kat .", "Ana sey 42 mus rys oth Ana .", "0-0 1-1 2-6 3-4 4-2 5-3 6-7"),
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_construction(name, monkeypatch):
    """Each construction's words and links, with the rules chosen by hand, singular and present."""
    sources, (source, target, links) = CONSTRUCTIONS[name]
    taken = list(sources)
    by_source = {(row[0], row[3]): rule for row, rule in zip(RULES, _rules_in_order())}
    monkeypatch.setattr(Grammar, "choose", lambda self, category, *rest: by_source[category, taken.pop(0)])
    monkeypatch.setattr(grammar_module._Derivation, "_draw", _first_value)
    sentence = Grammar(FewWords(), 9).sentence(Script())
    assert (" ".join(sentence.source), " ".join(sentence.target)) == (source, target)
    assert " ".join(f"{i}-{j}" for i, j in sentence.links) == links
    assert not taken


def _rules_in_order():
    left = {category: list(rules) for category, rules in GRAMMAR.items()}
    return [left[row[0]].pop(0) for row in RULES]


def _first_value(self, feature, features):
    features.update({"noun": FewWords.words["N"], "gender": 1} if feature == "noun" else {feature: 0})


def test_plural_and_past():
    plural_past = {"number": 1, "tense": 1, "gender": 2}
    said = {name: [grammar_module._inflected(name, side, plural_past) for side in (0, 1)] for name in MORPHEMES}
    assert said["the"] == ["lo", "thor"]
    assert said["it"] == ["sel", "hjor"]
    assert said["is"] == ["son", ""]
    assert said["plural"] == ["os", "ar"]
    assert said["agr"] == ["an", "um"]
    assert said["tense"] == ["ev", "id"]
    assert said["conc"] == ["", "os"]
    assert said["at"] == ["na", "ith"]


def test_rules_name_what_there_is():
    classes = set(SHARES) | {"P", "MOD", "NUM"}
    for rule in _rules_in_order():
        named = [{name for item in side for name, _ in item} for side in rule.sides]
        categories = [{name for name in side if name.isupper()} for side in named]
        assert categories[0] == categories[1], "a category is on both sides"
        assert set(rule.children.values()) <= classes | set(GRAMMAR)
        assert (named[0] | named[1]) - categories[0] <= set(MORPHEMES)
        assert {name for item in rule.sides[0] for name, linked in item if not linked} <= set(MORPHEMES)
    assert set(CLAUSES) <= set(GRAMMAR)


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_links_are_in_range_and_copies_are_linked(sentence):
    source, target, links = sentence
    assert links == sorted(set(links))
    assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in links)
    for words, side in ((source, 0), (target, 1)):
        for index, word in enumerate(words):
            linked = [pair for pair in links if pair[side] == index]
            if word[0].isupper() or word.isdigit():
                assert [(source[i], target[j]) for i, j in linked] == [(word, word)]
    assert source[-1] == target[-1]
    assert (len(source) - 1, len(target) - 1) in links


@settings(max_examples=200, deadline=None)
@given(sentences)
def test_only_some_function_words_are_linked_to_nothing(sentence):
    source, target, links = sentence
    nothing = {"ul", "est", "son", "ede"}, {"yas", "oth", ",", "ath", "tha", "thi", "tho", "thar", "thir", "thor"}
    for side, words in enumerate((source, target)):
        linked = {pair[side] for pair in links}
        assert {word for index, word in enumerate(words) if index not in linked} <= nothing[side]


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_no_more_clauses_than_asked(seed, clauses):
    sentence = Grammar(LEXICON, clauses).sentence(Random(seed))
    verbs = {word.source for category in ("V", "SAY") for word in LEXICON.words[category]}
    prefixes, suffixes = ("", "re", "sub", "tra", "dis"), ("", "ev", "an", "evan")
    verb_forms = {before + verb + after for verb in verbs for before in prefixes for after in suffixes}
    copulas = {"est", "son"}
    assert 1 <= sum(word in verb_forms | copulas for word in sentence.source) <= clauses


class TwoNouns(FewWords):
    """Two nouns of different gender and one word of every other class, so that sentences soon repeat."""

    def draw(self, category, random):
        other = category == "N" and random.random() < 0.5
        return Word("kan", "hunth", gender=2) if other else self.words[category]


def test_a_source_has_one_translation():
    grammar, random = Grammar(TwoNouns(), 2), Random(5)
    translations = {}
    repeated = 0
    for _ in range(4000):
        sentence = grammar.sentence(random)
        source = " ".join(sentence.source)
        repeated += source in translations
        assert translations.setdefault(source, sentence) == sentence
    assert repeated > 300


def test_an_inflection_links_nothing(monkeypatch):
    """Two words of a rule with the same ending are not linked because of it."""
    rule = ("TEXT", 1, "number noun", "N-plural A-plural", "A-plural N-plural")
    monkeypatch.setattr(grammar_module, "RULES", (rule,))
    monkeypatch.setattr(grammar_module, "GRAMMAR", grammar_module._grammar())
    plural = Script(0.0, 0.9)  # the only rule, the second number
    assert Grammar(FewWords(), 1).sentence(plural) == (["katos", "bonos"], ["guthar", "musar"], [(0, 1), (1, 0)])


def test_count_of_sentences(monkeypatch):
    """Against an enumeration by hand: 2 nouns, 2 numbers; one or two clauses."""
    rules = (
        ("TEXT", 1, "", "MAIN .", "MAIN ."),
        ("TEXT", 1, "", "MAIN1 and MAIN2 .", "MAIN1 and MAIN2 ."),
        ("MAIN", 1, "number noun", "the NP", "the NP"),
        ("NP", 1, "singular", "N", "N"),
        ("NP", 1, "", "A N-plural", "A N-plural"),
    )
    monkeypatch.setattr(grammar_module, "RULES", rules)
    monkeypatch.setattr(grammar_module, "GRAMMAR", grammar_module._grammar())
    lexicon = Lexicon(50, 1)
    nouns, adjectives = len(lexicon.words["N"]), len(lexicon.words["A"])
    clauses = nouns * (1 + 2 * adjectives)
    assert Grammar(lexicon, 1).count(1) == clauses
    assert Grammar(lexicon, 2).count(2) == clauses + clauses**2


# --- words


@pytest.mark.parametrize("size", [50, 600, 3000])
def test_every_inflected_form_has_one_reading(size):
    lexicon = Lexicon(size, seed=2)
    suffixes = {
        "N": ["", "os", "in", "inos"],
        "V": ["", "ev", "an", "evan"],
        "SAY": ["", "ev", "an", "evan"],
        "A": ["", "ir"],
        "ADV": [""],
        "NAME": [""],
    }
    prefixes = {"V": ["", "re", "sub", "tra", "dis"], "A": ["", "in"]}
    made = [
        before + word.source + after
        for category in SHARES
        for word in lexicon.words[category]
        for before in prefixes.get(category, [""])
        for after in suffixes[category]
    ]
    closed = {form for source, _ in MORPHEMES.values() for form in source.split(":")[-1].split()}
    assert len(made) == len(set(made))
    assert not closed & set(made)


def test_lexicon_size_and_shares():
    assert {name: len(words) for name, words in Lexicon(600, 1).words.items()} == {
        **{"P": 4, "N": 270, "V": 114, "SAY": 24, "A": 90, "ADV": 30, "NAME": 72},
        "MOD": 270,
    }
    assert min(len(Lexicon(50, 1).words[name]) for name in SHARES) == 2


def test_frequencies_fall_as_zipf_says():
    random = Random(0)
    nouns = [word.source for word in LEXICON.words["N"]]
    drawn = [nouns.index(LEXICON.draw("N", random).source) for _ in range(20000)]
    assert set(drawn) == set(range(90))
    # weights 1 / (rank + 2): the first against the sixth is 7 / 2
    assert drawn.count(0) / drawn.count(5) == pytest.approx(3.5, rel=0.15)


def test_all_genders_and_numbers_occur():
    random = Random(0)
    assert {word.gender for word in LEXICON.words["N"]} == set(range(FEATURES["gender"]))
    numbers = [int(LEXICON.draw("NUM", random).source) for _ in range(2000)]
    assert min(numbers) == 2 and 9000 < max(numbers) <= 9999
    assert {len(str(number)) for number in numbers} == {1, 2, 3, 4}


def test_pick_never_leaves_the_list():
    assert [pick([1, 3, 4], Script(x)) for x in (0.0, 0.25, 0.7, 0.75, 0.999)] == [0, 1, 1, 2, 2]
    assert pick([0.1], Script(1.0)) == 0


# --- splits and determinism

FIRST = [
    (
        "lo brudam led natrudev lo plumek brukik .",
        "tho hiwithosot kyjelkid oth thi jukael rorire .",
        "0-0 1-1 2-1 3-2 4-4 5-6 6-5 7-7",
    ),
    (
        "lo munos ki krotan Krelot dupalan lo fokos e Totol fer lut .",
        "thir yindar , wi oth Krelot sunum hwimokum oth thor skaelar , jan Totol kot luk .",
        "0-0 1-1 2-3 3-6 4-5 5-7 6-9 7-10 8-12 9-13 10-15 11-14 12-16",
    ),
    (
        "kar 537 govitos kasatan plotinos , lo kreder brilos subzalevan 4 risetos .",
        "hwy 537 vothind oth yas walylar reyendum , nursidum thor kursar sykilos oth 4 yumaelk nol .",
        "0-0 1-1 2-2 3-6 4-5 5-7 6-9 7-11 8-10 9-8 9-15 10-13 11-14 12-16",
    ),
]


def test_first_sentences_of_seed_1():
    first = []
    for split, lines in rows(Options(train=3, valid=0, test=0), Grammar(Lexicon(400, 1), 3)):
        assert split == "train"
        first.append(lines)
    assert first == FIRST


def test_same_bytes_in_every_process(tmp_path):
    """Whatever the hash seed, and through the command."""
    flags = ["--train", "60", "--valid", "5", "--test", "5", "--noise", "16", "--lexicon", "60"]
    written = []
    for hash_seed in ("0", "1"):
        out = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "fairseq_rela.cli", "toy-corpus", str(out), *flags]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        written.append(contents(out))
    write_corpus(str(tmp_path / "here"), SMALL)
    assert written[0] == written[1] == contents(tmp_path / "here")
    write_corpus(str(tmp_path / "other"), SMALL._replace(seed=2))
    assert contents(tmp_path / "other")["train.src"] != written[0]["train.src"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 60), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_splits_have_their_sizes_and_share_nothing(seed, train, valid, test, noise):
    options = Options(train, valid, test, noise, lexicon=50, max_clauses=1, seed=seed)
    by_split = {"train": [], "valid": [], "test": [], "noisy": []}
    for split, (source, _, _) in rows(options, Grammar(Lexicon(50, seed), 1)):
        by_split[split].append(source)
        assert split_of(source.split()) == split
    assert [len(by_split[split]) for split in by_split] == [train, valid, test, noise]
    together = [set(split) for split in by_split.values()]
    assert len(set().union(*together)) == sum(len(split) for split in together)


def test_a_larger_corpus_begins_with_the_smaller(tmp_path):
    write_corpus(str(tmp_path / "small"), SMALL)
    write_corpus(str(tmp_path / "large"), SMALL._replace(train=100, valid=7))
    for name in ("train.src", "train.tgt", "train.align", "valid.src", "test.src", "test.align", "noisy.tgt"):
        small, large = (read(tmp_path / size / name) for size in ("small", "large"))
        assert small == large[: len(small)]
        assert len(large) == {"train": 100, "valid": 7, "test": 5, "noisy": 16}[name.split(".")[0]]


# --- noise


@settings(max_examples=100, deadline=None)
@given(sentences, sentences, st.integers(0, 10**6))
def test_noise_is_what_its_label_says(pair, other, seed):
    made = {label: noisy_target(label, pair, other, Random(seed)) for label in ["clean", *NOISE]}
    assert made["clean"] == pair.target
    assert made["shuffled"] == other.target
    assert 0 < len(made["truncated"]) < len(pair.target)
    assert made["truncated"] == pair.target[: len(made["truncated"])]
    link = [",", "jan"]
    assert made["inserted"][:-1] in (
        pair.target[:-1] + link + other.target[:-1],
        other.target[:-1] + link + pair.target[:-1],
    )
    assert made["inserted"][-1] == pair.target[-1]
    assert made["foreign"] == pair.source


@given(st.integers(0, 200), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_half_the_labels_are_clean(total, seed):
    made = list(labels(total, Random(seed)))
    counts = [made.count(label) for label in NOISE]
    assert len(made) == total
    assert made.count("clean") == total - total // 2
    assert sum(counts) == total // 2 and max(counts) - min(counts) <= 1


def test_noise_comes_in_no_order():
    made = list(labels(80, Random(1)))
    assert made != sorted(made)
    assert made[::2] != ["clean"] * 40


def test_noisy_files(tmp_path):
    write_corpus(str(tmp_path), SMALL._replace(noise=40))
    pairs = list(zip(*(read(tmp_path / f"noisy.{suffix}") for suffix in ("src", "tgt", "labels"))))
    assert len(pairs) == 40
    translation = {}
    grammar, random = Grammar(Lexicon(60, 1), 3), Random("sentences 1")
    for _ in range(3000):
        sentence = grammar.sentence(random)
        translation[" ".join(sentence.source)] = " ".join(sentence.target)
    targets = set(translation.values())
    for source, target, label in pairs:
        assert {
            "clean": target == translation[source],
            "shuffled": target in targets and target != translation[source],
            "truncated": translation[source].startswith(target + " "),
            "inserted": translation[source][:-2] in target and target not in targets,
            "foreign": target == source,
        }[label]


def test_a_pair_is_not_shuffled_with_its_own_target(monkeypatch):
    """Two held-out neighbours with one target: the second is left out."""
    same = Sentence(["a"], ["b", "."], [(0, 0)])
    stream = iter([same, same, same, same._replace(target=["c", "."]), same])
    monkeypatch.setattr(writing, "split_of", lambda source: "noisy")

    class Given:
        def sentence(self, random):
            return next(stream)

    made = [lines for _, lines in rows(Options(0, 0, 0, noise=2), Given())]
    assert {lines[2] for lines in made} < {"clean", *NOISE}
    assert len(made) == 2 and next(stream, None) is None


# --- files


def test_files_of_a_corpus(tmp_path):
    out = tmp_path / "deep" / "toy"
    assert cli.main(["toy-corpus", str(out), "--train", "30", "--valid", "4", "--test", "0", "--lexicon", "60"]) == 0
    names = [f"{split}.{suffix}" for split in ("train", "valid") for suffix in ("src", "tgt", "align")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*names, "corpus.json"])
    description = json.loads((out / "corpus.json").read_text())
    assert description["options"] == Options(30, 4, 0, lexicon=60)._asdict()
    assert description["version"] == 1
    assert description["files"] == {
        name: {"lines": len(read(out / name)), "words": len((out / name).read_text().split())} for name in names
    }
    for source, target, links in zip(*(read(out / name) for name in names[:3])):
        for link in links.split():
            i, j = link.split("-")
            assert int(i) < len(source.split()) and int(j) < len(target.split())


def test_languages_name_the_files(tmp_path):
    write_corpus(str(tmp_path), SMALL._replace(source_lang="de", target_lang="en", valid=0, test=0, noise=0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.json", "train.align", "train.de", "train.en"]


@pytest.mark.parametrize("fail_at", ["sentence", "move"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path, monkeypatch, fail_at, error):
    calls = []

    def failing(*args):
        calls.append(args)
        if len(calls) == 5:
            raise error
        return original(*args)

    owner, name = {"sentence": (Grammar, "sentence"), "move": (os, "replace")}[fail_at]
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, failing)
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    for out in (tmp_path, tmp_path / "new"):
        calls.clear()
        with pytest.raises(type(error)):
            write_corpus(str(out), SMALL)
        assert len(calls) == 5
        assert list(tmp_path.iterdir()) == [mine]


def test_a_failure_while_writing_keeps_the_corpus_that_was_there(tmp_path, monkeypatch):
    write_corpus(str(tmp_path), SMALL)
    before = contents(tmp_path)
    monkeypatch.setattr(Grammar, "sentence", lambda self, random: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_corpus(str(tmp_path), SMALL._replace(seed=2))
    assert contents(tmp_path) == before


# --- the command


def command(out, *flags):
    return cli.main(["toy-corpus", str(out), "--train", "20", "--valid", "2", "--test", "2", "--lexicon", "60", *flags])


def test_the_same_corpus_is_not_written_twice(tmp_path, capsys, monkeypatch):
    assert command(tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 20 train, 2 valid, 2 test sentence pairs\n"
    monkeypatch.setattr(Grammar, "sentence", lambda self, random: 1 / 0)
    assert command(tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path} already has this corpus: nothing to do\n"


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--seed", "2"], "{out}/corpus.json is of another corpus (seed 1, not 2)"),
        (["--max-clauses", "2"], "{out}/corpus.json is of another corpus (max-clauses 3, not 2)"),
        (["--noise", "8"], "{out}/corpus.json is of another corpus (noise 0, not 8)"),
    ],
)
def test_another_corpus_is_in_the_way(tmp_path, capsys, flags, said):
    command(tmp_path)
    before = contents(tmp_path)
    capsys.readouterr()
    assert command(tmp_path, *flags) == 1
    end = ": give another directory, or --force\n"
    assert capsys.readouterr().err == "fairseq-rela toy-corpus: " + said.format(out=tmp_path) + end
    assert contents(tmp_path) == before
    assert command(tmp_path, *flags, "--force") == 0
    assert contents(tmp_path) != before


def test_force_takes_the_old_corpus_away(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    command(tmp_path, "--noise", "8")
    assert (tmp_path / "noisy.labels").exists()
    command(tmp_path, "--target-lang", "xx", "--force")
    names = [f"{split}.{suffix}" for split in ("train", "valid", "test") for suffix in ("src", "xx", "align")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "corpus.json", "mine.txt"])


@pytest.mark.parametrize("name, text", [("test.align", "0-0\n"), ("corpus.json", "{}"), ("corpus.json", "not json")])
def test_a_foreign_file_is_in_the_way(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    assert command(tmp_path) == 1
    said = f"{tmp_path / name} exists and is not a file of a toy corpus: give another directory, or --force\n"
    assert capsys.readouterr().err == "fairseq-rela toy-corpus: " + said
    assert contents(tmp_path) == {name: text.encode()}
    assert command(tmp_path, "--force") == 0
    assert command(tmp_path) == 0


def test_a_corpus_with_a_file_missing(tmp_path, capsys):
    command(tmp_path)
    (tmp_path / "valid.tgt").unlink()
    assert command(tmp_path) == 1
    assert f"{tmp_path / 'valid.tgt'} is missing" in capsys.readouterr().err
    assert command(tmp_path, "--force") == 0
    assert len(read(tmp_path / "valid.tgt")) == 2


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"train": -1}, "--train -1 is too small: give at least 0"),
        ({"noise": -5}, "--noise -5 is too small: give at least 0"),
        ({"seed": -1}, "--seed -1 is too small: give at least 0"),
        ({"lexicon": 49}, "--lexicon 49 is too small: give at least 50"),
        ({"max_clauses": 0}, "--max-clauses 0 is too small: give at least 1"),
        ({"max_clauses": 7}, "--max-clauses 7 is too large: give at most 6"),
        ({"source_lang": "a.b"}, "--source-lang 'a.b' is not a suffix"),
        ({"target_lang": "align"}, "--target-lang 'align' is not a suffix"),
        ({"target_lang": "src"}, "--source-lang and --target-lang are both src"),
        ({"train": 0, "valid": 0, "test": 0}, "all 0"),
        ({"test": 10**18, "lexicon": 50, "max_clauses": 1}, "--test 1000000000000000000 is too large"),
        ({"noise": 10**60, "lexicon": 50}, "--noise 1000000"),
    ],
)
def test_bad_options_are_named(changed, said):
    with pytest.raises(InputError) as error:
        check(Options()._replace(**changed))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_input_is_one_line(tmp_path, capsys):
    assert command(tmp_path / "out", "--valid", "-1") == 1
    assert capsys.readouterr().err == "fairseq-rela toy-corpus: --valid -1 is too small: give at least 0\n"
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert command(tmp_path / "file") == 1
    assert capsys.readouterr().err == f"fairseq-rela toy-corpus: {tmp_path / 'file'} is a file: give a directory\n"


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["toy-corpus", "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for name, default in Options()._asdict().items():
        assert f"--{name.replace('_', '-')} " in said
        assert f"(default: {default})" in " ".join(said.split())
    assert "--force " in said


def test_only_the_standard_library_is_needed():
    code = (
        "import sys, fairseq_rela.commands.toy_corpus; "
        "print(sorted({'numpy', 'torch', 'fairseq', 'tqdm'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"[]\n"
