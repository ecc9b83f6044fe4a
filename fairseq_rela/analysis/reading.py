"""A dump as the analyses read it: the best hypothesis of each sentence, its words and its weights."""

import itertools
from typing import Iterator, List, Sequence

import numpy as np

from fairseq_rela.analysis.links import Gold, check_links
from fairseq_rela.analysis.words import Words, merge_rule, merged
from fairseq_rela.dump.reader import AttentionDump, Record
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

BY = ("weights", "norms")  # what attention is read by: its weights, or the norms of what its keys contribute
_SENTENCES_TO_DETECT = 200  # sentences that are read to find out how words are split into pieces


class DumpReader:
    """The sentences of a dump in the order of their ids. Of several hypotheses only the best (rank 0) is read."""

    def __init__(self, path: str, merge: str = "auto") -> None:
        self.path, self.merge = path, merge
        self.dump = AttentionDump(path)
        self.info = self.dump.info
        self._best = np.flatnonzero(self.dump.ranks == 0)
        self.ids: np.ndarray = self.dump.ids[self._best]
        if not len(self.ids):
            raise InputError(f"{path}: the dump has no sentence")
        if merge == "auto":
            first = [self.dump[i] for i in itertools.islice(self._best, _SENTENCES_TO_DETECT)]
            self.source_rule = merge_rule(record.source for record in first)
            self.target_rule = merge_rule(record.target for record in first)
        else:
            self.source_rule = self.target_rule = merge

    def __len__(self) -> int:
        return len(self._best)

    def __getitem__(self, index: int) -> Record:
        return self.dump[self._best[index]]

    def __iter__(self) -> Iterator[Record]:
        return progress((self[i] for i in range(len(self))), self.path, len(self))

    def weights(self, record: Record, kind: str, by: str = "weights") -> np.ndarray:
        """(L, H, queries, keys) of a kind that the dump has: its weights or its norms.

        InputError if one of them is infinite or NaN.
        """
        weights = record.norms(kind) if by == "norms" else record.weights(kind)
        if weights is None:
            self.require(kind, by)
            raise InputError(f"{self.path}: sentence {record.id} has no {kind} {by}")
        if not np.isfinite(weights).all():
            raise InputError(
                f"{self.path}: sentence {record.id} has {kind} {by} that are infinite or not a number: "
                f"the model's training has failed"
            )
        return weights

    def source_words(self, record: Record) -> Words:
        return merged(record.source, self.source_rule)

    def target_words(self, record: Record) -> Words:
        return merged(record.target, self.target_rule)

    def require(self, kind: str, by: str = "weights") -> None:
        """InputError unless the dump has `kind`, and, by "norms", its norms."""
        if kind not in self.info.kinds:
            raise InputError(f"{self.path}: has no {kind} attention, only {', '.join(self.info.kinds)}")
        if by == "norms" and not self.has_norms(kind):
            raise InputError(f"{self.path}: has no norms of {kind} attention; dump again with --attn-dump-norms")

    def has_norms(self, kind: str) -> bool:
        """Whether the dump has the norms of `kind`."""
        return kind in self.info.kinds and self.info.kinds[kind].norms

    def layer_index(self, kind: str, layer: int) -> int:
        """Where the model's layer `layer` (from 0, negative from the end) is on axis 0 of the weights."""
        info = self.info.kinds[kind]
        wanted = layer + info.model_layers if layer < 0 else layer
        if wanted not in info.layers:
            available = ", ".join(map(str, info.layers))
            raise InputError(f"{self.path}: no {kind} layer {layer} in this dump; there are (from 0): {available}")
        return info.layers.index(wanted)

    def check_head(self, kind: str, head: int) -> None:
        """InputError unless the layers of `kind` have a head of that number."""
        heads = self.info.kinds[kind].heads
        if not 0 <= head < heads:
            raise InputError(f"{self.path}: no {kind} head {head} in this dump; there are 0 to {heads - 1}, and mean")

    def match_lines(self, lines: Sequence, path: str) -> None:
        """InputError unless `path` has one line per sentence. Line i (from 0) belongs to id i."""
        if len(lines) != len(self):
            raise InputError(f"{path}: has {len(lines)} lines, but {self.path} has {len(self)} sentences")
        if int(self.ids[0]) != 0 or int(self.ids[-1]) != len(self) - 1:
            missing = sorted(set(range(len(self))) - set(self.ids.tolist()))[0]
            raise InputError(
                f"{path}, line {missing + 1}: belongs to sentence {missing}, which is not in {self.path} "
                f"(its ids go from {self.ids[0]} to {self.ids[-1]})"
            )

    def match_gold(self, golds: List[Gold], path: str) -> None:
        """InputError unless `golds` fit the dump, in number and in the words they link."""
        self.match_lines(golds, path)
        for record in self:
            source, target = len(self.source_words(record).text), len(self.target_words(record).text)
            check_links(golds[record.id], source, target, f"{path}, line {record.id + 1}")
