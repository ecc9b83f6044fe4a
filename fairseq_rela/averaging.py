"""Average the weights of several checkpoints of one training into one that fairseq loads like any other.

    fairseq-rela average DIR --num-epoch-checkpoints 5 --output avg.pt     the last 5 checkpoint<epoch>.pt
    fairseq-rela average DIR --num-update-checkpoints 5 --output avg.pt    the last 5 checkpoint_<epoch>_<update>.pt
    fairseq-rela average a.pt b.pt c.pt --output avg.pt                    these

The flags are those of fairseq's scripts/average_checkpoints.py, which its packages do not install.
All but the weights (the model's flags, the task's, …) is taken from the last checkpoint.
"""

import argparse
import os
import re
from typing import Dict, List, Optional

import torch
from torch import Tensor

from fairseq_rela.checkpoints import allow_fairseq_checkpoints, load, write_whole
from fairseq_rela.errors import InputError

EPOCH = re.compile(r"checkpoint(\d+)\.pt")
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="checkpoints, or one directory with --num-…")
    parser.add_argument("--inputs", nargs="+", default=[], metavar="PATH", help="the same, as fairseq spells it")
    parser.add_argument("--output", required=True, metavar="FILE", help="the averaged checkpoint")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--num-epoch-checkpoints", type=int, metavar="N", help="the directory's last N of whole epochs")
    which.add_argument("--num-update-checkpoints", type=int, metavar="N", help="the directory's last N within epochs")
    parser.add_argument(
        "--checkpoint-upper-bound", type=int, metavar="M", help="with --num-…: none after epoch (or update) M"
    )


def run(args: argparse.Namespace) -> None:
    paths = args.paths + args.inputs
    if not paths:
        raise InputError("nothing to average; give checkpoints, or a directory and --num-epoch-checkpoints N")
    if args.num_epoch_checkpoints is not None:
        paths = last_checkpoints(paths, args.num_epoch_checkpoints, EPOCH, args.checkpoint_upper_bound)
    elif args.num_update_checkpoints is not None:
        paths = last_checkpoints(paths, args.num_update_checkpoints, UPDATE, args.checkpoint_upper_bound)
    allow_fairseq_checkpoints()
    write_whole(average(paths), args.output)
    print(f"average of {len(paths)} checkpoints written to {args.output}:")
    for path in paths:
        print(f"  {path}")


def last_checkpoints(paths: List[str], count: int, name: "re.Pattern", bound: Optional[int] = None) -> List[str]:
    """The `count` newest checkpoints of one directory whose file name matches, oldest first."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        raise InputError(f"--num-…-checkpoints choose from one directory; '{' '.join(paths)}' is none")
    if count < 1:
        raise InputError(f"{count} checkpoints make no average; give at least 1")
    directory = paths[0]
    matches = (name.fullmatch(file) for file in os.listdir(directory))
    found = sorted((int(match[1]), match[0]) for match in matches if match)
    if bound is not None:
        found = [(number, file) for number, file in found if number <= bound]
    if len(found) < count:
        raise InputError(
            f"{directory}: {count} checkpoints asked for, {len(found)} found that are named like {name.pattern}"
        )
    return [os.path.join(directory, file) for _, file in found[-count:]]


def average(paths: List[str]) -> dict:
    """The checkpoint whose weights are the mean of those in `paths`, summed in float64 and kept in their dtype.

    One checkpoint is in memory at a time. What is not floating point is taken from the last.
    """
    sums: Dict[str, Tensor] = {}
    checkpoint: dict = {}
    for path in paths:
        checkpoint = load(path)
        model = checkpoint["model"]
        if not sums:
            sums = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in model.items()}
        _check_same_model(sums, model, path, paths[0])
        for name, weight in model.items():
            sums[name] += weight.double()
    for name, weight in checkpoint["model"].items():
        if weight.is_floating_point():
            checkpoint["model"][name] = (sums[name] / len(paths)).to(weight.dtype)
    checkpoint.pop("last_optimizer_state", None)  # belongs to the last one's weights, not to the mean
    return checkpoint


def _check_same_model(sums: Dict[str, Tensor], model: Dict[str, Tensor], path: str, first: str) -> None:
    for name in list(sums) + list(model):
        if name not in sums or name not in model:
            raise InputError(f"{path} and {first} are not of one model: only one of them has '{name}'")
        if sums[name].shape != model[name].shape:
            shapes = f"{list(model[name].shape)} and {list(sums[name].shape)}"
            raise InputError(f"{path} and {first} are not of one model: '{name}' has shapes {shapes}")
