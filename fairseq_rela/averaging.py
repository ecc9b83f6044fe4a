"""The mean of the weights of several checkpoints."""

import os
import re
from typing import Dict, List, Optional

import torch
from torch import Tensor

from fairseq_rela.checkpoints import load
from fairseq_rela.errors import InputError

EPOCH = re.compile(r"checkpoint([0-9]+)\.pt")
UPDATE = re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt")


def last_checkpoints(paths: List[str], count: int, name: "re.Pattern", bound: Optional[int] = None) -> List[str]:
    """The `count` newest checkpoints of one directory whose file name matches, oldest first."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        raise InputError(f"--num-…-checkpoints choose from one directory; '{' '.join(paths)}' is not a directory")
    if count < 1:
        raise InputError(f"{count} checkpoints cannot be averaged; give at least 1")
    directory = paths[0]
    matches = (name.fullmatch(file) for file in os.listdir(directory))
    numbered = sorted((int(match[1]), match[0]) for match in matches if match)
    if bound is not None:
        numbered = [(number, file) for number, file in numbered if number <= bound]
    if len(numbered) < count:
        raise InputError(
            f"{directory}: {count} checkpoints asked for, {len(numbered)} found that are named like {name.pattern}"
        )
    return [os.path.join(directory, file) for _, file in numbered[-count:]]


def average(paths: List[str]) -> dict:
    """A checkpoint whose weights are the mean of those in `paths`. The sum is in float64, the result in their dtype.

    Only one checkpoint is in memory at a time. What is not floating point is taken from the last checkpoint.
    """
    sums: Dict[str, Tensor] = {}
    checkpoint: dict = {}
    for path in paths:
        checkpoint = load(path)
        model = checkpoint["model"]
        if not sums:
            sums = {
                name: torch.zeros_like(weight, dtype=torch.float64 if weight.is_floating_point() else None)
                for name, weight in model.items()
            }
        _check_same_model(sums, model, path, paths[0])
        for name, weight in model.items():
            if weight.is_floating_point():
                sums[name] += weight.double()
    for name, weight in checkpoint["model"].items():
        if weight.is_floating_point():
            checkpoint["model"][name] = (sums[name] / len(paths)).to(weight.dtype)
    checkpoint.pop("last_optimizer_state", None)  # it belongs to the last checkpoint's weights, not to the mean
    return checkpoint


def _check_same_model(sums: Dict[str, Tensor], model: Dict[str, Tensor], path: str, first: str) -> None:
    for name in list(sums) + list(model):
        if name not in sums or name not in model:
            raise InputError(f"{path} and {first} are not of the same model: only one of them has '{name}'")
        if sums[name].shape != model[name].shape:
            shapes = f"{list(model[name].shape)} and {list(sums[name].shape)}"
            raise InputError(f"{path} and {first} are not of the same model: '{name}' has shapes {shapes}")
        if sums[name].is_floating_point() != model[name].is_floating_point():
            raise InputError(f"{path} and {first} are not of the same model: '{name}' is of whole numbers in one only")
