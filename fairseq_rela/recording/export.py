"""Write a sentence of an attention dump as the arguments of BertViz's head view, in JSON.

    fairseq-rela dump-export DIR --bertviz view.json --sentence 17

and then, in a notebook with bertviz and torch:

    view = json.load(open("view.json"))
    view.update({k: [torch.tensor(layer) for layer in v] for k, v in view.items() if k.endswith("_attention")})
    bertviz.head_view(**view)

A row of decoder and cross attention predicts a target token and has the one before it as its input. BertViz
writes one label beside both the rows and the columns of the decoder's attention, where only inputs fit, so rows
are labelled by their input: </s> first, the last token nowhere. --rows predicted labels them by the
token they predict, which is what to look at for cross attention as alignment.
"""

import argparse
import json
import sys
from typing import Any, Dict, List

from fairseq_rela.atomic import publish
from fairseq_rela.errors import InputError
from fairseq_rela.recording.dump import KINDS, AttentionDump, Record

_EOS = "</s>"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DIR", help="a directory written by --attn-dump")
    parser.add_argument("--bertviz", metavar="FILE", required=True, help="the JSON file to write, e.g. view.json")
    parser.add_argument("--sentence", metavar="ID", type=int, help="id of the sentence (default: the first)")
    parser.add_argument("--rank", metavar="R", type=int, default=0, help="its hypothesis, 0 the best (default: 0)")
    parser.add_argument("--kinds", metavar="K,K", default=",".join(KINDS), help="kinds to write (default: %(default)s)")
    parser.add_argument(
        "--rows",
        choices=("input", "predicted"),
        default="input",
        help="the target token that labels a row: its input, or the one it predicts (default: input)",
    )


def run(args: argparse.Namespace) -> None:
    dump = AttentionDump(args.dump)
    if args.sentence is None and not len(dump):
        raise InputError(f"{args.dump}: holds no sentence yet")
    record = dump.find(int(dump.ids[0]) if args.sentence is None else args.sentence, args.rank)
    view = bertviz_view(record, args.kinds.split(","), args.rows)
    try:
        publish(args.bertviz, lambda file: file.write(json.dumps(view).encode("ascii")), replace=True)
    except OSError as error:
        raise InputError(f"{args.bertviz}: cannot be written: {error.strerror or error}") from None
    if "include_layers" in view:
        shown = len(view["include_layers"])
        print(
            f"BertViz shows equally many layers of each kind, here the first {shown}; see one kind in full by --kinds",
            file=sys.stderr,
        )


def bertviz_view(record: Record, kinds: List[str], rows: str = "input") -> Dict[str, Any]:
    """Arguments of bertviz.head_view: KIND_attention, a nested list (L, 1, H, queries, keys), and the tokens."""
    weights = {kind: record.weights(kind) for kind in kinds}
    found = {kind: array for kind, array in weights.items() if array is not None}
    if not found:
        raise InputError(f"no {' or '.join(kinds)} attention in this dump")
    view: Dict[str, Any] = {f"{kind}_attention": array[:, None].tolist() for kind, array in found.items()}
    view["encoder_tokens"] = record.source
    view["decoder_tokens"] = record.target if rows == "predicted" else [_EOS, *record.target[:-1]]
    layers = {len(array) for array in found.values()}
    if len(layers) > 1:  # head_view takes the first kind's number for all, and fails where another has fewer
        view["include_layers"] = list(range(min(layers)))
    return view
