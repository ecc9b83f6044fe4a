"""The scores and analyses of runs as text, and tables with columns separated by tabs.

python table.py score RUN                  BLEU with its signature; kept in RUN/score.txt
python table.py analysis RUN               sparsity, null rates, AER and AUROC; kept in RUN/analysis.txt
python table.py runs NAME=RUN[,RUN...] ... one line per name; of several runs, the mean and the standard deviation
python table.py compare NAME=RUN ...       the same for people, one column per name
"""

import json
import os
import statistics
import sys
from typing import Any, Dict, List, Optional

import recipe

from fairseq_rela.kinds import KINDS

NOTHING = "-"
WIDTH = 10  # of a column of `compare`
# scores of fairseq-rela filter --labels, by their column here
NOISE_SCORES = {
    "null rate of cross attention": "null rate",
    "baseline: length ratio": "length ratio",
    "baseline: model score per token": "model score",
    "baseline: attention entropy": "entropy",
    "baseline: coverage deviation": "coverage deviation",
    "baseline: absentmindedness out": "absentmindedness out",
    "baseline: absentmindedness in": "absentmindedness in",
}


def read_json(*path: str) -> Optional[Any]:
    """What a file holds, or None if the file does not exist."""
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        recipe.fail(f"{os.path.join(*path)} is damaged ({error}); remove it and run the step that makes it again")


def scores(run: str) -> Dict[str, Dict[str, Any]]:
    """What sacrebleu says, by name."""
    by_name = {"BLEU": read_json(run, "bleu.json"), "tokenised BLEU": read_json(run, "tokenized.json")}
    return {name: score for name, score in by_name.items() if score}


def attention_numbers(metrics: Dict[str, Any]) -> Dict[str, float]:
    """The columns that metrics.json of one model gives. Rates are means over the layers."""
    (model,) = metrics["models"].values()
    numbers = {f"{kind} sparsity %": 100 * mean(model["sparsity"][kind]) for kind in KINDS}
    numbers["cross null %"] = 100 * mean(model["null_rate"]["cross"])
    if "null_rate_shuffled" in model:
        numbers["shuffled null %"] = 100 * mean(model["null_rate_shuffled"]["cross"])
    numbers["cross diversity"] = mean(model["diversity"]["cross"])
    for rows, result in model.get("alignment", {}).items():
        numbers[f"AoL {rows}"] = 100 * result["AoL"]
        numbers[f"AoH {rows}"] = 100 * result["AoH"]
    return numbers


def mean(values: List[float]) -> float:
    return sum(values) / len(values)


def run_numbers(run: str) -> Dict[str, float]:
    """All that is known of a run, in the order of the columns."""
    numbers = {name: score["score"] for name, score in scores(run).items()}
    metrics = read_json(run, "analysis", "metrics.json")
    if metrics:
        numbers.update(attention_numbers(metrics))
    filtered = read_json(run, "filter", "evaluation.json")
    if filtered:
        numbers["AUROC"] = filtered["evaluation"][0]["auroc"]
    noisy = read_json(run, "noisy", "evaluation.json")
    for result in noisy["evaluation"] if noisy else []:
        # a score that has no short name here keeps its own
        numbers[f"noise AUROC, {NOISE_SCORES.get(result['score'], result['score'])}"] = result["auroc"]
    return numbers


def digits(column: str) -> int:
    return 3 if "AUROC" in column or column == "cross diversity" else 1


def keep(path: str, lines: List[str]) -> None:
    """Write the lines and print them."""
    recipe.write_atomically(path, "".join(f"{line}\n" for line in lines))
    print("\n".join(lines))


def score(run: str) -> None:
    lines = [f"{name}\t{s['score']}\t{s['signature']}" for name, s in scores(run).items()]
    keep(os.path.join(run, "score.txt"), lines)


def analysis(run: str) -> None:
    lines = [f"{name}\t{value:.{digits(name)}f}" for name, value in run_numbers(run).items() if "BLEU" not in name]
    keep(os.path.join(run, "analysis.txt"), lines)


def cell(column: str, values: List[float]) -> str:
    if not values:
        return NOTHING
    text = f"{mean(values):.{digits(column)}f}"
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.{digits(column)}f}"
    return text


def all_columns(rows: List[Dict[str, float]]) -> List[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def runs(*named: str) -> None:
    rows = {}
    for argument in named:
        name, _, paths = argument.partition("=")
        rows[name] = [run_numbers(run) for run in paths.split(",")]
    columns = all_columns([run for seeds in rows.values() for run in seeds])
    several = any(len(seeds) > 1 for seeds in rows.values())
    print("\t".join(["", *(["seeds"] if several else []), *columns]))
    for name, seeds in rows.items():
        done = [run for run in seeds if run]
        cells = [cell(column, [run[column] for run in done if column in run]) for column in columns]
        print("\t".join([name, *([str(len(done))] if several else []), *(cells or ["failed or not run"])]))


def compare(*named: str) -> None:
    parts = [argument.partition("=") for argument in named]
    rows = [run_numbers(run) for _, _, run in parts]
    columns = all_columns(rows)
    width = max(map(len, columns)) + 2
    print(" " * width + "".join(f"{name:>{WIDTH}}" for name, _, _ in parts))
    for column in columns:
        cells = (cell(column, [row[column]] if column in row else []) for row in rows)
        print(f"{column:<{width}}" + "".join(f"{text:>{WIDTH}}" for text in cells))


if __name__ == "__main__":
    commands = {"score": score, "analysis": analysis, "runs": runs, "compare": compare}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
