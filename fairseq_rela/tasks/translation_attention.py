"""The task `translation_attention`: fairseq's `translation`, which also records the attention of its translations.

    fairseq-generate DATA --path MODEL --user-dir fairseq_rela --task translation_attention --attn-dump DIR \\
      --required-batch-size-multiple 1

It works with any fairseq Transformer, in fairseq-generate and fairseq-interactive. With --score-reference it records
the attention of the reference. In training it offers --attn-stats; see `attention_stats`.
"""

import contextlib
import hashlib
import itertools
import logging
import os
import weakref
from collections import deque
from dataclasses import fields
from typing import Any, Deque, Dict, List, Optional

import fairseq
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask

from fairseq_rela.dump.info import GUIDED_LAYER, DumpInfo
from fairseq_rela.dump.selection import parse_layers
from fairseq_rela.errors import InputError
from fairseq_rela.recording.attention_modules import describe, find_attention, select
from fairseq_rela.recording.output import AttentionOutput, Pair
from fairseq_rela.recording.resumed import Hypothesis, hypothesis, pairs_in_statistics, with_recorded
from fairseq_rela.tasks.attention_stats import AttentionStats
from fairseq_rela.tasks.dump_flags import (
    TranslationAttentionConfig,
    check_options,
    destination,
    destinations,
    ending_in_one_line,
    recorded_kinds,
)

logger = logging.getLogger(__name__)

# options of generation that change only what is printed or scored, not what is recorded
_PRINTING_OPTIONS = ("nbest", "print_alignment", "print_step", "sacrebleu", "replace_unk", "retain_iter_history")
# options that print what only a search knows, so that nothing can be taken from the dump
_SEARCH_ONLY_OPTIONS = ("print_alignment", "print_step", "replace_unk", "retain_iter_history")


@register_task("translation_attention", dataclass=TranslationAttentionConfig)
class TranslationAttentionTask(AttentionStats, TranslationTask):
    """Translates as `translation` does; after each batch, one teacher-forced pass records its attention."""

    cfg: TranslationAttentionConfig

    def __init__(self, cfg: TranslationAttentionConfig, src_dict, tgt_dict) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.attn_stats = cfg.attn_stats
        self._generation: Any = None
        self._outputs: List[AttentionOutput] = []
        # For sentences that are typed in. fairseq numbers those of each buffer from 0, and drops the numbers.
        self._typed = 0
        self._typed_ids: Deque[List[int]] = deque()
        self._remaining: Optional[int] = None  # sentences that are still to come; None if that is not known

    @property
    def _recording(self) -> bool:
        return bool(self.cfg.attn_dump or self.cfg.attn_dump_stats)

    @classmethod
    def setup_task(cls, cfg: TranslationAttentionConfig, **kwargs) -> "TranslationAttentionTask":
        with ending_in_one_line():
            check_options(cfg)
        return super().setup_task(cfg, **kwargs)

    def build_criterion(self, *args, **kwargs):
        with ending_in_one_line():
            if self._recording:
                raise InputError(
                    "--attn-dump and --attn-dump-stats are for fairseq-generate and fairseq-interactive; "
                    "leave them out of training and validation"
                )
        return super().build_criterion(*args, **kwargs)

    def build_generator(self, models, args, *more, **options):
        self._generation = args
        if self._recording and self._remaining is not None and not self._outputs:
            with ending_in_one_line():
                self._open(models)  # before fairseq starts the processes that load data
        return super().build_generator(models, args, *more, **options)

    def build_dataset_for_inference(self, src_tokens, src_lengths, **options):
        """The data set of the sentences that were typed in. Their numbers are kept here, because batches lose them."""
        dataset = super().build_dataset_for_inference(src_tokens, src_lengths, **options)
        first, collate, queue = self._typed, dataset.collater, self._typed_ids
        self._typed += len(src_tokens)

        def collater(samples, **padding):
            batch = collate(samples, **padding)
            queue.append([first + number for number in batch["id"].tolist()])
            return batch

        if self._recording:
            dataset.collater = collater
        return dataset

    def get_batch_iterator(self, dataset, *args, **options):
        batches = super().get_batch_iterator(dataset, *args, **options)
        if self._recording and not self._typed:
            self._count(batches, len(dataset), options)
            if self.cfg.attn_dump_resume and not self.cfg.attn_dump and not self.cfg.score_reference:
                with ending_in_one_line():
                    self._leave_out_recorded(batches, options)
        return batches

    def _leave_out_recorded(self, batches, options: Dict[str, Any]) -> None:
        """Empty the batches that are in the statistics. These do not hold hypotheses, so there is nothing to print."""
        files = [to.stats for to in destinations(self.cfg) if to.stats]
        done = set.intersection(*(pairs_in_statistics(file) for file in files))
        shard, shards = options.get("shard_id", 0), options.get("num_shards", 1)
        left = list(batches.frozen_batches)
        own = range(shard, len(left), shards)
        ranks = range(self.cfg.attn_dump_nbest)
        recorded = [at for at in own if all((int(id), rank) in done for id in left[at] for rank in ranks)]
        # One batch stays, because fairseq divides by the time that translation took.
        for at in recorded[:-1] if len(recorded) == len(own) else recorded:
            self._remaining = (self._remaining or 0) - len(left[at])
            left[at] = []
        batches._frozen_batches = tuple(left)
        if recorded:
            logger.info(
                f"{len(recorded)} of {len(own)} batches are in {', '.join(files)} already and not translated again. "
                "Their translations are not printed, because statistics do not hold them."
            )

    def _count(self, batches, sentences: int, options: Dict[str, Any]) -> None:
        """Count the sentences, to know which is the last one, and warn about those that fairseq leaves out."""
        multiple = options.get("required_batch_size_multiple", 1)
        left_out = sentences - sum(map(len, batches.frozen_batches))
        if left_out and multiple > 1:
            logger.warning(
                f"{left_out} of {sentences} sentences are in no batch and will not be translated: fairseq leaves out "
                f"a last batch that is not a multiple of {multiple}; give "
                f"--required-batch-size-multiple 1 to get them all"
            )
        shard, shards = options.get("shard_id", 0), options.get("num_shards", 1)
        self._remaining = sum(map(len, batches.frozen_batches[shard::shards]))

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        search = super().inference_step
        if not self._recording:
            return search(generator, models, sample, prefix_tokens, constraints)
        with ending_in_one_line():
            if not self._outputs:
                self._open(models)  # for sentences that are typed in
            ids = self._typed_ids.popleft() if self._typed else sample["id"].tolist()
            try:
                recorded = [self._recorded(id, sample, row) for row, id in enumerate(ids)]
                if all(recorded):
                    hypotheses_of_batch = recorded
                else:
                    hypotheses_of_batch = search(generator, models, sample, prefix_tokens, constraints)
                    self._record(ids, hypotheses_of_batch, sample)
                    hypotheses_of_batch = with_recorded(hypotheses_of_batch, recorded)
                self._note_progress(len(ids))
            except BaseException:
                with contextlib.suppress(InputError):  # closing may fail for the same reason, such as a full disk
                    close_outputs(self._outputs, complete=False)
                raise
        return hypotheses_of_batch

    def _recorded(self, id: int, sample: Dict[str, Any], row: int) -> List[Hypothesis]:
        """The hypotheses of a sentence that an earlier run recorded. Empty if it is to be translated."""
        count = self.cfg.attn_dump_nbest
        ranks = itertools.product(self._outputs, range(count))
        if any(self._from_search) or not all(output.recorded_before(id, rank) for output, rank in ranks):
            return []
        earlier = self._outputs[0].earlier
        if earlier is not None:
            return earlier.of(id, sample["net_input"]["src_tokens"][row], count)
        if self._generation.score_reference:
            target = sample["target"][row]
            return [hypothesis(target[target.ne(self.tgt_dict.pad())].cpu())]
        return []

    @property
    def _from_search(self) -> List[bool]:
        """For each option that needs a search for every sentence: whether it is given."""
        return [bool(getattr(self._generation, name, None)) for name in _SEARCH_ONLY_OPTIONS]

    def _record(self, ids: List[int], hypotheses_of_batch: List[List[Hypothesis]], sample: Dict[str, Any]) -> None:
        pairs = [
            Pair(id, rank, row, hypothesis["tokens"])
            for row, (id, hypotheses) in enumerate(zip(ids, hypotheses_of_batch))
            for rank, hypothesis in enumerate(hypotheses[: self.cfg.attn_dump_nbest])
        ]
        for output in self._outputs:
            output.record(pairs, sample["net_input"]["src_tokens"])

    def _note_progress(self, sentences: int) -> None:
        """Complete the outputs after the last sentence, where it is known which one is the last."""
        if self._remaining is not None:
            self._remaining -= sentences
            if self._remaining == 0:
                close_outputs(self._outputs, complete=True)

    def _open(self, models) -> None:
        cfg, to = self.cfg, destination(self.cfg)
        kinds, layers = recorded_kinds(cfg) or None, parse_layers(cfg.attn_dump_layers, "--attn-dump-layers")
        paths = fairseq.utils.split_paths(cfg.path or "")
        outputs = []
        for number, model in enumerate(models):
            info = DumpInfo(
                model=architecture(model),
                kinds=describe(select(find_attention(model), kinds, layers), model, cfg.attn_dump_norms),
                checkpoint_sha256=sha256(paths[number]) if cfg.attn_dump and number < len(paths) else None,
                fairseq_version=fairseq.__version__,
                options={**self._options(), **self._full_context_options(model)},
            )
            where = to.of_model(number, len(models))
            outputs.append(
                AttentionOutput(
                    model, info, where, self.src_dict, self.tgt_dict, layers, full_context=cfg.attn_dump_full_context
                )
            )
        self._outputs = outputs
        # fairseq does not tell a task about the end. For sentences typed in, it is the end of the program. For a data
        # set it was reached with the last sentence, so an output that is still open here was interrupted.
        weakref.finalize(self, close_in_this_process, os.getpid(), outputs, complete=bool(self._typed))

    def _options(self) -> Dict[str, Any]:
        """The options that another run needs to repeat this one. They are the same for all shards."""
        cfg = self.cfg
        options: Dict[str, Any] = {"data": os.path.abspath(cfg.data)}
        options.update({"input": cfg.input} if self._typed else {"gen_subset": cfg.gen_subset})
        if self._generation.score_reference:  # nothing is searched
            options["score_reference"] = True
        else:
            options.update(self._search_options())
        if cfg.fp16:
            options["fp16"] = True
        if cfg.model_overrides != "{}":
            options["model_overrides"] = cfg.model_overrides
        return {**options, "attn_dump_nbest": cfg.attn_dump_nbest}

    def _full_context_options(self, model: torch.nn.Module) -> Dict[str, Any]:
        """That the whole target was in view, and where the model's guided head is, if it has one."""
        if not self.cfg.attn_dump_full_context:
            return {}
        guided = getattr(model, "alignment_layer", None) if getattr(model, "alignment_heads", None) == 1 else None
        return {"attn_dump_full_context": True, **({} if guided is None else {GUIDED_LAYER: guided})}

    def _search_options(self) -> Dict[str, Any]:
        options: Dict[str, Any] = {"beam": self._generation.beam}
        for option in fields(GenerationConfig):
            value = getattr(self._generation, option.name, option.default)
            if value != option.default and option.name not in _PRINTING_OPTIONS:
                options[option.name] = value if isinstance(value, (bool, int, float, str)) else str(value)
        if getattr(self._generation, "sampling", False):
            options["seed"] = self.cfg.seed
        return options


def architecture(model: torch.nn.Module) -> str:
    """The value of `--arch`, if the model remembers it, or else the name of its class."""
    for settings in (getattr(model, "args", None), getattr(model, "cfg", None)):
        for name in ("arch", "_name"):
            value = getattr(settings, name, None)
            if isinstance(value, str):
                return value
    return type(model).__name__


def sha256(path: str) -> Optional[str]:
    """The SHA-256 of a file; None if the model did not come from one file."""
    if not os.path.isfile(path):
        return None
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def close_outputs(outputs: List[AttentionOutput], complete: bool) -> None:
    for output in outputs:
        output.close(complete)


def close_in_this_process(process: int, outputs: List[AttentionOutput], complete: bool) -> None:
    """Close the outputs at the end of the task or the program, but not in a copy of the process that loads data."""
    if os.getpid() == process:
        close_outputs(outputs, complete)
