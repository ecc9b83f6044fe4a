"""The counts of `--attn-stats`: one array per kind of attention, one row per layer. All are sums.

Sums of batches and of workers can be added, and every metric is derived from the sums of a whole validation.
"""

from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_rela.kinds import KINDS, is_causal, keys_of, queries_of
from fairseq_rela.recording.device_stats import count, visible_positions
from fairseq_rela.recording.heads_probe import HeadsProbe, Probes
from fairseq_rela.recording.recorder import Recording

# The columns of a row: sums over the heads of a layer, then, from HEADS on, blocks of one column per head (`ByHead`).
QUERIES, VISIBLE, NONZERO, SIZE, GATES, SATURATED, ENERGETIC, HEADS = range(8)
BLOCKS = 3

LEAST_ENERGY = 0.001  # the output of a head with less than this share of its layer's energy is almost 0


class ByHead(NamedTuple):
    """The blocks of a row, (H,) each: numbers of queries, and the sum of shares of energy over queries."""

    attending: np.ndarray  # queries of which some weight is not 0
    energy: np.ndarray  # Σ over queries of the head's share in Σ z²; ENERGETIC is the number of those queries
    broken: np.ndarray  # queries for which the head gives NaN or infinity


def by_head(row: np.ndarray) -> ByHead:
    return ByHead(*np.split(row[HEADS:], BLOCKS))


def count_attention(recording: Recording, probes: Probes, present: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """What a batch adds to the logging output: `_attn_cross` (layers of the model, HEADS + BLOCKS × H) and so on."""
    output = {}
    for kind, weights in recording.all_weights():
        info, queries, keys = recording.info[kind], present[queries_of(kind)], present[keys_of(kind)]
        rows = count_weights(weights, queries, keys, is_causal(kind))
        for row, layer in zip(rows, info.layers):
            add_heads(row, probes[kind][layer], queries)
        # By number, because a layer without attention has an empty row.
        counts = rows.new_zeros(info.model_layers, rows.size(1))
        counts[list(info.layers)] = rows
        output[f"_attn_{kind}"] = counts
    return output


def count_weights(weights: Tensor, queries: Tensor, keys: Tensor, causal: bool) -> Tensor:
    """(L, HEADS + BLOCKS × H) float64 of the weights alone; weights (L, H, B, T, S), rest as in `visible_positions`."""
    layers, heads = weights.shape[:2]
    visible = visible_positions(queries, keys, causal)
    counts = count(weights, visible)
    rows = torch.zeros(layers, HEADS + BLOCKS * heads, dtype=torch.float64, device=weights.device)
    rows[:, QUERIES] = visible.any(dim=2).sum() * heads
    rows[:, VISIBLE] = visible.sum() * heads
    rows[:, NONZERO] = counts.nonzero.sum(dim=(1, 2)).double()
    rows[:, SIZE] = counts.size.sum(dim=(1, 2))
    rows[:, HEADS : HEADS + heads] = counts.attending.sum(dim=2).double()
    return rows


def add_heads(row: Tensor, probes: List[HeadsProbe], queries: Tensor) -> None:
    """Add to a row of counts what the probes of its layer saw; `queries` (B, T) is false where there is padding."""
    seen = queries.t()  # (T, B)
    energies, broken = [], []
    for probe in probes:
        if probe.saturated is not None:
            row[GATES] += seen.sum() * probe.width
            row[SATURATED] += (probe.saturated * seen).sum()
        if probe.energy is not None and probe.broken is not None:
            energies.append(probe.energy * seen.unsqueeze(2))
            broken.append(probe.broken & seen.unsqueeze(2))
    if not energies:
        return
    # Where a layer attends to the source twice, the shares are those within each of the two attentions.
    energy, heads = torch.cat(energies, dim=2), len(row[HEADS:]) // BLOCKS
    row[ENERGETIC] += energy.sum(dim=2).gt(0).sum()
    row[HEADS + heads : HEADS + 2 * heads] += energy.double().sum(dim=(0, 1))
    row[HEADS + 2 * heads :] += torch.cat(broken, dim=2).double().sum(dim=(0, 1))


def sum_counts(logging_outputs: List[Dict[str, Any]]) -> Dict[str, np.ndarray]:
    """kind → (layers, HEADS + BLOCKS × H); empty without --attn-stats."""
    sums = {}
    for kind in KINDS:
        counts = [log[f"_attn_{kind}"] for log in logging_outputs if f"_attn_{kind}" in log]
        if counts:
            sums[kind] = torch.stack(counts).sum(dim=0).cpu().numpy()
    return sums


def sparsity(row: np.ndarray) -> float:
    """The share of weights that are exactly 0, of those a query may see."""
    return round(1 - float(row[NONZERO] / row[VISIBLE]), 4)


def null_rate(row: np.ndarray) -> float:
    """The share of queries whose visible weights are all 0."""
    return round(1 - float(by_head(row).attending.sum() / row[QUERIES]), 4)


def dead_heads(row: np.ndarray) -> int:
    """How many heads are null for every query."""
    return int((by_head(row).attending == 0).sum())


def gate_saturation(row: np.ndarray) -> float:
    """The share of gates σ(w ⊙ z) below 0.05 or above 0.95."""
    return round(float(row[SATURATED] / row[GATES]), 4)


def weight_scale(row: np.ndarray) -> float:
    """The mean |α| of the weights that are not 0; 0 if all are 0."""
    return round(float(row[SIZE] / max(row[NONZERO], 1)), 6)


def energy_shares(row: np.ndarray) -> np.ndarray:
    """(H,): each head's share of Σ z², mean over the queries that attend to something; NaN if none does."""
    return by_head(row).energy / row[ENERGETIC] if row[ENERGETIC] else np.full(len(by_head(row).energy), np.nan)


def largest_head_energy(row: np.ndarray) -> float:
    """The largest of the heads' shares of energy."""
    return round(float(energy_shares(row).max()), 4)


METRICS: Dict[str, Callable[[np.ndarray], float]] = {
    metric.__name__: metric
    for metric in (sparsity, null_rate, dead_heads, gate_saturation, weight_scale, largest_head_energy)
}
NEEDS = {"gate_saturation": GATES, "largest_head_energy": ENERGETIC}  # shown where this column is not 0
