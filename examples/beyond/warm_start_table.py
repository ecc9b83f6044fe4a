"""The tables of warm_start.sh: validation loss by updates, and when the warm start reaches each loss of scratch.

python warm_start_table.py SCRATCH_RUN WARM_RUN EVERY       validations at multiples of EVERY updates
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recipe
from run_files import validation_curve


def losses(run, every):
    """Validation loss by update."""
    return {updates: loss for updates, loss in validation_curve(run, "valid_loss") if updates % every == 0}


def main(scratch_run, warm_run, every):
    scratch, warm = losses(scratch_run, int(every)), losses(warm_run, int(every))
    print(f"{'updates':<9}{'scratch':<9}warm")
    for updates in sorted({*scratch, *warm}):
        print(f"{updates:<9}{scratch.get(updates, '-'):<9}{warm.get(updates, '-')}")
    print()
    for updates, loss in scratch.items():
        reached = [at for at, value in warm.items() if value <= loss]
        when = f"after {reached[0]} updates" if reached else "not reached"
        print(f"scratch, {updates} updates: loss {loss}; warm start: {when}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except recipe.RecipeError as error:
        recipe.fail(error)
