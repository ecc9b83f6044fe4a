"""Run fairseq-train for a recipe: continue an interrupted run, keep its log, show its progress.

python training.py --run DIR --updates N --title TEXT --settings NAME=VALUE ... -- fairseq-train ...

Files in DIR: settings (what the run was started with), train.cmd (the command), train.log, and trained (the number of
updates, written when they are done).
"""

import argparse
import os
import signal
import subprocess
import sys
from typing import Dict, List

import progress
import recipe
import recorded_settings

# glibc keeps freed memory instead of returning it to the system: 13 % more tokens per second on a CPU
MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


def updates_done(run: str) -> int:
    """The number of updates that a run has finished, 0 if it has not finished any training."""
    try:
        with open(os.path.join(run, "trained"), encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def follow(command: List[str], environment: Dict[str, str], log: str, updates: int) -> int:
    """Run the command, append what it prints to `log`, and draw a bar. Returns its exit status."""
    training, bar = progress.Training(updates), progress.Bar()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def stop(number: int, _frame: object) -> None:
        process.terminate()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    with open(log, "ab") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            if training.read(line.decode("utf-8", "replace")):
                bar.show(f"  {training}", training.tenths)
    bar.end()
    return process.wait()


def train(args: argparse.Namespace, command: List[str]) -> None:
    done = updates_done(args.run)
    if done >= args.updates:
        recipe.say(f"{args.title}: trained before, {done} updates")
        return
    recorded_settings.require_same(os.path.join(args.run, "settings"), args.settings, "TAG or OUT")
    log = os.path.join(args.run, "train.log")
    recipe.say(f"{args.title}: {args.updates} updates of {args.tokens} tokens on {args.devices}; log: {log}")
    recipe.write_atomically(os.path.join(args.run, "train.cmd"), recipe.typed(command) + "\n")
    status = follow(command, {**os.environ, **MEMORY}, log, args.updates)
    if status:
        with open(log, encoding="utf-8", errors="replace") as file:
            last = file.readlines()[-1:]
        raise recipe.RecipeError(f"training failed: {''.join(last).strip()} (all of it is in {log})")
    recipe.write_atomically(os.path.join(args.run, "trained"), f"{args.updates}\n")


def main(words: List[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="the directory of the run")
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--title", required=True, help="what is trained, for messages")
    parser.add_argument("--tokens", default="?", help="tokens per update, for messages")
    parser.add_argument("--devices", default="cpu", help="for messages")
    parser.add_argument("--settings", nargs="+", default=[], metavar="NAME=VALUE", help="what must stay the same")
    if "--" not in words:
        parser.error("give -- COMMAND")
    end = words.index("--")
    args, command = parser.parse_args(words[:end]), words[end + 1 :]
    if recipe.dry_run():
        print(recipe.typed(command))
        return
    try:
        train(args, command)
    except recipe.RecipeError as error:
        recipe.fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
