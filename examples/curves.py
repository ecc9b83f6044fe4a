"""A figure of validation loss by update, one line per attention, from the logs of runs.

python curves.py FIGURE.png TITLE ATTENTION=RUN[,RUN...] ...      several runs are seeds: thin lines, and their mean
"""

import os
import sys
from typing import Dict, List, Tuple

import recipe
from run_files import validation_curve

SHOWN_FROM = 0.05  # this share of the updates is left out at the start, where the loss is much higher


def mean_curve(curves: List[List[Tuple[int, float]]]) -> List[Tuple[int, float]]:
    """The mean at the updates that all curves have."""
    by_update = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*map(set, by_update)))
    return [(update, sum(losses[update] for losses in by_update) / len(by_update)) for update in shared]


def draw(axes, curves: Dict[str, List[List[Tuple[int, float]]]]) -> None:
    longest = max(update for seeds in curves.values() for curve in seeds for update, _ in curve)
    for number, (name, seeds) in enumerate(curves.items()):
        colour = f"C{number % 10}"
        shown = [[point for point in curve if point[0] >= SHOWN_FROM * longest] for curve in seeds]
        if len(shown) > 1:
            for curve in shown:
                axes.plot(*zip(*curve), color=colour, linewidth=0.6, alpha=0.5)
        seeds_note = f" ({len(shown)} seeds)" if len(shown) > 1 else ""
        axes.plot(*zip(*mean_curve(shown)), color=colour, label=name + seeds_note)
    axes.set_xlabel("updates")
    axes.set_ylabel("validation loss, bits per token")
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()


def main(picture: str, title: str, *named: str) -> None:
    from fairseq_rela.analysis.plots import new_figure
    from fairseq_rela.atomic import write_atomically

    curves = {}
    for name, _, runs in (argument.partition("=") for argument in named):
        seeds = [curve for curve in map(validation_curve, runs.split(",")) if curve]
        if seeds:
            curves[name] = seeds
    if not curves:
        recipe.fail("no run has a validation loss")
    figure = new_figure(8, 5)
    axes = figure.subplots()
    draw(axes, curves)
    axes.set_title(title)
    os.makedirs(os.path.dirname(os.path.abspath(picture)), exist_ok=True)
    write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=110))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except recipe.RecipeError as error:
        recipe.fail(error)
