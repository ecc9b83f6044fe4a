"""The flags of `translation_attention`, and the checks that need no model."""

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence

from fairseq.tasks.translation import TranslationConfig
from fairseq.utils import split_paths
from omegaconf import II

from fairseq_rela.dump.files import segment_numbers
from fairseq_rela.dump.selection import check_unique, parse_kinds, parse_layers
from fairseq_rela.dump.statistics import PARTIAL
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS, check_kinds
from fairseq_rela.recording.output import Destination
from fairseq_rela.tasks.attention_stats import AttentionStatsConfig


class EndingError(InputError, SystemExit):
    """An InputError that ends one of fairseq's commands with one line.

    fairseq's commands print a traceback for every exception that they do not catch. Python prints none for a
    SystemExit: only the message, and the exit status is 1.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = f"error: {message}"


@contextlib.contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Let an InputError inside the `with` end one of fairseq's commands without a traceback."""
    try:
        yield
    except InputError as error:
        raise EndingError(str(error)) from None


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
    attn_dump_norms: bool = field(
        default=False,
        metadata={
            "help": "also write to --attn-dump how large the contribution of each key to the attention's output is, "
            "which depends on its value as well as on its weight"
        },
    )
    attn_dump_full_context: bool = field(
        default=False,
        metadata={
            "help": "record what the decoder attends to when it sees the whole target, as the guided head of an _align "
            "architecture is trained; by default cross attention only"
        },
    )
    attn_dump_stats: Optional[str] = field(
        default=None,
        metadata={
            "help": "write one line per pair with its null and sparsity rates to this file, also without --attn-dump; "
            "FILE.tsv becomes FILE.model0.tsv for an ensemble and FILE.shard0.tsv for a shard"
        },
    )
    attn_dump_resume: bool = field(
        default=False,
        metadata={"help": "continue an existing dump and statistics: translate and record only what is missing"},
    )
    # from other parts of fairseq's configuration
    path: Optional[str] = II("common_eval.path")
    model_overrides: str = II("common_eval.model_overrides")
    fp16: bool = II("common.fp16")
    seed: Optional[int] = II("common.seed")
    gen_subset: str = II("dataset.gen_subset")
    input: str = II("interactive.input")
    beam: int = II("generation.beam")
    score_reference: bool = II("generation.score_reference")
    distributed_rank: Optional[int] = II("distributed_training.distributed_rank")
    distributed_world_size: int = II("distributed_training.distributed_world_size")


def destination(cfg: TranslationAttentionConfig) -> Destination:
    """Where the flags say to write."""
    shard, shards = cfg.distributed_rank or 0, cfg.distributed_world_size
    return Destination(cfg.attn_dump, cfg.attn_dump_stats, cfg.attn_dump_resume, shard, shards)


def destinations(cfg: TranslationAttentionConfig) -> List[Destination]:
    """The destination of each model that `--path` names."""
    models = len(split_paths(cfg.path or "")) or 1
    return [destination(cfg).of_model(number, models) for number in range(models)]


def check_options(cfg: TranslationAttentionConfig) -> None:
    """InputError for flags that are wrong for every model."""
    # `--attn-dump "$DIR"` with a variable that is not set: nothing would be recorded
    for flag, name in (("--attn-dump", cfg.attn_dump), ("--attn-dump-stats", cfg.attn_dump_stats)):
        if name == "":
            raise InputError(f"{flag}: the name is empty; give one, or leave out the flag")
    wanted: Dict[str, Any] = {"--attn-dump-kinds": cfg.attn_dump_kinds, "--attn-dump-layers": cfg.attn_dump_layers}
    wanted.update({"--attn-dump-resume": cfg.attn_dump_resume, "--attn-dump-nbest": cfg.attn_dump_nbest != 1})
    wanted.update({"--attn-dump-full-context": cfg.attn_dump_full_context})
    recording = bool(cfg.attn_dump or cfg.attn_dump_stats)
    for flag, given in wanted.items():
        if given and not recording:
            raise InputError(f"{flag} needs --attn-dump DIR or --attn-dump-stats FILE.tsv; give one of them too")
    if cfg.attn_dump_norms and not cfg.attn_dump:
        raise InputError("--attn-dump-norms needs --attn-dump DIR; give it too")
    if cfg.attn_dump_nbest < 1:
        raise InputError(f"--attn-dump-nbest {cfg.attn_dump_nbest}: record at least 1 hypothesis")
    parse_layers(cfg.attn_dump_layers, "--attn-dump-layers")
    kinds = parse_kinds(cfg.attn_dump_kinds) or []
    check_kinds(kinds, "--attn-dump-kinds")
    check_unique("kind of --attn-dump-kinds", kinds)
    if cfg.attn_dump_full_context and "decoder" in recorded_kinds(cfg):
        raise InputError("--attn-dump-full-context: the decoder's own attention then sees the future; record cross")
    if recording:
        _check_hypotheses(cfg)
        for to in destinations(cfg):
            _check_dump(to)
            _check_stats(to)


def recorded_kinds(cfg: TranslationAttentionConfig) -> Sequence[str]:
    """The kinds that the flags ask for; empty for all that the model has."""
    return parse_kinds(cfg.attn_dump_kinds) or (("cross",) if cfg.attn_dump_full_context else ())


def _check_hypotheses(cfg: TranslationAttentionConfig) -> None:
    most = 1 if cfg.score_reference else cfg.beam
    if cfg.attn_dump_nbest > most:
        there = "there is one reference" if cfg.score_reference else f"--beam is {cfg.beam}"
        raise InputError(f"--attn-dump-nbest {cfg.attn_dump_nbest}: {there}; ask for at most {most}")


def _check_dump(to: Destination) -> None:
    if not to.dump:
        return
    there = to.dump
    while not os.path.lexists(there):  # up to the directory in which it will be made
        there = os.path.dirname(there) or "."
    if not os.path.isdir(there):
        of = "" if there == to.dump else f"{there} "
        raise InputError(f"--attn-dump {to.dump}: {of}is not a directory; name a new directory, or one with a dump")
    if os.path.isdir(to.dump) and not to.resume and segment_numbers(to.dump).get(to.shard):
        raise InputError(
            f"{to.dump}: already has a dump; give --attn-dump-resume to continue it, or name another directory"
        )


def _check_stats(to: Destination) -> None:
    if not to.stats:
        return
    if os.path.isdir(to.stats):
        raise InputError(f"--attn-dump-stats {to.stats}: is a directory; name a file")
    if to.dump and os.path.abspath(to.dump) == os.path.abspath(to.stats):
        raise InputError(f"--attn-dump-stats {to.stats}: is the directory of --attn-dump; name a file")
    for file in (to.stats, to.stats + PARTIAL):
        if os.path.lexists(file) and not os.path.isfile(file):
            raise InputError(f"--attn-dump-stats: {file} is there and is not a file; name a new file")
    directory = os.path.dirname(to.stats) or "."
    if not os.path.isdir(directory):
        raise InputError(f"{to.stats}: cannot be written: {directory} is not a directory; make it first")
    if to.resume:
        return
    if os.path.exists(to.stats):
        raise InputError(f"{to.stats}: exists already; name a new file")
    if os.path.exists(to.stats + PARTIAL):
        raise InputError(
            f"{to.stats}{PARTIAL}: left by a killed run, or being written now; give --attn-dump-resume to continue "
            "it, or remove it"
        )
