"""Show what is in an attention dump: sentences, model, kinds of attention, options of generation, size.

fairseq-rela dump-info DIR
fairseq-rela dump-info DIR --json | jq .sentences
fairseq-rela dump-info DIR --verify       # also read all of it and check its checksums
"""

import argparse
import json
from typing import Any, Dict, List, Tuple

from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.dump.summary import summarize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DIR", help="a directory written by --attn-dump")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--verify", action="store_true", help="read every sentence and check that it is undamaged")


def run(args: argparse.Namespace) -> None:
    dump = AttentionDump(args.dump)
    if args.verify:
        dump.verify()
    summary = summarize(dump)
    if args.json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    rows = _rows(summary)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}".rstrip())
    if args.verify:
        print(f"{'verified':{width}}  every sentence is undamaged")


def _rows(summary: Dict[str, Any]) -> List[Tuple[str, str]]:
    records, sentences = summary["records"], summary["sentences"]
    several = f" ({records} hypotheses)" if records != sentences else ""
    rows = [
        ("dump", summary["path"]),
        ("sentences", f"{sentences}{several}"),
        ("model", summary["model"]),
        ("checkpoint SHA-256", summary["checkpoint_sha256"] or "unknown: the model did not come from a file"),
        ("fairseq", summary["fairseq_version"] or "unknown"),
        ("fairseq-rela", summary["plugin_version"]),
    ]
    for kind, row in summary["kinds"].items():
        zeros = f"{100 * row['zeros'] / row['weights']:.1f} % zeros" if row["weights"] else "no weights"
        if kind == "decoder":
            zeros += ", including the masked future"  # so this is not the sparsity rate
        zeros += ", with norms" if row["norms"] else ""
        rows.append((kind, f"{row['attention']}, {_layers(row)}, {row['heads']} heads, {_rows_are(row)}, {zeros}"))
    rows += [(f"option {name}", json.dumps(value, ensure_ascii=False)) for name, value in summary["options"].items()]
    shards = ", ".join(f"{shard} ({count} records)" for shard, count in summary["shards"].items()) or "none yet"
    rows += [("shards", shards), ("size", _size(summary))]
    return rows


def _layers(row: Dict[str, Any]) -> str:
    recorded = list(row["layers"])
    if recorded == list(range(row["model_layers"])):
        return f"{len(recorded)} layers"
    return f"layers {', '.join(map(str, recorded))} of {row['model_layers']} (counted from 0)"


def _rows_are(row: Dict[str, Any]) -> str:
    return "rows sum to 1" if row["distribution"] else "rows need not sum to 1"


def _size(summary: Dict[str, Any]) -> str:
    size = f"{summary['bytes'] / 1e6:.1f} MB in {summary['segments'] + 1} files"
    if not summary["weights"]:
        return size
    return f"{size}, {summary['bytes_per_weight']:.2f} bytes per weight (float32: 4)"
