"""Word links in the Pharaoh format (`i-j`, from 0, source word first) from the cross attention in a dump.

    fairseq-rela align DUMP > links.txt                                  # layer before the last, mean, shifted;
                                                                         # the guided head, if the dump has one
    fairseq-rela align DUMP --layer 3 --head 5 --rows normal > links.txt
    fairseq-rela align DUMP --dev DEV_DUMP --dev-gold dev.talp --gold-base 1 > links.txt
    fairseq-rela align DUMP --reverse DUMP_OF_THE_OTHER_DIRECTION --symmetrize grow-diag > links.txt
    fairseq-rela align DUMP --reverse DUMP2 --choose-by-agreement > links.txt      # no gold links are needed

A target word is linked to the source word with the largest weight (summed over the pieces of the source word, averaged
over those of the target word). A word that attends to nothing has no link. Line i is the sentence with id i, as in the
text that was given to fairseq. Make the dump with `fairseq-generate --score-reference` to align a given translation.
With `--by norms`, what counts is not the weight of a source word but how much it contributes to the attention's output;
the dump must then be made with --attn-dump-norms.
"""

import argparse
import sys
from typing import Dict, List, Optional

from fairseq_rela.analysis.alignment import EOS, ROWS
from fairseq_rela.analysis.links import Links, pharaoh, read_links, reversed_gold
from fairseq_rela.analysis.reading import BY, DumpReader
from fairseq_rela.analysis.row_choice import (
    Choice,
    agreed_choice,
    best_choice,
    check_same_sentences,
    check_same_words,
    joined,
    links_at,
)
from fairseq_rela.analysis.symmetrization import METHODS
from fairseq_rela.analysis.words import RULES
from fairseq_rela.atomic import write_atomically
from fairseq_rela.dump.info import GUIDED_LAYER
from fairseq_rela.errors import InputError

MOST_MISSING = 10_000_000  # sentences that are not in the dump


def head_number(text: str) -> Optional[int]:
    """`mean`, or the number of a head."""
    return None if text == "mean" else int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="a directory written by --attn-dump")
    parser.add_argument("--out", metavar="FILE", help="write the links to this file instead of printing them")
    position = parser.add_argument_group("where links are read")
    position.add_argument("--layer", type=int, help="decoder layer, from 0; -1 is the last (the one before the last)")
    position.add_argument(
        "--head", type=head_number, metavar="N|mean", help="a head, from 0, or the layer's mean (mean)"
    )
    position.add_argument("--rows", choices=ROWS, help="row t for token t, or row t+1, whose input it is (shifted)")
    position.add_argument(
        "--eos",
        choices=EOS,
        default="drop",
        help="ignore the weight on the source's </s>, or keep it: "
        "a word whose largest weight is there then has no link (drop)",
    )
    position.add_argument(
        "--by",
        choices=BY,
        default="weights",
        help="what a word's largest is looked for in: the weights, or the norms of --attn-dump-norms (weights)",
    )
    position.add_argument("--merge", choices=("auto", *RULES), default="auto", help="how pieces make words (auto)")
    best = parser.add_argument_group("or read where the error on a development set is lowest")
    best.add_argument("--dev", metavar="DUMP", help="a dump of the development set, of the same model")
    best.add_argument(
        "--dev-gold", metavar="FILE", help="its gold links, one line per sentence: i-j sure, ipj possible"
    )
    best.add_argument("--dev-reverse", metavar="DUMP", help="its dump by the model of --reverse")
    best.add_argument("--gold-base", type=int, choices=(0, 1), default=0, help="number of the first word there (0)")
    best.add_argument("--gold-reverse", action="store_true", help="the links there have the target's word first")
    both = parser.add_argument_group("both directions")
    both.add_argument("--reverse", metavar="DUMP", help="a dump of the same text by a model of the other direction")
    both.add_argument(
        "--symmetrize",
        choices=list(METHODS),
        default="grow-diag-final-and",
        help="how to combine the links of both directions (grow-diag-final-and)",
    )

    both.add_argument(
        "--choose-by-agreement",
        action="store_true",
        help="read both dumps where their links agree most, for each its layer, its head and its rows",
    )
    both.add_argument(
        "--probe", type=int, default=100, metavar="N", help="sentences that --choose-by-agreement looks at (100)"
    )


def run(args: argparse.Namespace) -> None:
    _check_flags(args)
    readers = [DumpReader(path, args.merge) for path in (args.dump, args.reverse) if path]
    for reader in readers:
        reader.require("cross", args.by)
    if len(readers) == 2:
        check_same_sentences(*readers)
        for there, back in zip(*readers):
            check_same_words(readers[0], there, readers[1], back)
    every = [links_at(reader, choice, args.eos, args.by) for reader, choice in zip(readers, _choices(args, readers))]
    links = every[0]
    if len(every) == 2:
        links = joined(every[0], every[1], args.symmetrize)
    _write(args, links)


def _write(args: argparse.Namespace, links: Dict[int, Links]) -> None:
    last = max(links)
    missing = last + 1 - len(links)
    if missing > MOST_MISSING:
        raise InputError(
            f"{args.dump}: has sentence {last}, but only {len(links)} sentences; "
            f"at most {MOST_MISSING} may be missing, because each becomes an empty line"
        )
    if missing:
        print(f"fairseq-rela align: {missing} sentences are not in the dump; their lines are empty", file=sys.stderr)
    lines = (pharaoh(links.get(number, frozenset())) + "\n" for number in range(last + 1))
    if args.out is not None:
        write_atomically(args.out, lambda file: file.writelines(line.encode() for line in lines))
    else:
        for line in lines:
            print(line, end="")


def _check_flags(args: argparse.Namespace) -> None:
    if bool(args.dev) != bool(args.dev_gold):
        raise InputError("give --dev and --dev-gold together: a dump, and the gold links of its sentences")
    if args.dev and args.reverse and not args.dev_reverse:
        raise InputError(
            "with --dev and --reverse, --dev-reverse is needed too, to choose where the reverse model is read"
        )
    if args.choose_by_agreement and not args.reverse:
        raise InputError("--choose-by-agreement compares two directions; give --reverse DUMP, too")
    if args.choose_by_agreement and args.dev:
        raise InputError("--dev and --choose-by-agreement both choose where links are read; give one of them")
    if args.probe < 1:
        raise InputError(f"--probe is {args.probe}; give 1 or more")
    chooser = "--dev" if args.dev else "--choose-by-agreement" if args.choose_by_agreement else None
    if chooser and (args.layer is not None or args.head is not None or args.rows):
        raise InputError(f"{chooser} chooses layer, head and rows; leave out --layer, --head and --rows")


def _choices(args: argparse.Namespace, readers: List[DumpReader]) -> List[Choice]:
    """Where each dump is read: as the flags say, by agreement, by a development set, or by default."""
    if args.choose_by_agreement:
        forward, backward, agreement, sentences = agreed_choice(readers[0], readers[1], args.eos, args.by, args.probe)
        for reader, choice in zip(readers, (forward, backward)):
            print(f"{reader.path}: {choice} (agreement {agreement:.4f} on {sentences} sentences)", file=sys.stderr)
        return [forward, backward]
    if args.dev:
        return _choices_by_gold(args, readers)
    return [_choice(args, reader) for reader in readers]


def _choice(args: argparse.Namespace, reader: DumpReader) -> Choice:
    """Where the flags say to read. Without any, the guided head of a dump that has one."""
    guided = reader.info.options.get(GUIDED_LAYER)
    if isinstance(guided, int) and args.layer is None and args.head is None and args.rows is None:
        return Choice(guided, 0, "normal")
    layers = reader.info.kinds["cross"].layers
    layer = args.layer if args.layer is not None else layers[max(len(layers) - 2, 0)]
    return Choice(layer, args.head, args.rows or "shifted")


def _choices_by_gold(args: argparse.Namespace, readers: List[DumpReader]) -> List[Choice]:
    golds = read_links(args.dev_gold, args.gold_base, args.gold_reverse)
    choices = []
    for reader, dev, own in zip(readers, (args.dev, args.dev_reverse), (golds, list(map(reversed_gold, golds)))):
        choice, rate = best_choice(DumpReader(dev, args.merge), own, args.dev_gold, args.eos, args.by)
        print(f"{reader.path}: {choice} (AER {rate:.4f} on {dev})", file=sys.stderr)
        choices.append(choice)
    return choices
