"""What is known of each sentence pair, from a dump or from a file of statistics (`--attn-dump-stats`)."""

import math
import os
from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.nulls import null_rate
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.stats_blocks import cross_layers, stats_blocks
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress
from fairseq_rela.recording.info import read_info

CLEAN = "clean"  # the label of a true pair; any other names a kind of wrong pair


class Pairs(NamedTuple):
    """Sentence pairs by their number."""

    ids: np.ndarray  # (N,) int
    lengths: np.ndarray  # (N, 2): source and target, in pieces
    null: np.ndarray  # (N, L, H): null rates of cross attention; H is 1 where only layers are known
    mass: Optional[np.ndarray]  # (N, L, H): mean sum of a query's weights; None where only rates are known
    layers: Tuple[int, ...]

    @property
    def length_ratio(self) -> np.ndarray:
        """|ln(source length / target length)|, (N,)."""
        return np.abs(np.log(self.lengths[:, 0] / self.lengths[:, 1]))

    def where(self, inside: np.ndarray) -> "Pairs":
        """The pairs at which `inside`, (N,) bool, is true."""
        mass = None if self.mass is None else self.mass[inside]
        return Pairs(self.ids[inside], self.lengths[inside], self.null[inside], mass, self.layers)


def is_dump(path: str) -> bool:
    """Whether `path` is a dump (a directory), not a file of statistics."""
    return os.path.isdir(path)


def scores_by_id(path: str) -> np.ndarray:
    """The score of every pair, at its id; NaN where there is none. From a dump or a file of statistics."""
    if is_dump(path):
        pairs = pairs_of(path)
        return _at(pairs.ids, pairs.null.reshape(len(pairs.ids), -1).mean(axis=1))
    blocks = [(block.ids, block.null.mean(axis=1)) for block in progress(stats_blocks(path), path)]
    return _at(*(np.concatenate(column) for column in zip(*blocks)))


def _at(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    found = np.full(int(ids.max()) + 1, np.nan)
    found[ids] = values
    return found


def pairs_of(path: str) -> Pairs:
    """All that a dump or a file of statistics says of its pairs."""
    return _dumped(path) if is_dump(path) else _listed(path)


def _dumped(path: str) -> Pairs:
    reader = DumpReader(path)
    reader.require("cross")
    info = reader.info.kinds["cross"]
    shape = (len(reader), len(info.layers), info.heads)
    null, mass = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
    lengths = np.empty((len(reader), 2), dtype=np.int64)
    for index, record in enumerate(reader):
        weights = reader.weights(record, "cross")
        null[index] = null_rate(weights)
        mass[index] = weights.sum(axis=-1).mean(axis=-1)
        lengths[index] = record.source_length, record.target_length
    return Pairs(reader.ids, lengths, null, mass, info.layers)


def _listed(path: str) -> Pairs:
    blocks = list(progress(stats_blocks(path), path))
    ids, lengths, null = (np.concatenate([block[i] for block in blocks]) for i in range(3))
    return Pairs(ids, lengths, null[:, :, None], None, cross_layers(path))


def pair_labels(path: str) -> np.ndarray:
    """The label of every pair at its id, (lines,) of str: line i (from 0) is that of pair i."""
    found = []
    for number, line in text_lines(path):
        label = line.strip()
        if not label:
            raise InputError(f"{path}, line {number}: is empty; a label is {CLEAN}, or what is wrong with the pair")
        found.append(label)
    return np.array(found, dtype=object)  # not fixed width: one long line would make all of them as long


def has_entropy(path: str) -> bool:
    """Whether `path` is a dump whose rows of cross attention are distributions."""
    return is_dump(path) and read_info(path).kinds["cross"].distribution


def attention_entropy(path: str) -> Dict[int, float]:
    """By id, the mean entropy of the rows of cross attention, in nats; the rows must be distributions."""
    reader = DumpReader(path)
    reader.require("cross")
    if not reader.info.kinds["cross"].distribution:
        attention = reader.info.kinds["cross"].attention
        raise InputError(
            f"{path}: rows of {attention} are no distributions and have no entropy; give a softmax model's dump"
        )
    found = {}
    for record in reader:
        weights = reader.weights(record, "cross").astype(np.float64)
        logs = np.log(np.where(weights > 0, weights, 1.0))
        found[record.id] = float(-(weights * logs).sum(axis=-1).mean())
    return found


def model_scores(path: str) -> Dict[int, float]:
    """By id, the model's score per token: fairseq-generate's output (its H- lines), or a number a line."""
    lines = list(text_lines(path))
    from_fairseq = any(line.startswith("H-") for _, line in lines)
    found: Dict[int, float] = {}
    for number, line in lines:
        if from_fairseq and not line.startswith("H-"):
            continue
        try:
            if from_fairseq:
                name, score = line.split("\t")[:2]
                found.setdefault(int(name[2:]), float(score))  # of several hypotheses the first is the best
            else:
                found[number - 1] = float(line)
        except ValueError:
            raise InputError(f"{path}, line {number}: {line[:40]!r} holds no score") from None
    if not found:
        raise InputError(f"{path}: no scores in it: neither a number a line nor the H- lines of fairseq-generate")
    bad = next((key for key, value in found.items() if not math.isfinite(value)), None)
    if bad is not None:
        raise InputError(f"{path}: the score of pair {bad} is {found[bad]}")
    return found
