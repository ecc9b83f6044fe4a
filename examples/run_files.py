"""What a run left behind: its log, its settings, its times."""

import os
import re
from typing import Dict, List, Optional, Tuple

from recipe import RecipeError

TRIED = ("LR", "WARMUP", "NORM", "DROPOUT", "ATTENTION_DROPOUT")  # what trials differ in


def read(*path: str) -> str:
    """The text of a file of a run."""
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        raise RecipeError(f"{os.path.join(*path)} is missing; train this run first") from None


def validation_curve(run: str, field: str = "valid_nll_loss") -> List[Tuple[int, float]]:
    """Updates and validation loss, in bits per token, from train.log, by update.

    A training that went on at a checkpoint may have validated some updates twice. The later value counts.
    """
    losses: Dict[int, float] = {}
    for line in read(run, "train.log").splitlines():
        updates, loss = (re.search(rf'"{name}": "([^"]+)"', line) for name in ("valid_num_updates", field))
        if updates and loss:
            losses[int(updates[1])] = float(loss[1])
    return sorted(losses.items())


def validation(run: str, at: int) -> float:
    """The validation loss, in bits per token, after `at` updates."""
    losses = dict(validation_curve(run))
    if at not in losses:
        raise RecipeError(f"{run}/train.log has no validation loss after {at} updates")
    return losses[at]


def updates_reached(run: str) -> int:
    """The last update with a validation loss, or 0."""
    if not os.path.exists(os.path.join(run, "train.log")):
        return 0
    curve = validation_curve(run)
    return curve[-1][0] if curve else 0


def minutes(run: str) -> Optional[float]:
    """Minutes of training, added up over its parts; None if they were not recorded."""
    try:
        seconds = re.findall(r"^(\d+) s to ", read(run, "time.txt"), re.MULTILINE)
    except RecipeError:
        return None
    return sum(map(int, seconds)) / 60


def variables(run: str) -> str:
    """The variables that the run was trained with, as a user types them, as far as trials differ in them."""
    recorded = dict(line.split("=", 1) for line in read(run, "settings").splitlines())
    return " ".join([*(f"{name}={recorded[name]}" for name in TRIED), recorded["FLAGS"]]).strip()


def reference_score(log: str) -> Optional[float]:
    """Mean log2 probability of a reference token, from fairseq-generate --score-reference; None without the log."""
    try:
        rows = re.findall(r"^P-\d+\t(.*)", read(log), re.MULTILINE)
    except RecipeError:
        return None
    scores = [float(score) for row in rows for score in row.split()]
    return sum(scores) / len(scores) if scores else None
