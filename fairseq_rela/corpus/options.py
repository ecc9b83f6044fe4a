"""The options of a corpus, and whether a corpus can be made with them."""

import re
from typing import Dict, List, NamedTuple

from fairseq_rela.corpus.grammar import Grammar
from fairseq_rela.corpus.lexicon import SMALLEST, Lexicon
from fairseq_rela.errors import InputError

MOST_CLAUSES = 6
MOST_STEMS = 1_000_000
MOST_PAIRS = 100_000_000  # of a split
SPLITS = {"train": 17, "valid": 1, "test": 1, "noisy": 1}  # shares of all possible sentences, in twentieths
BUCKETS = [split for split, share in SPLITS.items() for _ in range(share)]


class Options(NamedTuple):
    """The options of a corpus. The same options always give the same bytes."""

    train: int = 20000
    valid: int = 500
    test: int = 500
    noise: int = 0
    lexicon: int = 400
    max_clauses: int = 3
    seed: int = 1
    source_lang: str = "src"
    target_lang: str = "tgt"

    def sizes(self) -> Dict[str, int]:
        """split → number of sentence pairs. A split without pairs has no files."""
        sizes = {"train": self.train, "valid": self.valid, "test": self.test, "noisy": self.noise}
        return {split: size for split, size in sizes.items() if size}

    def files(self, split: str) -> List[str]:
        """The names of a split's three files."""
        third = "labels" if split == "noisy" else "align"
        return [f"{split}.{suffix}" for suffix in (self.source_lang, self.target_lang, third)]


def check(options: Options) -> None:
    """InputError unless a corpus can be made with these options."""
    _check_numbers(options)
    _check_languages(options)
    _check_sizes(options)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_numbers(options: Options) -> None:
    least = {"train": 0, "valid": 0, "test": 0, "noise": 0, "seed": 0, "lexicon": SMALLEST, "max_clauses": 1}
    for name, smallest in least.items():
        value = getattr(options, name)
        if value < smallest:
            raise InputError(f"{_flag(name)} {value} is too small: give at least {smallest}")
    most = {**dict.fromkeys(("train", "valid", "test", "noise"), MOST_PAIRS), "lexicon": MOST_STEMS}
    for name, largest in {**most, "max_clauses": MOST_CLAUSES}.items():
        value = getattr(options, name)
        if value > largest:
            raise InputError(f"{_flag(name)} {value} is too large: give at most {largest}")
    if not options.sizes():
        raise InputError("--train, --valid, --test and --noise are all 0: give at least one of them a size")


def _check_languages(options: Options) -> None:
    for name in ("source_lang", "target_lang"):
        value = getattr(options, name)
        if not re.fullmatch(r"[A-Za-z0-9_]+", value) or value in ("align", "labels"):
            raise InputError(
                f"{_flag(name)} {value!r} is not a suffix: give letters and digits, but not align or labels"
            )
    if options.source_lang == options.target_lang:
        raise InputError(f"--source-lang and --target-lang are both {options.source_lang}: give two names")


def _check_sizes(options: Options) -> None:
    """InputError if a split is larger than the number of sentences that the grammar can make for it."""
    grammar = Grammar(Lexicon(options.lexicon, options.seed), options.max_clauses)
    for split, size in options.sizes().items():
        available = 0
        for clauses in range(1, options.max_clauses + 1):  # one clause is enough for all usual sizes
            available = grammar.count(clauses) * SPLITS[split] // len(BUCKETS)
            if available >= size:
                break
        else:
            flag = "--noise" if split == "noisy" else f"--{split}"
            raise InputError(f"{flag} {size} is too large: give at most {available}, or a larger --lexicon")
