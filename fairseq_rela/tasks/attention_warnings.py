"""Warnings about heads after a validation: they attend to nothing, their output is almost 0, or it is not finite."""

import logging
from typing import Callable, Dict, List, Tuple

import numpy as np
from fairseq.distributed import utils as distributed_utils

from fairseq_rela.tasks.attention_counts import LEAST_ENERGY, QUERIES, by_head, energy_shares

logger = logging.getLogger("fairseq_rela.tasks.attention_stats")

Places = List[Tuple[str, int, List[int]]]  # kind, layer, heads


def in_order_of_computation(counts: Dict[str, np.ndarray]) -> List[Tuple[str, int, np.ndarray]]:
    """Every layer that has run: the encoder's, then for each decoder layer its self-attention and cross attention."""
    rows = [(kind, layer, row) for kind in counts for layer, row in enumerate(counts[kind]) if row[QUERIES]]
    return sorted(rows, key=lambda place: (place[0] != "encoder", place[1], place[0] == "cross"))


def heads_where(counts: Dict[str, np.ndarray], condition: Callable[[np.ndarray], np.ndarray]) -> Places:
    """The heads for which `condition` is true; it maps a row of the counts to a boolean for each head."""
    rows = [
        (kind, layer, np.flatnonzero(condition(row)).tolist()) for kind, layer, row in in_order_of_computation(counts)
    ]
    return [place for place in rows if place[2]]


def broken(row: np.ndarray) -> np.ndarray:
    return by_head(row).broken > 0


def attends_to_nothing(row: np.ndarray) -> np.ndarray:
    return by_head(row).attending == 0


def gives_nothing(row: np.ndarray) -> np.ndarray:
    """Heads that attend to something, and whose share of the energy is nevertheless next to 0."""
    return (energy_shares(row) < LEAST_ENERGY) & ~attends_to_nothing(row) & ~broken(row)


WARNINGS: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gave NaN or infinite values (the cause is in the first of these)": broken,
    "attended to nothing in the whole validation": attends_to_nothing,
    f"had less than {LEAST_ENERGY:.1%} of the energy of the layer in the whole validation": gives_nothing,
}


def warn_about_heads(counts: Dict[str, np.ndarray]) -> None:
    """Log one line for each kind of trouble. Only the first worker logs, because all have the same counts."""
    if distributed_utils.get_global_rank() != 0:
        return
    for trouble, condition in WARNINGS.items():
        places = heads_where(counts, condition)
        if places:
            number = sum(len(heads) for _, _, heads in places)
            named = "; ".join(
                f"{kind} layer {layer} head{'s' if len(heads) > 1 else ''} {', '.join(map(str, heads))}"
                for kind, layer, heads in places
            )
            logger.warning(f"{number} head{'s' if number > 1 else ''} {trouble}: {named}")
