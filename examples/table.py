"""What runs gave, as text: their scores and analyses, and tables with columns apart by tabs.

python table.py score RUN                  BLEU with its signature; kept in RUN/score.txt
python table.py analysis RUN               sparsity, null rates, AER and AUROC; kept in RUN/analysis.txt
python table.py runs NAME=RUN[,RUN...] ... a line a name; of several runs, the mean and their standard deviation
python table.py compare NAME=RUN ...       the same the other way round, for people: a column a name
"""

import json
import os
import statistics
import sys

NOTHING = "-"
WIDTH = 10  # of a column of `compare`
# of fairseq-rela filter --labels
NOISE_SCORES = {
    "null rate of cross attention": "null rate",
    "baseline: length ratio": "length ratio",
    "baseline: model score per token": "model score",
    "baseline: attention entropy": "entropy",
}


def read_json(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def scores(run):
    """What sacrebleu says, by name."""
    found = {"BLEU": read_json(run, "bleu.json"), "tokenised BLEU": read_json(run, "tokenized.json")}
    return {name: score for name, score in found.items() if score}


def mean(values):
    return sum(values) / len(values)


def numbers(run):
    """All that is known of a run, in the order of the columns; rates are means over the layers."""
    found = {name: score["score"] for name, score in scores(run).items()}
    metrics = read_json(run, "analysis", "metrics.json")
    if metrics:
        (model,) = metrics["models"].values()
        for kind in ("encoder", "decoder", "cross"):
            found[f"{kind} sparsity %"] = 100 * mean(model["sparsity"][kind])
        found["cross null %"] = 100 * mean(model["null_rate"]["cross"])
        if "null_rate_shuffled" in model:
            found["shuffled null %"] = 100 * mean(model["null_rate_shuffled"]["cross"])
        found["cross diversity"] = mean(model["diversity"]["cross"])
        for rows, result in model.get("alignment", {}).items():
            found[f"AoL {rows}"] = 100 * result["AoL"]
            found[f"AoH {rows}"] = 100 * result["AoH"]
    filtered = read_json(run, "filter", "evaluation.json")
    if filtered:
        found["AUROC"] = filtered["evaluation"][0]["auroc"]
    noisy = read_json(run, "noisy", "evaluation.json")
    for result in noisy["evaluation"] if noisy else []:
        found[f"noise AUROC, {NOISE_SCORES[result['score']]}"] = result["auroc"]
    return found


def digits(column):
    return 3 if "AUROC" in column or column == "cross diversity" else 1


def keep(path, lines):
    """Write the lines, whole or not at all, and print them."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    os.replace(path + ".part", path)
    print("\n".join(lines))


def score(run):
    lines = [f"{name}\t{s['score']}\t{s['signature']}" for name, s in scores(run).items()]
    keep(os.path.join(run, "score.txt"), lines)


def analysis(run):
    lines = [f"{name}\t{value:.{digits(name)}f}" for name, value in numbers(run).items() if "BLEU" not in name]
    keep(os.path.join(run, "analysis.txt"), lines)


def cell(column, values):
    if not values:
        return NOTHING
    text = f"{mean(values):.{digits(column)}f}"
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.{digits(column)}f}"
    return text


def runs(*named):
    rows = {}
    for argument in named:
        name, _, paths = argument.partition("=")
        rows[name] = [numbers(run) for run in paths.split(",")]
    columns = list(dict.fromkeys(column for found in rows.values() for run in found for column in run))
    several = any(len(found) > 1 for found in rows.values())
    print("\t".join(["", *(["seeds"] if several else []), *columns]))
    for name, found in rows.items():
        done = [run for run in found if run]
        cells = [cell(column, [run[column] for run in done if column in run]) for column in columns]
        print("\t".join([name, *([str(len(done))] if several else []), *(cells or ["failed or not run"])]))


def compare(*named):
    names, found = zip(*((name, numbers(run)) for name, _, run in (argument.partition("=") for argument in named)))
    columns = list(dict.fromkeys(column for run in found for column in run))
    width = max(map(len, columns)) + 2
    print(" " * width + "".join(f"{name:>{WIDTH}}" for name in names))
    for column in columns:
        cells = (cell(column, [run[column]] if column in run else []) for run in found)
        print(f"{column:<{width}}" + "".join(f"{text:>{WIDTH}}" for text in cells))


if __name__ == "__main__":
    commands = {"score": score, "analysis": analysis, "runs": runs, "compare": compare}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
