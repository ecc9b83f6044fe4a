"""Parallel text out of the archives as their makers publish them: plain, gzip, tar, SGML, XML, TMX.

python parallel_text.py extract --langs en de --out PREFIX SPEC SPEC [SPEC SPEC ...]   writes PREFIX.en and PREFIX.de
python parallel_text.py split PREFIX --langs de en --every 23 --out DIR                every 23rd pair to DIR/valid
python parallel_text.py split PREFIX --langs en fr --sample 100000 1000 1000 --out DIR  train, valid and test, drawn
python parallel_text.py links SPEC --out FILE                                          gold word links, a line a pair

A SPEC is a file, or ARCHIVE:MEMBER; a MEMBER with * is several files, read in the order of their names. The specs
are the source's and the target's in turn. Files appear whole or not at all.
"""

import argparse
import fnmatch
import gzip
import html
import os
import random
import re
import sys
import tarfile
import zlib
from collections import defaultdict
from itertools import zip_longest

ARCHIVE = re.compile(r"(.+?\.(?:tgz|tar\.gz|tar)):(.+)")
DAMAGE = (EOFError, OSError, tarfile.TarError, zlib.error)  # what a truncated or corrupted file raises


class Unreadable(Exception):
    """Said in one line to whoever called."""


# --- reading


def raw_lines(spec):
    """The lines of a file or of an archive's members, as bytes."""
    match = ARCHIVE.fullmatch(spec)
    try:
        if not match:
            with open(spec, "rb") as file:
                yield from unzipped(file, spec)
            return
        path, pattern = match.groups()
        found = False
        with tarfile.open(path) as archive:
            # sorted: the two languages' files need not stand in the same order in an archive
            members = sorted(archive, key=lambda m: m.name) if "*" in pattern else archive
            for member in members:
                name = member.name[2:] if member.name.startswith("./") else member.name
                if member.isfile() and fnmatch.fnmatchcase(name, pattern):
                    found = True
                    yield from unzipped(archive.extractfile(member), name)
                    if "*" not in pattern:
                        return
        if not found:
            raise Unreadable(f"{path} has no {pattern}: is it the original archive?")
    except FileNotFoundError:
        raise Unreadable(f"{spec} is missing") from None
    except DAMAGE as error:
        raise Unreadable(f"{spec} is damaged ({error or type(error).__name__}): fetch it anew") from None


def unzipped(file, name):
    return gzip.open(file) if name.endswith(".gz") else file


def decoded(spec, encoding):
    for number, line in enumerate(raw_lines(spec), 1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError:
            raise Unreadable(f"{spec}, line {number}, is not {encoding}") from None


def sgml(lines, _):
    """The segments of WMT's .sgm and IWSLT's .xml, as sacrebleu reads them: nothing is unescaped."""
    for line in lines:
        match = re.search(r"<seg[^>]*>(.*)</seg>", line)
        if match:
            yield match[1]


def iwslt_training(lines, _):
    """Talks with tags between them: titles and descriptions are text, the rest is not."""
    for line in lines:
        if not re.match(r"\s*</?(url|talkid|keywords|speaker|reviewer|translator|transcript|doc)\b", line):
            yield re.sub(r"</?(title|description)>", "", line)


def tmx(lines, lang):
    for line in lines:
        match = re.search(rf'<tuv xml:lang="{lang}"[^>]*>\s*<seg>(.*?)</seg>', line)
        if match:
            yield html.unescape(match[1])


def titles(order):
    """Wikipedia headlines: both languages on a line, in the order that the file's name gives."""

    def read(lines, lang):
        for line in lines:
            yield (line.split("|||") + [""])[order.index(lang)]

    return read


def plain(lines, _):
    for line in lines:
        yield re.sub(r"^<s [^>]*>|</s>\s*$", "", line)  # the Hansards' test sentences carry their number


def reader(spec):
    name = spec[:-3] if spec.endswith(".gz") else spec
    two = re.search(r"/titles\.(\w+)-(\w+)$", name)
    if two:
        return titles(two.groups())
    if "/train.tags." in name:
        return iwslt_training
    return {".sgm": sgml, ".xml": sgml, ".tmx": tmx}.get(os.path.splitext(name)[1], plain)


def sentences(spec, lang, encoding):
    """One a line, with single spaces: nothing in it can end a line."""
    for line in reader(spec)(decoded(spec, encoding), lang):
        yield " ".join(line.split())


def pairs(specs, langs, encoding):
    for source, target in zip(specs[::2], specs[1::2]):
        count = 0
        both = (sentences(spec, lang, encoding) for spec, lang in zip((source, target), langs))
        for pair in zip_longest(*both):
            if None in pair:
                longer, shorter = (target, source) if pair[0] is None else (source, target)
                raise Unreadable(f"{shorter} ends after {count} lines and {longer} does not: they are no translations")
            count += 1
            yield pair
        if count == 0:
            raise Unreadable(f"{source} has no text")


# --- writing


class Whole:
    """Text files that appear together, at the end, or not at all."""

    def __init__(self, *paths):
        self.paths = paths
        self.lines = 0

    def __enter__(self):
        for path in self.paths:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self.files = [open(path + ".part", "w", encoding="utf-8", newline="\n") for path in self.paths]  # noqa: SIM115
        return self

    def write(self, *lines):
        self.lines += 1
        for file, line in zip(self.files, lines):
            file.write(line + "\n")

    def __exit__(self, error, *_):
        for file in self.files:
            file.close()
            if error is None:
                os.replace(file.name, file.name[: -len(".part")])
            else:
                os.unlink(file.name)


def beside(prefix, langs):
    return [f"{prefix}.{lang}" for lang in langs]


def extract(args):
    unlike = set()
    if args.unlike:
        unlike.update(pairs(beside(args.unlike, args.langs), args.langs, "utf-8"))
    read = 0
    with Whole(*beside(args.out, args.langs)) as out:
        for pair in pairs(args.specs, args.langs, args.encoding):
            read += 1
            short, long = sorted(len(side.split()) for side in pair)
            fits = args.min_words <= short and long <= args.max_words and long <= args.max_ratio * short
            if fits and pair not in unlike:
                out.write(*pair)
        if out.lines == 0:
            raise Unreadable(f"none of the {read} pairs of {args.specs[0]} is left")
    print(f"{args.out}: {out.lines} of {read} pairs")


def split(args):
    files = beside(args.prefix, args.langs)
    if args.every:
        chosen = {}
    else:
        total = sum(1 for _ in pairs(files, args.langs, "utf-8"))
        if total < sum(args.sample):
            raise Unreadable(f"{files[0]} has {total} pairs, too few to draw {sum(args.sample)}")
        drawn = iter(random.Random(args.seed).sample(range(total), sum(args.sample)))
        names = ("train", "valid", "test")
        chosen = {next(drawn): name for name, count in zip(names, args.sample) for _ in range(count)}
    splits = ("train", "valid") if args.every else ("train", "valid", "test")
    with Whole(*(path for name in splits for path in beside(os.path.join(args.out, name), args.langs))) as out:
        place = {name: out.files[2 * i : 2 * i + 2] for i, name in enumerate(splits)}
        for number, pair in enumerate(pairs(files, args.langs, "utf-8")):
            name = ("valid" if number % args.every == args.every - 1 else "train") if args.every else chosen.get(number)
            if name:
                for file, side in zip(place[name], pair):
                    file.write(side + "\n")


def links(args):
    """`i-j` and `ipj`, a line a pair, counting from what the original counts from.

    The shared tasks' own form is a line a link: sentence, source word, target word, S or P.
    """
    rows = [line.split() for line in decoded(args.spec, "utf-8")]
    if re.search(r"\.wa\b", args.spec):
        by_sentence = defaultdict(list)
        for number, row in enumerate(rows, 1):
            if len(row) not in (3, 4) or row[3:] not in ([], ["S"], ["P"]):
                raise Unreadable(f"{args.spec}, line {number}: '{' '.join(row)}' is no 'sentence i j S|P'")
            by_sentence[int(row[0])].append(f"{row[1]}{'p' if row[3:] == ['P'] else '-'}{row[2]}")
        rows = [by_sentence[number] for number in range(1, max(by_sentence) + 1)]
    with Whole(args.out) as out:
        for row in rows:
            out.write(" ".join(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("extract")
    command.add_argument("specs", metavar="SPEC", nargs="+")
    command.add_argument("--langs", nargs=2, required=True)
    command.add_argument("--out", required=True)
    command.add_argument("--encoding", default="utf-8")
    command.add_argument("--min-words", type=int, default=0, help="drop pairs with a shorter side")
    command.add_argument("--max-words", type=float, default=float("inf"), help="drop pairs with a longer side")
    command.add_argument("--max-ratio", type=float, default=float("inf"), help="drop pairs of more unlike lengths")
    command.add_argument("--unlike", metavar="PREFIX", help="drop pairs that are in this text")
    command = commands.add_parser("split")
    command.add_argument("prefix")
    command.add_argument("--langs", nargs=2, required=True)
    command.add_argument("--out", required=True)
    how = command.add_mutually_exclusive_group(required=True)
    how.add_argument("--every", type=int)
    how.add_argument("--sample", type=int, nargs=3, metavar=("TRAIN", "VALID", "TEST"))
    command.add_argument("--seed", type=int, default=1)
    command = commands.add_parser("links")
    command.add_argument("spec", metavar="SPEC")
    command.add_argument("--out", required=True)
    args = parser.parse_args()
    try:
        {"extract": extract, "split": split, "links": links}[args.command](args)
    except Unreadable as error:
        sys.exit(f"parallel_text.py: {error}")


if __name__ == "__main__":
    main()
