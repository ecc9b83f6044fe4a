"""The ranking of Section 5.2: pairs sorted by the null rate of their cross attention, and a page to judge both ends.

python ranking.py select STATS PIECES SOURCE TARGET OUT [--end 10000] [--sample 100] [--seed 1]
    writes OUT.SOURCE and OUT.TARGET, the pieces of the sampled pairs, and OUT.json
python ranking.py page SELECTED.json DUMP PAGE.html [--maps 4]
    writes the page: both samples side by side, with heat maps of some (Figure 10)
python ranking.py ends STATS LABELS [--end 10000]
    prints the share of wrong pairs at both ends of pairs that are labelled `clean` or otherwise

PIECES.SOURCE and PIECES.TARGET are what fairseq-preprocess has read, so pair i of STATS is line i.
An end has --end pairs, as in the paper, or 1 % of the pairs where that is less.
"""

import argparse
import base64
import html
import io
import json
import os
from typing import Any, Dict, List, Tuple

import numpy as np
import recipe

from fairseq_rela.analysis.examples import PAPER_HEADS, THIRD_LAYER
from fairseq_rela.analysis.filtering import pair_score
from fairseq_rela.analysis.heat_map import axis_labels, heat_map
from fairseq_rela.analysis.line_check import check_lines
from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.pair_features import CLEAN, pair_labels, pairs_of
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.splitting import line_count
from fairseq_rela.analysis.words import merged
from fairseq_rela.errors import InputError

ENDS = ("best", "worst")
STYLE = """body{font-family:sans-serif;margin:1.5em}table{border-collapse:collapse;width:100%}
td,th{border:1px solid #ccc;padding:.4em;vertical-align:top;text-align:left;width:50%}
.score{color:#666;font-size:85%}figure{display:inline-block;margin:.5em}img{max-width:46vw}"""


def end_size(pairs: int, most: int) -> int:
    """How many pairs an end has: 1 % of them, at least 1 and at most `most`."""
    return max(1, min(most, pairs // 100))


def scores_by_id(stats: str, text: str, lines: int) -> np.ndarray:
    """(lines,): each pair's null rate at its id, which is its line in `text`; NaN where there is no pair."""
    pairs = pairs_of(stats)
    if pairs.ids.max(initial=-1) >= lines:
        raise InputError(f"{text}: has {lines} lines, but {stats} has pair {pairs.ids.max()}")
    scores = np.full(lines, np.nan)
    scores[pairs.ids] = pair_score(pairs.null)
    return scores


def ranked(scores: np.ndarray) -> np.ndarray:
    """The ids of the pairs that have a score, the lowest null rate first."""
    order = np.argsort(scores, kind="stable")
    return order[: len(scores) - int(np.isnan(scores).sum())]


def both_ends(scores: np.ndarray, most: int) -> Dict[str, np.ndarray]:
    """The ids of the best pairs and of the worst, the best and the worst of all first."""
    order = ranked(scores)
    size = end_size(len(order), most)
    return {"best": order[:size], "worst": order[::-1][:size]}


def select(args: argparse.Namespace) -> None:
    paths = [f"{args.pieces}.{lang}" for lang in (args.source, args.target)]
    check_lines(args.stats, *paths)
    scores, draw = scores_by_id(args.stats, paths[0], line_count(paths[0])), np.random.default_rng(args.seed)
    ends = both_ends(scores, args.end)
    chosen = {
        end: draw.choice(ids, size=min(args.sample, len(ids)), replace=False).tolist() for end, ids in ends.items()
    }
    wanted = {number for ids in chosen.values() for number in ids}
    text = [{n - 1: line for n, line in text_lines(path) if n - 1 in wanted} for path in paths]
    rows = [
        {"end": end, "id": number, "score": float(scores[number]), "line": line}
        for line, (end, number) in enumerate((end, number) for end in ENDS for number in chosen[end])
    ]
    for lang, lines in zip((args.source, args.target), text):
        recipe.write_atomically(f"{args.out}.{lang}", "".join(lines[row["id"]] + "\n" for row in rows))
    content = {
        "ranked": int(np.isfinite(scores).sum()),
        "end_size": len(ends["best"]),
        "mean_score": {end: float(scores[ids].mean()) for end, ids in ends.items()},
        "pairs": rows,
        "text": [[" ".join(merged(lines[row["id"]].split()).text) for lines in text] for row in rows],
    }
    recipe.write_atomically(f"{args.out}.json", json.dumps(content) + "\n")


def ends(args: argparse.Namespace) -> None:
    labels = pair_labels(args.labels)
    scores = scores_by_id(args.stats, args.labels, len(labels))
    order, wrong = ranked(scores), labels != CLEAN
    total = len(order)
    print(f"{total} labelled pairs, {wrong[order].mean():.1%} of them wrong, ranked by null rate")
    print("\t".join(["pairs at each end", "wrong among the best", "wrong among the worst"]))
    for size in sorted({end_size(total, args.end), max(1, total // 20), max(1, total // 10)}):
        shares = [wrong[ids].mean() for ids in (order[:size], order[::-1][:size])]
        print("\t".join([str(size), *(f"{share:.1%}" for share in shares)]))
    print("the paper, by hand on WMT14 En-De: about 5 % wrong among the best 10,000, about 99 % among the worst")


def page(args: argparse.Namespace) -> None:
    with open(args.selected, encoding="utf-8") as file:
        selected = json.load(file)
    reader = DumpReader(args.dump)
    by_end = {end: [row for row in selected["pairs"] if row["end"] == end] for end in ENDS}
    mean = {end: f"{selected['mean_score'][end]:.3f}" for end in ENDS}
    size = f"{selected['end_size']:,}"
    parts = [
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>Ranking by null rate</title><style>{STYLE}</style>",
        "<meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">",
        "<h1>Pairs ranked by the null rate of their cross attention</h1>",
        f"<p>{selected['ranked']:,} pairs were ranked. Left: {len(by_end['best'])} random pairs of the "
        f"{size} with the lowest null rate (mean {mean['best']}). Right: {len(by_end['worst'])} of the {size} with the "
        f"highest (mean {mean['worst']}). Tick the pairs that are correct translations. "
        "The paper found about 95 of 100 and 1 of 100.</p>",
        "<table><tr><th>lowest null rate<th>highest null rate</tr>",
    ]
    longest = max(map(len, by_end.values()))
    for number in range(longest):
        cells = [_cell(by_end[end][number], selected["text"]) if number < len(by_end[end]) else "" for end in ENDS]
        parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    parts.append("</table><h2>Heat maps of some (Figure 10)</h2>")
    for end in ENDS:
        parts.append(f"<h3>{end}</h3>")
        parts += [_figure(reader, row) for row in by_end[end][: args.maps]]
    recipe.write_atomically(args.page, "\n".join(parts) + "</html>\n")
    print(f"{args.page}: {len(by_end['best'])} and {len(by_end['worst'])} pairs to judge")


def _cell(row: Dict[str, Any], text: List[List[str]]) -> str:
    source, target = (html.escape(side) for side in text[row["line"]])
    score = f"<span class=score>pair {row['id']}, null rate {row['score']:.3f}</span>"
    return f"<label><input type=checkbox> correct</label> {score}<br><bdi>{source}</bdi><br><bdi>{target}</bdi>"


def _shown(reader: DumpReader) -> Tuple[int, int]:
    """(layer, head): the third cross-attention layer and head 7, or the last there are before them."""
    info = reader.info.kinds["cross"]
    return min(THIRD_LAYER, len(info.layers) - 1), min(PAPER_HEADS[-1], info.heads - 1)


def _figure(reader: DumpReader, row: Dict[str, Any]) -> str:
    layer, head = _shown(reader)
    record = reader.dump.find(row["line"])
    weights = reader.weights(record, "cross")[layer, head]
    title = f"pair {row['id']}, null rate {row['score']:.3f}; layer {layer}, head {head}"
    figure, image = heat_map(weights, *axis_labels("cross", record.source, record.target), title), io.BytesIO()
    figure.savefig(image, format="png", dpi=80)
    content = base64.b64encode(image.getvalue()).decode("ascii")
    return f'<figure><img alt="{html.escape(title)}" src="data:image/png;base64,{content}"></figure>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    words = {
        "select": (select, ("stats", "pieces", "source", "target", "out")),
        "page": (page, ("selected", "dump", "page")),
        "ends": (ends, ("stats", "labels")),
    }
    for name, (function, arguments) in words.items():
        command = commands.add_parser(name)
        for argument in arguments:
            command.add_argument(argument)
        command.add_argument("--end", type=int, default=10_000)
        command.add_argument("--sample", type=int, default=100)
        command.add_argument("--maps", type=int, default=4)
        command.add_argument("--seed", type=int, default=1)
        command.set_defaults(function=function)
    args = parser.parse_args()
    try:
        args.function(args)
    except InputError as error:
        recipe.fail(error)


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    main()
