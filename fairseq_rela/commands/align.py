"""Word links in the Pharaoh format (`i-j`, from 0, source word first) from the cross attention in a dump.

    fairseq-rela align DUMP > links.txt                                  # layer before the last, mean, shifted
    fairseq-rela align DUMP --layer 3 --head 5 --rows normal > links.txt
    fairseq-rela align DUMP --dev DEV_DUMP --dev-gold dev.talp --gold-base 1 > links.txt
    fairseq-rela align DUMP --reverse DUMP_OF_THE_OTHER_DIRECTION --symmetrize grow-diag > links.txt

A target word is linked to the source word with the largest weight (summed over the pieces of the source word, averaged
over those of the target word). A word that attends to nothing has no link. Line i is the sentence with id i, as in the
text that was given to fairseq. Make the dump with `fairseq-generate --score-reference` to align a given translation.
"""

import argparse
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

from fairseq_rela.analysis.alignment import EOS, ROWS, AlignmentScores, layer_or_head, word_links
from fairseq_rela.analysis.links import Gold, Links, pharaoh, read_links
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.symmetrization import METHODS
from fairseq_rela.analysis.words import RULES
from fairseq_rela.atomic import write_atomically
from fairseq_rela.errors import InputError

MOST_MISSING = 10_000_000  # sentences that are not in the dump


class Choice(NamedTuple):
    """Where links are read: the model's layer, its head (None: the mean of its heads), which rows."""

    layer: int
    head: Optional[int]
    rows: str

    def __str__(self) -> str:
        head = "mean of heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}, {self.rows} rows"


class Aligned(NamedTuple):
    """The links of a sentence pair, and how many words each side has."""

    links: Links
    source_words: int
    target_words: int


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


def run(args: argparse.Namespace) -> None:
    golds = _development(args)
    forward = _aligned_dump(args, args.dump, args.dev, golds)
    if not args.reverse:
        links = {number: pair.links for number, pair in forward.items()}
    else:
        reversed_golds = [Gold(_reversed(gold.sure), _reversed(gold.possible)) for gold in golds] if golds else None
        backward = _aligned_dump(args, args.reverse, args.dev_reverse, reversed_golds)
        links = _symmetrized(args, forward, backward)
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


def _development(args: argparse.Namespace) -> Optional[List[Gold]]:
    if bool(args.dev) != bool(args.dev_gold):
        raise InputError("give --dev and --dev-gold together: a dump, and the gold links of its sentences")
    if args.dev and args.reverse and not args.dev_reverse:
        raise InputError(
            "with --dev and --reverse, --dev-reverse is needed too, to choose where the reverse model is read"
        )
    return read_links(args.dev_gold, args.gold_base, args.gold_reverse) if args.dev else None


def _aligned_dump(
    args: argparse.Namespace, path: str, dev: Optional[str], golds: Optional[List[Gold]]
) -> Dict[int, Aligned]:
    reader = DumpReader(path, args.merge)
    reader.require("cross")
    if golds is None or dev is None:
        layers = reader.info.kinds["cross"].layers
        layer = args.layer if args.layer is not None else layers[max(len(layers) - 2, 0)]
        choice = Choice(layer, args.head, args.rows or "shifted")
    else:
        if args.layer is not None or args.head is not None or args.rows:
            raise InputError("--dev chooses layer, head and rows; leave out --layer, --head and --rows")
        choice, rate = best_choice(DumpReader(dev, args.merge), golds, args.dev_gold, args.eos)
        print(f"{path}: {choice} (AER {rate:.4f} on {dev})", file=sys.stderr)
    return aligned(reader, choice, args.eos)


def best_choice(reader: DumpReader, golds: List[Gold], path: str, eos: str) -> Tuple[Choice, float]:
    """Where the links of a development set have the lowest error, and that error."""
    reader.require("cross")
    reader.match_gold(golds, path)
    scores = AlignmentScores()
    for record in reader:
        words = reader.source_words(record), reader.target_words(record)
        scores.add(reader.weights(record, "cross"), *words, golds[record.id], record.id % 2)
    rows, layer, head, rate = scores.best(eos)
    return Choice(reader.info.kinds["cross"].layers[layer], head, rows), rate


def aligned(reader: DumpReader, choice: Choice, eos: str) -> Dict[int, Aligned]:
    """The links of every sentence of a dump, by its id."""
    layer = reader.layer_index("cross", choice.layer)
    if choice.head is not None:
        reader.check_head("cross", choice.head)
    pairs = {}
    for record in reader:
        source, target = reader.source_words(record), reader.target_words(record)
        weights = layer_or_head(reader.weights(record, "cross"), layer, choice.head)
        links = word_links(weights, source, target, choice.rows, eos)
        pairs[record.id] = Aligned(links, len(source.text), len(target.text))
    return pairs


def _symmetrized(
    args: argparse.Namespace, forward: Dict[int, Aligned], backward: Dict[int, Aligned]
) -> Dict[int, Links]:
    if set(forward) != set(backward):
        alone = min(set(forward) ^ set(backward))
        raise InputError(f"{args.dump} and {args.reverse} have different sentences: only one has sentence {alone}")
    links = {}
    for number, there in forward.items():
        back = backward[number]
        if (there.source_words, there.target_words) != (back.target_words, back.source_words):
            raise InputError(
                f"{args.reverse}: sentence {number} goes from {back.source_words} to {back.target_words} words, but in "
                f"{args.dump} from {there.source_words} to {there.target_words}: not the same text the other way"
            )
        links[number] = METHODS[args.symmetrize](there.links, _reversed(back.links))
    return links


def _reversed(links: Links) -> Links:
    return frozenset((target, source) for source, target in links)
