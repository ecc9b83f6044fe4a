"""BLEU of several translations of one test set, compared with the first by sacrebleu's paired bootstrap."""

import json
import os
import subprocess
from typing import List, NamedTuple, Optional

import table
from recipe import RecipeError


class Score(NamedTuple):
    """BLEU, the half width of its 95 % interval, and p against the first translation."""

    score: float
    interval: Optional[float]
    p: Optional[float]


def translation(run: str, reference: str) -> str:
    return os.path.join(run, f"translation{os.path.splitext(reference)[1]}")


def scores(runs: List[str]) -> List[Score]:
    """BLEU alone, as generate.sh computed it."""
    known = [table.scores(run) for run in runs]
    return [Score(next(iter(score.values()))["score"], None, None) for score in known]


def compare(reference: str, runs: List[str]) -> List[Score]:
    """The scores of the runs, each compared with the first run."""
    if len(runs) == 1:
        return scores(runs)
    kind = next(iter(table.scores(runs[0])))
    command = ["sacrebleu", reference, "-i", *(translation(run, reference) for run in runs)]
    command += [] if kind == "BLEU" else ["--tokenize", "none", "--force"]
    done = subprocess.run([*command, "--paired-bs", "--format", "json"], capture_output=True)
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RecipeError(f"sacrebleu --paired-bs failed: {''.join(last)}")
    systems = [system["BLEU"] for system in json.loads(done.stdout)]
    return [Score(system["score"], system.get("ci"), system.get("p_value")) for system in systems]
