"""Analyse attention dumps as the paper does: metrics.json, figures (PNG, SVG) and report.html.

    fairseq-rela analyze DUMP --out DIR
    fairseq-rela analyze softmax=DUMP rela=DUMP1 rela=DUMP2 --out DIR      # two models, with two seeds of rela
    fairseq-rela analyze DUMP --gold gold.talp --gold-base 1 --out DIR     # word alignment, too
    fairseq-rela analyze DUMP --heatmap 3:cross:5:2 --heatmap 3:cross:5:mean --out DIR

It measures sparsity rate, null rate and head diversity by kind and layer, after which words each cross-attention head
is null, and the alignment error rate if gold links are given. report.html contains all of it and an explorer of
single sentences. It opens from a file, without a network. To measure alignment, make the dump of the reference
translations, with `fairseq-generate --score-reference`.
"""

import argparse
import json
import math
import os
import re
from typing import List, Optional

from fairseq_rela import __version__
from fairseq_rela.analysis import plots
from fairseq_rela.analysis.alignment import EOS
from fairseq_rela.analysis.diversity import TAUS
from fairseq_rela.analysis.figures import HeatMapChoice, check_heat_maps, default_heat_maps, heat_maps, line_figures
from fairseq_rela.analysis.levels import LEVELS
from fairseq_rela.analysis.measurement import gold_lines, measurement, tag_lines, with_alignment
from fairseq_rela.analysis.metrics import ModelMetrics, Models
from fairseq_rela.analysis.named_dumps import NamedDumps, named_dumps, other_dumps
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.report import FigureFile
from fairseq_rela.analysis.report_file import write_report
from fairseq_rela.analysis.seeds import over_seeds
from fairseq_rela.analysis.tally import SentenceLines
from fairseq_rela.analysis.words import RULES
from fairseq_rela.atomic import write_directory_atomically
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS


def heat_map_choice(text: str) -> HeatMapChoice:
    """SENTENCE:KIND:LAYER:HEAD, the value of --heatmap."""
    match = re.fullmatch(r"(\d+):(\w+):(-?\d+):(\d+|mean)", text)
    if not match or match[2] not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not SENTENCE:KIND:LAYER:HEAD, such as 3:cross:5:2 or 3:cross:-1:mean; "
            f"kinds are {', '.join(KINDS)}"
        )
    return HeatMapChoice(int(match[1]), match[2], int(match[3]), None if match[4] == "mean" else int(match[4]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dumps",
        metavar="[NAME=]DUMP",
        nargs="+",
        help="a directory written by --attn-dump; dumps with the same NAME are seeds of one model and are averaged",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="the directory to write to")
    parser.add_argument(
        "--shuffled",
        metavar="[NAME=]DUMP",
        action="append",
        default=[],
        help="a dump of the same sources with shuffled targets: its null rates are shown beside the real ones",
    )
    parser.add_argument("--merge", choices=("auto", *RULES), default="auto", help="how pieces make words (auto)")
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="subword",
        help="measure sparsity, null rate and diversity between subword pieces, or, as the paper does, after merging "
        "to words (subword)",
    )
    parser.add_argument("--tau", type=float, default=1.0, help="temperature τ of head diversity (1)")
    gold = parser.add_argument_group("word alignment")
    gold.add_argument("--gold", metavar="FILE", help="gold links, one line per sentence: i-j sure, ipj possible")
    gold.add_argument("--gold-base", type=int, choices=(0, 1), default=0, help="number of the first word there (0)")
    gold.add_argument("--gold-reverse", action="store_true", help="the links there have the target's word first")
    gold.add_argument(
        "--aligned",
        metavar="[NAME=]DUMP",
        action="append",
        default=[],
        help="a dump of the sentences of --gold, if they are not those of the other dumps; only alignment is measured "
        "on it, in the same report",
    )
    gold.add_argument(
        "--eos",
        choices=EOS,
        default="drop",
        help="what `alignment` in metrics.json does with the source's </s>: drop it before the maximum, or read a "
        "maximum there as no link (drop); both are reported",
    )
    nulls = parser.add_argument_group("what heads fire after")
    nulls.add_argument("--target-tags", metavar="FILE", help="one line per sentence, one tag per target word")
    nulls.add_argument("--min-count", type=int, default=5, help="leave out words that are rarer (5)")
    shown = parser.add_argument_group("pictures")
    shown.add_argument(
        "--heatmap",
        metavar="SENTENCE:KIND:LAYER:HEAD",
        type=heat_map_choice,
        action="append",
        default=[],
        help="draw this heat map, such as 3:cross:5:2 or 3:cross:-1:mean; may be given several times",
    )
    shown.add_argument("--sentences", type=int, default=50, metavar="N", help="sentences in the report's explorer (50)")
    shown.add_argument("--no-figures", action="store_true", help="draw no figures; matplotlib is then not needed")


def run(args: argparse.Namespace) -> None:
    if not args.no_figures:
        plots.require_matplotlib()  # before the work, not after it
    if not 0 < args.tau < math.inf:
        raise InputError(f"--tau is {args.tau:g}; it must be more than 0")
    for name in ("sentences", "min_count"):
        if getattr(args, name) < 0:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(args, name)}; give 0 or more")
    gold = gold_lines(args.gold, args.gold_base, args.gold_reverse) if args.gold else None
    tags = tag_lines(args.target_tags) if args.target_tags else None
    dumps = named_dumps(args.dumps, args.merge)
    shuffled = other_dumps(args.shuffled, dumps, args.merge, "--shuffled")
    aligned = _aligned_dumps(args, dumps)
    own_gold = None if aligned else gold  # of the dumps themselves
    check_heat_maps(args.heatmap, dumps)
    with write_directory_atomically(args.out) as directory:
        models = {
            name: _measured(name, runs, shuffled.get(name), aligned.get(name), gold, tags, args)
            for name, runs in dumps.items()
        }
        signature = measurement_signature(args, dumps, aligned)
        _write_metrics(models, signature, os.path.join(directory, "metrics.json"))
        figures = [] if args.no_figures else _figures(models, dumps, args.heatmap, own_gold, tags, directory)
        write_report(models, signature, figures, dumps, own_gold, args.sentences, directory)
    print(f"{len(models)} model{'s' if len(models) > 1 else ''}: {os.path.join(args.out, 'report.html')}")
    print(signature)


def _aligned_dumps(args: argparse.Namespace, dumps: NamedDumps) -> NamedDumps:
    """The dumps of the sentences with gold links; empty where those are the sentences of the other dumps."""
    if args.aligned and not args.gold:
        raise InputError("--aligned is a dump of the sentences of --gold; give --gold FILE, too")
    aligned = other_dumps(args.aligned, dumps, args.merge, "--aligned")
    missing = [name for name in dumps if aligned and name not in aligned]
    if missing:
        raise InputError(f"--aligned: no dump of {', '.join(missing)}; give --aligned NAME=DUMP for every model")
    return aligned


def _measured(
    name: str,
    runs: List[DumpReader],
    shuffled: Optional[List[DumpReader]],
    aligned: Optional[List[DumpReader]],
    gold: Optional[SentenceLines],
    tags: Optional[SentenceLines],
    args: argparse.Namespace,
) -> ModelMetrics:
    """The metrics of one model over its runs; `shuffled` and `aligned` have one dump for each of them."""
    metrics = []
    for number, reader in enumerate(runs):
        shuffled_run = shuffled[number] if shuffled else None
        own_gold = None if aligned else gold
        run = measurement(reader, own_gold, tags, args.eos, args.tau, TAUS, args.min_count, shuffled_run, args.level)
        metrics.append(with_alignment(run, aligned[number], gold, args.eos) if aligned and gold else run)
    return over_seeds(name, metrics)


def measurement_signature(args: argparse.Namespace, dumps: NamedDumps, aligned: NamedDumps) -> str:
    """How the numbers were measured, in one line. Only numbers with the same signature can be compared."""
    readers = [reader for runs in dumps.values() for reader in runs]
    merge = "+".join(sorted({f"{reader.source_rule}-{reader.target_rule}" for reader in readers}))
    sentences = "+".join(sorted({str(len(reader)) for reader in readers}))
    parts = [f"sentences:{sentences}", f"level:{args.level}", "zero:exact", f"tau:{args.tau:g}", "log:e"]
    if args.level == "word" and not args.gold:
        parts += [f"merge:{merge}", "src:sum", "tgt:mean"]
    if aligned:
        counts = sorted({str(len(reader)) for runs in aligned.values() for reader in runs})
        parts.append(f"aligned-sentences:{'+'.join(counts)}")
    if args.gold:
        parts += [f"merge:{merge}", "src:sum", "tgt:mean", f"eos:{args.eos}", f"gold-base:{args.gold_base}"]
        parts += [f"gold-order:{'tgt-src' if args.gold_reverse else 'src-tgt'}", "held-out:odd-lines"]
    return "|".join([*parts, f"version:{__version__}"])


def _write_metrics(models: Models, signature: str, path: str) -> None:
    content = {"models": {name: model.to_json() for name, model in models.items()}, "signature": signature}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.write("\n")


def _figures(
    models: Models,
    dumps: NamedDumps,
    chosen: List[HeatMapChoice],
    gold: Optional[SentenceLines],
    tags: Optional[SentenceLines],
    directory: str,
) -> List[FigureFile]:
    """All figures: the lines, and the heat maps that were chosen or else the default ones."""
    choices = {name: chosen or default_heat_maps(runs[0], models[name].first, tags) for name, runs in dumps.items()}
    return line_figures(models, directory) + heat_maps(dumps, choices, gold, directory)
