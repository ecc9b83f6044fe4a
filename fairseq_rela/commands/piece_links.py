"""Turn links between words into links between subword pieces, for `fairseq-preprocess --align-suffix`.

    fairseq-rela piece-links words.links --source train.en --target train.fr --out train.align

SOURCE and TARGET are the text in pieces, as it is given to fairseq-preprocess (sentencepiece's `▁` or BPE's `@@`).
Line i of LINKS has the links of line i of the text: `i-j`, source word first, from 0 (Pharaoh format). A possible link
(`ipj`) counts as a link. Every piece of a source word is linked to every piece of its target word.
"""

import argparse
import itertools
from typing import Iterator, List

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import Links, parsed_links, pharaoh
from fairseq_rela.analysis.words import RULES, Words, merge_rule, merged
from fairseq_rela.atomic import write_atomically
from fairseq_rela.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("links", metavar="LINKS", help="links between words, one line per sentence pair")
    parser.add_argument("--source", metavar="FILE", required=True, help="the source text in pieces")
    parser.add_argument("--target", metavar="FILE", required=True, help="the target text in pieces")
    parser.add_argument("--out", metavar="FILE", help="write the links to this file instead of printing them")
    parser.add_argument("--merge", choices=("auto", *RULES), default="auto", help="how pieces make words (auto)")
    parser.add_argument("--base", type=int, choices=(0, 1), default=0, help="number of the first word in LINKS (0)")
    parser.add_argument("--reverse", action="store_true", help="the links have the target's word first")


def run(args: argparse.Namespace) -> None:
    lines = (pharaoh(links) + "\n" for links in links_of_pieces(args))
    if args.out:
        write_atomically(args.out, lambda file: file.writelines(line.encode() for line in lines))
    else:
        for line in lines:
            print(line, end="")


def links_of_pieces(args: argparse.Namespace) -> Iterator[Links]:
    """The links between the pieces of every pair. InputError where links and text do not fit each other."""
    source_rule, target_rule = (
        merge_rule(_sentences(path)) if args.merge == "auto" else args.merge for path in (args.source, args.target)
    )
    ends = [(None, None)]  # so that a file that is shorter is noticed
    files = [itertools.chain(text_lines(path), ends) for path in (args.links, args.source, args.target)]
    for (number, line), (_, source), (_, target) in zip(*files):
        if line is None and source is None and target is None:
            return
        if line is None or source is None or target is None:
            raise InputError(f"{args.links}, {args.source} and {args.target} do not have the same number of lines")
        where = f"{args.links}, line {number}"
        links = parsed_links(line, args.base, args.reverse, where).possible
        yield spread(links, merged(source.split(), source_rule), merged(target.split(), target_rule), where)


def spread(links: Links, source: Words, target: Words, where: str = "links") -> Links:
    """The links between pieces: each piece of a source word with each piece of the target word it is linked to."""
    pieces = _pieces(source), _pieces(target)
    for link in sorted(links):
        for word, words, side in zip(link, pieces, ("source", "target")):
            if word >= len(words):
                raise InputError(
                    f"{where}: {side} word {word} is linked, but the {side} has {len(words)} words (counted from 0); "
                    f"is it another text, or is --base or --reverse wrong?"
                )
    return frozenset(pair for s, t in links for pair in itertools.product(pieces[0][s], pieces[1][t]))


def _pieces(words: Words) -> List[List[int]]:
    """For each word the numbers of its pieces."""
    numbers: List[List[int]] = [[] for _ in words.text]
    for piece, word in enumerate(words.of_piece.tolist()):
        if word >= 0:
            numbers[word].append(piece)
    return numbers


def _sentences(path: str) -> Iterator[List[str]]:
    return (line.split() for _, line in text_lines(path))
