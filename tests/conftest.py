"""What the tests share: tiny models and sentences, and commands that start at once.

Nothing heavy is imported here. A fixture imports torch and fairseq when a test asks for it, so a file of tests that
needs numpy alone starts in a fraction of a second.
"""

import argparse
import functools

import pytest
import unhurried  # noqa: F401 (hypothesis' profile, for every test)
from browser_pages import browser  # noqa: F401 (a fixture)
from recipe_runs import run_recipe
from warm_commands import warm_path

WORDS = 30


@pytest.fixture(scope="session")
def plugin():
    """The plugin's models and tasks, registered with fairseq in this process."""
    import fairseq_rela.models
    import fairseq_rela.tasks  # noqa: F401


@pytest.fixture(scope="session")
def dictionary():
    """`<s> <pad> </s> <unk>` and 30 words: tokens 4 to 33."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for i in range(WORDS):
        dictionary.add_symbol(f"w{i}")
    return dictionary


@pytest.fixture
def build(plugin, dictionary):
    """build(arch, **flags): a newly initialised model of two layers, width 16, the same at every call."""
    import torch
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    def build_model(arch, **flags):
        small = {
            f"{side}_{field}": value
            for side in ("encoder", "decoder")
            for field, value in (("embed_dim", 16), ("ffn_embed_dim", 32), ("layers", 2), ("attention_heads", 2))
        }
        args = argparse.Namespace(**{**small, **flags})
        ARCH_CONFIG_REGISTRY[arch](args)
        task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
        torch.manual_seed(1)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, task)

    return build_model


@pytest.fixture
def batch():
    """Three pairs, padded: the source on the left as fairseq does, the target on the right."""
    import torch

    source = torch.tensor([[4, 5, 6, 7, 8, 2], [1, 1, 9, 10, 11, 2], [1, 1, 1, 1, 12, 2]])
    previous = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 1], [2, 1, 1, 1]])
    return {"src_tokens": source, "src_lengths": torch.tensor([6, 4, 2]), "prev_output_tokens": previous}


@pytest.fixture(scope="session")
def path():
    """A PATH whose commands start at once."""
    return warm_path()


@pytest.fixture(scope="session")
def recipe(path):
    """recipe(script, *words, **variables): what it printed; it must succeed, or with `fails` end in one line."""
    return functools.partial(run_recipe, path)
