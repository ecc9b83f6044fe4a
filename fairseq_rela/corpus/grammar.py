"""The sentences: a synchronous grammar. One table of rules makes both languages and the links between their words."""

import re
from functools import lru_cache
from itertools import accumulate, product
from random import Random
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fairseq_rela.corpus.lexicon import FEATURES, MORPHEMES, Lexicon, Word, pick

# A rule is (category, weight, features, source, target). The weight says how often the rule is chosen.
#
# In source and target:
#   UPPER CASE is a category: one of these rules, or a class of the lexicon. A digit tells two of the same one apart.
#   Lower case is a morpheme. A name that is on both sides is linked. A morpheme of one side only is linked to nothing.
#   `+` joins two parts into one word, which is linked to what both are linked to.
#   `-` adds an inflection. An inflection has no link.
# Features:
#   `number`, `tense`, `noun` are drawn here, and hold for everything below. Without them, those from above hold.
#   `singular` and `plural` restrict the rule to that number.
RULES = (
    ("TEXT", 60, "", "MAIN .", "MAIN ."),
    ("TEXT", 8, "", "ADV INV .", "ADV INV ."),  # the target's verb stays second
    ("TEXT", 10, "", "do INV ?", "INV ?"),
    ("TEXT", 4, "", "ORDER !", "ORDER !"),
    ("TEXT", 10, "", "because SUB , INV .", "because SUB , INV ."),
    ("TEXT", 12, "", "TWICE .", "TWICE ."),
    ("MAIN", 30, "number", "SUBJ VERB OBJ", "SUBJ VERB acc OBJ"),
    ("MAIN", 14, "number tense", "SUBJ P+V-tense-agr OBJ", "SUBJ V-tense-agr acc OBJ P"),
    ("MAIN", 14, "number", "SUBJ VERB OBJ PLACE", "SUBJ VERB PLACE acc OBJ"),
    ("MAIN", 8, "number", "SUBJ VERB ADV", "SUBJ ADV VERB"),
    ("MAIN", 8, "number", "SUBJ not VERB OBJ", "SUBJ not VERB acc OBJ not"),
    ("MAIN", 10, "number noun", "NP is ADJ", "NP ADJ"),
    ("MAIN", 10, "number tense", "SUBJ SAY-tense-agr that SUB", "SUBJ SAY-tense-agr , that SUB"),
    ("MAIN", 6, "number tense", "SUBJ SAY-tense-agr SUB", "SUBJ SAY-tense-agr , that SUB"),
    ("MAIN", 18, "number", "SUBJ VERB OBJ and MAIN", "SUBJ VERB acc OBJ , and MAIN"),
    ("MAIN", 8, "number tense", "SUBJ P+V-tense-agr OBJ and MAIN", "SUBJ V-tense-agr acc OBJ P , and MAIN"),
    ("INV", 3, "number", "SUBJ VERB OBJ", "VERB SUBJ acc OBJ"),
    ("INV", 1, "number tense", "SUBJ P+V-tense-agr OBJ", "V-tense-agr SUBJ acc OBJ P"),
    ("SUB", 3, "number", "SUBJ VERB OBJ", "SUBJ acc OBJ VERB"),
    ("SUB", 1, "number tense", "SUBJ P+V-tense-agr OBJ", "SUBJ acc OBJ P+V-tense-agr"),
    ("SUB", 1, "number", "SUBJ not VERB OBJ", "SUBJ acc OBJ not VERB"),
    ("TWICE", 1, "number noun", "NP VERB1 OBJ1 and it VERB2 OBJ2", "NP VERB1 acc OBJ1 and it VERB2 acc OBJ2"),
    ("ORDER", 1, "", "V OBJ", "acc OBJ V"),
    ("RELATIVE", 3, "", "who VERB OBJ", ", who acc OBJ VERB"),
    ("RELATIVE", 1, "number", "whom SUBJ VERB", ", whom SUBJ VERB"),
    ("SUBJ", 5, "noun", "NP", "NP"),
    ("SUBJ", 2, "singular", "NAME", "NAME"),
    ("OBJ", 6, "number noun", "NP", "NP"),
    ("OBJ", 1, "", "NAME", "NAME"),
    ("PLACE", 3, "number noun", "at NP", "at NP"),
    ("PLACE", 2, "number noun", "with NP", "with NP"),
    ("PLACE", 2, "number noun", "from NP", "NP from"),
    ("NP", 30, "", "the NOUN", "the NOUN"),
    ("NP", 26, "", "the ADJ NOUN", "the NOUN ADJ"),
    ("NP", 14, "singular", "a NOUN", "NOUN"),
    ("NP", 7, "plural", "NOUN", "some NOUN"),
    ("NP", 10, "plural", "NUM N-plural", "NUM N"),
    ("NP", 10, "", "the MOD N-plural", "the MOD-glue+N-plural"),
    ("NP", 7, "", "NAME poss NOUN", "the NOUN poss NAME"),
    ("NP", 12, "", "the NOUN RELATIVE", "the NOUN RELATIVE"),
    ("NOUN", 8, "", "N-plural", "N-plural"),
    ("NOUN", 1, "", "N-dim-plural", "N-dim-plural"),
    ("ADJ", 6, "", "A", "A-conc"),
    ("ADJ", 1, "", "un+A", "un+A-conc"),
    ("ADJ", 1, "", "A+more", "more A-conc"),
    ("VERB", 5, "tense", "V-tense-agr", "V-tense-agr"),
    ("VERB", 1, "", "will V-agr", "V+will-agr"),
)
CLAUSES = {"MAIN": 1, "INV": 1, "SUB": 1, "TWICE": 2, "ORDER": 1, "RELATIVE": 1}  # clauses in a category

Features = Dict[str, Any]  # number and tense: index of the value; noun: a Word; gender: that of the noun
Token = Tuple[str, Tuple[int, ...]]  # a word, or a part of one, and its ids. Tokens with the same id are linked
Item = List[Tuple[str, bool]]  # one word of a rule: the names of its parts, and whether each has a link


class Sentence(NamedTuple):
    source: List[str]
    target: List[str]
    links: List[Tuple[int, int]]  # (source index, target index), sorted


class Rule(NamedTuple):
    weight: int
    draws: List[str]
    number: Optional[int]  # the one it needs
    sides: Tuple[List[Item], List[Item]]
    children: Dict[str, str]  # name: category, in the source's order
    morphemes: List[str]
    clauses: int  # in the children

    def fits(self, number: Optional[int], clauses: int) -> bool:
        return self.clauses <= clauses and self.number in (None, number)


def _item(text: str) -> Item:
    """`P+V-tense` -> [("P", True), ("V", True), ("tense", False)]."""
    return [(name, mark != "-") for mark, name in re.findall(r"([+-]?)([^+-]+)", text)]


def _grammar() -> Dict[str, List[Rule]]:
    rules: Dict[str, List[Rule]] = {}
    for category, weight, needs, *sides in RULES:
        words = needs.split()
        source, target = ([_item(text) for text in side.split()] for side in sides)
        names = [name for side in (source, target) for item in side for name, _ in item]
        children = {name: name.rstrip("0123456789") for name in names if name.isupper()}
        rules.setdefault(category, []).append(
            Rule(
                weight,
                draws=[word for word in words if word not in ("singular", "plural")],
                number={"singular": 0, "plural": 1}.get(words[0]) if words else None,
                sides=(source, target),
                children=children,
                morphemes=[name for name in MORPHEMES if name in names],
                clauses=sum(CLAUSES.get(child, 0) for child in children.values()),
            )
        )
    return rules


def _paradigm(form: str) -> Tuple[List[str], Dict[Tuple[int, ...], str]]:
    """`number: - -os` -> (["number"], {(0,): "", (1,): "os"})."""
    features, _, listed = form.rpartition(":")
    names = features.split()
    values = product(*(range(FEATURES[name]) for name in names))
    return names, dict(zip(values, (word.strip("-") for word in listed.split() or [""])))


GRAMMAR = _grammar()
PARADIGMS = {name: [_paradigm(form) for form in sides] for name, sides in MORPHEMES.items()}


def _inflected(name: str, side: int, features: Features) -> str:
    names, listed = PARADIGMS[name][side]
    return listed[tuple([features[feature] for feature in names])] if names else listed[()]


class Grammar:
    """Sentences of at most `max_clauses` clauses over the words of `lexicon`."""

    def __init__(self, lexicon: Lexicon, max_clauses: int):
        self.lexicon = lexicon
        self.max_clauses = max_clauses
        self._rules = lru_cache(None)(self._admitted)

    def sentence(self, random: Random) -> Sentence:
        source, target = _Derivation(self, random).expand("TEXT", {})
        places: Dict[int, List[int]] = {}  # id: where it is in the source
        for i, (_, ids) in enumerate(source):
            for shared in ids:
                places.setdefault(shared, []).append(i)
        links = {(i, j) for j, (_, ids) in enumerate(target) for shared in ids for i in places.get(shared, ())}
        return Sentence([word for word, _ in source], [word for word, _ in target], sorted(links))

    def choose(self, category: str, number: Optional[int], clauses: int, random: Random) -> Rule:
        rules, cumulative = self._rules(category, number, clauses)
        return rules[pick(cumulative, random)]

    def _admitted(self, category: str, number: Optional[int], clauses: int) -> Tuple[List[Rule], List[int]]:
        rules = [rule for rule in GRAMMAR[category] if rule.fits(number, clauses)]
        return rules, list(accumulate(rule.weight for rule in rules))

    def count(self, clauses: int) -> int:
        """The number of distinct sentences with at most `clauses` clauses."""
        sizes = {"tense": FEATURES["tense"], "noun": self.lexicon.count("N"), "number": 1}

        @lru_cache(None)
        def ways(stack: Tuple[Tuple[str, Optional[int]], ...], clauses: int) -> int:
            """The number of ways to expand the stack, leftmost item first, with this many clauses left."""
            if not stack:
                return 1
            (category, number), rest = stack[0], stack[1:]
            if category not in GRAMMAR:  # a noun was drawn and counted by a rule above
                return (1 if category == "N" else self.lexicon.count(category)) * ways(rest, clauses)
            total = 0
            for rule in GRAMMAR[category]:
                if rule.fits(number, clauses):
                    choices = 1
                    for feature in rule.draws:
                        choices *= sizes[feature]
                    for value in range(FEATURES["number"]) if "number" in rule.draws else [number]:
                        below = tuple((child, value) for child in rule.children.values())
                        total += choices * ways(below + rest, clauses - rule.clauses)
            return total

        return ways((("TEXT", None),), clauses)


class _Derivation:
    """The state while one sentence is built: how many clauses it may still have, and the last id used."""

    def __init__(self, grammar: Grammar, random: Random):
        self.grammar, self.random = grammar, random
        self.clauses_left = grammar.max_clauses
        self.last_id = 0

    def expand(self, category: str, features: Features) -> Tuple[List[Token], List[Token]]:
        """Choose a rule for a category and apply it. Returns the tokens of source and target."""
        rule = self.grammar.choose(category, features.get("number"), self.clauses_left, self.random)
        self.clauses_left -= rule.clauses
        if rule.draws:
            features = dict(features)
            for feature in rule.draws:
                self._draw(feature, features)
        parts = {}
        for name, child in rule.children.items():
            if child in GRAMMAR:
                parts[name] = self.expand(child, features)
            else:
                word = features["noun"] if child == "N" else self.grammar.lexicon.draw(child, self.random)
                parts[name] = self._linked(word.source, word.target)
        for name in rule.morphemes:
            parts[name] = self._linked(_inflected(name, 0, features), _inflected(name, 1, features))
        source, target = (
            [token for item in items for token in _joined(item, [parts[name][side] for name, _ in item])]
            for side, items in enumerate(rule.sides)
        )
        return source, target

    def _draw(self, feature: str, features: Features) -> None:
        if feature == "noun":
            noun: Word = self.grammar.lexicon.draw("N", self.random)
            features.update(noun=noun, gender=noun.gender)
        else:
            features[feature] = int(FEATURES[feature] * self.random.random())

    def _linked(self, source: str, target: str) -> Tuple[List[Token], List[Token]]:
        self.last_id += 1
        return [(source, (self.last_id,))], [(target, (self.last_id,))]


def _joined(item: Item, parts: List[List[Token]]) -> List[Token]:
    """The tokens of an item: those of its only part, or one word made of all its parts."""
    if len(parts) == 1:
        return parts[0]
    word = "".join(part[0][0] for part in parts)
    return [(word, tuple(shared for (_, linked), part in zip(item, parts) if linked for shared in part[0][1]))]
