"""Wrong pairs, labelled by what is wrong with them, from the true pairs of any text (Section 5.2).

python noise.py SOURCE TARGET OUT.SOURCE OUT.TARGET OUT.LABELS [--seed 1]

Half of the pairs stay as they are (`clean`). In the others, in equal numbers, the target is that of another pair
(`shuffled`), ends too early (`truncated`), has the target of another pair before or after it (`inserted`), or is the
source itself (`foreign`: the wrong language). The pairs stay on their lines.
"""

import argparse
from random import Random
from typing import Callable, Dict, List

import recipe

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.corpus.noise import labels
from fairseq_rela.errors import InputError

Words = List[str]


def _truncated(source: Words, target: Words, other: Words, random: Random) -> Words:
    return target[: max(1, int(len(target) * (0.3 + 0.4 * random.random())))]


def _inserted(source: Words, target: Words, other: Words, random: Random) -> Words:
    return target + other if random.random() < 0.5 else other + target


NOISE: Dict[str, Callable[[Words, Words, Words, Random], Words]] = {
    "clean": lambda source, target, other, random: target,
    "shuffled": lambda source, target, other, random: other,
    "truncated": _truncated,
    "inserted": _inserted,
    "foreign": lambda source, target, other, random: source,
}


def noisy(sources: List[Words], targets: List[Words], chosen: List[str], random: Random) -> List[Words]:
    """The targets after what their labels say. `other` is the target of the pair before, or of the last pair."""
    return [
        NOISE[label](source, target, other, random)
        for source, target, other, label in zip(sources, targets, [targets[-1], *targets[:-1]], chosen)
    ]


def checked(targets: List[Words], chosen: List[str], made: List[Words]) -> List[str]:
    """The labels, `clean` where the target has stayed what it was: two neighbours with one target, or a single word."""
    return [label if words != target else "clean" for label, target, words in zip(chosen, targets, made)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "target", "out_source", "out_target", "out_labels"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sources, targets = ([line.split() for _, line in text_lines(path)] for path in (args.source, args.target))
    if len(sources) != len(targets) or len(sources) < len(NOISE):
        raise InputError(
            f"{args.source} and {args.target}: have {len(sources)} and {len(targets)} lines; "
            f"give the same number in both, at least {len(NOISE)}"
        )
    random = Random(f"noise {args.seed}")
    chosen = list(labels(len(sources), random))
    made = noisy(sources, targets, chosen, random)
    for path, lines in (
        (args.out_source, map(" ".join, sources)),
        (args.out_target, map(" ".join, made)),
        (args.out_labels, checked(targets, chosen, made)),
    ):
        recipe.write_atomically(path, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        recipe.fail(error)
