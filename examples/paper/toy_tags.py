"""Part-of-speech tags of the embedded corpus, from the grammar that made it: sentences to lines of tags.

python toy_tags.py CORPUS < test.tgt

CORPUS is the directory of fairseq-rela toy-corpus. A target word with the stem of a verb is VERB, punctuation is PUNCT,
every other word is X. The target has no auxiliary: its future is a suffix of the verb.
"""

import json
import os
import sys
from typing import FrozenSet, List

import recipe

from fairseq_rela.corpus.lexicon import MORPHEMES, PARTICLES, Lexicon

VERBS = ("V", "SAY")


def verb_forms(size: int, seed: int) -> FrozenSet[str]:
    """Every form of every verb of the target: with or without a particle, in each tense and number."""
    lexicon = Lexicon(size, seed)
    stems = {word.target for name in VERBS for word in lexicon.words[name]}
    tenses, numbers = (_suffixes(MORPHEMES[name][1]) for name in ("tense", "agr"))
    endings = {a + b for a in (*tenses, MORPHEMES["will"][1].strip("-")) for b in numbers} | {""}
    particles = {"", *(target.strip("-") for _, target in PARTICLES)}
    return frozenset(particle + stem + ending for particle in particles for stem in stems for ending in endings)


def _suffixes(forms: str) -> List[str]:
    """`number: - -um` -> ["", "um"]."""
    return [form.strip("-") for form in forms.split(":")[1].split()]


def main(corpus: str) -> None:
    try:
        with open(os.path.join(corpus, "corpus.json"), encoding="utf-8") as file:
            options = json.load(file)["options"]
    except (OSError, ValueError, KeyError):
        recipe.fail(f"{corpus}/corpus.json cannot be read; give the directory of fairseq-rela toy-corpus")
    verbs = verb_forms(options["lexicon"], options["seed"])
    for line in sys.stdin:
        print(" ".join("VERB" if word in verbs else "PUNCT" if word in ".,?!" else "X" for word in line.split()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
