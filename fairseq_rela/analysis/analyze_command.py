"""Everything the paper reads from attention, from a dump: metrics.json, figures (PNG, SVG) and report.html.

    fairseq-rela analyze DUMP --out DIR
    fairseq-rela analyze softmax=DUMP rela=DUMP1 rela=DUMP2 --out DIR      # two models; of rela two seeds
    fairseq-rela analyze DUMP --gold gold.talp --gold-base 1 --out DIR     # word alignment, too
    fairseq-rela analyze DUMP --heatmap 3:cross:5:2 --heatmap 3:cross:5:mean --out DIR

Sparsity rate, null rate and head diversity by kind and layer; which cross-attention heads are null after which words;
alignment error rate where gold links are given. report.html holds all of it and an explorer of single sentences, and
opens from a file, without a network. To measure alignment, make the dump of the reference translations, with
`fairseq-generate --score-reference`.
"""

import argparse
import json
import math
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fairseq_rela import __version__
from fairseq_rela.analysis import plots
from fairseq_rela.analysis.alignment import EOS, layer_or_head
from fairseq_rela.analysis.diversity import TAUS
from fairseq_rela.analysis.explorer import explorer_data
from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.measurement import Lines, gold_lines, measurement, null_rates, tag_lines
from fairseq_rela.analysis.outputs import whole_directory
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.report import FigureFile, report_html
from fairseq_rela.analysis.seeds import over_seeds
from fairseq_rela.analysis.sparsity import KINDS, visible_positions
from fairseq_rela.analysis.words import RULES
from fairseq_rela.errors import InputError

MOST_BYTES = 20_000_000  # of report.html


class Spot(NamedTuple):
    """What a heat map shows: a sentence's id, a kind, the model's layer, a head (None: mean of heads)."""

    sentence: int
    kind: str
    layer: int
    head: Optional[int]


def spot(text: str) -> Spot:
    """SENTENCE:KIND:LAYER:HEAD."""
    match = re.fullmatch(r"(\d+):(\w+):(-?\d+):(\d+|mean)", text)
    if not match or match[2] not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no SENTENCE:KIND:LAYER:HEAD, as 3:cross:5:2 or 3:cross:-1:mean; kinds are {', '.join(KINDS)}"
        )
    return Spot(int(match[1]), match[2], int(match[3]), None if match[4] == "mean" else int(match[4]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dumps",
        metavar="[NAME=]DUMP",
        nargs="+",
        help="a directory written by --attn-dump; dumps of one NAME are seeds of one model and are averaged",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="where to write")
    parser.add_argument(
        "--shuffled",
        metavar="[NAME=]DUMP",
        action="append",
        default=[],
        help="a dump of the same sources with shuffled targets: its null rates beside the real ones",
    )
    parser.add_argument("--merge", choices=("auto", *RULES), default="auto", help="how pieces make words (auto)")
    parser.add_argument("--tau", type=float, default=1.0, help="temperature τ of head diversity (1)")
    gold = parser.add_argument_group("word alignment")
    gold.add_argument("--gold", metavar="FILE", help="gold links, a line a sentence: i-j sure, ipj possible")
    gold.add_argument("--gold-base", type=int, choices=(0, 1), default=0, help="what they count words from (0)")
    gold.add_argument("--gold-reverse", action="store_true", help="they have the target's word first")
    gold.add_argument(
        "--eos",
        choices=EOS,
        default="drop",
        help="what `alignment` in metrics.json does with the source's "
        "</s>: drop it before the maximum, or let it stand for no link (drop); both are reported",
    )
    nulls = parser.add_argument_group("what heads fire after")
    nulls.add_argument("--target-tags", metavar="FILE", help="a line a sentence, a tag (part of speech) a target word")
    nulls.add_argument("--min-count", type=int, default=5, help="leave out words that are rarer (5)")
    shown = parser.add_argument_group("pictures")
    shown.add_argument(
        "--heatmap",
        metavar="SENTENCE:KIND:LAYER:HEAD",
        type=spot,
        action="append",
        default=[],
        help="draw this, as 3:cross:5:2 or 3:cross:-1:mean; may be given again",
    )
    shown.add_argument("--sentences", type=int, default=50, metavar="N", help="in the report's explorer (50)")
    shown.add_argument("--no-figures", action="store_true", help="do without figures, and so without matplotlib")


def run(args: argparse.Namespace) -> None:
    if not args.no_figures:
        plots.require_matplotlib()  # before the work, not after
    if not 0 < args.tau < math.inf:
        raise InputError(f"--tau is {args.tau:g}; it must be more than 0")
    gold = gold_lines(args.gold, args.gold_base, args.gold_reverse) if args.gold else None
    tags = tag_lines(args.target_tags) if args.target_tags else None
    readers = named_readers(args.dumps, args.merge)
    shuffled = shuffled_readers(args.shuffled, readers, args.merge)
    spots = check_spots(args.heatmap, readers)
    with whole_directory(args.out) as directory:
        models = {name: _measured(name, readers[name], shuffled.get(name), gold, tags, args) for name in readers}
        signature = made_how(args, readers)
        with open(os.path.join(directory, "metrics.json"), "w", encoding="utf-8") as file:
            json.dump({"models": models, "signature": signature}, file, indent=1, allow_nan=False)
            file.write("\n")
        figures = []
        if not args.no_figures:
            figures = line_figures(models, directory)
            figures += heat_maps(readers, spots or default_spots(readers, models), gold, directory)
        _write_report(models, signature, figures, readers, gold, args, directory)
    print(f"{len(models)} model{'s' if len(models) > 1 else ''}: {os.path.join(args.out, 'report.html')}")
    print(signature)


# Names


def named_readers(given: List[str], merge: str) -> Dict[str, List[DumpReader]]:
    """The dumps by the name of their model: the one given, or as much of the path's end as tells them apart."""
    pairs = [_named(each) for each in given]
    paths = [path for name, path in pairs if name is None]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise InputError(f"{twice}: given twice; seeds of one model are given as NAME=DUMP NAME=DUMP")
    readers: Dict[str, List[DumpReader]] = {}
    for name, path in pairs:
        readers.setdefault(name or _shortest_name(path, paths), []).append(DumpReader(path, merge))
    return readers


def _named(text: str) -> Tuple[Optional[str], str]:
    name, equals, path = text.partition("=")
    return (name, path) if equals and name and not os.path.exists(text) else (None, text)


def _shortest_name(path: str, paths: List[str]) -> str:
    split = {each: os.path.normpath(os.path.abspath(each)).split(os.sep) for each in paths}
    for length in range(1, len(split[path])):
        end = split[path][-length:]
        if sum(parts[-length:] == end for parts in split.values()) == 1:
            return "/".join(end)
    return path


def shuffled_readers(given: List[str], readers: Dict[str, List[DumpReader]], merge: str) -> Dict[str, List[DumpReader]]:
    """The dumps of shuffled targets by model: by their NAME, or in the order of the models."""
    found: Dict[str, List[DumpReader]] = {}
    unnamed = iter([name for name, runs in readers.items() for _ in runs])
    for text in given:
        name, path = _named(text)
        if name is None:
            name = next(unnamed, None)
        if name not in readers:
            raise InputError(f"--shuffled {text}: for no model; the models are {', '.join(readers)}")
        found.setdefault(name, []).append(DumpReader(path, merge))
    for name, runs in found.items():
        if len(runs) != len(readers[name]):
            raise InputError(f"--shuffled: {len(runs)} dumps for the {len(readers[name])} of {name}; give one for each")
        for run, real in zip(runs, readers[name]):
            if run.info.kinds != real.info.kinds:
                raise InputError(f"{run.path}: of another model than {real.path}; their kinds, layers or heads differ")
    return found


# Numbers


def _measured(
    name: str,
    readers: List[DumpReader],
    shuffled: Optional[List[DumpReader]],
    gold: Optional[Lines],
    tags: Optional[Lines],
    args: argparse.Namespace,
) -> Dict[str, Any]:
    runs = []
    for index, reader in enumerate(readers):
        run = measurement(reader, gold, tags, args.eos, args.tau, TAUS, args.min_count)
        run["dumps"] = [reader.path]
        if shuffled:
            rates = null_rates(shuffled[index])
            run["null_rate_shuffled"] = rates["null_rate"]
            run["null_rate_heads_shuffled"] = rates["null_rate_heads"]
        runs.append(run)
    return {**over_seeds(name, runs), "dumps": [reader.path for reader in readers]}


def made_how(args: argparse.Namespace, readers: Dict[str, List[DumpReader]]) -> str:
    """The signature: how the numbers were made, so that two sets of them can be compared."""
    every = [reader for runs in readers.values() for reader in runs]
    merge = "+".join(sorted({f"{reader.source_rule}-{reader.target_rule}" for reader in every}))
    sentences = "+".join(sorted({str(len(reader)) for reader in every}))
    parts = [f"sentences:{sentences}", "level:subword", "zero:exact", f"tau:{args.tau:g}", "log:e"]
    if args.gold:
        parts += [f"merge:{merge}", "src:sum", "tgt:mean", f"eos:{args.eos}", f"gold-base:{args.gold_base}"]
        parts += [f"gold-order:{'tgt-src' if args.gold_reverse else 'src-tgt'}", "held-out:odd-lines"]
    return "|".join([*parts, f"version:{__version__}"])


# Pictures


def line_figures(models: Dict[str, Dict[str, Any]], directory: str) -> List[FigureFile]:
    """The figures by layer, by τ and by tag, written into `directory`."""
    shuffled = "null_rate_shuffled" if any("null_rate_shuffled" in model for model in models.values()) else None
    found = [
        ("sparsity", "sparsity", "Sparsity rate by layer", plots.by_layer(models, "sparsity", "sparsity rate")),
        (
            "nulls",
            "null_rate",
            "Null rate by layer" + (", dashed on shuffled targets" if shuffled else ""),
            plots.by_layer(models, "null_rate", "null rate", shuffled, "shuffled"),
        ),
        (
            "nulls",
            "null_rate_variance",
            "Variance of the null rate over the heads of a layer",
            plots.by_layer(models, "null_rate_variance", "variance of null rate"),
        ),
        (
            "diversity",
            "diversity",
            "Head diversity by layer",
            plots.by_layer(models, "diversity", "head diversity (nats)"),
        ),
        ("diversity", "diversity_tau", "Head diversity over τ, mean over layers", plots.diversity_by_tau(models)),
    ]
    if any("alignment" in model for model in models.values()):
        found.append(("alignment", "alignment", "Alignment error rate by layer", plots.alignment_error(models)))
    for name, model in models.items():
        by_tag = model.get("runs", [model])[0].get("null_after_tags")
        if by_tag:
            figure = plots.null_after_tags(name, by_tag)
            found.append(("after-tags", f"null_after_tags_{_file_name(name)}", f"{name}: null rate after tags", figure))
    return [
        FigureFile(plots.save(figure, directory, name)[1], caption, section) for section, name, caption, figure in found
    ]


def check_spots(spots: List[Spot], readers: Dict[str, List[DumpReader]]) -> List[Spot]:
    """`spots`, once every model is known to have them."""
    for each in spots:
        for runs in readers.values():
            runs[0].require(each.kind)
            runs[0].layer_index(each.kind, each.layer)
            if each.head is not None:
                runs[0].check_head(each.kind, each.head)
            runs[0].dump.find(each.sentence)
    return spots


def default_spots(readers: Dict[str, List[DumpReader]], models: Dict[str, Dict[str, Any]]) -> Dict[str, List[Spot]]:
    """Where nothing was asked for: a short sentence, and in it the head whose nulls say most and the best aligner."""
    found: Dict[str, List[Spot]] = {}
    for name, runs in readers.items():
        kind = "cross" if "cross" in runs[0].info.kinds else next(iter(runs[0].info.kinds))
        layers = runs[0].info.kinds[kind].layers
        first = [runs[0][i] for i in range(min(len(runs[0]), 200))]
        fitting = (record for record in first if 6 <= record.target_length <= 20 and 6 <= record.source_length <= 20)
        sentence = next(fitting, first[0]).id
        run = models[name].get("runs", [models[name]])[0]
        heads = [(c["layer"], c["head"]) for c in (run.get("null_after_words") or [])[:1]]
        if "alignment" in run:
            by_head = run["alignment"]["shifted"]["heads"]
            heads.append(min((rate, (i, j)) for i, line in enumerate(by_head) for j, rate in enumerate(line))[1])
        spots = [Spot(sentence, kind, layers[layer], head) for layer, head in dict.fromkeys(heads)]
        found[name] = [*spots, Spot(sentence, kind, layers[-1], None)]
    return found


def heat_maps(
    readers: Dict[str, List[DumpReader]], spots: Any, gold: Optional[Lines], directory: str
) -> List[FigureFile]:
    """Heat maps of the first seed of each model; `spots` a list for all models, or a list for each name."""
    figures = []
    for name, runs in readers.items():
        for each in spots[name] if isinstance(spots, dict) else spots:
            reader = runs[0]
            record = reader.dump.find(each.sentence)
            layer = reader.layer_index(each.kind, each.layer)
            weights = layer_or_head(reader.weights(record, each.kind), layer, each.head)
            rows, columns = plots.axis_labels(each.kind, record.source, record.target)
            visible = visible_positions(each.kind, *weights.shape)
            cells = gold_cells(reader, record, gold.values[record.id]) if gold and each.kind == "cross" else []
            head = "mean of heads" if each.head is None else f"head {each.head}"
            title = f"{name}: sentence {each.sentence}, {each.kind}, layer {each.layer}, {head}"
            figure = plots.heat_map(weights, rows, columns, plots.label(name) + title[len(name) :], visible, cells)
            head_name = "mean" if each.head is None else f"head{each.head}"
            file_name = f"heatmap_{_file_name(name)}_{each.sentence}_{each.kind}_layer{each.layer}_{head_name}"
            png, _ = plots.save(figure, directory, file_name)
            figures.append(FigureFile(png, title, "heatmaps"))
    return figures


def gold_cells(reader: DumpReader, record: Any, gold: Gold) -> List[Tuple[int, int]]:
    """(row, column) of every pair of pieces whose words are linked."""
    source, target = reader.source_words(record).of_piece, reader.target_words(record).of_piece
    return [
        (t, s)
        for t, target_word in enumerate(target.tolist())
        for s, source_word in enumerate(source.tolist())
        if (source_word, target_word) in gold.possible
    ]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)[:80]


def _write_report(
    models: Dict[str, Dict[str, Any]],
    signature: str,
    figures: List[FigureFile],
    readers: Dict[str, List[DumpReader]],
    gold: Optional[Lines],
    args: argparse.Namespace,
    directory: str,
) -> None:
    """report.html, of at most `MOST_BYTES`: as many sentences in the explorer as are asked for and fit."""
    without_sentences = {"models": [{"sentences": []}]}
    size = len(report_html(models, signature, figures, without_sentences).encode("utf-8", "replace"))
    if size > MOST_BYTES // 2:  # many heat maps: they are files, too
        figures = [figure for figure in figures if figure.section != "heatmaps"]
        size = len(report_html(models, signature, figures, without_sentences).encode("utf-8", "replace"))
    room = MOST_BYTES - size - 1000  # the note below, at most
    named = [
        (
            name if len(runs) == 1 else f"{name}, run {number}",
            reader,
            models[name].get("runs", [models[name]])[number - 1],
        )
        for name, runs in readers.items()
        for number, reader in enumerate(runs, 1)
    ]
    explorer, count = explorer_data(named, gold.values if gold else None, max(args.sentences, 0), room)
    wanted = min(args.sentences, max(len(reader) for _, reader, _ in named))
    note = (
        f"{count} of {wanted} sentences are here: more would make this file larger than 20 MB."
        if count < wanted
        else ""
    )
    with open(os.path.join(directory, "report.html"), "wb") as file:
        # half a surrogate pair, as broken text has, is nothing that UTF-8 can write
        file.write(report_html(models, signature, figures, explorer, note).encode("utf-8", "replace"))
