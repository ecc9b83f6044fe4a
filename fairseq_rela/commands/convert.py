"""Give the checkpoint of a softmax Transformer another attention, to continue training from it.

    fairseq-rela convert --from softmax.pt --to rela_g                  writes softmax.rela_g.pt beside it
    fairseq-rela convert --from softmax.pt --to rela_g_cross_only --output warm.pt

The source is a checkpoint of fairseq's own `transformer` or `transformer_lm`, of any architecture and of either
fairseq version, or of our models with softmax. All its weights are kept bit for bit. The parameters that softmax does
not have (the gain and the gate of the norm) start at values that make the heads as large as those of softmax.
fairseq-train takes the result with --finetune-from-model, and the command prints the flags it needs.
fairseq-generate and fairseq-eval-lm load the result as it is, but its translations are poor until it is trained.
"""

import argparse
import os
import shlex

from fairseq_rela import checkpoints
from fairseq_rela.conversion import convert
from fairseq_rela.errors import InputError
from fairseq_rela.fairseq_patches import allow_fairseq_checkpoints
from fairseq_rela.models.architectures import PLACEMENTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="SOFTMAX.pt", help="a softmax checkpoint")
    parser.add_argument("--to", required=True, metavar="ATTENTION", help=f"one of {', '.join(PLACEMENTS)}")
    parser.add_argument("--output", metavar="FILE", help="the new checkpoint (default: SOFTMAX.ATTENTION.pt)")


def run(args: argparse.Namespace) -> None:
    output = args.output or f"{os.path.splitext(args.source)[0]}.{args.to}.pt"
    if os.path.realpath(output) == os.path.realpath(args.source):
        raise InputError(f"{output} is the checkpoint to convert; give another --output")
    allow_fairseq_checkpoints()
    checkpoint, flags = convert(args.source, args.to)
    checkpoints.save(checkpoint, output)
    print(f"{args.source} with {args.to} attention written to {output}; continue training from it with")
    words = ["fairseq-train", "DATA", "--user-dir", "fairseq_rela", *flags, "--finetune-from-model", output]
    words += ["--required-batch-size-multiple", "1"]  # without it, fairseq leaves out a small last batch
    print(f"  {' '.join(map(shlex.quote, words))} …")
