"""Take the text of a data set out of its original files: train, valid, test, and gold or noisy pairs.

python take_text.py --out DIR --langs en de --index FILE --train SPEC SPEC ... [more flags]

The specs (see text_formats.py) may name files of the index that download.py wrote. DIR/done is written last.
"""

import argparse
import os

import parallel_text
import recipe
from text_formats import located, read_index


class TextTaker:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.index = args, read_index(args.index)

    def path(self, name: str) -> str:
        return os.path.join(self.args.out, name)

    def extract(self, name: str, specs, encoding: str, expected=None, **options) -> None:
        """Write DIR/`name`; `expected` is the number of lines of the original."""
        specs = [located(spec, self.index) for spec in specs]
        lines = parallel_text.extract(specs, self.args.langs, self.path(name), encoding, **options)
        if expected and lines != expected:
            first = f"{self.path(name)}.{self.args.langs[0]}"
            raise recipe.RecipeError(
                f"{first} has {lines} lines, the original has {expected}: download it again, or give CHECKSUMS=none"
            )

    def take_gold(self) -> None:
        """The pairs with gold alignments, and their links."""
        self.extract("gold", self.args.gold, self.args.gold_encoding, self.args.gold_lines)
        parallel_text.write_links(located(self.args.gold_links, self.index), self.path("gold.links"))

    def take_noisy(self) -> None:
        self.extract("noisy", self.args.noisy, self.args.encoding)
        with open(located(self.args.noisy_labels, self.index), encoding="utf-8") as labels:
            recipe.write_atomically(self.path("noisy.labels"), labels.read())

    def take_training(self) -> None:
        """Training text, without the pairs that are aligned by hand; a part may become the other splits."""
        args = self.args
        options = {"limits": parallel_text.Limits(args.min_words, args.max_words, args.max_ratio)}
        if args.gold:
            options["unlike"] = self.path("gold")
        if not args.sample and not args.valid_every:
            self.extract("train", args.train, args.encoding, **options)
            return
        self.extract("all", args.train, args.encoding, **options)
        if args.sample:
            parallel_text.split_sample(self.path("all"), args.langs, args.out, args.sample)
        else:
            parallel_text.split_every(self.path("all"), args.langs, args.out, args.valid_every)
        for path in parallel_text.both_sides(self.path("all"), args.langs):
            os.unlink(path)

    def take(self) -> None:
        args = self.args
        if args.gold:
            self.take_gold()
        if args.only_gold:
            return
        if not args.sample:
            self.extract("test", args.test, args.encoding, args.test_lines)
        if args.noisy:
            self.take_noisy()
        if not args.sample and not args.valid_every:
            self.extract("valid", args.valid, args.encoding, args.valid_lines)
        self.take_training()
        recipe.write_atomically(self.path("done"), "")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", required=True)
    parser.add_argument("--langs", nargs=2, required=True)
    parser.add_argument("--index", metavar="FILE", default="", help="where the original files are")
    for name in ("train", "valid", "test", "gold", "noisy"):
        parser.add_argument(f"--{name}", metavar="SPEC", nargs="*", default=[])
    for name in ("valid", "test", "gold"):
        parser.add_argument(f"--{name}-lines", metavar="N", type=int, help="how many the original has")
    parser.add_argument("--gold-links", metavar="SPEC", default="")
    parser.add_argument("--gold-encoding", default="utf-8")
    parser.add_argument("--noisy-labels", metavar="SPEC", default="")
    parser.add_argument("--encoding", default="utf-8")
    parser.add_argument("--only-gold", action="store_true", help="add the gold pairs to text that was taken before")
    split = parser.add_mutually_exclusive_group()
    split.add_argument("--valid-every", type=int, metavar="N", help="every Nth training pair is for validation")
    split.add_argument(
        "--sample", type=int, nargs=3, metavar=("TRAIN", "VALID", "TEST"), help="draw these from the text"
    )
    parser.add_argument("--min-words", type=int, default=0)
    parser.add_argument("--max-words", type=float, default=parallel_text.NO_LIMIT)
    parser.add_argument("--max-ratio", type=float, default=parallel_text.NO_LIMIT)
    return parser


if __name__ == "__main__":
    try:
        TextTaker(parser().parse_args()).take()
    except recipe.RecipeError as error:
        recipe.fail(error)
