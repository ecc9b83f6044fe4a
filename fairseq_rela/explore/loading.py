"""Loads a translation model or a language model of fairseq, of any architecture that has multi-head attention."""

import os
from typing import Any, Dict, NamedTuple

from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

import fairseq_rela.models
import fairseq_rela.tasks  # noqa: F401 (registers the plugin's models and tasks)
from fairseq_rela import checkpoints
from fairseq_rela.dump.info import KindInfo
from fairseq_rela.errors import InputError
from fairseq_rela.recording.attention_modules import describe, find_attention, select


class LoadedModel(NamedTuple):
    """A model in evaluation mode, with its dictionaries."""

    name: str
    model: Any
    source: Dictionary
    target: Dictionary
    kinds: Dict[str, KindInfo]
    begin: int  # the first input of the decoder: </s>, or <s> for a language model with --add-bos-token

    @property
    def is_language_model(self) -> bool:
        return isinstance(self.model, FairseqLanguageModel)


def load_model(name: str, path: str, data: str) -> LoadedModel:
    """The model in a checkpoint, with the dictionaries in the directory `data`. InputError if they do not fit."""
    checkpoints.load(path)  # its errors are clear, and it loads nothing that would run code
    if not os.path.isdir(data):
        raise InputError(f"{data}: not a directory; give the directory that fairseq-preprocess made (data-bin)")
    try:
        # The scorer of --eval-bleu needs packages and data that reading attention does not.
        models, _, task = load_model_ensemble_and_task([path], {"data": data, "eval_bleu": False})
    except Exception as error:  # fairseq raises many types of exceptions
        raise InputError(f"{path}: does not load with {data}: {_reason(error)}") from None
    model = models[0].eval()
    if not isinstance(model, (FairseqEncoderDecoderModel, FairseqLanguageModel)):
        raise InputError(f"{path}: a {type(model).__name__}; give a translation model or a language model")
    try:
        parts = select(find_attention(model))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    target = task.target_dictionary
    settings = getattr(task, "args", None) or getattr(task, "cfg", None)
    with_bos = isinstance(model, FairseqLanguageModel) and getattr(settings, "add_bos_token", False)
    begin = target.bos() if with_bos else target.eos()
    return LoadedModel(name, model, task.source_dictionary, target, describe(parts, model), begin)


def _reason(error: Exception) -> str:
    """Why fairseq could not load a model, in one line."""
    text = str(error).strip()
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if "size mismatch" in text:
        return "the sizes of its weights differ; is this the data-bin that it was trained on?"
    if "infer language pair" in text:
        return "no language pair is found there; give the directory that fairseq-preprocess made"
    return f"{type(error).__name__}: {text.splitlines()[0][:160] if text else 'no reason given'}"
