"""Part-of-speech tags by the Hanover Tagger, whose models are part of its package: nothing is downloaded at run time.

    pip install HanTa
    TAGGER="python examples/paper/hanta_tags.py de" bash examples/paper/tags.sh multi30k_en_de rela_gc

Reads sentences from standard input and prints one line of tags for each, with one tag for each word between spaces.
AUX and VERB are told apart by the tagger's own tags: STTS for German (VA, VM against VV), CLAWS 5 for English
(VB, VD, VH, VM against VV). Every other word keeps the tagger's tag.
"""

import itertools
import sys
from typing import Dict, List, Tuple

MODELS = {"de": "morphmodel_ger.pgz", "en": "morphmodel_en.pgz"}
AUXILIARIES: Dict[str, Tuple[str, ...]] = {"de": ("VA", "VM"), "en": ("VB", "VD", "VH", "VM")}
PUNCTUATION = ".,;:!?\"'()„“”»«"


def universal(tag: str, language: str) -> str:
    """AUX or VERB for a verb's tag; other tags stay, without spaces."""
    if tag.startswith(AUXILIARIES[language]):
        return "AUX"
    if tag.startswith("VV"):
        return "VERB"
    return tag.replace(" ", "_") or "X"


def tokens_of(word: str) -> List[str]:
    """A word, and then the punctuation at its end, which untokenised text has there; punctuation alone stays."""
    bare = word.strip(PUNCTUATION) or word
    return [bare, *word[word.index(bare) + len(bare) :]]


def main(arguments: List[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in MODELS:
        sys.exit(f"hanta_tags.py: give a language, one of {', '.join(MODELS)}")
    try:
        from HanTa import HanoverTagger
    except ImportError:
        sys.exit("hanta_tags.py: the tagger is not installed: pip install HanTa")
    language = arguments[0]
    tagger = HanoverTagger.HanoverTagger(MODELS[language])
    for line in sys.stdin:
        words = [tokens_of(word) for word in line.split()]
        # the tagger sees the punctuation too, because a comma tells much about what follows
        tokens = [token for word in words for token in word]
        tags = [tag for _, _, tag in tagger.tag_sent(tokens)] if tokens else []
        starts = itertools.accumulate((len(word) for word in words[:-1]), initial=0)
        print(" ".join(universal(tags[start], language) for start in starts if tags))


if __name__ == "__main__":
    main(sys.argv[1:])
