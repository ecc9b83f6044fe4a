"""Write a small parallel corpus made by rule, with gold word alignments.

    fairseq-rela toy-corpus data/toy
    fairseq-rela toy-corpus data/toy --train 100000 --lexicon 2000 --noise 2000 --seed 7

Both languages are invented. The target puts adjectives after nouns, and verbs second, or last in subordinate clauses.
Its articles, pronouns and adjectives agree with a gender that the source does not show. Compounds, particle verbs and
comparatives are one word in one language and two in the other. Some function words have no translation.
A source sentence has one translation, and the same options always give the same bytes.

Written to OUT, one sentence pair per line:
    {train,valid,test}.src .tgt   tokenised text; the splits share no sentence
    {train,valid,test}.align      links i-j: source word i, target word j, from 0 (Pharaoh format)
    noisy.src .tgt .labels        with --noise: other pairs, half of them clean, and what is wrong with each
                                  target: clean, shuffled, truncated, inserted, foreign
    corpus.json                   the options, and the number of lines and words of each file

The files are written atomically. If OUT already has the same corpus, nothing is done.
"""

import argparse
import os

from fairseq_rela.corpus.lexicon import SMALLEST
from fairseq_rela.corpus.options import MOST_CLAUSES, MOST_PAIRS, MOST_STEMS, Options, check
from fairseq_rela.corpus.writing import existing, write_corpus
from fairseq_rela.errors import InputError

HELP = {
    "train": f"sentence pairs to train on; at most {MOST_PAIRS}, as of each split",
    "valid": "sentence pairs to validate on",
    "test": "sentence pairs to test on",
    "noise": "labelled pairs for a quality filter, half of them clean",
    "lexicon": f"stems in the lexicon, drawn by Zipf's law; {SMALLEST} to {MOST_STEMS}",
    "max_clauses": f"most clauses in a sentence, 1 to {MOST_CLAUSES}; with 1 the average is 7 words, with 3 it is 11",
    "seed": "another seed gives other words and sentences",
    "source_lang": "suffix of the source files",
    "target_lang": "suffix of the target files",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="directory to write to")
    for name, default in Options()._asdict().items():
        flag, kind = "--" + name.replace("_", "-"), type(default)
        metavar = {int: "N", str: "NAME"}[kind]
        help_text = f"{HELP[name]} (default: {default})"
        parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=help_text)
    parser.add_argument("--force", action="store_true", help="replace files of these names in OUT")


def run(args: argparse.Namespace) -> None:
    options = Options(*(getattr(args, name) for name in Options._fields))
    check(options)
    if os.path.lexists(args.out) and not os.path.isdir(args.out):
        raise InputError(f"{args.out} is a file: give a directory")
    if not args.force and existing(args.out, options):
        print(f"{args.out} already has this corpus: nothing to do")
        return
    write_corpus(args.out, options)
    print(f"{args.out}: " + ", ".join(f"{size} {split}" for split, size in options.sizes().items()) + " sentence pairs")
