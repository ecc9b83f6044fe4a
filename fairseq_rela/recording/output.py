"""The attention of what one model generated, by one teacher-forced pass: into a dump, into statistics, or both."""

import os
from dataclasses import dataclass
from typing import Iterator, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor, nn

from fairseq_rela.recording import device_stats
from fairseq_rela.recording.dump import DumpWriter
from fairseq_rela.recording.info import DumpInfo
from fairseq_rela.recording.recorder import Recording, keys_of, queries_of, record_attention
from fairseq_rela.recording.stats import StatsWriter

# weights that one pass may hold, 256 MB of float32: a batch of long sentences is taken in parts
MOST_WEIGHTS = 64 << 20


@dataclass(frozen=True)
class Destination:
    """Where to: a directory for the dump, a file for the statistics, either or both."""

    dump: Optional[str]
    stats: Optional[str]
    resume: bool = False
    shard: int = 0
    shards: int = 1

    def of_model(self, number: int, models: int) -> "Destination":
        """That of one model of an ensemble, or of the only one: DIR/model1 and FILE.model1.shard0.tsv."""
        # shards share the directory of a dump, but each needs its own file of statistics
        suffixes = ([f"model{number}"] if models > 1 else []) + ([f"shard{self.shard}"] if self.shards > 1 else [])
        dump, stats = self.dump, self.stats
        if dump and models > 1:
            dump = os.path.join(dump, f"model{number}")
        if stats:
            root, extension = os.path.splitext(stats)
            stats = ".".join([root, *suffixes]) + extension
        return Destination(dump, stats, self.resume, self.shard, self.shards)


class Pair(NamedTuple):
    """A sentence and one of its translations."""

    id: int
    rank: int  # 0 is the best hypothesis
    row: int  # of the batch: its source
    target: Tensor  # (T,) tokens, </s> last


class AttentionOutput:
    """Writes one model's attention to its destination. Opening it is the time to hear that it cannot be written."""

    def __init__(
        self,
        model: nn.Module,
        info: DumpInfo,
        to: Destination,
        source: Dictionary,
        target: Dictionary,
        layers: Optional[Sequence[int]] = None,
    ) -> None:
        """`info` names the kinds to record; `layers` as in `record_attention`; the dictionaries have the tokens."""
        self.model, self.info, self._layers, self._resume = model, info, layers, to.resume
        self._source, self._target = source, target
        self._dump = DumpWriter(to.dump, info, to.shard, to.resume) if to.dump else None
        recorded = {kind: row.layers for kind, row in info.kinds.items()}
        self._stats = StatsWriter(to.stats, recorded, to.resume) if to.stats else None

    def _done(self, writer: Union[DumpWriter, StatsWriter], pair: Pair) -> bool:
        """Whether an earlier run wrote it; only then may a pair come a second time."""
        return self._resume and writer.done(pair.id, pair.rank)

    def record(self, pairs: Sequence[Pair], source: Tensor) -> None:
        """Record the pairs that have not been; `source` (B, S) as the model took it, padding included."""
        writers = [writer for writer in (self._dump, self._stats) if writer]
        missing = [pair for pair in pairs if not all(self._done(writer, pair) for writer in writers)]
        for part in self._parts(missing, source.size(1)):
            self._record(part, source)

    def _parts(self, pairs: List[Pair], source_length: int) -> Iterator[List[Pair]]:
        if not pairs:
            return
        target_length = max(pair.target.numel() for pair in pairs)
        weights = sum(
            int(np.prod(row.shape(kind, source_length, target_length))) for kind, row in self.info.kinds.items()
        )
        size = max(1, MOST_WEIGHTS // weights)
        for begin in range(0, len(pairs), size):
            yield pairs[begin : begin + size]

    def _record(self, pairs: List[Pair], batch: Tensor) -> None:
        pad, eos = self._target.pad(), self._target.eos()
        source = batch[torch.tensor([pair.row for pair in pairs], device=batch.device)]  # (B, S)
        targets = [pair.target.to(batch) for pair in pairs]
        # row t predicts token t, so its input is the token before it
        previous = collate_tokens(targets, pad, eos, left_pad=False, move_eos_to_beginning=True)  # (B, T)
        recording = self._teacher_forced(source, previous)
        if self._dump:
            sources = source.tolist()
            produced = collate_tokens(targets, pad).tolist()
            for pair, row, tokens, weights in zip(
                pairs, sources, produced, recording.sentences(source, previous, pad)
            ):
                if not self._done(self._dump, pair):
                    words = [self._source[token] for token in row if token != pad]
                    translation = [self._target[token] for token in tokens[: pair.target.numel()]]
                    self._dump.add(pair.id, words, translation, rank=pair.rank, **weights)
        if self._stats:
            self._add_stats(pairs, recording, source.ne(pad), previous.ne(pad))

    @torch.no_grad()
    def _teacher_forced(self, source: Tensor, previous: Tensor) -> Recording:
        lengths = source.ne(self._source.pad()).sum(dim=1)
        devices = [source.device] if source.is_cuda else []
        # random numbers that dropout draws here (--retain-dropout) must not be missing in the next search
        with torch.random.fork_rng(devices), record_attention(self.model, self.info.kinds, self._layers) as recording:
            # fairseq's way to run a model but for its last projection, which is as wide as the vocabulary
            self.model.extract_features(src_tokens=source, src_lengths=lengths, prev_output_tokens=previous)
        return recording

    def _add_stats(self, pairs: List[Pair], recording: Recording, source: Tensor, target: Tensor) -> None:
        """`source` (B, S), `target` (B, T): false where there is padding."""
        present = {"source": source, "target": target}
        columns = []
        for kind in recording.info:
            queries, keys = present[queries_of(kind)], present[keys_of(kind)]
            rates = device_stats.null_and_sparsity(recording.weights(kind), queries, keys, causal=kind == "decoder")
            columns.append(np.stack(rates, axis=2).reshape(len(pairs), -1))  # (B, 2 L): a layer's two side by side
        lengths = torch.stack([source.sum(dim=1), target.sum(dim=1)], dim=1).tolist()
        for pair, (source_length, target_length), rates in zip(pairs, lengths, np.concatenate(columns, axis=1)):
            if not self._done(self._stats, pair):
                self._stats.add_rates(pair.id, source_length, target_length, rates, pair.rank)

    def close(self, complete: bool) -> None:
        """What was recorded is on the disk; statistics that are not `complete` stay FILE.partial."""
        if self._dump:
            self._dump.close()
        if self._stats:
            if complete:
                self._stats.close()
            else:
                self._stats.abandon()
