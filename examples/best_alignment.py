"""The row of cross attention that aligns words best: chosen on one half of the gold sentences, scored on the other.

python best_alignment.py DUMP --gold LINKS [--gold-base 1] [--gold-reverse] > JSON

A row is a layer's mean over heads or one of its heads, read normally or shifted. Even sentences choose, odd ones score.
If the dump has norms (--attn-dump-norms), "norms" holds the same for the row that is best by norms.
"""

import argparse
import json
from typing import Any, Dict, List

import numpy as np
import recipe

from fairseq_rela.analysis.alignment import ROWS, AlignmentScores
from fairseq_rela.analysis.links import Gold, read_links
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.errors import InputError


def best_row(scores: AlignmentScores, eos: str = "drop") -> Dict[str, Any]:
    """The best row by the first half of the sentences, and its AER on both halves."""
    chosen = {rows: scores.heads(rows, eos, half=0) for rows in ROWS}
    rows = min(ROWS, key=lambda name: float(chosen[name].min()))
    layer, head = map(int, np.unravel_index(int(chosen[rows].argmin()), chosen[rows].shape))
    mean = head == chosen[rows].shape[1] - 1
    return {
        "name": f"{rows}, layer {layer}, {'mean of heads' if mean else f'head {head}'}",
        "rows": rows,
        "layer": layer,
        "head": None if mean else head,
        "aer_chosen": float(chosen[rows][layer, head]),
        "aer": float(scores.heads(rows, eos, half=1)[layer, head]),
    }


def scores_by(reader: DumpReader, gold: List[Gold], by: str) -> AlignmentScores:
    """The error rates of every row, of links by weights or by norms."""
    scores = AlignmentScores()
    for record in (reader[index] for index in range(len(reader))):
        words = reader.source_words(record), reader.target_words(record)
        scores.add(reader.weights(record, "cross", by), *words, gold[record.id], record.id % 2)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump")
    parser.add_argument("--gold", required=True)
    parser.add_argument("--gold-base", type=int, default=0)
    parser.add_argument("--gold-reverse", action="store_true")
    args = parser.parse_args()
    try:
        reader = DumpReader(args.dump, "auto")
        gold = read_links(args.gold, args.gold_base, args.gold_reverse)
        reader.match_gold(gold, args.gold)
        best = best_row(scores_by(reader, gold, "weights"))
        if reader.has_norms("cross"):
            best["norms"] = best_row(scores_by(reader, gold, "norms"))
    except InputError as error:
        recipe.fail(error)
    print(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
