"""What is known about each sentence pair, from a dump or from a file of statistics (`--attn-dump-stats`)."""

import math
import os
from itertools import islice
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.lines import text_lines
from fairseq_rela.analysis.nulls import null_rate
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.stats_blocks import cross_layers, stats_blocks
from fairseq_rela.dump.info import read_info
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

_BLOCK_PAIRS = 512  # of a dump
CLEAN = "clean"  # the label of a true pair; any other label is a kind of wrong pair


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


def pairs_of(path: str) -> Pairs:
    """Everything that a dump or a file of statistics says about its pairs."""
    blocks = list(pair_blocks(path))
    ids, lengths, null = (np.concatenate([block[i] for block in blocks]) for i in range(3))
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        raise twice_error(path, int(unique[np.argmax(counts)]))
    mass = None if blocks[0].mass is None else np.concatenate([block.mass for block in blocks])
    return Pairs(ids, lengths, null, mass, blocks[0].layers)


def pair_blocks(path: str) -> Iterator[Pairs]:
    """The same, some pairs at a time: memory does not grow with the number of pairs."""
    return _dumped(path) if is_dump(path) else _listed(path)


def _dumped(path: str) -> Iterator[Pairs]:
    reader = DumpReader(path)
    reader.require("cross")
    info = reader.info.kinds["cross"]
    records = iter(reader)
    for first in range(0, len(reader), _BLOCK_PAIRS):
        ids = reader.ids[first : first + _BLOCK_PAIRS]
        shape = (len(ids), len(info.layers), info.heads)
        null, mass = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        lengths = np.empty((len(ids), 2), dtype=np.int64)
        for index, record in enumerate(islice(records, len(ids))):
            weights = reader.weights(record, "cross")
            if not all(weights.shape[2:]):
                raise InputError(f"{path}: sentence {record.id} has an empty source or target; a pair has both")
            null[index] = null_rate(weights)
            mass[index] = weights.sum(axis=-1).mean(axis=-1)
            lengths[index] = record.source_length, record.target_length
        yield Pairs(ids, lengths, null, mass, info.layers)


def _listed(path: str) -> Iterator[Pairs]:
    layers = cross_layers(path)
    for block in progress(stats_blocks(path), path):
        yield Pairs(block.ids, block.lengths, block.null[:, :, None], None, layers)


def twice_error(path: str, pair: int) -> InputError:
    """The error for a pair that occurs twice in a file of statistics."""
    lines = (line for block in stats_blocks(path) for line in block.lines[block.ids == pair].tolist())
    return InputError(f"{path}, line {next(islice(lines, 1, None))}: pair {pair} occurs twice; each occurs once")


def pair_labels(path: str) -> np.ndarray:
    """The label of every pair at its id, (lines,) of str: line i (from 0) belongs to pair i."""
    labels = []
    for number, line in text_lines(path):
        label = line.strip()
        if not label:
            raise InputError(
                f"{path}, line {number}: is empty; a label is {CLEAN}, or a word for what is wrong with the pair"
            )
        labels.append(label)
    return np.array(
        labels, dtype=object
    )  # objects, because in a fixed width one long line would make all others as long


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
            f"{path}: rows of {attention} are not distributions and have no entropy; give a softmax model's dump"
        )
    entropies = {}
    for record in reader:
        weights = reader.weights(record, "cross").astype(np.float64)
        logs = np.log(np.where(weights > 0, weights, 1.0))
        entropies[record.id] = float(-(weights * logs).sum(axis=-1).mean())
    return entropies


def model_scores(path: str) -> Dict[int, float]:
    """By id, the model's score per token: fairseq-generate's output (its H- lines), or one number per line."""
    lines = list(text_lines(path))
    from_fairseq = any(line.startswith("H-") for _, line in lines)
    scores: Dict[int, float] = {}
    for number, line in lines:
        if from_fairseq and not line.startswith("H-"):
            continue
        try:
            if from_fairseq:
                name, score = line.split("\t")[:2]
                scores.setdefault(int(name[2:]), float(score))  # of several hypotheses the first is the best
            else:
                scores[number - 1] = float(line)
        except ValueError:
            raise InputError(f"{path}, line {number}: {line[:40]!r} is not a score") from None
    if not scores:
        raise InputError(f"{path}: no scores in it: neither one number per line nor the H- lines of fairseq-generate")
    bad = next((key for key, value in scores.items() if not math.isfinite(value)), None)
    if bad is not None:
        raise InputError(f"{path}: the score of pair {bad} is {scores[bad]}")
    return scores
