"""What a run left behind: its log, its settings, its times."""

import os
import re
from datetime import datetime
from typing import Dict, List, Optional, Tuple

from recipe import RecipeError

TRIED = ("LR", "WARMUP", "NORM", "DROPOUT", "ATTENTION_DROPOUT")  # what trials differ in
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| INFO \| (fairseq_cli.train|train|train_inner|valid) \| ")
_BEGINS = "| fairseq_cli.train | {"  # of these lines, fairseq-train prints the one with its settings first


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


def minutes(run: str, updates: int) -> float:
    """Minutes of training up to this update, from the times in train.log.

    A training that was killed and continued has several parts, each of which begins with its settings. The time
    between two parts does not count.
    """
    seconds, last = 0.0, None
    for line in read(run, "train.log").splitlines():
        stamp = _STAMP.match(line)
        if not stamp:
            continue
        now = datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S")
        if last is None or _BEGINS in line:
            last = now
        seconds += (now - last).total_seconds()
        last = now
        if f'"valid_num_updates": "{updates}"' in line:
            break
    return seconds / 60


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
