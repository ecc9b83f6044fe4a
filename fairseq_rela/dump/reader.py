"""Reading an attention dump: every weight of every layer and head, one sentence at a time. Needs numpy alone.

A dump is a directory with `dump.json` (see `info`) and one or more `shardR-NNNNN.npz` (see `segment`).
Without this package, five lines of numpy read the cross attention of a sentence:

    info, file = json.load(open("DIR/dump.json")), np.load("DIR/shard0-00000.npz")
    row, cross = file["index"][0], info["kinds"]["cross"]
    shape = len(cross["layers"]), cross["heads"], row["target_length"], row["source_length"]
    weights, mask = np.zeros(shape, "f4"), np.unpackbits(file["cross_mask"][slice(*row["cross_mask"])])
    weights.reshape(-1)[mask[: weights.size] == 1] = file["cross_values"][slice(*row["cross_values"])]

and its tokens: `source, target = json.loads(file["text"][slice(*row["text"])].tobytes())`.
"""

import os
from functools import cached_property
from typing import Iterator, List, Mapping, Optional, Tuple

import numpy as np

from fairseq_rela.dump.files import name_sentence, open_segments
from fairseq_rela.dump.info import DumpInfo, KindInfo, read_info
from fairseq_rela.dump.segment import Segment
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import check_kinds


class Record:
    """One sentence. Its tokens, and the weights of each kind, are read when they are first asked for, and kept."""

    def __init__(self, segment: Segment, row: np.void, kinds: Mapping[str, KindInfo]) -> None:
        self._segment, self._row, self._kinds = segment, row, kinds
        self.id, self.rank = int(row["id"]), int(row["rank"])
        self.source_length, self.target_length = int(row["source_length"]), int(row["target_length"])

    @cached_property
    def _tokens(self) -> Tuple[List[str], List[str]]:
        return self._segment.tokens(self._row)

    @property
    def source(self) -> List[str]:
        """Subword strings, </s> kept."""
        return self._tokens[0]

    @property
    def target(self) -> List[str]:
        """Subword strings, </s> kept. Row t of `decoder` and `cross` predicts token t; its input is token t-1."""
        return self._tokens[1]

    def weights(self, kind: str) -> Optional[np.ndarray]:
        """(L, H, queries, keys) float32, or None if the kind was not recorded. Each call reads them again."""
        check_kinds([kind])
        return self._segment.weights(self._row, kind) if kind in self._kinds else None

    def norms(self, kind: str) -> Optional[np.ndarray]:
        """(L, H, queries, keys) float32: the size of what each key contributes to the attention's output.

        0 where the weight is 0. None if norms were not recorded (`--attn-dump-norms`). Each call reads them again.
        """
        check_kinds([kind])
        recorded = kind in self._kinds and self._kinds[kind].norms
        return self._segment.norms(self._row, kind) if recorded else None

    @cached_property
    def encoder(self) -> Optional[np.ndarray]:
        """(L, H, S, S)"""
        return self.weights("encoder")

    @cached_property
    def decoder(self) -> Optional[np.ndarray]:
        """(L, H, T, T)"""
        return self.weights("decoder")

    @cached_property
    def cross(self) -> Optional[np.ndarray]:
        """(L, H, T, S)"""
        return self.weights("cross")

    @cached_property
    def encoder_norms(self) -> Optional[np.ndarray]:
        """(L, H, S, S)"""
        return self.norms("encoder")

    @cached_property
    def decoder_norms(self) -> Optional[np.ndarray]:
        """(L, H, T, T)"""
        return self.norms("decoder")

    @cached_property
    def cross_norms(self) -> Optional[np.ndarray]:
        """(L, H, T, S)"""
        return self.norms("cross")

    def __repr__(self) -> str:
        rank = f", rank={self.rank}" if self.rank else ""
        return f"Record(id={self.id}{rank}, S={self.source_length}, T={self.target_length})"


class AttentionDump:
    """A dump on disk, all its shards together, ordered by id, then by rank.

        dump = AttentionDump(path)
        dump.info.kinds["cross"].attention, len(dump), dump[0], dump.find(17), [r.cross for r in dump]

    Opening reads only the indexes of the segments. The dump of a run that is still writing, or was killed, can be read.
    """

    def __init__(self, path: str) -> None:
        self.path = os.fspath(path)
        self.info: DumpInfo = read_info(self.path)
        self.segments = open_segments(self.path, self.info)
        counts = [len(segment.index) for segment in self.segments]
        self._owner = np.repeat(np.arange(len(counts)), counts)
        self._row = np.concatenate([np.arange(count) for count in counts] or [np.arange(0)])
        ids, ranks = (self._column(name) for name in ("id", "rank"))
        order = np.lexsort((ranks, ids))
        self._owner, self._row = self._owner[order], self._row[order]
        self.ids, self.ranks = ids[order], ranks[order]  # (N,) each, of dump[i]
        self._check_unique()

    def _column(self, name: str) -> np.ndarray:
        return np.concatenate([segment.index[name] for segment in self.segments] or [np.zeros(0, np.int64)])

    def _check_unique(self) -> None:
        twice = np.flatnonzero((self.ids[1:] == self.ids[:-1]) & (self.ranks[1:] == self.ranks[:-1]))
        if len(twice):
            at = int(twice[0])
            first, second = (self.segments[self._owner[i]].path for i in (at, at + 1))
            raise InputError(
                f"{second}: {name_sentence(int(self.ids[at]), int(self.ranks[at]))} is in {first} too; "
                f"keep only the shards of one generation"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Record:
        segment = self.segments[self._owner[i]]
        return Record(segment, segment.index[self._row[i]], self.info.kinds)

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def find(self, id: int, rank: int = 0) -> Record:
        """The record of a sentence by its id, and by its rank in a dump of several hypotheses."""
        begin, end = np.searchsorted(self.ids, [id, id + 1])
        at = begin + int(np.searchsorted(self.ranks[begin:end], rank))
        if at == end or self.ranks[at] != rank:
            held = f"{len(self)} records, ids {self.ids[0]} to {self.ids[-1]}" if len(self) else "none"
            raise InputError(f"{self.path}: no {name_sentence(id, rank).rstrip(',')} in this dump; it holds {held}")
        return self[at]

    def verify(self) -> None:
        """Read everything and check its checksums. InputError names the first damaged file."""
        for record in self:
            list(record.source)
            for kind in self.info.kinds:
                record.weights(kind)
                record.norms(kind)

    def __repr__(self) -> str:
        names = ", ".join(f"{kind} {info.attention}" for kind, info in self.info.kinds.items())
        return f"AttentionDump({self.path!r}: {len(self)} sentences; {names})"
