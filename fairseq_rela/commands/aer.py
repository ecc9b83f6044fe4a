"""Score word links against gold links: the alignment error rate (AER), in the last line printed.

    fairseq-rela aer links.txt gold.txt
    fairseq-rela aer links.txt gold.talp --gold-base 1

Both files have one line per sentence: `i-j` links word i of one language to word j of the other, `ipj` (in GOLD) is a
link that is possible but not sure. An empty line is a sentence without links. Indices are compared as they are written.
If the two files count from different numbers, give --hyp-base and --gold-base.

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)      A: HYP, S: sure in GOLD, P: possible or sure
"""

import argparse

from fairseq_rela.analysis.alignment import error_rate, overlap
from fairseq_rela.analysis.links import read_links
from fairseq_rela.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hyp", metavar="HYP", help="the links to score")
    parser.add_argument("gold", metavar="GOLD", help="the links made by people")
    for name in ("hyp", "gold"):
        parser.add_argument(
            f"--{name}-base",
            type=int,
            choices=(0, 1),
            default=0,
            help=f"number of the first word in {name.upper()} (0)",
        )
        parser.add_argument(
            f"--{name}-reverse", action="store_true", help=f"in {name.upper()}, read i-j as j-i: the other direction"
        )


def run(args: argparse.Namespace) -> None:
    hypotheses = [links.possible for links in read_links(args.hyp, args.hyp_base, args.hyp_reverse)]
    golds = read_links(args.gold, args.gold_base, args.gold_reverse)
    if len(hypotheses) != len(golds):
        raise InputError(f"{args.hyp} has {len(hypotheses)} lines, but {args.gold} has {len(golds)}")
    counts = overlap(hypotheses, golds)
    possible = sum(len(gold.possible) for gold in golds)
    print(f"{len(golds)} sentences, {counts.linked} links; gold: {counts.sure} sure, {possible} possible with them")
    if counts.linked and counts.sure:
        precision, recall = counts.in_possible / counts.linked, counts.in_sure / counts.sure
        print(f"precision {precision:.4f} (of links that are possible), recall {recall:.4f} (of sure links)")
    print(f"{float(error_rate(*counts)):.6f}")
