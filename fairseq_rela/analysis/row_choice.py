"""Where links are read (which layer, which head or the mean of the heads, normal or shifted rows), and the links there.

It is chosen where the links have the lowest error on a development set; or, without gold links, where the links of
two models that translate in opposite directions agree most.
"""

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_rela.analysis.alignment import (
    ROWS,
    AlignmentScores,
    every_reading,
    layer_or_head,
    linked_sources,
    word_links,
)
from fairseq_rela.analysis.links import Gold, Links, reversed_links
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.symmetrization import METHODS
from fairseq_rela.dump.reader import Record
from fairseq_rela.errors import InputError


class Choice(NamedTuple):
    """Where links are read: the model's layer, its head (None: the mean of its heads), which rows."""

    layer: int
    head: Optional[int]
    rows: str

    def __str__(self) -> str:
        head = "mean of heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}, {self.rows} rows"


class Agreed(NamedTuple):
    """The choices of both directions, their agreement, and on how many sentences it was measured."""

    forward: Choice
    backward: Choice
    agreement: float
    sentences: int


def best_choice(
    reader: DumpReader, golds: List[Gold], path: str, eos: str, by: str, half: Optional[int] = None
) -> Tuple[Choice, float]:
    """Where the links of a development set have the lowest error, and that error.

    With `half`, only the sentences whose id is even (0) or odd (1) count.
    """
    reader.require("cross", by)
    reader.match_gold(golds, path)
    scores = AlignmentScores()
    for record in reader:
        words = reader.source_words(record), reader.target_words(record)
        scores.add(reader.weights(record, "cross", by), *words, golds[record.id], record.id % 2)
    rows, layer, head, rate = scores.best(eos, half)
    return Choice(reader.info.kinds["cross"].layers[layer], head, rows), rate


def links_at(reader: DumpReader, choice: Choice, eos: str, by: str = "weights") -> Dict[int, Links]:
    """The links of every sentence of a dump, by its id."""
    layer = reader.layer_index("cross", choice.layer)
    if choice.head is not None:
        reader.check_head("cross", choice.head)
    links = {}
    for record in reader:
        weights = layer_or_head(reader.weights(record, "cross", by), layer, choice.head)
        words = reader.source_words(record), reader.target_words(record)
        links[record.id] = word_links(weights, *words, choice.rows, eos)
    return links


def joined(forward: Dict[int, Links], backward: Dict[int, Links], method: str) -> Dict[int, Links]:
    """The links of both directions together, by the sentence's id. `method` is a name in `symmetrization.METHODS`."""
    join = METHODS[method]
    return {number: join(there, reversed_links(backward[number])) for number, there in forward.items()}


def agreed_choice(forward: DumpReader, backward: DumpReader, eos: str, by: str, most: int) -> Agreed:
    """Where the links of two directions agree most, on `most` sentences that are evenly spread over the dumps.

    The agreement of links A and B is 2 |A ∩ B| / (source words + target words). For softmax this is their F-score,
    because every word has a link. A head that is mostly null links few words, and so cannot agree on many.
    """
    check_same_sentences(forward, backward)
    positions = np.unique(np.linspace(0, len(forward) - 1, min(most, len(forward))).astype(int))
    agreed, words = np.zeros(()), 0
    for position in positions.tolist():
        there, back = forward[position], backward[position]
        sizes = check_same_words(forward, there, backward, back)
        ours, theirs = _links(forward, there, eos, by), _links(backward, back, eos, by)
        pairs = np.einsum("cts->cst", theirs).reshape(len(theirs), -1)  # as (target word, source word), too
        agreed = agreed + ours.reshape(len(ours), -1) @ pairs.T
        words += sum(sizes)
    best = np.unravel_index(int(agreed.argmax()), agreed.shape)
    choices = [_choice(reader, int(index)) for reader, index in zip((forward, backward), best)]
    return Agreed(choices[0], choices[1], 2 * float(agreed[best]) / max(words, 1), len(positions))


def _links(reader: DumpReader, record: Record, eos: str, by: str) -> np.ndarray:
    """(choices, target words, source words), 1 at links. The choices are in the order of rows, layers, heads, mean."""
    source, target = reader.source_words(record), reader.target_words(record)
    readings = []
    for _, weights in every_reading(reader.weights(record, "cross", by), source, target):
        sources = linked_sources(weights, eos).reshape(-1, len(target.text))
        readings.append(sources[..., None] == np.arange(len(source.text)))
    return np.concatenate(readings).astype(np.float32)


def _choice(reader: DumpReader, index: int) -> Choice:
    """The choice at this place in the order of `_links`."""
    info = reader.info.kinds["cross"]
    rows, layer, head = map(int, np.unravel_index(index, (len(ROWS), len(info.layers), info.heads + 1)))
    return Choice(info.layers[layer], None if head == info.heads else head, ROWS[rows])


def check_same_sentences(forward: DumpReader, backward: DumpReader) -> None:
    """InputError unless both dumps have the same ids."""
    alone = np.setxor1d(forward.ids, backward.ids)
    if len(alone):
        raise InputError(
            f"{forward.path} and {backward.path} have different sentences: only one has sentence {alone[0]}"
        )


def check_same_words(forward: DumpReader, there: Record, backward: DumpReader, back: Record) -> Tuple[int, int]:
    """The number of source and target words of a sentence. InputError if the other direction has other numbers."""
    source, target = len(forward.source_words(there).text), len(forward.target_words(there).text)
    begin, end = len(backward.source_words(back).text), len(backward.target_words(back).text)
    if (source, target) != (end, begin):
        raise InputError(
            f"{backward.path}: sentence {there.id} goes from {begin} to {end} words, but in "
            f"{forward.path} from {source} to {target}: not the same text the other way"
        )
    return source, target
