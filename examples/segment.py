"""Train a sentencepiece BPE model and segment text with it.

python segment.py train [--coverage SHARE] MODEL_PREFIX VOCABULARY_SIZE TEXT...    writes MODEL_PREFIX.model and .vocab
python segment.py encode MODEL_PREFIX < TEXT > PIECES                              one sentence per line
"""

import os
import sys

import sentencepiece as spm

ENOUGH = 10_000_000  # lines to learn from


def train(*arguments: str) -> None:
    """Both files are written atomically, the model last."""
    # By default every character gets a piece: in a small corpus an unknown character would cost BLEU.
    coverage = 1.0
    if arguments[0] == "--coverage":
        coverage, arguments = float(arguments[1]), arguments[2:]
    prefix, size, *texts = arguments
    lines = 0
    for text in texts:
        with open(text, "rb") as file:
            lines += sum(1 for _ in file)
    sample = {"input_sentence_size": ENOUGH, "shuffle_input_sentence": True} if lines > ENOUGH else {}
    spm.SentencePieceTrainer.train(
        input=",".join(texts),
        model_prefix=f"{prefix}.part",
        vocab_size=int(size),
        model_type="bpe",
        character_coverage=coverage,
        hard_vocab_limit=False,
        minloglevel=2,
        **sample,
    )
    for suffix in ("vocab", "model"):
        os.replace(f"{prefix}.part.{suffix}", f"{prefix}.{suffix}")


def encode(prefix: str) -> None:
    model = spm.SentencePieceProcessor(model_file=f"{prefix}.model")
    for line in sys.stdin:
        print(" ".join(model.encode(line.strip(), out_type=str)))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("train", "encode"):
        sys.exit(__doc__)
    {"train": train, "encode": encode}[sys.argv[1]](*sys.argv[2:])
