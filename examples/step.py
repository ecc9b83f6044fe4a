"""Run one command of a recipe, unless what it makes is there and up to date.

python step.py [OPTIONS] -- COMMAND ...

A dry run prints the command. What a command makes is written atomically: output goes to PATH.part, which is renamed
to PATH when the command has succeeded. So is a PATH.part that the command writes itself, as one of its arguments.
"""

import argparse
import os
import shutil
import subprocess
import sys
from typing import List, Optional, Sequence

import recipe
import recorded_settings


def up_to_date(path: str, sources: Sequence[str]) -> bool:
    """Whether `path` exists and none of the `sources` is newer."""
    if not os.path.exists(path):
        return False
    made = os.stat(path).st_mtime_ns
    return all(not os.path.exists(source) or os.stat(source).st_mtime_ns <= made for source in sources)


def remove(path: str) -> None:
    """Remove a file or a directory, if it exists."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def last_lines(path: str, count: int = 3) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-count:])


def run_logged(command: Sequence[str], log: str) -> None:
    """Run the command with all its output in `log`. If it fails, show the end of the log."""
    os.makedirs(os.path.dirname(os.path.abspath(log)), exist_ok=True)
    with open(log, "wb") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if status != 0:
        sys.stderr.write(last_lines(log))
        raise recipe.RecipeError(f"'{command[0]} … {command[-1]}' failed; all it printed is in {log}")


def run_redirected(command: Sequence[str], stdin: str, stdout: Optional[str]) -> None:
    """Run the command with these files as its input and output."""
    with open(stdin, "rb") as source:
        if stdout is None:
            status = subprocess.run(command, stdin=source).returncode
        else:
            os.makedirs(os.path.dirname(os.path.abspath(stdout)), exist_ok=True)
            with open(stdout, "wb") as target:
                status = subprocess.run(command, stdin=source, stdout=target).returncode
    if status != 0:
        # a Python part of the recipe has printed its one line already
        sys.exit(1) if stdout is None else recipe.fail(f"'{recipe.typed(command)}' failed")


class Step:
    """One command, its files, and what is done before and after it."""

    def __init__(self, args: argparse.Namespace, command: List[str]) -> None:
        self.args, self.command = args, command
        self.log, self.stdout = args.log, args.stdout
        self.part, self.target = None, args.stdout or args.makes
        if self.target and self.target in (args.log, args.stdout):
            self.part = self.target + ".part"
            self.log = self.log and self.part
            self.stdout = self.stdout and self.part
        elif self.target and self.target + ".part" in command:
            self.part = self.target + ".part"

    @property
    def sources(self) -> List[str]:
        settings = [self.args.settings[0]] if self.args.settings else []
        inputs = [self.args.stdin] if self.args.stdin != os.devnull else []
        return [*self.args.sources, *settings, *inputs]

    def show(self) -> None:
        """Print the commands that `run` would run."""
        if self.args.say:
            recipe.say(self.args.say)
        removed = [*self.args.remove, *([self.part] if self.part in self.command else [])]
        if removed:
            print(f"rm -rf {recipe.typed(removed)}")
        line = recipe.typed(self.command)
        if self.args.stdin != os.devnull:
            line += f" < {recipe.typed([self.args.stdin])}"
        if self.stdout:
            line += f" > {recipe.typed([self.args.stdout])}"
        if self.log:
            line += f" > {recipe.typed([self.log])} 2>&1"
        print(line)
        if self.part and not self.stdout:
            print(f"mv {recipe.typed([self.part, self.target])}")

    def run(self) -> None:
        if self.args.settings:
            recorded_settings.record(self.args.settings[0], self.args.settings[1:])
        if self.args.makes and up_to_date(self.args.makes, self.sources):
            return
        if self.args.say:
            recipe.say(self.args.say)
        for path in [*self.args.remove, *([self.part] if self.part else [])]:
            remove(path)
        if self.log:
            run_logged(self.command, self.log)
        else:
            run_redirected(self.command, self.args.stdin, self.stdout)
        if self.part:
            os.replace(self.part, self.target)


def main(words: List[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--say", metavar="TEXT", help="printed before the command runs")
    parser.add_argument("--makes", metavar="PATH", help="what the command makes")
    parser.add_argument(
        "--from", dest="sources", metavar="PATH", action="append", default=[], help="made again when PATH is newer"
    )
    parser.add_argument(
        "--settings", metavar="WORD", nargs="+", help="FILE NAME=VALUE ...: kept in FILE; made again when they change"
    )
    parser.add_argument("--remove", metavar="PATH", action="append", default=[], help="removed before the command runs")
    parser.add_argument("--log", metavar="PATH", help="where stdout and stderr go")
    parser.add_argument("--stdin", metavar="PATH", default=os.devnull)
    parser.add_argument("--stdout", metavar="PATH")
    if "--" not in words:
        parser.error("give -- COMMAND")
    end = words.index("--")
    step = Step(parser.parse_args(words[:end]), words[end + 1 :])
    try:
        step.show() if recipe.dry_run() else step.run()
    except recipe.RecipeError as error:
        recipe.fail(error)
    except OSError as error:
        recipe.fail(f"'{step.command[0]}' could not be run: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
