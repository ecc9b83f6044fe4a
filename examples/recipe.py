"""What the Python parts of the recipes share: messages, dry runs, and commands as a user types them.

lib.sh exports RECIPE (the name in messages), RECIPE_DATASET and RECIPE_DRY_RUN.
"""

import os
import shlex
import sys
from typing import Iterable, NoReturn

# The package is found without being installed too: a dry run needs no environment.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fairseq_rela.atomic import write_text_atomically


class RecipeError(Exception):
    """The message is printed in one line, with the recipe's name."""


def name() -> str:
    """The recipe that the user started, or this script."""
    return os.environ.get("RECIPE") or os.path.basename(sys.argv[0])


def dry_run() -> bool:
    """Whether commands are printed instead of run."""
    return bool(os.environ.get("RECIPE_DRY_RUN"))


def fail(message: object) -> NoReturn:
    """End with one line on stderr and exit status 1."""
    sys.exit(f"{name()}: {message}")


def say(text: str) -> None:
    """Tell the user which step begins. In a dry run this is a comment between the commands."""
    prefix = "#" if dry_run() else f"[{os.environ.get('RECIPE_DATASET', name())}]"
    print(f"{prefix} {text}", flush=True)


def typed(words: Iterable[str]) -> str:
    """A command as a user types it: words are quoted where they must be."""
    return " ".join(shlex.quote(word) for word in words)


def write_atomically(path: str, text: str) -> None:
    """Write a text file atomically, and make its directory if it is missing."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    write_text_atomically(path, text)
