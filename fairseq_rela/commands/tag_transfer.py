"""Carry inline tags over to a translation, along word links.

    fairseq-rela tag-transfer tagged.de --strip > plain.de                # 1. the text without tags, to translate
    fairseq-rela align DUMP > links.txt                                   # 2. the word links of the translation
    fairseq-rela tag-transfer tagged.de translated.en links.txt > tagged.en

A tag is written as in XML: <b>, </b>, <x/>, <a href="…">. Everything else is text and stays as it is, such as a < b, <3
and &amp;. Each file has one sentence per line; words are separated by spaces.

A pair of tags is put around the target words that its source words are linked to; around each run of them, if other
words are in between. Tags whose words have no link, and empty tags, go beside the nearest word that has one. No tag is
lost, and the result is properly nested: where tags would cross, one of them is closed and opened again.
"""

import argparse
from typing import List

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.links import check_links, read_links
from fairseq_rela.analysis.markup import parsed_markup, without_tags
from fairseq_rela.analysis.tag_transfer import transferred
from fairseq_rela.atomic import write_atomically
from fairseq_rela.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="source text with tags")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="its translation, without tags")
    parser.add_argument("links", metavar="LINKS", nargs="?", help="word links, i-j from source word to target word")
    parser.add_argument("--out", metavar="FILE", help="write the text to this file instead of printing it")
    parser.add_argument("--strip", action="store_true", help="only remove the tags of SOURCE; give no other file")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="put each pair of tags once, around everything from its first to its last target word",
    )
    parser.add_argument("--links-base", type=int, choices=(0, 1), default=0, help="number of the first word there (0)")
    parser.add_argument("--links-reverse", action="store_true", help="the links have the target's word first")


def run(args: argparse.Namespace) -> None:
    if args.strip and (args.target or args.links):
        raise InputError("--strip reads SOURCE alone; leave out TARGET and LINKS")
    if not args.strip and not (args.target and args.links):
        raise InputError("give SOURCE, TARGET and LINKS, or SOURCE with --strip")
    lines = _stripped(args) if args.strip else _transferred(args)
    if args.out:
        write_atomically(args.out, lambda file: file.writelines(f"{line}\n".encode() for line in lines))
    else:
        for line in lines:
            print(line)


def _stripped(args: argparse.Namespace) -> List[str]:
    return [without_tags(line) for _, line in text_lines(args.source)]


def _transferred(args: argparse.Namespace) -> List[str]:
    sources, targets = ([line for _, line in text_lines(path)] for path in (args.source, args.target))
    links = read_links(args.links, args.links_base, args.links_reverse)
    for path, lines in ((args.target, targets), (args.links, links)):
        if len(lines) != len(sources):
            raise InputError(f"{path}: has {len(lines)} lines, but {args.source} has {len(sources)}")
    result: List[str] = []
    for number, (source, target, pairs) in enumerate(zip(sources, targets, links), 1):
        markup, words = parsed_markup(source), target.split()
        check_links(pairs, len(markup.words), len(words), f"{args.links}, line {number}", "the text", "links")
        result.append(transferred(markup, words, pairs.possible, args.whole))
    return result
