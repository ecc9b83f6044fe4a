"""A plugin for pytest that runs fairseq's own tests with our attention in every layer. See test_fairseq_own.py.

    FAIRSEQ_SOURCE=DIR OUR_ATTENTION=rela_g python -m pytest -p fairseq_own DIR/tests/test_transformer.py

fairseq's tests import their helpers from `tests.utils`, which fairseq's source distribution does not have. What the
tests of a real Transformer need of it is here.
"""

import os
import random
import sys
import types
from pathlib import Path

import fairseq.modules
import fairseq.modules.multihead_attention
import fairseq.modules.transformer_layer
from fairseq import options
from fairseq.data import Dictionary
from fairseq_cli import preprocess, train

from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.fairseq_patches import apply_patches

apply_patches()
sys.path.append(os.environ["FAIRSEQ_SOURCE"])  # last: only its `tests`, not its fairseq, which is not compiled
STOCK = fairseq.modules.multihead_attention.MultiheadAttention


class OurAttention(RelaMultiheadAttention):
    """Our attention, built with the arguments of fairseq's."""

    _append_prev_key_padding_mask = staticmethod(STOCK._append_prev_key_padding_mask)

    def __init__(self, embed_dim, num_heads, xformers_att_config=None, dictionary=None, **options):
        super().__init__(os.environ["OUR_ATTENTION"], embed_dim, num_heads, **options)


for module in (fairseq.modules, fairseq.modules.multihead_attention, fairseq.modules.transformer_layer):
    module.MultiheadAttention = OurAttention


def dummy_dictionary(vocab_size, prefix="token_"):
    words = Dictionary()
    for number in range(vocab_size):
        words.add_symbol(f"{prefix}{number}")
    words.finalize(padding_factor=1)  # no other words
    return words


def create_dummy_data(data_dir):
    """Sentences of random letters, in both languages."""
    draw = random.Random(1)
    for split, lines in (("train", 200), ("valid", 40), ("test", 40)):
        for side in ("in", "out"):
            text = ("".join(draw.choice("abcdefgh ") for _ in range(20)) for _ in range(lines))
            Path(data_dir, f"{split}.{side}").write_text("".join(f"a{line}\n" for line in text))


def preprocess_translation_data(data_dir):
    files = [f"--{split}pref={data_dir}/{split}" for split in ("train", "valid", "test")]
    flags = ["-s", "in", "-t", "out", *files, "--destdir", data_dir, "--workers", "1"]
    preprocess.main(options.get_preprocessing_parser().parse_args(flags))


def train_translation_model(data_dir, arch, extra_flags):
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    flags = [data_dir, "--save-dir", data_dir, "--arch", arch, "--optimizer", "adam", "--lr", "0.05", "--cpu"]
    flags += ["--max-tokens", "500", "--max-epoch", "1", "--no-progress-bar", "--required-batch-size-multiple", "1"]
    flags += ["--num-workers", "0", "-s", "in", "-t", "out", *extra_flags]
    args = options.parse_args_and_arch(options.get_training_parser(), flags)
    train.main(convert_namespace_to_omegaconf(args))


helpers = types.ModuleType("tests.utils")
for function in (dummy_dictionary, create_dummy_data, preprocess_translation_data, train_translation_model):
    setattr(helpers, function.__name__, function)
sys.modules["tests.utils"] = helpers
