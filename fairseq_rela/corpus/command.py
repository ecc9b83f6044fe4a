"""Write a parallel corpus made by rule, with gold word alignments, to try everything on.

    fairseq-rela toy-corpus data/toy
    fairseq-rela toy-corpus data/toy --train 100000 --lexicon 2000 --noise 2000 --seed 7

Two invented languages: the target puts adjectives after nouns, verbs second, or last in subordinate clauses;
its articles, pronouns and adjectives agree with a gender that the source does not show; compounds, particle
verbs and comparatives are one word here and two there; some function words are translated by nothing.
A source sentence has one translation, and the same options always give the same bytes.

Written to OUT, one sentence pair a line:
    {train,valid,test}.src .tgt   tokenised text; the splits share no sentence
    {train,valid,test}.align      links i-j: source word i, target word j, from 0 (Pharaoh format)
    noisy.src .tgt .labels        with --noise: pairs of their own, half of them clean, and what is wrong
                                  with each target: clean, shuffled, truncated, inserted, foreign
    corpus.json                   the options, and each file's lines and words

The files appear whole or not at all. If OUT already holds the same corpus, nothing is done.
"""

import argparse
import os
import re

from fairseq_rela.corpus.grammar import Grammar
from fairseq_rela.corpus.lexicon import SMALLEST, Lexicon
from fairseq_rela.corpus.writing import BUCKETS, SPLITS, Options, existing, write_corpus
from fairseq_rela.errors import InputError

MOST_CLAUSES = 6
HELP = {
    "train": "sentence pairs to train on",
    "valid": "sentence pairs to validate on",
    "test": "sentence pairs to test on",
    "noise": "labelled pairs for a quality filter, half of them clean",
    "lexicon": f"stems in the lexicon, drawn by Zipf's law; at least {SMALLEST}",
    "max_clauses": f"clauses in a sentence at most, 1 to {MOST_CLAUSES}: of 1, 7 words on average, of 3, 11",
    "seed": "another seed gives other words and sentences",
    "source_lang": "suffix of the source's files",
    "target_lang": "suffix of the target's files",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="directory to write to")
    for name, default in Options()._asdict().items():
        flag, kind = "--" + name.replace("_", "-"), type(default)
        metavar, said = {int: "N", str: "NAME"}[kind], f"{HELP[name]} (default: {default})"
        parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=said)
    parser.add_argument("--force", action="store_true", help="replace what is in the way in OUT")


def run(args: argparse.Namespace) -> None:
    options = Options(*(getattr(args, name) for name in Options._fields))
    check(options)
    if os.path.lexists(args.out) and not os.path.isdir(args.out):
        raise InputError(f"{args.out} is a file: name a directory")
    if not args.force and existing(args.out, options):
        print(f"{args.out} already holds this corpus: nothing to do")
        return
    write_corpus(args.out, options)
    print(f"{args.out}: " + ", ".join(f"{size} {split}" for split, size in options.sizes().items()) + " sentence pairs")


def check(options: Options) -> None:
    """InputError unless a corpus can be made of these options."""
    least = {"train": 0, "valid": 0, "test": 0, "noise": 0, "seed": 0, "lexicon": SMALLEST, "max_clauses": 1}
    for name, smallest in least.items():
        value = getattr(options, name)
        if value < smallest:
            raise InputError(f"--{name.replace('_', '-')} {value} is too small: give at least {smallest}")
    if options.max_clauses > MOST_CLAUSES:
        raise InputError(f"--max-clauses {options.max_clauses} is too large: give at most {MOST_CLAUSES}")
    for name in ("source_lang", "target_lang"):
        value = getattr(options, name)
        if not re.fullmatch(r"[A-Za-z0-9_]+", value) or value in ("align", "labels"):
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} {value!r} is no suffix: give letters and digits, but not align or labels")
    if options.source_lang == options.target_lang:
        raise InputError(f"--source-lang and --target-lang are both {options.source_lang}: give two names")
    if not options.sizes():
        raise InputError("--train, --valid, --test and --noise are all 0: give at least one a size")
    grammar = Grammar(Lexicon(options.lexicon, options.seed), options.max_clauses)
    for split, size in options.sizes().items():
        available = 0
        for clauses in range(1, options.max_clauses + 1):  # the first is enough for all but absurd sizes
            available = grammar.count(clauses) * SPLITS[split] // len(BUCKETS)
            if available >= size:
                break
        else:
            flag = "--noise" if split == "noisy" else f"--{split}"
            raise InputError(f"{flag} {size} is too large: give at most {available}, or a larger --lexicon")
