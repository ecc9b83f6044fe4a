"""Trained models for Table 2 and Figure 2: how they are loaded, and how many parameters they have."""

import logging
from typing import Any, Dict, List, NamedTuple, Tuple

import recipe


class Trained(NamedTuple):
    """A model and the task it was trained on."""

    model: Any  # torch.nn.Module
    task: Any  # fairseq's task, with its dictionaries


def named_paths(words: List[str]) -> Dict[str, str]:
    """NAME=CHECKPOINT … as a dictionary. The first name is what the others are compared with."""
    pairs = [word.partition("=") for word in words]
    for name, equals, path in pairs:
        if not (name and equals and path):
            recipe.fail(f"'{name}{equals}{path}' is not NAME=CHECKPOINT")
    return {name: path for name, _, path in pairs}


def load(path: str, data: str, device: Any, **overrides: Any) -> Trained:
    """The model of a checkpoint, with the data set in the directory `data`. `overrides` replace its settings."""
    from fairseq import checkpoint_utils

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    import fairseq_rela.models
    import fairseq_rela.tasks  # noqa: F401 (both register what the checkpoint names)

    models, _, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides={"data": data, **overrides})
    return Trained(models[0].to(device), task)


def parameters(model: Any) -> Tuple[int, int]:
    """(all, all but the embeddings). A table that two places share counts once."""
    from torch import nn

    from fairseq_rela.bench.models import parameters as count

    tables = {id(m.weight): m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding)}
    output = getattr(model.decoder, "output_projection", None)
    if output is not None:
        tables[id(output.weight)] = output.weight.numel()
    total = count(model)
    return total, total - sum(tables.values())
