"""Average the weights of several checkpoints of one training into one that fairseq loads like any other.

    fairseq-rela average DIR --num-epoch-checkpoints 5 --output avg.pt     the last 5 checkpoint<epoch>.pt
    fairseq-rela average DIR --num-update-checkpoints 5 --output avg.pt    the last 5 checkpoint_<epoch>_<update>.pt
    fairseq-rela average a.pt b.pt c.pt --output avg.pt                    these three

The flags are those of fairseq's scripts/average_checkpoints.py, which the fairseq packages do not install.
Everything except the weights (the flags of the model and the task, …) is taken from the last checkpoint.
"""

import argparse

from fairseq_rela import checkpoints
from fairseq_rela.averaging import EPOCH, UPDATE, average, last_checkpoints
from fairseq_rela.errors import InputError
from fairseq_rela.fairseq_patches import allow_fairseq_checkpoints


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="checkpoints, or one directory with --num-…")
    parser.add_argument("--inputs", nargs="+", default=[], metavar="PATH", help="the same, in fairseq's spelling")
    parser.add_argument("--output", required=True, metavar="FILE", help="the averaged checkpoint")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--num-epoch-checkpoints", type=int, metavar="N", help="the last N checkpoints of complete epochs"
    )
    chosen.add_argument("--num-update-checkpoints", type=int, metavar="N", help="the last N checkpoints within epochs")
    parser.add_argument(
        "--checkpoint-upper-bound", type=int, metavar="M", help="with --num-…: no checkpoint after epoch (or update) M"
    )


def run(args: argparse.Namespace) -> None:
    paths = args.paths + args.inputs
    if not paths:
        raise InputError("nothing to average; give checkpoints, or a directory and --num-epoch-checkpoints N")
    if args.num_epoch_checkpoints is not None:
        paths = last_checkpoints(paths, args.num_epoch_checkpoints, EPOCH, args.checkpoint_upper_bound)
    elif args.num_update_checkpoints is not None:
        paths = last_checkpoints(paths, args.num_update_checkpoints, UPDATE, args.checkpoint_upper_bound)
    elif args.checkpoint_upper_bound is not None:
        raise InputError("--checkpoint-upper-bound needs --num-epoch-checkpoints or --num-update-checkpoints")
    allow_fairseq_checkpoints()
    checkpoints.save(average(paths), args.output)
    print(f"average of {len(paths)} checkpoints written to {args.output}:")
    for path in paths:
        print(f"  {path}")
