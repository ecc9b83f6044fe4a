"""The table of sparsity.sh as a figure: measured sparsity, and BLEU, against the target.

python sparsity_figure.py TABLE.tsv FIGURE.png
"""

import csv
import sys

from fairseq_rela.analysis.plots import new_figure
from fairseq_rela.atomic import write_atomically
from fairseq_rela.kinds import KINDS

DRIVEN = {"target": ("from the start", "o", "-"), "tuned": ("in fine-tuning", "s", "--")}


def read(path):
    """Each setting's row, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return {row[""]: row for row in csv.DictReader(file, delimiter="\t")}


def bleu(row):
    return float(row.get("BLEU") or row["tokenised BLEU"])


def by_target(rows, prefix):
    """(target in per cent, row) of the rows whose names are `prefix`:SHARE, lowest target first."""
    by_share = {name.partition(":")[2]: row for name, row in rows.items() if name.startswith(prefix + ":")}
    return sorted((100 * float(share), row) for share, row in by_share.items() if share != "none")


def draw(rows, sparsity, quality):
    for prefix, (label, marker, line) in DRIVEN.items():
        driven = by_target(rows, prefix)
        if not driven:
            continue
        targets = [target for target, _ in driven]
        for kind, colour in zip(KINDS, ("C0", "C1", "C2")):
            measured = [float(row[f"{kind} sparsity %"]) for _, row in driven]
            sparsity.plot(targets, measured, line, marker=marker, color=colour, label=f"{kind}, {label}")
        sparsity.plot(targets, targets, color="grey", linewidth=1, zorder=0)
        quality.plot(
            targets, [bleu(row) for _, row in driven], line, marker=marker, color="C3", label=f"driven {label}"
        )
    for style, (name, label) in zip(
        (":", "--", "-."),
        (("none", "no threshold"), ("tuned:none", "no threshold, fine-tuned"), ("threshold:learn", "learned")),
    ):
        if name in rows:
            quality.axhline(bleu(rows[name]), linestyle=style, color="black", linewidth=1, label=label)
    sparsity.set_ylabel("zeros measured, %")
    quality.set_ylabel("BLEU")
    for axes in (sparsity, quality):
        axes.set_xlabel("target, % of weights that are 0 (grey: reached)" if axes is sparsity else "target, %")
        axes.legend(fontsize="small")


def main(table, picture):
    figure = new_figure(11, 4.5)
    draw(read(table), *figure.subplots(1, 2))
    write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=110))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
