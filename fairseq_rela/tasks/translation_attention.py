"""fairseq's `translation`, and the attention of what was translated: every layer, every head, any Transformer.

    fairseq-generate DATA --path MODEL --user-dir fairseq_rela --task translation_attention --attn-dump DIR

The same in fairseq-interactive, and with --score-reference, where it is the reference's attention.
In training, --attn-stats: see `attention_stats`.
"""

import contextlib
import hashlib
import logging
import os
import weakref
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any, Deque, Dict, List, Optional

import fairseq
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from fairseq_rela.errors import InputError
from fairseq_rela.recording.info import KINDS, DumpInfo
from fairseq_rela.recording.output import AttentionOutput, Destination, Pair
from fairseq_rela.recording.recorder import describe, find_attention, select
from fairseq_rela.tasks.attention_stats import AttentionStats, AttentionStatsConfig

logger = logging.getLogger(__name__)

# options of generation that change what is printed or scored, and nothing that is recorded
_OF_PRINTING = ("nbest", "print_alignment", "print_step", "sacrebleu", "replace_unk", "retain_iter_history")


@dataclass
class TranslationAttentionConfig(AttentionStatsConfig, TranslationConfig):
    attn_dump: Optional[str] = field(
        default=None,
        metadata={
            "help": "write the attention weights of what is generated (or, with --score-reference, of the reference) "
            "to this directory; an ensemble's to DIR/model0, DIR/model1, …"
        },
    )
    attn_dump_nbest: int = field(
        default=1, metadata={"help": "record this many hypotheses of a sentence, the best first; at most --beam"}
    )
    attn_dump_kinds: Optional[str] = field(
        default=None,
        metadata={"help": f"record only these kinds of attention, of {','.join(KINDS)} (default: all the model has)"},
    )
    attn_dump_layers: Optional[str] = field(
        default=None,
        metadata={"help": "record only these layers, e.g. 0,5; the first is 0 and the last -1 (default: all)"},
    )
    attn_dump_stats: Optional[str] = field(
        default=None,
        metadata={
            "help": "write a line a pair with its null and sparsity rates to this file, with or without --attn-dump; "
            "FILE.tsv becomes FILE.model0.tsv for an ensemble and FILE.shard0.tsv for a shard"
        },
    )
    attn_dump_resume: bool = field(
        default=False, metadata={"help": "go on with a dump and statistics that are there: record what is missing"}
    )
    # what the dump says of the run, from where the command has it
    path: Optional[str] = II("common_eval.path")
    model_overrides: str = II("common_eval.model_overrides")
    fp16: bool = II("common.fp16")
    seed: Optional[int] = II("common.seed")
    gen_subset: str = II("dataset.gen_subset")
    input: str = II("interactive.input")
    distributed_rank: Optional[int] = II("distributed_training.distributed_rank")
    distributed_world_size: int = II("distributed_training.distributed_world_size")


@register_task("translation_attention", dataclass=TranslationAttentionConfig)
class TranslationAttentionTask(AttentionStats, TranslationTask):
    """Translates as `translation` does; after each batch, one teacher-forced pass records its attention."""

    cfg: TranslationAttentionConfig

    def __init__(self, cfg: TranslationAttentionConfig, src_dict, tgt_dict) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.attn_stats = cfg.attn_stats
        self._generation: Any = None
        self._outputs: List[AttentionOutput] = []
        # of sentences that are typed in: fairseq numbers those of one buffer from 0, and drops the numbers
        self._typed = 0
        self._typed_ids: Deque[List[int]] = deque()
        self._remaining: Optional[int] = None  # sentences to come; None if that is not known

    @property
    def _recording(self) -> bool:
        return bool(self.cfg.attn_dump or self.cfg.attn_dump_stats)

    @classmethod
    def setup_task(cls, cfg: TranslationAttentionConfig, **kwargs) -> "TranslationAttentionTask":
        check_options(cfg)
        return super().setup_task(cfg, **kwargs)

    def build_criterion(self, *args, **kwargs):
        if self._recording:
            raise InputError(
                "--attn-dump and --attn-dump-stats are for fairseq-generate and fairseq-interactive; "
                "leave them out of training and validation"
            )
        return super().build_criterion(*args, **kwargs)

    def build_generator(self, models, args, *more, **options):
        self._generation = args
        return super().build_generator(models, args, *more, **options)

    def build_dataset_for_inference(self, src_tokens, src_lengths, **options):
        """The sentences that were typed in; they keep their number, since what comes back of a batch has none."""
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
        return batches

    def _count(self, batches, sentences: int, options: Dict[str, Any]) -> None:
        """Know when the last sentence is done, and tell of those that fairseq leaves out."""
        multiple = options.get("required_batch_size_multiple", 1)
        left_out = sentences - sum(map(len, batches.frozen_batches))
        if left_out and multiple > 1:
            logger.warning(
                f"{left_out} of {sentences} sentences are in no batch and will not be translated: fairseq leaves out a "
                f"last batch that is no multiple of {multiple}; give --required-batch-size-multiple 1 to have them all"
            )
        shard, shards = options.get("shard_id", 0), options.get("num_shards", 1)
        self._remaining = sum(map(len, batches.frozen_batches[shard::shards]))

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        if not self._recording:
            return super().inference_step(generator, models, sample, prefix_tokens, constraints)
        if not self._outputs:
            self._open(models)  # before the first search, so that what is wrong is told at once
        ids = self._typed_ids.popleft() if self._typed else sample["id"].tolist()
        try:
            found = super().inference_step(generator, models, sample, prefix_tokens, constraints)
            pairs = [
                Pair(id, rank, row, hypothesis["tokens"])
                for row, (id, hypotheses) in enumerate(zip(ids, found))
                for rank, hypothesis in enumerate(hypotheses[: self.cfg.attn_dump_nbest])
            ]
            for output in self._outputs:
                output.record(pairs, sample["net_input"]["src_tokens"])
            if self._remaining is not None:
                self._remaining -= len(ids)
                if self._remaining == 0:
                    close_outputs(self._outputs, complete=True)
        except BaseException:
            with contextlib.suppress(InputError):  # of the same full disk
                close_outputs(self._outputs, complete=False)
            raise
        return found

    def _open(self, models) -> None:
        cfg = self.cfg
        beam = 1 if self._generation.score_reference else self._generation.beam
        if cfg.attn_dump_nbest > beam:
            there = "there is one reference" if self._generation.score_reference else f"--beam is {beam}"
            raise InputError(f"--attn-dump-nbest {cfg.attn_dump_nbest}: {there}; ask for at most {beam}")
        to = Destination(
            cfg.attn_dump, cfg.attn_dump_stats, cfg.attn_dump_resume, cfg.distributed_rank or 0,
            cfg.distributed_world_size,
        )  # fmt: skip
        kinds, layers = split_kinds(cfg.attn_dump_kinds), split_layers(cfg.attn_dump_layers)
        paths = fairseq.utils.split_paths(cfg.path or "")
        outputs = []
        for number, model in enumerate(models):
            info = DumpInfo(
                model=architecture(model),
                kinds=describe(select(find_attention(model), kinds, layers), model),
                checkpoint_sha256=sha256(paths[number]) if cfg.attn_dump and number < len(paths) else None,
                fairseq_version=fairseq.__version__,
                options=self._options(),
            )
            outputs.append(
                AttentionOutput(
                    model, info, to.of_model(number, len(models)), self.src_dict, self.tgt_dict, layers
                )
            )
        self._outputs = outputs
        # fairseq tells a task of no end. Of sentences typed in, the end is that of the program;
        # of a data set, it has come with the last sentence, and what is closed here was broken off
        weakref.finalize(self, close_here, os.getpid(), outputs, complete=bool(self._typed))

    def _options(self) -> Dict[str, Any]:
        """What another run would need to repeat this one; the same for all its shards."""
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

    def _search_options(self) -> Dict[str, Any]:
        options: Dict[str, Any] = {"beam": self._generation.beam}
        for option in fields(GenerationConfig):
            value = getattr(self._generation, option.name, option.default)
            if value != option.default and option.name not in _OF_PRINTING:
                options[option.name] = value if isinstance(value, (bool, int, float, str)) else str(value)
        if getattr(self._generation, "sampling", False):
            options["seed"] = self.cfg.seed
        return options


def check_options(cfg: TranslationAttentionConfig) -> None:
    """InputError for what is wrong whatever the model is."""
    wanted = {"--attn-dump-kinds": cfg.attn_dump_kinds, "--attn-dump-layers": cfg.attn_dump_layers}
    wanted.update({"--attn-dump-resume": cfg.attn_dump_resume, "--attn-dump-nbest": cfg.attn_dump_nbest != 1})
    for flag, given in wanted.items():
        if given and not (cfg.attn_dump or cfg.attn_dump_stats):
            raise InputError(f"{flag} goes with --attn-dump DIR or --attn-dump-stats FILE.tsv; give one of them too")
    if cfg.attn_dump_nbest < 1:
        raise InputError(f"--attn-dump-nbest {cfg.attn_dump_nbest}: at least 1 hypothesis is recorded")
    split_layers(cfg.attn_dump_layers)
    unknown = sorted(set(split_kinds(cfg.attn_dump_kinds) or ()) - set(KINDS))
    if unknown:
        raise InputError(f"--attn-dump-kinds: no such kind: {', '.join(unknown)} (there are {', '.join(KINDS)})")


def split_kinds(text: Optional[str]) -> Optional[List[str]]:
    return None if text is None else [part.strip() for part in text.split(",")]


def split_layers(text: Optional[str]) -> Optional[List[int]]:
    try:
        return None if text is None else [int(part) for part in str(text).split(",")]
    except ValueError:
        raise InputError(f"--attn-dump-layers {text}: not layers' numbers, such as 0,5 or -1") from None


def architecture(model: torch.nn.Module) -> str:
    """The name that `--arch` was given, as far as the model remembers it."""
    for settings in (getattr(model, "args", None), getattr(model, "cfg", None)):
        for name in ("arch", "_name"):
            found = getattr(settings, name, None)
            if isinstance(found, str):
                return found
    return type(model).__name__


def sha256(path: str) -> Optional[str]:
    """Of a file's bytes; None if a model did not come from one file."""
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


def close_here(process: int, outputs: List[AttentionOutput], complete: bool) -> None:
    """At the end of the task or the program; not in a copy of it that loads data."""
    if os.getpid() == process:
        close_outputs(outputs, complete)
