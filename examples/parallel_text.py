"""Write parallel text: take it out of original files, leave pairs out, split it, and write gold word links.

python parallel_text.py extract --langs en de --out PREFIX SPEC SPEC [SPEC SPEC ...]   writes PREFIX.en and PREFIX.de

The specs (see text_formats.py) are the source's and the target's in turn. Files are written atomically.
"""

import argparse
import os
import random
import re
from collections import defaultdict
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import recipe
from recipe import RecipeError
from text_formats import decoded, pairs

NO_LIMIT = float("inf")


class Limits(NamedTuple):
    """Which pairs are kept."""

    min_words: int = 0
    max_words: float = NO_LIMIT
    max_ratio: float = NO_LIMIT  # of the longer side's words to the shorter side's

    def allow(self, pair: Tuple[str, str]) -> bool:
        short, long = sorted(len(side.split()) for side in pair)
        return self.min_words <= short and long <= self.max_words and long <= self.max_ratio * short


class AtomicFiles:
    """Text files that get their names together, at the end, or not at all."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths
        self.lines = 0

    def __enter__(self) -> "AtomicFiles":
        for path in self.paths:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self.files = [open(path + ".part", "w", encoding="utf-8", newline="\n") for path in self.paths]  # noqa: SIM115
        return self

    def write(self, *lines: str) -> None:
        """One line for each file."""
        self.lines += 1
        for file, line in zip(self.files, lines):
            file.write(line + "\n")

    def __exit__(self, error, *_) -> None:
        for file, path in zip(self.files, self.paths):
            file.close()
            if error is None:
                os.replace(path + ".part", path)
            else:
                os.unlink(path + ".part")


def both_sides(prefix: str, langs: Sequence[str]) -> List[str]:
    return [f"{prefix}.{lang}" for lang in langs]


def extract(
    specs: Sequence[str],
    langs: List[str],
    out: str,
    encoding: str = "utf-8",
    limits: Optional[Limits] = None,
    unlike: Optional[str] = None,
) -> int:
    """Write the pairs that the limits allow and that are not in the text `unlike`; returns how many."""
    limits, excluded, read = limits or Limits(), set(), 0
    if unlike:
        excluded.update(pairs(both_sides(unlike, langs), langs))
    with AtomicFiles(*both_sides(out, langs)) as files:
        for pair in pairs(specs, langs, encoding):
            read += 1
            if limits.allow(pair) and pair not in excluded:
                files.write(*pair)
        if files.lines == 0:
            raise RecipeError(f"none of the {read} pairs of {specs[0]} is left")
    print(f"{out}: {files.lines} of {read} pairs", flush=True)
    return files.lines


def write_splits(prefix: str, langs: List[str], out: str, splits: Sequence[str], choose) -> None:
    """Write each pair to the split that `choose(number)` names, or to none."""
    paths = [path for name in splits for path in both_sides(os.path.join(out, name), langs)]
    with AtomicFiles(*paths) as files:
        place = {name: files.files[2 * i : 2 * i + 2] for i, name in enumerate(splits)}
        for number, pair in enumerate(pairs(both_sides(prefix, langs), langs)):
            for file, side in zip(place.get(choose(number), ()), pair):
                file.write(side + "\n")


def split_every(prefix: str, langs: List[str], out: str, every: int) -> None:
    """Every so many pairs one goes to `valid`, the others to `train`."""
    write_splits(
        prefix, langs, out, ("train", "valid"), lambda number: "valid" if number % every == every - 1 else "train"
    )


def split_sample(prefix: str, langs: List[str], out: str, sizes: Sequence[int], seed: int = 1) -> None:
    """Draw `train`, `valid` and `test` of these sizes at random."""
    first = both_sides(prefix, langs)[0]
    total, names = sum(1 for _ in pairs(both_sides(prefix, langs), langs)), ("train", "valid", "test")
    if total < sum(sizes):
        raise RecipeError(f"{first} has {total} pairs, too few to draw {sum(sizes)}")
    drawn = iter(random.Random(seed).sample(range(total), sum(sizes)))
    chosen: Dict[int, str] = {next(drawn): name for name, count in zip(names, sizes) for _ in range(count)}
    write_splits(prefix, langs, out, names, chosen.get)


def write_links(spec: str, out: str) -> None:
    """Gold word links as `i-j` (sure) and `ipj` (possible), one line per pair, counted as the original counts.

    The shared tasks' own form has one line per link: sentence, source word, target word, S or P.
    """
    rows = [line.split() for line in decoded(spec, "utf-8")]
    if re.search(r"\.wa\b", spec):
        by_sentence = defaultdict(list)
        for number, row in enumerate(rows, 1):
            numbers = all(re.fullmatch("[0-9]{1,6}", word) for word in row[:3])  # a number without a bound has no end
            if len(row) not in (3, 4) or not numbers or row[3:] not in ([], ["S"], ["P"]):
                raise RecipeError(f"{spec}, line {number}: '{' '.join(row)}' is not 'sentence i j S|P'")
            by_sentence[int(row[0])].append(f"{row[1]}{'p' if row[3:] == ['P'] else '-'}{row[2]}")
        rows = [by_sentence[number] for number in range(1, max(by_sentence, default=0) + 1)]
    with AtomicFiles(out) as file:
        for row in rows:
            file.write(" ".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("extract")
    command.add_argument("specs", metavar="SPEC", nargs="+")
    command.add_argument("--langs", nargs=2, required=True)
    command.add_argument("--out", required=True)
    command.add_argument("--encoding", default="utf-8")
    command.add_argument("--min-words", type=int, default=0, help="leave out pairs with a shorter side")
    command.add_argument("--max-words", type=float, default=NO_LIMIT, help="leave out pairs with a longer side")
    command.add_argument("--max-ratio", type=float, default=NO_LIMIT, help="leave out pairs of more different lengths")
    command.add_argument("--unlike", metavar="PREFIX", help="leave out pairs that are in this text")
    args = parser.parse_args()
    limits = Limits(args.min_words, args.max_words, args.max_ratio)
    try:
        extract(args.specs, args.langs, args.out, args.encoding, limits, args.unlike)
    except RecipeError as error:
        recipe.fail(error)


if __name__ == "__main__":
    main()
