"""The words of both languages: fixed tables of function words and affixes, and classes of invented stems.

`side` is 0 for the source and 1 for the target.
"""

from bisect import bisect
from itertools import accumulate
from random import Random
from typing import Dict, List, NamedTuple, Sequence, Tuple

from fairseq_rela.progress import progress

# How many values each feature has: singular and plural; present and past; three genders.
FEATURES = {"number": 2, "tense": 2, "gender": 3}

# name → (source form, target form). `-x` is a suffix, `x-` a prefix, `-` an empty form. If features are named before a
# colon, one form for each of their values follows; the value of the last feature changes fastest. A form that only one
# language uses is empty in the other.
MORPHEMES: Dict[str, Tuple[str, str]] = {
    ".": (".", "."),
    ",": (",", ","),
    "?": ("?", "?"),
    "!": ("!", "!"),
    "the": ("lo", "gender number: tha thar thi thir tho thor"),
    "a": ("ul", ""),
    "some": ("", "yas"),
    "acc": ("", "oth"),  # marks an object
    "it": ("number: se sel", "gender number: hja hjar hji hjir hjo hjor"),
    "who": ("ki", "gender: wa wi wo"),
    "whom": ("kem", "gender: wan win won"),
    "that": ("ke", "ath"),
    "because": ("kar", "hwy"),
    "and": ("e", "jan"),
    "not": ("no", "ney"),
    "is": ("number: est son", ""),
    "do": ("ede", ""),  # opens a question
    "at": ("na", "gender: uth eth ith"),
    "with": ("kon", "samn"),
    "from": ("da", "rys"),  # stands after its noun phrase in the target
    "poss": ("sa", "ov"),
    "more": ("-ir", "mey"),
    "will": ("vol", "-esk"),
    "un": ("in-", "my-"),
    "dim": ("-in", "-yl"),
    "plural": ("number: - -os", "number: - -ar"),
    "agr": ("number: - -an", "number: - -um"),
    "tense": ("tense: - -ev", "tense: - -id"),
    "conc": ("", "gender number: -a -as -e -es -o -os"),  # an adjective's concord with its noun
    "glue": ("", "-o"),  # holds a compound together
}
# Particles of verbs. In the source, and in subordinate clauses of the target, particle and verb are one word.
PARTICLES = (("re-", "wek-"), ("sub-", "nol-"), ("tra-", "hin-"), ("dis-", "ost-"))

# class → its share of the lexicon: nouns, verbs, verbs of saying, adjectives, adverbs, names
SHARES = {"N": 0.45, "V": 0.19, "SAY": 0.04, "A": 0.15, "ADV": 0.05, "NAME": 0.12}
SMALLEST = 50  # the fewest stems of a lexicon, so that every class has at least two

# For each side the onsets, vowels and codas of its stems. Stems end in a consonant, and suffixes begin with a vowel.
SOUNDS = (
    ("b d f g k l m n p r s t v z br kr pl tr", "a e i o u", "d k l m n r s t"),
    ("h j k l m n r s t v w y hw sk st th", "a e i o u y ae", "k l n r s t th nd lk rs"),
)


class Word(NamedTuple):
    source: str
    target: str
    gender: int = 0  # of the target noun; nothing in the source shows it


def pick(cumulative: Sequence[float], random: Random) -> int:
    """An index, drawn by cumulative weights.

    It uses only the method random() of `random`, whose numbers are the same in every version of Python.
    """
    return min(bisect(cumulative, random.random() * cumulative[-1]), len(cumulative) - 1)


class _Stems:
    """Makes different stems of one side. None begins with a prefix or ends in a suffix: a word has one reading."""

    def __init__(self, side: int, random: Random):
        entries = [entry[side].split(":")[-1].split() for entry in MORPHEMES.values()]
        forms = [form for entry in entries for form in entry if form != "-"] + [pair[side] for pair in PARTICLES]
        self.prefixes = tuple(form[:-1] for form in forms if form.endswith("-"))
        self.suffixes = tuple(form[1:] for form in forms if form.startswith("-"))
        self.taken = set(forms)
        self.sounds = [sounds.split() for sounds in SOUNDS[side]]
        self.random = random

    def new(self, syllables: int) -> str:
        """A new stem of this many syllables, or of more if almost all of these are used."""
        while True:
            for _ in range(20):
                onsets, vowels, codas = self.sounds
                stem = "".join(self._choice(sounds) for sounds in [onsets, vowels] * syllables + [codas])
                if not (stem in self.taken or stem.startswith(self.prefixes) or stem.endswith(self.suffixes)):
                    self.taken.add(stem)
                    return stem
            syllables += 1

    def _choice(self, choices: List[str]) -> str:
        return choices[int(len(choices) * self.random.random())]


class Lexicon:
    """About `size` invented stems in classes. In each class the most frequent come first, by Zipf's law."""

    def __init__(self, size: int, seed: int):
        random = Random(f"lexicon {seed}")
        sources, targets = _Stems(0, random), _Stems(1, random)
        self.words: Dict[str, List[Word]] = {
            "P": [Word(source.strip("-"), target.strip("-")) for source, target in PARTICLES]
        }
        for category, share in SHARES.items():
            words = self.words[category] = []
            total = round(size * share)
            for rank in progress(range(total), f"stems of class {category}", total):
                syllables = 1 if rank < total // 10 else 2  # frequent words are short
                source, target = sources.new(syllables), targets.new(syllables)
                if category == "NAME":
                    source = target = source.capitalize()
                words.append(Word(source, target, int(random.random() * FEATURES["gender"])))
        self.words["MOD"] = self.words["N"]  # the first noun of a compound
        self._cumulative = {
            category: list(accumulate(1 / (rank + 2) for rank in range(len(words))))
            for category, words in self.words.items()
        }

    def draw(self, category: str, random: Random) -> Word:
        if category == "NUM":
            limit = 10 ** (1 + int(4 * random.random()))  # small numbers are frequent too
            number = str(2 + int((limit - 2) * random.random()))  # 2 to 9999
            return Word(number, number)
        return self.words[category][pick(self._cumulative[category], random)]

    def count(self, category: str) -> int:
        return 9998 if category == "NUM" else len(self.words[category])
