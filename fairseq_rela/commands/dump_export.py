"""Write a sentence of an attention dump as the arguments of BertViz's head view, in JSON.

    fairseq-rela dump-export DIR --bertviz view.json --sentence 17

and then, in a notebook with bertviz and torch:

    view = json.load(open("view.json"))
    view.update({k: [torch.tensor(layer) for layer in v] for k, v in view.items() if k.endswith("_attention")})
    bertviz.head_view(**view)

A row of decoder and cross attention predicts a target token; its input is the token before. BertViz uses the same
labels for the rows and the columns of decoder attention, and the columns are inputs. So rows are labelled by their
input: </s> first, and the last token nowhere. --rows predicted labels them by the token they predict. Use that to
read cross attention as alignment.
"""

import argparse
import json
import sys

from fairseq_rela.atomic import write_text_atomically
from fairseq_rela.dump.bertviz import bertviz_view
from fairseq_rela.dump.reader import AttentionDump
from fairseq_rela.dump.selection import check_unique
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS


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
        raise InputError(f"{args.dump}: has no sentence yet")
    record = dump.find(int(dump.ids[0]) if args.sentence is None else args.sentence, args.rank)
    kinds = args.kinds.split(",")
    check_unique("kind of attention", kinds)
    view = bertviz_view(record, kinds, args.rows)
    try:
        write_text_atomically(args.bertviz, json.dumps(view))
    except OSError as error:
        raise InputError(f"{args.bertviz}: cannot be written: {error.strerror or error}") from None
    if "include_layers" in view:
        shown = len(view["include_layers"])
        print(
            f"BertViz shows the same number of layers of each kind, here the first {shown}; "
            f"give --kinds to see all of one",
            file=sys.stderr,
        )
