"""The table of both_directions.sh: error rates of the links of two directions and of both joined, in %.

python both_directions.py METHOD FORWARD_DUMP REVERSE_DUMP --gold LINKS [--gold-base 1] [--gold-reverse]

METHOD joins the links: intersect, union, grow-diag or grow-diag-final-and. Where the attention is read is chosen by the
gold links of the sentences with an even number, or by the agreement of both directions on 100 sentences, which needs no
gold links. The sentences with an odd number are scored.
"""

import argparse
import os
import sys
from typing import Dict, List, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recipe

from fairseq_rela.analysis.alignment import alignment_error_rate
from fairseq_rela.analysis.links import Gold, Links, read_links, reversed_gold, reversed_links
from fairseq_rela.analysis.reading import BY, DumpReader
from fairseq_rela.analysis.row_choice import Choice, agreed_choice, best_choice, check_same_sentences, joined, links_at
from fairseq_rela.analysis.symmetrization import METHODS
from fairseq_rela.errors import InputError

COLUMNS = ("", "AER source to target", "AER target to source", "AER of both", "source to target", "target to source")
EVEN, ODD = 0, 1
EOS = "drop"  # the weight on the source's </s> does not count
PROBE = 100  # sentences


def chosen_by_gold(readers: List[DumpReader], golds: List[Gold], path: str, by: str) -> List[Choice]:
    own = (golds, list(map(reversed_gold, golds)))
    return [best_choice(reader, gold, path, EOS, by, EVEN)[0] for reader, gold in zip(readers, own)]


def chosen_by_agreement(readers: List[DumpReader], by: str) -> List[Choice]:
    agreed = agreed_choice(readers[0], readers[1], EOS, by, PROBE)
    return [agreed.forward, agreed.backward]


def error_rates(readers: List[DumpReader], choices: List[Choice], golds: List[Gold], by: str, method: str) -> List[str]:
    """AER of each direction and of both together, of the sentences with an odd number."""
    forward, backward = (links_at(reader, choice, EOS, by) for reader, choice in zip(readers, choices))
    turned = {number: reversed_links(links) for number, links in backward.items()}

    def rate(links: Dict[int, Links]) -> str:
        scored = [number for number in sorted(links) if number % 2 == ODD]
        error = alignment_error_rate([links[number] for number in scored], [golds[number] for number in scored])
        return f"{100 * error:.1f}"

    return [rate(forward), rate(turned), rate(joined(forward, backward, method))]


def rows(args: argparse.Namespace) -> List[Tuple[str, ...]]:
    if args.method not in METHODS:
        raise InputError(f"SYMMETRIZE={args.method} is not known; give {', '.join(METHODS)}")
    readers = [DumpReader(path, "auto") for path in args.dumps]
    check_same_sentences(*readers)
    golds = read_links(args.gold, args.gold_base, args.gold_reverse)
    table = []
    for by in BY:
        for reader in readers:
            reader.require("cross", by)
        ways = {
            "gold links": chosen_by_gold(readers, golds, args.gold, by),
            "agreement": chosen_by_agreement(readers, by),
        }
        for way, choices in ways.items():
            rates = error_rates(readers, choices, golds, by, args.method)
            table.append((f"{by}, chosen by {way}", *rates, *map(str, choices)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("dumps", nargs=2)
    parser.add_argument("--gold", required=True)
    parser.add_argument("--gold-base", type=int, default=0)
    parser.add_argument("--gold-reverse", action="store_true")
    try:
        table = rows(parser.parse_args())
    except (InputError, OSError) as error:
        recipe.fail(error)
    for row in (COLUMNS, *table):
        print("\t".join(row))


if __name__ == "__main__":
    main()
