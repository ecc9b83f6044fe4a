"""Records the attention of one model for its own translations, in one teacher-forced pass per batch.

The weights go to a dump, their rates to a file of statistics, or both.
"""

import os
from dataclasses import dataclass
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor, nn

from fairseq_rela.dump.info import DumpInfo
from fairseq_rela.dump.pair_text import pair_checksum
from fairseq_rela.dump.statistics import StatsWriter
from fairseq_rela.dump.writer import DumpWriter
from fairseq_rela.kinds import is_causal, keys_of, queries_of
from fairseq_rela.recording import device_stats
from fairseq_rela.recording.recorder import Recording, record_attention
from fairseq_rela.recording.resumed import RecordedHypotheses

# Most weights in one pass, 256 MB of float32. A batch of long sentences is split into parts.
MOST_WEIGHTS = 64 << 20


@dataclass(frozen=True)
class Destination:
    """Where to write: a directory for the dump, a file for the statistics, or both."""

    dump: Optional[str]
    stats: Optional[str]
    resume: bool = False
    shard: int = 0
    shards: int = 1

    def of_model(self, number: int, models: int) -> "Destination":
        """The destination of one model: DIR/model1 and FILE.model1.shard0.tsv in an ensemble with several shards."""
        # Shards share the directory of a dump, but each needs its own file of statistics.
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
    row: int  # the row of its source in the batch
    target: Tensor  # (T,) tokens, </s> last


class AttentionOutput:
    """Writes the attention of one model to its destination. Opening it fails if the destination cannot be written."""

    def __init__(
        self,
        model: nn.Module,
        info: DumpInfo,
        to: Destination,
        source: Dictionary,
        target: Dictionary,
        layers: Optional[Sequence[int]] = None,
        full_context: bool = False,
    ) -> None:
        """`info` names the kinds to record; `layers` is as in `record_attention`; the dictionaries give the tokens.
        With `full_context` the decoder sees the whole target."""
        self.model: Any = model
        self.info, self._layers, self._resume = info, layers, to.resume
        self._source, self._target, self._full_context = source, target, full_context
        self._norms = any(row.norms for row in info.kinds.values())
        self._dump = DumpWriter(to.dump, info, to.shard, to.resume) if to.dump else None
        recorded = {kind: row.layers for kind, row in info.kinds.items()}
        self._stats = StatsWriter(to.stats, recorded, to.resume, checksums=True) if to.stats else None
        # the hypotheses that the run before recorded, if this run resumes it
        self.earlier = RecordedHypotheses(to.dump, source, target) if to.dump and to.resume else None

    def recorded_before(self, id: int, rank: int) -> bool:
        """Whether the run that this one resumes has recorded a pair, in every file."""
        writers = [writer for writer in (self._dump, self._stats) if writer]
        return self._resume and all(writer.done(id, rank) for writer in writers)

    def _done(self, writer: Union[DumpWriter, StatsWriter], pair: Pair) -> bool:
        """Whether an earlier run wrote the pair. A pair that comes twice in one run is an error."""
        return self._resume and writer.done(pair.id, pair.rank)

    def record(self, pairs: Sequence[Pair], source: Tensor) -> None:
        """Record the pairs that are not there yet; `source` (B, S) is the model's input, with padding."""
        writers = [writer for writer in (self._dump, self._stats) if writer]
        missing = [pair for pair in pairs if not all(self._done(writer, pair) for writer in writers)]
        for part in self._parts(missing, source.size(1)):
            self._record(part, source)
        if self._stats:
            self._stats.flush()

    def _parts(self, pairs: List[Pair], source_length: int) -> Iterator[List[Pair]]:
        if not pairs:
            return
        target_length = max(pair.target.numel() for pair in pairs)
        weights = sum(
            int(np.prod(row.shape(kind, source_length, target_length))) for kind, row in self.info.kinds.items()
        )
        size = max(1, MOST_WEIGHTS // (weights * (1 + self._norms)))
        for begin in range(0, len(pairs), size):
            yield pairs[begin : begin + size]

    def _record(self, pairs: List[Pair], batch: Tensor) -> None:
        pad, eos = self._target.pad(), self._target.eos()
        source = batch[torch.tensor([pair.row for pair in pairs], device=batch.device)]  # (B, S)
        targets = [pair.target.to(batch) for pair in pairs]
        # Row t predicts token t, so its input is the token before.
        previous = collate_tokens(targets, pad, eos, left_pad=False, move_eos_to_beginning=True)  # (B, T)
        recording = self._teacher_forced(source, previous)
        rows, produced = source.tolist(), collate_tokens(targets, pad).tolist()
        sources = [[self._source[token] for token in row if token != pad] for row in rows]
        translations = [
            [self._target[token] for token in row[: pair.target.numel()]] for pair, row in zip(pairs, produced)
        ]
        if self._dump:
            arrays = zip(recording.sentences(source, previous, pad), recording.sentence_norms(source, previous, pad))
            for pair, words, translation, (weights, norms) in zip(pairs, sources, translations, arrays):
                if not self._done(self._dump, pair):
                    self._dump.add(pair.id, words, translation, rank=pair.rank, norms=norms, **weights)
        if self._stats:
            checksums = list(map(pair_checksum, sources, translations))
            self._add_stats(self._stats, pairs, checksums, recording, source.ne(pad), previous.ne(pad))

    @torch.no_grad()
    def _teacher_forced(self, source: Tensor, previous: Tensor) -> Recording:
        lengths = source.ne(self._source.pad()).sum(dim=1)
        devices = [source.device] if source.is_cuda else []
        # With --retain-dropout this pass draws random numbers, which must not change the next search.
        recorder = record_attention(self.model, self.info.kinds, self._layers, self._norms)
        with torch.random.fork_rng(devices), recorder as recording:
            # The whole model without its last projection, which is as wide as the vocabulary.
            if self._full_context:
                encoded = self.model.encoder(source, src_lengths=lengths)
                self.model.decoder.extract_features(previous, encoder_out=encoded, full_context_alignment=True)
            else:
                self.model.extract_features(src_tokens=source, src_lengths=lengths, prev_output_tokens=previous)
        return recording

    def _add_stats(
        self,
        stats: StatsWriter,
        pairs: List[Pair],
        checksums: List[int],
        recording: Recording,
        source: Tensor,
        target: Tensor,
    ) -> None:
        """Add the rates of `pairs`; `source` (B, S) and `target` (B, T) are false where there is padding."""
        present = {"source": source, "target": target}
        columns = []
        for kind, weights in recording.all_weights():
            queries, keys = present[queries_of(kind)], present[keys_of(kind)]
            rates = device_stats.null_and_sparsity(weights, queries, keys, is_causal(kind))
            columns.append(np.stack(rates, axis=2).reshape(len(pairs), -1))  # (B, 2 L): null and sparsity of each layer
        lengths = torch.stack([source.sum(dim=1), target.sum(dim=1)], dim=1).tolist()
        all_rates = np.concatenate(columns, axis=1)
        for pair, checksum, (source_length, target_length), rates in zip(pairs, checksums, lengths, all_rates):
            if not self._done(stats, pair):
                stats.add_rates(pair.id, source_length, target_length, rates, pair.rank, checksum)

    def close(self, complete: bool) -> None:
        """Write what is still in memory. Statistics that are not `complete` stay FILE.partial."""
        if self._dump:
            self._dump.close()
        if self._stats:
            if complete:
                self._stats.close()
            else:
                self._stats.abandon()
