"""The table of sparsity.sh as a figure: measured sparsity, and BLEU, against the target.

python sparsity_figure.py TABLE.tsv FIGURE.png
"""

import csv
import os
import sys

from fairseq_rela.analysis.plots import new_figure

KINDS = ("encoder", "decoder", "cross")
DRIVEN = {"target": ("from the start", "o", "-"), "tuned": ("in fine-tuning", "s", "--")}


def read(path):
    """Each setting's row, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return {row[""]: row for row in csv.DictReader(file, delimiter="\t")}


def bleu(row):
    return float(row.get("BLEU") or row["tokenised BLEU"])


def by_target(rows, how):
    """The rows of `how`:SHARE, by the share in per cent."""
    found = {name.partition(":")[2]: row for name, row in rows.items() if name.startswith(how + ":")}
    return sorted((100 * float(share), row) for share, row in found.items() if share != "none")


def draw(rows, sparsity, quality):
    for how, (label, marker, line) in DRIVEN.items():
        found = by_target(rows, how)
        if not found:
            continue
        targets = [target for target, _ in found]
        for kind, colour in zip(KINDS, ("C0", "C1", "C2")):
            measured = [float(row[f"{kind} sparsity %"]) for _, row in found]
            sparsity.plot(targets, measured, line, marker=marker, color=colour, label=f"{kind}, {label}")
        sparsity.plot(targets, targets, color="grey", linewidth=1, zorder=0)
        quality.plot(targets, [bleu(row) for _, row in found], line, marker=marker, color="C3", label=f"driven {label}")
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
    figure.savefig(picture + ".part", format="png", dpi=110)
    os.replace(picture + ".part", picture)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
