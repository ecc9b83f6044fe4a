"""Average the last checkpoints of a run with `fairseq-rela average`, unless that is done and up to date.

python average.py RUN OUTPUT --updates N [--average 5] [--every SAVE_INTERVAL] [--log FILE] [--title TEXT]

The checkpoints are the last ones up to update N. N may be less than the run has by now, if the run still has its
checkpoints of that time (KEEP in train.sh).
"""

import argparse
import glob
import os
import re
from typing import List

import recipe
import recorded_settings
import step
import training


def update_of(path: str) -> int:
    """checkpoint_3_400.pt is of update 400."""
    return int(re.search(r"_(\d+)\.pt$", path)[1])


def interval_checkpoints(run: str) -> List[str]:
    """The checkpoints that were saved every so many updates, oldest first."""
    return sorted(glob.glob(os.path.join(glob.escape(run), "checkpoints", "checkpoint_*_[0-9]*.pt")), key=update_of)


def reached(run: str) -> int:
    """The update that the run has come to; it may still be training."""
    saved = interval_checkpoints(run)
    return max(training.updates_done(run), update_of(saved[-1]) if saved else 0)


def last_checkpoints(run: str, updates: int, count: int, every: int) -> List[str]:
    """The last `count` checkpoints up to this update.

    fairseq writes no interval checkpoint at the end of an epoch. If training ended there too, checkpoint_last.pt takes
    its place. Otherwise the checkpoint before it is the last one.
    """
    saved = interval_checkpoints(run)
    paths = [path for path in saved if update_of(path) <= updates]
    newest = update_of(paths[-1]) if paths else 0
    if newest < updates == reached(run):
        paths.append(os.path.join(run, "checkpoints", "checkpoint_last.pt"))
    elif not paths or newest <= updates - 2 * every:
        kept = ", ".join(str(update_of(path)) for path in saved) or "none"
        raise recipe.RecipeError(
            f"{run} has no checkpoint of update {updates} (it keeps those of {kept}); "
            "train with KEEP=-1, which keeps all checkpoints"
        )
    return paths[-count:]


def average(args: argparse.Namespace) -> None:
    now = reached(args.run)
    if now < args.updates:
        raise recipe.RecipeError(
            f"{args.run} has {now} of {args.updates} updates; run 'bash examples/train.sh {args.train}' first, "
            "or give UPDATES"
        )
    settings = os.path.join(os.path.dirname(args.output), "average.settings")
    recorded_settings.record(settings, [f"AVERAGE={args.average}", f"UPDATES={args.updates}"])
    # What was averaged at an earlier update stays valid when training continues.
    sources = [settings] if now > args.updates else [settings, os.path.join(args.run, "trained")]
    if step.up_to_date(args.output, sources):
        return
    checkpoints = last_checkpoints(args.run, args.updates, args.average, args.every)
    recipe.say(f"{args.title}: average the last {len(checkpoints)} checkpoints up to update {args.updates}")
    step.run_logged(["fairseq-rela", "average", *checkpoints, "--output", args.output], args.log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("output")
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--average", type=int, default=5)
    parser.add_argument("--every", type=int, default=1, help="updates between checkpoints")
    parser.add_argument("--log", required=True)
    parser.add_argument("--title", default="", help="what is averaged, for messages")
    parser.add_argument("--train", default="DATASET ARCH", help="how to train it, for messages")
    args = parser.parse_args()
    if recipe.dry_run():
        first = args.updates - (args.average - 1) * args.every
        updates = ",".join(str(update) for update in range(first, args.updates + 1, args.every))
        pattern = f"{recipe.typed([args.run])}/checkpoints/checkpoint_*_{{{updates}}}.pt"
        print(f"fairseq-rela average {pattern} --output {recipe.typed([args.output])}")
        return
    try:
        average(args)
    except recipe.RecipeError as error:
        recipe.fail(error)


if __name__ == "__main__":
    main()
