"""Settings in a file beside the results that were made with them, one NAME=VALUE per line.

python recorded_settings.py FILE ADVICE NAME=VALUE ...     record the settings; fail if others are recorded already
"""

import os
import sys
from typing import List, Optional, Sequence

import recipe


def recorded(path: str) -> Optional[List[str]]:
    """The lines of the file, or None if the file does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return None


def record(path: str, settings: Sequence[str]) -> None:
    """Write the settings. A file that holds them already is not touched, so its date says when they changed."""
    if recorded(path) != list(settings):
        recipe.write_atomically(path, "".join(f"{setting}\n" for setting in settings))


def require_same(path: str, settings: Sequence[str], advice: str) -> None:
    """Record the settings of a new directory; refuse to mix them with others in an old one.

    `advice` names the variables that keep two results apart, for example "TAG or OUT".
    """
    before = recorded(path)
    if before is None:
        record(path, settings)
        return
    different = [line for line in before if line not in settings]
    if different:
        directory = os.path.dirname(path)
        raise recipe.RecipeError(
            f"{directory} was made with {' '.join(different)}; remove it, or set {advice} to keep both"
        )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        if not recipe.dry_run():
            require_same(sys.argv[1], sys.argv[3:], advice=sys.argv[2])
    except recipe.RecipeError as error:
        recipe.fail(error)
