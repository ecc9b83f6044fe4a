"""Rows of the tables in RESULTS.md, from what runs left behind.

python results.py best UPDATES RUN ...                the runs, the lowest validation loss after so many updates first
python results.py row RESULTS.md TABLE CELL ...       put a row into a table
python results.py trial RESULTS.md UPDATES NAME=RUN   a row of `trials`; NAME is SET,ATTENTION,SETTING, and SEED below
python results.py run RESULTS.md NAME=RUN             rows of `runs` and, where it was analysed, of `attention`
python results.py scores RESULTS.md REFERENCE NAME=RUN ...    rows of `scores`: BLEU of each against the first, softmax,
                                                      by sacrebleu's paired bootstrap
python results.py aer RESULTS.md SET NAME GOLD BASE FORWARD REVERSE    a row of `alignment`: its two directions,
                                                      and both together by grow-diag-final-and

A table stands behind a comment <!-- table: NAME, key: N -->. A row whose first N cells are there already takes that
row's place; another one is added at the end. So tables grow run by run, wherever the runs were made.
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys

import table

from fairseq_rela.analysis.alignment import alignment_error_rate
from fairseq_rela.analysis.links import read_links
from fairseq_rela.analysis.symmetrization import grow_diag_final_and

COLUMNS = [
    "encoder sparsity %", "decoder sparsity %", "cross sparsity %", "cross null %", "shuffled null %",
    "cross diversity", "AoL normal", "AoL shifted", "AoH normal", "AoH shifted", "AUROC",
]  # fmt: skip


class Missing(Exception):
    """Said in one line to whoever called."""


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise Missing(f"{os.path.join(*path)} is missing: has this run been made?") from None


# --- what a run left behind


def validation(run, at):
    """The validation loss, in bits a token, after `at` updates."""
    for line in read(run, "train.log").splitlines():
        updates, loss = (re.search(rf'"{name}": "([^"]+)"', line) for name in ("valid_num_updates", "valid_nll_loss"))
        if updates and loss and int(updates[1]) == at:
            return float(loss[1])
    raise Missing(f"{run}/train.log has no validation loss after {at} updates")


def minutes(run):
    """Of training, added up over its parts."""
    return sum(int(seconds) for seconds in re.findall(r"^(\d+) s to ", read(run, "time.txt"), re.MULTILINE)) / 60


def bits(log):
    """Mean log2 probability of a token, from what fairseq-generate --score-reference printed; None without it."""
    try:
        text = read(log)
    except Missing:
        return None
    scores = [float(score) for line in re.findall(r"^P-\d+\t(.*)", text, re.MULTILINE) for score in line.split()]
    return sum(scores) / len(scores)


def setting(run):
    """The variables it was trained with, as one would type them, as far as trials differ in them."""
    said = dict(line.split("=", 1) for line in read(run, "settings").splitlines())
    names = ("LR", "WARMUP", "NORM", "DROPOUT", "ATTENTION_DROPOUT")
    return " ".join([*(f"{name}={said[name]}" for name in names), said["FLAGS"]]).strip()


def versions():
    import fairseq
    import torch

    import fairseq_rela

    return f"torch {torch.__version__}, fairseq {fairseq.__version__}, fairseq-rela {fairseq_rela.__version__}"


# --- tables


@contextlib.contextmanager
def locked(directory):
    """One process at a time."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def put(path, name, cells):
    """Put the row into the table, in place of one with the same key; other processes may be doing so, too."""
    with locked(os.path.dirname(os.path.abspath(path))):
        lines = read(path).splitlines()
        comments = [re.fullmatch(rf"<!-- table: {re.escape(name)}, key: (\d+) -->", line) for line in lines]
        match = next(filter(None, comments), None)
        if not match:
            raise Missing(f"{path} has no table '{name}': a comment <!-- table: {name}, key: 2 --> stands before it")
        first = comments.index(match) + 3  # comment, heading, rule
        end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
        width, key = lines[first - 1].count("|") - 1, int(match[1])
        cells = [str(cell).replace("|", "\\|") for cell in cells]
        if len(cells) != width:
            raise Missing(f"{path}: a row of '{name}' has {width} cells, not {len(cells)}")
        row = f"| {' | '.join(cells)} |"
        start_of_row = f"| {' | '.join(cells[:key])} |"
        same = [i for i in range(first, end) if lines[i].startswith(start_of_row)]
        if same:
            lines[same[0]] = row
        else:
            lines.insert(end, row)
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(path + ".part", path)


def split(argument):
    """SET,ATTENTION[,…]=RUN"""
    name, _, run = argument.partition("=")
    return name.split(","), run


def number(value, digits=1):
    return table.NOTHING if value is None else f"{value:.{digits}f}"


# --- commands


def best(updates, *runs):
    print("\n".join(sorted(runs, key=lambda run: validation(run, int(updates)))))


def trial(path, updates, argument):
    name, run = split(argument)
    put(path, "trials", [*name, f"`{setting(run)}`", updates, number(validation(run, int(updates)), 3)])


def run(path, argument):
    name, run = split(argument)
    signature = next(iter(table.scores(run).values()))["signature"]
    trained = read(run, "trained").strip()
    put(
        path,
        "runs",
        [*name, trained, number(minutes(run), 0), f"`{setting(run)}`", versions(), f"`{signature}`"],
    )
    found = table.numbers(run)
    if any(column in found for column in COLUMNS):
        put(path, "attention", [*name, *(number(found.get(c), table.digits(c)) for c in COLUMNS)])


def scores(path, reference, *named):
    """BLEU as sacrebleu computes it by default, or of text that is tokenised as it is."""
    names, runs = zip(*map(split, named))
    known = [table.scores(run) for run in runs]
    kind = "BLEU" if "BLEU" in known[0] else "tokenised BLEU"
    target = os.path.splitext(reference)[1]
    command = ["sacrebleu", reference, "-i", *(os.path.join(run, f"translation{target}") for run in runs)]
    command += [] if kind == "BLEU" else ["--tokenize", "none", "--force"]
    if len(runs) > 1:
        command += ["--paired-bs", "--format", "json"]
        compared = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        compared = [system["BLEU"] for system in compared]
    else:
        compared = [{"score": known[0][kind]["score"], "ci": None, "p_value": None}]
    for name, run_dir, found, score in zip(names, runs, known, compared):
        tokenised = found.get("tokenised BLEU", {}).get("score")
        p = score.get("p_value")
        put(
            path,
            "scores",
            [
                *name,
                number(score["score"], 2),
                table.NOTHING if score.get("ci") is None else f"± {score['ci']:.2f}",
                table.NOTHING if p is None else number(p, 3),
                number(tokenised, 2),
                number(bits(os.path.join(run_dir, "dump", "test.log")), 3),
                number(validation(run_dir, int(read(run_dir, 'trained'))), 3),
            ],
        )


def aer(path, dataset, name, gold, base, *directions):
    gold = read_links(gold, int(base))
    forward, reverse = ([line.sure for line in read_links(links)][: len(gold)] for links in directions)
    both = list(map(grow_diag_final_and, forward, reverse))
    rates = [alignment_error_rate(links, gold) for links in (forward, reverse, both)]
    put(path, "alignment", [dataset, name, *(number(100 * rate) for rate in rates)])


def row(path, name, *cells):
    put(path, name, cells)


if __name__ == "__main__":
    commands = {"best": best, "row": row, "trial": trial, "run": run, "scores": scores, "aer": aer}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except Missing as error:
        sys.exit(f"results.py: {error}")
