"""The table of sparsity.sh as a figure: measured sparsity, and BLEU, against the target.

python sparsity_figure.py TABLE.tsv FIGURE.png
"""

import csv
import os
import sys

from fairseq_rela.analysis.plots import new_figure

KINDS = ("encoder", "decoder", "cross")


def read(path):
    """Each setting's row, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return {row[""]: row for row in csv.DictReader(file, delimiter="\t")}


def bleu(row):
    return float(row.get("BLEU") or row["tokenised BLEU"])


def draw(rows, sparsity, quality):
    by_target = {100 * float(name[7:]): row for name, row in rows.items() if name.startswith("target:")}
    targets = sorted(by_target)
    sparsity.plot(targets, targets, color="grey", linewidth=1, label="the target")
    for kind in KINDS:
        measured = [float(by_target[target][f"{kind} sparsity %"]) for target in targets]
        sparsity.plot(targets, measured, marker="o", label=kind)
    sparsity.set_ylabel("zeros on the test set, %")
    sparsity.legend()
    quality.plot(targets, [bleu(by_target[target]) for target in targets], marker="o", label="driven to the target")
    others = [name for name in rows if not name.startswith("target:")]
    for style, name in zip((":", "--", "-.", (0, (1, 4))), others):
        label = "no threshold" if name == "none" else name.replace(":", " ")
        quality.axhline(bleu(rows[name]), linestyle=style, color="black", linewidth=1, label=label)
    quality.set_ylabel("BLEU")
    quality.legend()
    for axes in (sparsity, quality):
        axes.set_xlabel("target, % of weights that are 0")


def main(table, picture):
    figure = new_figure(10, 4)
    draw(read(table), *figure.subplots(1, 2))
    figure.savefig(picture + ".part", format="png", dpi=120)
    os.replace(picture + ".part", picture)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
