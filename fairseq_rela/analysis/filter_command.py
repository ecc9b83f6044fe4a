"""Rank sentence pairs by how often their cross attention is null, and split a corpus into kept and dropped text.

    fairseq-rela filter STATS --source train.de --target train.en --keep 0.9 --out DIR

STATS is the file of `fairseq-generate --score-reference --attn-dump-stats STATS`, or a dump's directory; its pair i is
line i of the text. DIR gets kept.de, kept.en, dropped.de, dropped.en and ranking.tsv (id and score, the best first).

Whether the score says anything of *your* model and text is measured, not assumed:

    fairseq-rela filter --shuffle --source dev.de --target dev.en --out shuffled       # 1. wrong pairs, on purpose
    # 2. dump the true and the shuffled pairs with fairseq-generate --score-reference --attn-dump …
    fairseq-rela filter TRUE_DUMP --shuffled SHUFFLED_DUMP --evaluate                   # 3. does it tell them apart?
    fairseq-rela filter TRUE_DUMP --shuffled SHUFFLED_DUMP --select --out selected      # 4. which heads do it best?
    fairseq-rela filter DUMP --selection selected/selection.json --source … --target … --keep 0.9 --out DIR

Where it is known what is wrong with each pair, as in the noisy text of `fairseq-rela toy-corpus --noise`, one dump (or
file of statistics) is enough for --evaluate and --select:

    fairseq-rela filter NOISY_DUMP --labels noisy.labels --evaluate --scores generate.log

Line i of the labels is of pair i: `clean` is a true pair, every other label a kind of wrong pair. AUROC is that of the
clean pairs against all wrong ones, then against those of each label.

Beside the null rate stand baselines: the ratio of lengths; with --scores the model's score per token; and the entropy
of cross attention, of the pairs' own dumps where their rows are distributions (softmax and the like), or of --softmax.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from fairseq_rela.analysis.filtering import (
    Term,
    auroc,
    auroc_interval,
    combined_score,
    kept,
    pair_score,
    selection,
    shuffled_targets,
)
from fairseq_rela.analysis.lines import raw_lines
from fairseq_rela.analysis.outputs import whole_directory
from fairseq_rela.analysis.pair_features import (
    CLEAN,
    Pairs,
    attention_entropy,
    has_entropy,
    model_scores,
    pair_labels,
    pairs_of,
    scores_by_id,
)
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress


class Side(NamedTuple):
    """The true pairs or the wrong ones, and the files that know of them."""

    pairs: Pairs
    name: str  # of such a pair, in messages
    paths: Dict[str, Optional[str]]  # "pairs", "scores", "softmax": of the wrong pairs the true ones' or others
    labels: Optional[np.ndarray] = None  # (N,) of str; None where a dump is all of one kind

    @property
    def counts(self) -> Dict[str, int]:
        """How many pairs have each label, in alphabetical order; nothing where there are no labels."""
        if self.labels is None:
            return {}
        return dict(zip(*(column.tolist() for column in np.unique(self.labels, return_counts=True))))


class Scores(NamedTuple):
    """One score of all pairs, turned so that worse pairs should score higher."""

    name: str
    true: np.ndarray  # (N,)
    wrong: np.ndarray  # (M,)


class Separation(NamedTuple):
    """How well a score tells wrong from true pairs."""

    score: str
    auroc: float
    low: float
    high: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairs", metavar="STATS|DUMP", nargs="?", help="statistics or a dump of the pairs")
    parser.add_argument("--out", metavar="DIR", help="where to write")
    text = parser.add_argument_group("splitting a corpus")
    text.add_argument("--source", metavar="FILE", help="the source text, a sentence a line (may be .gz)")
    text.add_argument("--target", metavar="FILE", help="the target text")
    text.add_argument("--keep", type=float, metavar="SHARE", help="keep this share of the pairs, 0 to 1, the best ones")
    text.add_argument("--max-score", type=float, metavar="X", help="or keep the pairs whose score is X or less")
    text.add_argument("--selection", metavar="FILE", help="score by what --select chose, instead of the mean null rate")
    how = parser.add_argument_group("measuring the score itself")
    how.add_argument("--shuffle", action="store_true", help="write SOURCE with the lines of TARGET shuffled, and stop")
    how.add_argument(
        "--match-lengths",
        action="store_true",
        help="with --shuffle: swap targets of like lengths only, so that lengths do not give wrong pairs away",
    )
    how.add_argument(
        "--evaluate",
        action="store_true",
        help="how well does the score tell wrong pairs (--shuffled or --labels) from true "
        "ones? AUROC (0.5 is chance) with a 95 %% bootstrap interval, beside baselines",
    )
    how.add_argument("--select", action="store_true", help="choose heads and measures on even pairs, score on odd ones")
    how.add_argument(
        "--shuffled", metavar="STATS|DUMP", help="the same of the shuffled pairs; those given first are then all true"
    )
    how.add_argument(
        "--labels",
        metavar="FILE",
        help="or what each of the pairs is, pair i on line i: clean, or any other word for a kind of wrong pair "
        "(shuffled, truncated, …); each kind is measured apart too",
    )
    how.add_argument(
        "--scores",
        metavar="FILE",
        help="baseline: the model's score per token, of the true pairs (with --labels: of all): output "
        "of fairseq-generate --score-reference, or a number a line",
    )
    how.add_argument("--shuffled-scores", metavar="FILE", help="the same of the shuffled pairs")
    how.add_argument(
        "--softmax",
        metavar="DUMP",
        help="baseline: attention entropy; a softmax model's dump of the true pairs (with --labels: of all). "
        "Not needed where the pairs themselves are dumps of a softmax model",
    )
    how.add_argument("--shuffled-softmax", metavar="DUMP", help="the same of the shuffled pairs")
    how.add_argument("--seed", type=int, default=0, help="of shuffling and bootstrap (0)")


def run(args: argparse.Namespace) -> None:
    if args.labels and not (args.evaluate or args.select):
        raise InputError("--labels is for --evaluate and --select; to split a corpus pairs need no labels")
    if args.shuffle:
        return _shuffle(args)
    if not args.pairs:
        raise InputError("a file of statistics or a dump is needed: fairseq-rela filter STATS …; see --help")
    if args.evaluate or args.select:
        return _measure(args)
    return _split(args)


# Splitting


def _split(args: argparse.Namespace) -> None:
    for name in ("source", "target", "out"):
        if not getattr(args, name):
            raise InputError(f"--{name} is needed to split a corpus (or give --evaluate, --select or --shuffle)")
    if (args.keep is None) == (args.max_score is None):
        raise InputError("give one of --keep SHARE and --max-score X: which pairs are good enough")
    if args.keep is not None and not 0 <= args.keep <= 1:
        raise InputError(f"--keep is {args.keep:g}; a share is between 0 and 1")
    scores = _selected_scores(args) if args.selection else scores_by_id(args.pairs)
    chosen = kept(scores, args.keep, args.max_score)
    names = _names(args.source, args.target)
    counts = {True: 0, False: 0}
    with whole_directory(args.out) as directory:
        _write_ranking(scores, os.path.join(directory, "ranking.tsv"))
        with contextlib.ExitStack() as stack:
            files = {
                keep: [stack.enter_context(open(os.path.join(directory, f"{word}.{name}"), "wb")) for name in names]
                for keep, word in ((True, "kept"), (False, "dropped"))
            }
            flags = itertools.chain(chosen.tolist(), itertools.repeat(False))  # text past the scores is dropped
            for keep, (left, right) in zip(flags, progress(text_pairs(args.source, args.target), args.source)):
                first, second = files[keep]
                first.write(left)
                first.write(b"\n")
                second.write(right)
                second.write(b"\n")
                counts[keep] += 1
        total = counts[True] + counts[False]
        if total < len(scores):
            raise InputError(
                f"{args.pairs}: has pair {len(scores) - 1}, but {args.source} only {total} lines (0 to {total - 1})"
            )
    print(f"kept {counts[True]} of {total} pairs, dropped {counts[False]}: {args.out}")
    unscored = total - int(np.isfinite(scores).sum())
    if unscored:
        print(f"fairseq-rela filter: {unscored} pairs have no score and were dropped", file=sys.stderr)


def text_pairs(source: str, target: str) -> Iterator[Tuple[bytes, bytes]]:
    """The lines of two files side by side, as bytes: text is passed on as it is."""
    for number, (left, right) in enumerate(itertools.zip_longest(raw_lines(source), raw_lines(target)), 1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            raise InputError(f"{short}: ends before line {number}, but {long} goes on: not the two sides of one text")
        yield left, right


def _names(source: str, target: str) -> Tuple[str, str]:
    """The endings of the written files: the languages, where the text's own names end in them."""
    endings = [
        os.path.splitext(path[:-3] if path.endswith(".gz") else path)[1].lstrip(".") for path in (source, target)
    ]
    return (endings[0], endings[1]) if all(endings) and endings[0] != endings[1] else ("source", "target")


def _write_ranking(scores: np.ndarray, path: str) -> None:
    order = np.argsort(scores, kind="stable")
    order = order[: len(scores) - int(np.isnan(scores).sum())]
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("id\tscore\n")
        file.writelines(f"{index}\t{score:.6g}\n" for index, score in zip(order.tolist(), scores[order].tolist()))


def _selected_scores(args: argparse.Namespace) -> np.ndarray:
    try:
        with open(args.selection, encoding="utf-8") as file:
            terms = [Term(**term) for term in json.load(file)["terms"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{args.selection}: not written by filter --select ({error})") from None
    pairs = pairs_of(args.pairs)
    null, mass = pairs.null, pairs.mass
    if mass is None and any(term.measure == "mass" or term.head is not None for term in terms):
        raise InputError(f"{args.pairs}: statistics know layers only; the heads and attention mass chosen need a dump")
    for term in terms:
        if (term.layer or 0) >= null.shape[1] or (term.head or 0) >= null.shape[2]:
            raise InputError(f"{args.selection}: chose {term}, which {args.pairs} does not have")
    found = np.full(int(pairs.ids.max()) + 1, np.nan)
    found[pairs.ids] = combined_score(terms, null, mass)
    return found


# Measuring


def _shuffle(args: argparse.Namespace) -> None:
    for name in ("source", "target", "out"):
        if not getattr(args, name):
            raise InputError(f"--shuffle needs --{name}")
    lines = list(text_pairs(args.source, args.target))
    if len(lines) < 4:
        raise InputError(f"{args.source}: {len(lines)} lines are too few to shuffle; 4 are the least")
    targets = shuffled_targets([len(target.split()) for _, target in lines], args.seed, args.match_lengths)
    names = _names(args.source, args.target)
    with whole_directory(args.out) as directory:
        for side, name in enumerate(names):
            with open(os.path.join(directory, f"shuffled.{name}"), "wb") as file:
                file.writelines(
                    (lines[number][0] if side == 0 else lines[target][1]) + b"\n"
                    for number, target in enumerate(targets.tolist())
                )
    print(
        f"{len(lines)} sources with each other's targets: {os.path.join(args.out, 'shuffled.' + names[0])}, {names[1]}"
    )


def _shuffled_sides(args: argparse.Namespace) -> Tuple[Side, Side]:
    """True pairs from one dump or file of statistics, wrong ones from another."""
    if not args.shuffled:
        raise InputError(
            "--shuffled is needed: statistics or a dump of shuffled pairs (see --shuffle); "
            "or --labels: a file that says what each pair is"
        )
    true, shuffled = pairs_of(args.pairs), pairs_of(args.shuffled)
    if (true.mass is None) != (shuffled.mass is None):
        raise InputError(f"{args.pairs} and {args.shuffled}: give two dumps or two files of statistics")
    if true.layers != shuffled.layers or true.null.shape[2] != shuffled.null.shape[2]:
        raise InputError(f"{args.shuffled}: of another model than {args.pairs}: their layers or heads differ")
    return (
        Side(true, "true", {"pairs": args.pairs, "scores": args.scores, "softmax": args.softmax}),
        Side(
            shuffled,
            "shuffled",
            {"pairs": args.shuffled, "scores": args.shuffled_scores, "softmax": args.shuffled_softmax},
        ),
    )


def _labelled_sides(args: argparse.Namespace) -> Tuple[Side, Side]:
    """True and wrong pairs of one dump or file of statistics, told apart by their labels."""
    refused = [name for name in ("shuffled", "shuffled_scores", "shuffled_softmax") if getattr(args, name)]
    if refused:
        flags = ", ".join("--" + name.replace("_", "-") for name in refused)
        raise InputError(
            f"--labels and {flags} do not go together: labels are of true and wrong pairs in one dump, "
            f"and --scores and --softmax are then of all of them"
        )
    by_id, pairs = pair_labels(args.labels), pairs_of(args.pairs)
    last = int(pairs.ids.max())
    if last >= len(by_id):
        raise InputError(
            f"{args.labels}: has {len(by_id)} lines, but {args.pairs} has pair {last}: "
            f"{last + 1} lines are needed, a label for each pair from 0"
        )
    labels = by_id[pairs.ids]
    clean = labels == CLEAN
    if not clean.any():
        there = ", ".join(sorted(set(labels))[:5])[:80]  # only some: the file may be no labels at all
        raise InputError(f"{args.labels}: no pair of {args.pairs} is {CLEAN}, but {there}; true pairs have that label")
    if clean.all():
        raise InputError(
            f"{args.labels}: all {len(labels)} pairs of {args.pairs} are {CLEAN}; wrong pairs, with other labels, "
            f"are needed too"
        )
    if len(by_id) > len(labels):
        left_out = len(by_id) - len(labels)
        print(f"fairseq-rela filter: {left_out} labelled pairs are not in {args.pairs}", file=sys.stderr)
    paths = {"pairs": args.pairs, "scores": args.scores, "softmax": args.softmax}
    true, wrong = (
        Side(pairs.where(inside), name, paths, labels[inside]) for inside, name in ((clean, CLEAN), (~clean, "wrong"))
    )
    return true, wrong


def _measure(args: argparse.Namespace) -> None:
    true, wrong = _labelled_sides(args) if args.labels else _shuffled_sides(args)
    true_count, wrong_count = len(true.pairs.ids), len(wrong.pairs.ids)
    report: Dict[str, Any] = {"true": true_count, wrong.name: wrong_count}
    heading = f"{true_count} true and {wrong_count} {wrong.name} pairs"
    if args.labels:
        report["labels"] = {**true.counts, **wrong.counts}
        listed = ", ".join(f"{count} {label}" for label, count in report["labels"].items())
        heading = f"{true_count + wrong_count} pairs: {listed}"
    results: List[Separation] = []
    by_label: Dict[str, List[Separation]] = {}
    if args.evaluate:
        scores = pair_scores(true, wrong)
        results = separations(scores, args.seed)
        report["evaluation"] = [result._asdict() for result in results]
        by_label = {label: separations(scores, args.seed, wrong.labels == label) for label in wrong.counts}
        if args.labels:
            report["by_label"] = {label: [each._asdict() for each in found] for label, found in by_label.items()}
    if results or args.labels:
        print(f"{heading}; AUROC: 0.5 is chance, 1 separates them all")
    if results:
        _print_table(results, by_label)
    chosen: Optional[List[Term]] = None
    if args.select:
        chosen, steps = _select(true, wrong, args.seed)
        report["selection"] = steps
    if args.out:
        with whole_directory(args.out) as directory:
            if results:
                _write_json(report, os.path.join(directory, "evaluation.json"))
            if chosen is not None:
                content = {"terms": [term._asdict() for term in chosen], "steps": report["selection"]}
                _write_json(content, os.path.join(directory, "selection.json"))


def _write_json(content: Any, path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.write("\n")


def _print_table(results: List[Separation], by_label: Dict[str, List[Separation]]) -> None:
    rows = [f"{result.auroc:.3f}  [{result.low:.3f}, {result.high:.3f}]" for result in results]
    names = [result.score for result in results]
    if by_label:
        names, rows = ["", *names], [f"{'all wrong':{len(rows[0])}}", *rows]
    for label, found in by_label.items():
        column = [label, *(f"{result.auroc:.3f}" for result in found)]
        rows = [f"{row}  {cell:>{max(map(len, column))}}" for row, cell in zip(rows, column)]
    for name, row in zip(names, rows):
        print(f"{name:{max(map(len, names))}}  {row}")


def separation(name: str, true: np.ndarray, wrong: np.ndarray, seed: int) -> Separation:
    return Separation(name, auroc(true, wrong), *auroc_interval(true, wrong, seed=seed))


def separations(scores: List[Scores], seed: int, inside: Union[slice, np.ndarray] = slice(None)) -> List[Separation]:
    """How well each score tells true pairs from the wrong ones, or from those of them at which `inside` is true."""
    return [separation(each.name, each.true, each.wrong[inside], seed) for each in scores]


def pair_scores(true: Side, wrong: Side) -> List[Scores]:
    """The score and the baselines there is material for."""
    sides = true, wrong
    found = [
        Scores("null rate of cross attention", *(pair_score(side.pairs.null) for side in sides)),
        Scores("baseline: length ratio", *(side.pairs.length_ratio for side in sides)),
    ]
    for option, name, read, sign in (
        ("scores", "baseline: model score per token", model_scores, -1),
        ("softmax", "baseline: attention entropy", attention_entropy, 1),
    ):
        paths = [side.paths[option] for side in sides]
        if option == "softmax" and not any(paths) and all(has_entropy(side.paths["pairs"]) for side in sides):
            paths = [side.paths["pairs"] for side in sides]
        if not any(paths):
            continue
        if not all(paths):
            raise InputError(f"--{option} and --shuffled-{option} are given together: true pairs and shuffled ones")
        by_path = {path: read(path) for path in dict.fromkeys(paths)}  # both sides may be in one file: read it once
        found.append(
            Scores(name, *(sign * _of_pairs(by_path[path], side.pairs, path) for path, side in zip(paths, sides)))
        )
    return found


def _of_pairs(values: Dict[int, float], pairs: Pairs, path: str) -> np.ndarray:
    missing = next((number for number in pairs.ids.tolist() if number not in values), None)
    if missing is not None:
        raise InputError(f"{path}: has nothing of pair {missing}")
    return np.array([values[number] for number in pairs.ids.tolist()])


def _select(true: Side, wrong: Side, seed: int) -> Tuple[List[Term], List[Dict[str, Any]]]:
    """Choose terms on even pairs and print what they do on odd ones."""
    halves = []
    for half in (0, 1):
        parts = []
        for side in (true, wrong):
            part = side.pairs.where(side.pairs.ids % 2 == half)
            if not len(part.ids):
                parity = "odd" if half else "even"
                raise InputError(
                    f"{side.paths['pairs']}: has no {side.name} pair with an {parity} id; --select needs both"
                )
            parts.append((part.null, part.mass))
        halves.append(parts)
    plain = [Term("null", None, None, 1, 0.0, 1.0)]
    steps = selection(*halves[0])
    print("chosen on even pairs, AUROC there; on odd pairs")
    table = []
    for terms in [plain, *steps]:
        scores = [[combined_score(terms, *part) for part in half] for half in halves]
        held_out = separation("", *scores[1], seed)
        name = " + ".join(map(str, terms)) if terms != plain else "mean null rate (nothing chosen)"
        table.append({"terms": name, "development": auroc(*scores[0]), **held_out._asdict()})
        print(f"{table[-1]['development']:.3f}; {held_out.auroc:.3f} [{held_out.low:.3f}, {held_out.high:.3f}]  {name}")
    for row in table:
        del row["score"]
    return (steps[-1] if steps else plain), table
