"""Score word links against gold links: the alignment error rate (AER), in the last line printed.

    fairseq-rela aer links.txt gold.txt
    fairseq-rela aer links.txt gold.talp --gold-base 1

Both files have one line per sentence: `i-j` links word i of one language to word j of the other, `ipj` (in GOLD) is a
link that is possible but not sure. An empty line is a sentence without links. Indices are compared as they are written.
If the two files count from different numbers, give --hyp-base and --gold-base.
With --target TEXT, the words of the target that have no link are scored too. In GOLD, these are the words that have
neither a sure nor a possible link.

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)      A: HYP, S: sure in GOLD, P: possible or sure
"""

import argparse
from typing import List

from fairseq_rela.analysis.alignment import error_rate, overlap, unlinked_overlap
from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import Gold, Links, read_links
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

    parser.add_argument(
        "--target", metavar="TEXT", help="the target text, to score which of its words have no link (null)"
    )


def run(args: argparse.Namespace) -> None:
    hypotheses = [links.possible for links in read_links(args.hyp, args.hyp_base, args.hyp_reverse)]
    golds = read_links(args.gold, args.gold_base, args.gold_reverse)
    if len(hypotheses) != len(golds):
        raise InputError(f"{args.hyp} has {len(hypotheses)} lines, but {args.gold} has {len(golds)}")
    unlinked = _unlinked_words(args, hypotheses, golds) if args.target else ""
    counts = overlap(hypotheses, golds)
    possible = sum(len(gold.possible) for gold in golds)
    print(f"{len(golds)} sentences, {counts.linked} links; gold: {counts.sure} sure, {possible} possible with them")
    if counts.linked and counts.sure:
        precision, recall = counts.in_possible / counts.linked, counts.in_sure / counts.sure
        print(f"precision {precision:.4f} (of links that are possible), recall {recall:.4f} (of sure links)")
    if unlinked:
        print(unlinked)
    print(f"{float(error_rate(*counts)):.6f}")


def _unlinked_words(args: argparse.Namespace, hypotheses: List[Links], golds: List[Gold]) -> str:
    """Precision and recall of the target words without a link, in one line."""
    words = [len(line.split()) for _, line in text_lines(args.target)]
    if len(words) != len(golds):
        raise InputError(f"{args.target} has {len(words)} lines, but {args.gold} has {len(golds)}")
    for number, (links, gold, length) in enumerate(zip(hypotheses, golds, words), 1):
        for path, linked in ((args.hyp, links), (args.gold, gold.possible)):
            beyond = next((target for _, target in sorted(linked) if target >= length), None)
            if beyond is not None:
                raise InputError(
                    f"{path}, line {number}: target word {beyond} is linked (counted from 0), but line {number} of "
                    f"{args.target} has {length} words; is it the source, or a base or direction wrong?"
                )
    both, proposed, wanted = unlinked_overlap(hypotheses, golds, words)
    rates = [f"{both / count:.4f}" if count else "undefined" for count in (proposed, wanted)]
    return f"words without a link: {proposed} of {sum(words)}; gold: {wanted}; precision {rates[0]}, recall {rates[1]}"
