"""The table of guided_alignment.sh: links against gold links, and words without a link, in %.

python guided_table.py GOLD BASE REVERSE TARGET NAME=LINKS ...

GOLD counts words from BASE, and has the target's word first if REVERSE is not empty. TARGET is the target text.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recipe

from fairseq_rela.analysis.alignment import error_rate, overlap, unlinked_overlap
from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import read_links
from fairseq_rela.errors import InputError

COLUMNS = ("", "AER", "precision", "recall", "null precision", "null recall", "null words", "gold null words")


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def row(name, hypotheses, golds, words):
    counts = overlap(hypotheses, golds)
    both, proposed, wanted = unlinked_overlap(hypotheses, golds, words)
    rates = [percent(float(error_rate(*counts)), 1), percent(counts.in_possible, counts.linked)]
    rates += [percent(counts.in_sure, counts.sure), percent(both, proposed), percent(both, wanted)]
    return [name, *rates, str(proposed), str(wanted)]


def main(gold, base, reverse, target, *named):
    golds = read_links(gold, int(base), bool(reverse))
    words = [len(line.split()) for _, line in text_lines(target)]
    print("\t".join(COLUMNS))
    for pair in named:
        name, _, path = pair.partition("=")
        print("\t".join(row(name, [links.possible for links in read_links(path)], golds, words)))


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except InputError as error:
        recipe.fail(error)
