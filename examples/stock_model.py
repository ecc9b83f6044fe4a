"""fairseq's own softmax model of the same size as ours: its architecture and flags, one word per line.

python stock_model.py translation SIZE       for warm_start.sh
python stock_model.py language SIZE          for language_model.sh

The sizes are read from the registered architectures, so they are defined once, in the package.
"""

import argparse
import contextlib
import os
import sys
from typing import List

import recipe

# fairseq's names for our sizes. Sizes that are not here are `transformer` with flags.
TRANSLATION = {
    "base": "transformer",
    "big": "transformer_vaswani_wmt_en_de_big",
    "iwslt_de_en": "transformer_iwslt_de_en",
}
DIMENSIONS = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")


def settings(arch: str) -> argparse.Namespace:
    """What a registered architecture sets."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        from fairseq.models import ARCH_CONFIG_REGISTRY

        import fairseq_rela.models  # noqa: F401
    if arch not in ARCH_CONFIG_REGISTRY:
        prefix = arch[: arch.index("softmax_") + len("softmax_")]
        sizes = sorted(name[len(prefix) :] for name in ARCH_CONFIG_REGISTRY if name.startswith(prefix))
        recipe.fail(f"SIZE={arch[len(prefix) :]} is not known; give {', '.join(sizes)}")
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def flags(args: argparse.Namespace, sides: List[str]) -> List[str]:
    words = []
    for side in sides:
        for dimension in DIMENSIONS:
            words += [f"--{side}-{dimension.replace('_', '-')}", str(getattr(args, f"{side}_{dimension}"))]
    return words


def translation(size: str) -> List[str]:
    if size in TRANSLATION:
        return [TRANSLATION[size]]
    return ["transformer", *flags(settings(f"transformer_softmax_{size}"), ["encoder", "decoder"])]


def language(size: str) -> List[str]:
    """transformer_lm alone has embeddings of width 512 whatever its own width, and layer norm after each sublayer.

    Its named sizes, and all of ours, have layer norm before each sublayer.
    """
    args = settings(f"transformer_lm_softmax_{size}")
    width = str(args.decoder_embed_dim)
    words = ["transformer_lm", *flags(args, ["decoder"])]
    return [*words, "--decoder-input-dim", width, "--decoder-output-dim", width, "--decoder-normalize-before"]


if __name__ == "__main__":
    kinds = {"translation": translation, "language": language}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    print("\n".join(kinds[sys.argv[1]](sys.argv[2])))
