"""Rank sentence pairs by the null rate of their cross attention, and split a corpus into kept and dropped text.

    fairseq-rela filter STATS --source train.de --target train.en --keep 0.9 --out DIR

STATS is the file written by `fairseq-generate --score-reference --attn-dump-stats STATS`, or the directory of a dump.
Its pair i is line i of the text. The command writes kept.de, kept.en, dropped.de, dropped.en and ranking.tsv (id and
score, best pair first) to DIR.

First measure whether the score works for your model and your text:

    fairseq-rela filter --shuffle --source dev.de --target dev.en --out shuffled       # 1. make wrong pairs
    # 2. dump the true and the shuffled pairs with fairseq-generate --score-reference --attn-dump …
    fairseq-rela filter TRUE_DUMP --shuffled SHUFFLED_DUMP --evaluate                   # 3. does it separate them?
    fairseq-rela filter TRUE_DUMP --shuffled SHUFFLED_DUMP --select --out selected      # 4. which heads do it best?
    fairseq-rela filter DUMP --selection selected/selection.json --source … --target … --keep 0.9 --out DIR

If you know what is wrong with each pair, as in the noisy text of `fairseq-rela toy-corpus --noise`, one dump (or file
of statistics) is enough for --evaluate and --select:

    fairseq-rela filter NOISY_DUMP --labels noisy.labels --evaluate --scores generate.log

Line i of the labels belongs to pair i: `clean` is a true pair, every other label is a kind of wrong pair. AUROC is
measured between the clean pairs and all wrong ones, then between the clean pairs and those of each label.

The table also shows baselines: the ratio of lengths; with --scores the model's score per token; the entropy of
cross attention, from the pairs' own dumps if their rows are distributions (softmax and the like), or from --softmax;
and the confidence measures of Rikters and Fishel (2017): coverage deviation, absentmindedness out and in, from the
pairs' own dumps and from --softmax.
"""

import argparse
import json
import math
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from fairseq_rela.analysis.disk_sorter import DiskSorter
from fairseq_rela.analysis.evaluation import (
    Evaluation,
    PairFiles,
    PairSet,
    SelectionStep,
    evaluate,
    labelled_sets,
    selection_steps,
    shuffled_sets,
)
from fairseq_rela.analysis.filtering import Term, combined_score, pair_score, shuffled_targets
from fairseq_rela.analysis.line_check import check_lines
from fairseq_rela.analysis.pair_features import pair_blocks, twice_error
from fairseq_rela.analysis.ranking import Cut, LineBits, write_ranking
from fairseq_rela.analysis.selection_file import read_terms
from fairseq_rela.analysis.splitting import (
    line_count,
    output_suffixes,
    read_pairs_to_shuffle,
    write_shuffled,
    write_split,
)
from fairseq_rela.atomic import write_directory_atomically
from fairseq_rela.errors import InputError
from fairseq_rela.inputs import require_file
from fairseq_rela.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairs", metavar="STATS|DUMP", nargs="?", help="statistics or a dump of the pairs")
    parser.add_argument("--out", metavar="DIR", help="the directory to write to")
    text = parser.add_argument_group("splitting a corpus")
    text.add_argument("--source", metavar="FILE", help="the source text, one sentence per line (may be .gz)")
    text.add_argument("--target", metavar="FILE", help="the target text")
    text.add_argument("--keep", type=float, metavar="SHARE", help="keep this share of the pairs, 0 to 1, the best ones")
    text.add_argument("--max-score", type=float, metavar="X", help="or keep the pairs whose score is X or less")
    text.add_argument(
        "--selection", metavar="FILE", help="score by the terms that --select chose, instead of the mean null rate"
    )
    measuring = parser.add_argument_group("measuring the score itself")
    measuring.add_argument(
        "--shuffle", action="store_true", help="write SOURCE with the lines of TARGET shuffled, and stop"
    )
    measuring.add_argument(
        "--match-lengths",
        action="store_true",
        help="with --shuffle: swap only targets of similar lengths, so that lengths do not reveal the wrong pairs",
    )
    measuring.add_argument(
        "--evaluate",
        action="store_true",
        help="measure how well the score tells wrong pairs (--shuffled or --labels) from true ones: "
        "AUROC (0.5 is chance) with a 95 %% bootstrap interval, and the same for baselines",
    )
    measuring.add_argument(
        "--select", action="store_true", help="choose heads and measures on even pairs, and score them on odd ones"
    )
    measuring.add_argument(
        "--shuffled",
        metavar="STATS|DUMP",
        help="statistics or a dump of the shuffled pairs; the pairs given first are then all true",
    )
    measuring.add_argument(
        "--labels",
        metavar="FILE",
        help="or a file with one label per pair, pair i on line i: clean, or any other word for a kind of wrong pair "
        "(shuffled, truncated, …); each kind is also measured by itself",
    )
    measuring.add_argument(
        "--scores",
        metavar="FILE",
        help="baseline: the model's score per token, of the true pairs (with --labels: of all): output "
        "of fairseq-generate --score-reference, or one number per line",
    )
    measuring.add_argument("--shuffled-scores", metavar="FILE", help="the same for the shuffled pairs")
    measuring.add_argument(
        "--softmax",
        metavar="DUMP",
        help="baseline: attention entropy; a softmax model's dump of the true pairs (with --labels: of all). "
        "Not needed where the pairs themselves are dumps of a softmax model",
    )
    measuring.add_argument("--shuffled-softmax", metavar="DUMP", help="the same for the shuffled pairs")
    measuring.add_argument("--seed", type=int, default=0, help="seed of shuffling and bootstrap (0)")


def run(args: argparse.Namespace) -> None:
    if args.seed < 0:
        raise InputError(f"--seed is {args.seed}; give 0 or more")
    if args.labels and not (args.evaluate or args.select):
        raise InputError("--labels is for --evaluate and --select; splitting a corpus does not need labels")
    if args.shuffle:
        return _shuffle(args)
    if not args.pairs:
        raise InputError("a file of statistics or a dump is needed: fairseq-rela filter STATS …; see --help")
    if args.evaluate or args.select:
        return _measure(args)
    return _split(args)


def _split(args: argparse.Namespace) -> None:
    """Write the kept and the dropped pairs."""
    _require(args, "is needed to split a corpus (or give --evaluate, --select or --shuffle)")
    if (args.keep is None) == (args.max_score is None):
        raise InputError("give one of --keep SHARE and --max-score X: which pairs are good enough")
    if args.keep is not None and not 0 <= args.keep <= 1:
        raise InputError(f"--keep is {args.keep:g}; a share is between 0 and 1")
    if args.max_score is not None and math.isnan(args.max_score):
        raise InputError("--max-score is nan; give a number")
    for path in (args.source, args.target):
        require_file(path)
    terms = _selected_terms(args.selection, args.pairs) if args.selection else None
    lines = line_count(args.source)
    with write_directory_atomically(args.out) as directory, DiskSorter(directory) as sorter:
        _sort_scores(args, terms, lines, sorter)
        check_lines(args.pairs, args.source, args.target, directory)
        ranking = os.path.join(directory, "ranking.tsv")
        ranked = progress(sorter, "ranking", sorter.count)
        keep = write_ranking(ranked, sorter.count, lines, Cut(args.keep, args.max_score), ranking)
        counts = write_split(args.source, args.target, keep, directory)
    print(f"kept {counts.kept} of {counts.total} pairs, dropped {counts.dropped}: {args.out}")
    unscored = counts.total - sorter.count
    if unscored:
        print(f"fairseq-rela filter: {unscored} pairs have no score and were dropped", file=sys.stderr)


def _sort_scores(args: argparse.Namespace, terms: Optional[List[Term]], lines: int, sorter: DiskSorter) -> None:
    """Give the score of every pair to `sorter`, after checking that each is a line of the text, once."""
    seen = LineBits(lines)
    for block in pair_blocks(args.pairs):
        last = int(block.ids.max(initial=-1))
        if last >= lines:
            raise InputError(
                f"{args.pairs}: has pair {last}, but {args.source} only {lines} lines (0 to {lines - 1}); "
                f"give the text that was scored"
            )
        twice = seen.set_all(block.ids)
        if twice is not None:
            raise twice_error(args.pairs, twice)
        scores = pair_score(block.null) if terms is None else combined_score(terms, block.null, block.mass)
        sorter.add(scores, block.ids)


def _require(args: argparse.Namespace, why: str) -> None:
    for name in ("source", "target", "out"):
        if not getattr(args, name):
            raise InputError(f"--{name} {why}")


def _selected_terms(selection: str, path: str) -> List[Term]:
    """The terms that --select chose, after checking that `path` has what they measure."""
    terms = read_terms(selection)
    first = next(pair_blocks(path))
    if first.mass is None and any(term.measure == "mass" or term.head is not None for term in terms):
        raise InputError(f"{path}: statistics know layers only; the heads and attention mass chosen need a dump")
    layers, heads = first.null.shape[1:]
    for term in terms:
        if (term.layer or 0) >= layers or (term.head or 0) >= heads:
            raise InputError(f"{selection}: chose {term}, which {path} does not have")
    return terms


def _shuffle(args: argparse.Namespace) -> None:
    """Write the sources with each other's targets."""
    _require(args, "is needed with --shuffle")
    pairs = read_pairs_to_shuffle(args.source, args.target)
    targets = shuffled_targets([len(target.split()) for _, target in pairs], args.seed, args.match_lengths)
    suffixes = output_suffixes(args.source, args.target)
    with write_directory_atomically(args.out) as directory:
        write_shuffled(pairs, targets.tolist(), suffixes, directory)
    print(
        f"{len(pairs)} sources with each other's targets: "
        f"{os.path.join(args.out, 'shuffled.' + suffixes[0])}, {suffixes[1]}"
    )


def _measure(args: argparse.Namespace) -> None:
    """Evaluate the score and select terms, print the results, and write them if --out is given."""
    true, wrong = _pair_sets(args)
    true_count, wrong_count = len(true.pairs.ids), len(wrong.pairs.ids)
    report: Dict[str, Any] = {"true": true_count, wrong.name: wrong_count}
    heading = f"{true_count} true and {wrong_count} {wrong.name} pairs"
    if args.labels:
        report["labels"] = {**true.label_counts, **wrong.label_counts}
        listed = ", ".join(f"{count} {label}" for label, count in report["labels"].items())
        heading = f"{true_count + wrong_count} pairs: {listed}"
    evaluation = evaluate(true, wrong, args.seed) if args.evaluate else None
    if evaluation or args.labels:
        print(f"{heading}; AUROC: 0.5 is chance, 1 separates them all")
    if evaluation:
        _print_table(evaluation)
        report.update(evaluation.to_json())
    steps = selection_steps(true, wrong, args.seed) if args.select else []
    if steps:
        _print_steps(steps)
        report["selection"] = [step.to_json() for step in steps]
    if args.out:
        with write_directory_atomically(args.out) as directory:
            if evaluation:
                _write_json(report, os.path.join(directory, "evaluation.json"))
            if steps:
                terms = [term._asdict() for term in steps[-1].terms]
                content = {"terms": terms, "steps": report["selection"]}
                _write_json(content, os.path.join(directory, "selection.json"))


def _pair_sets(args: argparse.Namespace) -> Tuple[PairSet, PairSet]:
    """The true pairs and the wrong ones."""
    files = PairFiles(args.pairs, args.scores, args.softmax)
    shuffled = [name for name in ("shuffled", "shuffled_scores", "shuffled_softmax") if getattr(args, name)]
    if args.labels and shuffled:
        flags = ", ".join("--" + name.replace("_", "-") for name in shuffled)
        raise InputError(
            f"--labels and {flags} do not go together: with labels, true and wrong pairs are in one dump, "
            f"and --scores and --softmax are of all of them"
        )
    if args.labels:
        true, wrong, left_out = labelled_sets(files, args.labels)
        if left_out:
            print(f"fairseq-rela filter: {left_out} labelled pairs are not in {args.pairs}", file=sys.stderr)
        return true, wrong
    if not args.shuffled:
        raise InputError(
            "--shuffled is needed: statistics or a dump of shuffled pairs (see --shuffle); "
            "or --labels: a file that says what each pair is"
        )
    return shuffled_sets(files, PairFiles(args.shuffled, args.shuffled_scores, args.shuffled_softmax))


def _write_json(content: Any, path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.write("\n")


def _print_table(evaluation: Evaluation) -> None:
    """One row per score: AUROC with its interval against all wrong pairs, then AUROC against those of each label."""
    results, by_label = evaluation
    rows = [f"{result.auroc:.3f}  [{result.low:.3f}, {result.high:.3f}]" for result in results]
    names = [result.score for result in results]
    if by_label:
        names, rows = ["", *names], [f"{'all wrong':{len(rows[0])}}", *rows]
    for label, column in by_label.items():
        cells = [label, *(f"{result.auroc:.3f}" for result in column)]
        rows = [f"{row}  {cell:>{max(map(len, cells))}}" for row, cell in zip(rows, cells)]
    for name, row in zip(names, rows):
        print(f"{name:{max(map(len, names))}}  {row}")


def _print_steps(steps: List[SelectionStep]) -> None:
    print("chosen on even pairs, AUROC there; on odd pairs")
    for step in steps:
        rate = step.held_out
        print(f"{step.development:.3f}; {rate.auroc:.3f} [{rate.low:.3f}, {rate.high:.3f}]  {step.name}")
