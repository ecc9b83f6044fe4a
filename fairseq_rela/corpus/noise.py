"""Pairs that are not translations of each other, each with a label for what was done to its target.

clean      nothing
shuffled   it is the target of another sentence
truncated  its end is missing
inserted   it has an additional part that is not in the source
foreign    it is the source itself, untranslated
"""

from random import Random
from typing import Callable, Dict, Iterator, List

from fairseq_rela.corpus.grammar import Sentence
from fairseq_rela.corpus.lexicon import MORPHEMES


def _truncated(pair: Sentence, other: Sentence, random: Random) -> List[str]:
    words = len(pair.target)
    return pair.target[: max(1, int(words * (0.3 + 0.4 * random.random())))]


def _inserted(pair: Sentence, other: Sentence, random: Random) -> List[str]:
    first, second = (pair, other) if random.random() < 0.5 else (other, pair)
    return first.target[:-1] + [",", MORPHEMES["and"][1]] + second.target[:-1] + pair.target[-1:]


# label: function that makes a target from a pair, another pair and random numbers. Every other label is clean.
NOISE: Dict[str, Callable[[Sentence, Sentence, Random], List[str]]] = {
    "shuffled": lambda pair, other, random: other.target,
    "truncated": _truncated,
    "inserted": _inserted,
    "foreign": lambda pair, other, random: pair.source,
}


def labels(total: int, random: Random) -> Iterator[str]:
    """`total` labels in random order: half of them clean, the others in equal numbers."""
    left = {label: (total // 2 + k) // len(NOISE) for k, label in enumerate(NOISE)}
    left["clean"] = total - sum(left.values())
    for remaining in range(total, 0, -1):
        place = int(remaining * random.random())
        for label in left:
            place -= left[label]
            if place < 0:
                left[label] -= 1
                yield label
                break


def noisy_target(label: str, pair: Sentence, other: Sentence, random: Random) -> List[str]:
    """The target of `pair` after what the label says; `other` is a pair with another target."""
    return pair.target if label == "clean" else NOISE[label](pair, other, random)
