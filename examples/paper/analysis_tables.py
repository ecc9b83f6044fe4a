"""The numbers of Figures 3 to 6 and of Tables 5 and 6 as text, from the metrics.json of fairseq-rela analyze.

python analysis_tables.py METRICS

One block per figure or table, columns separated by tabs. Rates and AER are in percent, diversity in nats. Beside ours
stand the paper's numbers, where it prints them: those of WMT14 En-De.
"""

import json
import sys
from typing import Any, Dict, Iterator, List, Sequence, Tuple

KINDS = ("encoder", "decoder", "cross")
ROWS = ("normal", "shifted")
# Table 5: AoL and AoH of normal attention, then of shifted attention
PAPER_AER = {
    "softmax": (75.95, 67.51, 79.38, 54.31),
    "sparsemax": (78.17, 67.88, 82.32, 54.95),
    "entmax15": (78.82, 67.69, 79.84, 58.98),
    "rela_g": (64.46, 61.64, 59.24, 52.41),
}
# Table 6: encoder, decoder, cross; by τ where rows are renormalised
PAPER_DIVERSITY = {
    ("softmax", "1"): (0.56, 0.31, 0.45),
    ("entmax15", "1"): (0.84, 0.39, 0.52),
    ("rela_g", "1"): (1.26, 0.81, 0.78),
    ("rela_g", "0.5"): (0.97, 0.65, 0.69),
    ("rela_g", "0.25"): (0.92, 0.65, 0.71),
    ("rela_g", "0.1"): (0.92, 0.66, 0.72),
}
# title, the name in metrics.json, factor, digits
BY_LAYER: Tuple[Tuple[str, str, float, int], ...] = (
    ("Figure 3: sparsity rate, %", "sparsity", 100, 1),
    ("Figure 5: head diversity", "diversity", 1, 3),
    ("Figure 6: null rate, %", "null_rate", 100, 1),
    ("Figure 6, dashed: null rate on shuffled targets, %", "null_rate_shuffled", 100, 1),
    ("Section 5.2: variance of the null rate over heads", "null_rate_variance", 1, 3),
    ("Section 5.2: null rate of the layer attention, %", "null_rate_layer", 100, 1),
)
Models = Dict[str, Dict[str, Any]]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def line(*cells: str) -> str:
    return "\t".join(cells)


def by_layer(models: Models, title: str, name: str, factor: float, digits: int) -> Iterator[str]:
    """One row per model and kind of attention, one column per layer, and their mean."""
    rows = [
        (f"{model} {kind}", [factor * value for value in metrics[name][kind]])
        for model, metrics in models.items()
        for kind in KINDS
        if kind in metrics.get(name, {})
    ]
    if rows:
        most = max(len(values) for _, values in rows)
        yield line(title, *(f"layer {layer}" for layer in range(most)), "mean")
    for label, values in rows:
        cells = [f"{value:.{digits}f}" for value in values] + ["-"] * (most - len(values))
        yield line(label, *cells, f"{mean(values):.{digits}f}")


def alignment(models: Models) -> Iterator[str]:
    """Figure 4 by layer, and Table 5."""
    aligned = {model: metrics["alignment"] for model, metrics in models.items() if metrics.get("alignment")}
    if not aligned:
        return
    layers = max(len(errors["normal"]["layer"]) for errors in aligned.values())
    yield line("Figure 4: AER, %", *(f"layer {layer}" for layer in range(layers)))
    for model, errors in aligned.items():
        for rows in ROWS:
            for label, key in (("best head (solid)", "best_head"), ("layer attention (dashed)", "layer")):
                yield line(f"{model} {rows}, {label}", *(f"{100 * value:.1f}" for value in errors[rows][key]))
    columns = [f"{rows} {name}" for rows in ROWS for name in ("AoL", "AoH")]
    yield line("Table 5: AER, %", *columns, *(f"paper: {column}" for column in columns))
    for model, errors in aligned.items():
        ours = [f"{100 * errors[rows][name]:.2f}" for rows in ROWS for name in ("AoL", "AoH")]
        paper = [f"{value:.2f}" for value in PAPER_AER[model]] if model in PAPER_AER else ["-"] * 4
        yield line(model, *ours, *paper)


def diversity(models: Models) -> Iterator[str]:
    """Table 6: the mean over layers. Rows that are distributions are not renormalised, so they have no τ."""
    yield line("Table 6: head diversity", *KINDS, *(f"paper: {kind}" for kind in KINDS))
    for model, metrics in models.items():
        by_tau = metrics["diversity_tau"]
        taus = list(next(iter(by_tau.values())))
        alike = all(by_tau[kind][tau] == by_tau[kind][taus[0]] for kind in by_tau for tau in taus)
        for tau in taus[:1] if alike else taus:
            ours = [f"{mean(by_tau[kind][tau]):.2f}" if kind in by_tau else "-" for kind in KINDS]
            printed = PAPER_DIVERSITY.get((model, tau))
            paper = [f"{value:.2f}" for value in printed] if printed else ["-"] * 3
            yield line(model if alike else f"{model} (τ = {tau})", *ours, *paper)


def tables(content: Dict[str, Any]) -> List[str]:
    """All blocks, with an empty line between two."""
    models: Models = content["models"]
    blocks = [by_layer(models, *figure) for figure in BY_LAYER]
    blocks[1:1] = [alignment(models)]
    lines: List[str] = []
    for block in (*blocks, diversity(models)):
        found = list(block)
        lines += [*found, ""] if found else []
    return [*lines, content["signature"]]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(tables(json.load(file))))
