"""Table 2 and Figure 2 from the times that training_step.py and decoding.py have measured.

python speed_tables.py table2 TRAINING.json DECODING.json
python speed_tables.py figure2 DECODING.json FIGURE.png
"""

import json
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

GROUPS = 10  # of the test set, by source length


class PaperRow(NamedTuple):
    """A row of the paper's Table 2: TensorFlow on a GTX 1080 Ti. `pytorch` is the training speed its text gives."""

    parameters: str
    train: str
    decode: str
    pytorch: str


PAPER = {
    "softmax": PaperRow("72.31M", "1.00×", "1.00×", "1.00×"),
    "sparsemax": PaperRow("72.31M", "0.26×", "0.54×", "0.87×"),
    "entmax15": PaperRow("72.31M", "0.27×", "0.49×", "0.90×"),
    "rela_g": PaperRow("72.34M", "0.93×", "0.98×", "0.95×"),
}
UNKNOWN = PaperRow("-", "-", "-", "-")


def read(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def speedup(baseline: Sequence[float], times: Sequence[float]) -> float:
    """The mean over runs of baseline ÷ time: above 1 is faster than the baseline."""
    return sum(b / t for b, t in zip(baseline, times)) / len(times)


def table2(training_path: str, decoding_path: str) -> List[str]:
    training, decoding = read(training_path), read(decoding_path)
    first = next(iter(decoding["seconds"]))
    decode_runs = {name: [sum(run) for run in runs] for name, runs in decoding["seconds"].items()}
    tokens = decoding["target_tokens"]
    columns = ["parameters", "without embeddings", "train", "decode", "decode, per token written"]
    papers = [f"paper: {column}" for column in ("parameters", "train", "decode", "train, PyTorch")]
    lines = ["\t".join(["", *columns, *papers])]
    for name, (total, inner) in decoding["parameters"].items():
        train = speedup(training["seconds"][first], training["seconds"][name])
        decode = speedup(decode_runs[first], decode_runs[name])
        per_token = decode * tokens[name] / tokens[first]
        speeds = [f"{speed:.2f}×" for speed in (train, decode, per_token)]
        cells = [f"{total:,}", f"{inner:,}", *speeds, *PAPER.get(name, UNKNOWN)]
        lines.append("\t".join([name, *cells]))
    return [*lines, *_parameters_notes(decoding, first), *_conditions(training, decoding, first)]


def _parameters_notes(decoding: Dict[str, Any], first: str) -> List[str]:
    counts = decoding["parameters"]
    notes = [
        f"{name} has {counts[name][0] - counts[first][0]:+,} parameters beside {first}"
        for name in counts
        if counts[name][0] != counts[first][0]
    ]
    paper = "the paper's ReLA-g has 0.03M more than softmax; its total differs with the vocabulary and the model's size"
    return [*notes, paper]


def _conditions(training: Dict[str, Any], decoding: Dict[str, Any], first: str) -> List[str]:
    runs = len(training["seconds"][first])
    written = decoding["target_tokens"].values()
    alike = max(written) <= 1.1 * min(written)
    note = "" if alike else ". Their lengths differ by more than 10 %, so only the speed per token compares attentions"
    tokens = ", ".join(f"{name} {count:,}" for name, count in decoding["target_tokens"].items())
    return [
        f"speed relative to {first}; above 1 is faster; mean of {runs} runs; {decoding['device']}",
        f"train: {training['steps']} steps of {training['target_tokens']:,} target tokens on average, "
        f"attention dropout {training['attention_dropout']:g}",
        f"decode: {len(decoding['sentences']):,} of the {decoding['test_set']:,} sentences of the test set, "
        f"batch size 1, beam {decoding['beam']}, lenpen {decoding['lenpen']:g}; tokens written: {tokens}{note}",
    ]


def groups(lengths: Sequence[int], count: int = GROUPS) -> List[List[int]]:
    """The sentences in `count` groups of equal size (±1) by source length, the shortest first; no group is empty."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    count = min(count, len(order))
    edges = [i * len(order) // count for i in range(count + 1)]
    return [order[start:end] for start, end in zip(edges, edges[1:])]


def speed_by_group(decoding: Dict[str, Any]) -> Dict[str, List[float]]:
    """For each model and group the speed relative to the first model, mean over runs."""
    members = groups(decoding["source_lengths"])
    sums = {
        name: [[sum(run[i] for i in group) for run in runs] for group in members]
        for name, runs in decoding["seconds"].items()
    }
    first = next(iter(sums))
    return {name: [speedup(b, t) for b, t in zip(sums[first], by_group)] for name, by_group in sums.items()}


def figure2(decoding_path: str, figure_path: str) -> List[str]:
    from fairseq_rela.analysis.plots import new_figure
    from fairseq_rela.atomic import write_atomically

    decoding = read(decoding_path)
    members, speeds = groups(decoding["source_lengths"]), speed_by_group(decoding)
    lengths = [sum(decoding["source_lengths"][i] for i in group) / len(group) for group in members]
    figure = new_figure(6, 4)
    axes = figure.subplots()
    for (name, values), marker in zip(speeds.items(), "osD^vP*X"):
        axes.plot(lengths, values, marker=marker, label=name)
    axes.set_xlabel("mean source length of the group (pieces)")
    axes.set_ylabel(f"decoding speed relative to {next(iter(speeds))}")
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False)
    write_atomically(figure_path, lambda file: figure.savefig(file, format="png", dpi=150))
    lines = ["\t".join(["group", "sentences", "mean length", *speeds])]
    for number, group in enumerate(members):
        cells = [f"{values[number]:.2f}×" for values in speeds.values()]
        lines.append("\t".join([str(number + 1), str(len(group)), f"{lengths[number]:.1f}", *cells]))
    runs = len(next(iter(decoding["seconds"].values())))
    return [*lines, f"mean of {runs} runs, batch size 1, beam {decoding['beam']}; {decoding['device']}"]


if __name__ == "__main__":
    commands = {"table2": table2, "figure2": figure2}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    print("\n".join(commands[sys.argv[1]](*sys.argv[2:])))
