"""Word alignment from cross attention, and its error rate (Section 5.2, Figure 4 and Table 5)."""

from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from fairseq_rela.analysis.links import Gold, Links
from fairseq_rela.analysis.metrics import AlignmentError, HeldOutError
from fairseq_rela.analysis.words import Words, over_source, over_target, shifted, word_weights
from fairseq_rela.dump.zeros import null_rows

ROWS = ("normal", "shifted")  # which row of the attention is read for token t: t, or t + 1
EOS = ("drop", "null")  # drop the source's </s> before the maximum, or read a maximum there as no link


class Overlap(NamedTuple):
    """The counts in an error rate: |A ∩ S|, |A ∩ P|, |A|, |S| over a corpus."""

    in_sure: int
    in_possible: int
    linked: int
    sure: int


def overlap(hypotheses: Iterable[Links], golds: Iterable[Gold]) -> Overlap:
    """The counts over sentences of proposed links A against gold links S ⊆ P."""
    counts = np.zeros(4, dtype=np.int64)
    for links, gold in zip(hypotheses, golds):
        possible = gold.possible | gold.sure
        counts += [len(links & gold.sure), len(links & possible), len(links), len(gold.sure)]
    return Overlap(*counts.tolist())


def unlinked_overlap(
    hypotheses: Iterable[Links], golds: Iterable[Gold], target_words: Iterable[int]
) -> Tuple[int, int, int]:
    """How many target words have no link in both, in the proposed links, and in the gold ones, over a corpus.

    A word with a possible link is linked. `target_words` says how many words each sentence has.
    """
    both = proposed = wanted = 0
    for links, gold, words in zip(hypotheses, golds, target_words):
        every = set(range(words))
        null = every - {target for _, target in links}
        gold_null = every - {target for _, target in gold.possible | gold.sure}
        both, proposed, wanted = both + len(null & gold_null), proposed + len(null), wanted + len(gold_null)
    return both, proposed, wanted


def alignment_error_rate(hypotheses: Iterable[Links], golds: Iterable[Gold]) -> float:
    """AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over a corpus; 0 if there are no links at all."""
    counts = overlap(hypotheses, golds)
    return float(error_rate(*counts))


Count = Union[int, np.ndarray]


def error_rate(in_sure: Count, in_possible: Count, linked: Count, sure: Count) -> np.ndarray:
    """AER from its counts, elementwise."""
    agreed = np.asarray(in_sure, dtype=np.float64) + in_possible
    wanted = np.asarray(linked, dtype=np.float64) + sure
    agreed, wanted = np.broadcast_arrays(agreed, wanted)
    return 1 - np.divide(agreed, wanted, out=np.ones(agreed.shape), where=wanted > 0)


def linked_sources(weights: np.ndarray, eos: str = "drop") -> np.ndarray:
    """For each target word the source word of its largest weight, -1 for none: (…, target words).

    `weights` are between words, (…, target words, source words + 1), the last column that of `</s>`.
    A row of zeros has no link. Of equal weights the first wins.
    """
    if eos == "drop":
        weights = weights[..., :-1]
    if weights.shape[-1] == 0:
        return np.full(weights.shape[:-1], -1)
    best = weights.argmax(axis=-1)
    unlinked = null_rows(weights)
    if eos == "null":
        unlinked |= best == weights.shape[-1] - 1
    return np.where(unlinked, -1, best)


def word_links(weights: np.ndarray, source: Words, target: Words, rows: str = "normal", eos: str = "drop") -> Links:
    """The links of one head or layer from its weights between pieces, (T, S)."""
    target = shifted(target) if rows == "shifted" else target
    sources = linked_sources(word_weights(weights, source, target, eos=True), eos)
    return frozenset((int(s), t) for t, s in enumerate(sources.tolist()) if s >= 0)


def every_reading(cross: np.ndarray, source: Words, target: Words) -> Iterator[Tuple[str, np.ndarray]]:
    """For normal and for shifted rows, (which, weights between words (L, H + 1, target words, source words + 1)).

    `cross` is (L, H, T, S). The last of the H + 1 is the mean of the heads, the last column is that of `</s>`.
    """
    merged = over_source(cross, source, eos=True)  # (L, H, T, source words + 1)
    merged = np.concatenate([merged, merged.mean(axis=1, keepdims=True)], axis=1)  # sums and means commute
    for rows in ROWS:
        yield rows, over_target(merged, shifted(target) if rows == "shifted" else target)


class AlignmentScores:
    """Error rates of every layer and head, for both ways of reading rows and of treating `</s>`, in one pass.

    Sentences are in one of two halves, even and odd, so that a head can be chosen on one and scored on the other.
    """

    def __init__(self) -> None:
        self._counts: Dict[Tuple[str, str], np.ndarray] = {}  # (half, layer, head; mean last, |A∩S| |A∩P| |A|)
        self._sure = np.zeros(2, dtype=np.int64)
        self._sentences = np.zeros(2, dtype=np.int64)

    def add(self, cross: np.ndarray, source: Words, target: Words, gold: Gold, half: int) -> None:
        """Count one sentence's links, `cross` being (L, H, T, S)."""
        sure = _link_matrix(gold.sure, source, target)
        possible = _link_matrix(gold.possible | gold.sure, source, target)
        self._sure[half] += len(gold.sure)
        self._sentences[half] += 1
        words = np.arange(len(target.text))
        for rows, weights in every_reading(cross, source, target):
            for eos in EOS:
                sources = linked_sources(weights, eos)  # (L, H + 1, target words)
                counts = [table[sources, words].sum(axis=-1) for table in (sure, possible)]
                counts.append((sources >= 0).sum(axis=-1))
                total = self._counts.setdefault((rows, eos), np.zeros((2, *sources.shape[:2], 3), dtype=np.int64))
                total[half] += np.stack(counts, axis=-1)

    @property
    def sentences(self) -> int:
        """How many sentences were added."""
        return int(self._sentences.sum())

    def merge(self, other: "AlignmentScores") -> None:
        """Add the counts of another part of the same dump."""
        for key, counts in other._counts.items():
            self._counts[key] = self._counts[key] + counts if key in self._counts else counts
        self._sure = self._sure + other._sure
        self._sentences = self._sentences + other._sentences

    def heads(self, rows: str, eos: str, half: Optional[int] = None) -> np.ndarray:
        """AER, (L, H + 1), the last column the layer's mean; over all sentences, or one half of them."""
        counts = self._counts[rows, eos]
        counts, sure = (counts.sum(axis=0), self._sure.sum()) if half is None else (counts[half], self._sure[half])
        return error_rate(counts[..., 0], counts[..., 1], counts[..., 2], sure)

    def result(self, rows: str, eos: str) -> AlignmentError:
        """What Figure 4 and Table 5 show: AER by layer, of its mean and of its best head, and their means."""
        rates = self.heads(rows, eos)
        layer, heads = rates[:, -1], rates[:, :-1]
        return AlignmentError(
            layer=layer.tolist(),
            best_head=heads.min(axis=1).tolist(),
            AoL=float(layer.mean()),
            AoH=float(heads.min(axis=1).mean()),
            heads=heads.tolist(),
            best_head_index=heads.argmin(axis=1).tolist(),
            held_out=self._held_out(rows, eos) if self._sentences.all() else None,
        )

    def _held_out(self, rows: str, eos: str) -> HeldOutError:
        """Heads chosen on even sentences, scored on odd ones."""
        chosen = self.heads(rows, eos, half=0)[:, :-1].argmin(axis=1)
        rates = self.heads(rows, eos, half=1)
        layer, best_head = rates[:, -1], rates[np.arange(len(chosen)), chosen]
        return HeldOutError(
            layer=layer.tolist(),
            best_head=best_head.tolist(),
            AoL=float(layer.mean()),
            AoH=float(best_head.mean()),
            best_head_index=chosen.tolist(),
        )

    def best(self, eos: str, half: Optional[int] = None) -> Tuple[str, int, Optional[int], float]:
        """The (rows, layer, head, AER) with the least error; head None is the layer's mean.

        The error is that over all sentences, or over one half of them.
        """
        choices: List[Tuple[float, int, int, int]] = []
        for order, rows in enumerate(ROWS):
            rates = self.heads(rows, eos, half)
            layer, head = divmod(int(rates.argmin()), rates.shape[1])
            choices.append((float(rates[layer, head]), order, layer, head))
        rate, order, layer, head = min(choices)
        mean = self._counts[ROWS[order], eos].shape[2] - 1
        return ROWS[order], layer, None if head == mean else head, rate


def _link_matrix(links: Links, source: Words, target: Words) -> np.ndarray:
    """(source words + 1, target words) true at links; the last row, where index -1 (no link) falls, is empty."""
    table = np.zeros((len(source.text) + 1, len(target.text)), dtype=bool)
    for i, j in links:
        table[i, j] = True
    return table


def layer_or_head(weights: np.ndarray, layer: int, head: Optional[int]) -> np.ndarray:
    """(T, S) of (L, H, T, S): one head's weights, or with None the mean over the layer's heads."""
    return weights[layer].mean(axis=0, dtype=np.float64) if head is None else weights[layer, head]
