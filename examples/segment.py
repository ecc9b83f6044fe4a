"""Train a sentencepiece BPE model and segment text with it.

python segment.py train MODEL_PREFIX VOCABULARY_SIZE TEXT...     writes MODEL_PREFIX.model and .vocab
python segment.py encode MODEL_PREFIX < TEXT > PIECES             a sentence a line
"""

import sys

import sentencepiece as spm


def train(prefix: str, size: str, *texts: str) -> None:
    # every character is kept: the corpora here are small, and an unknown one would cost BLEU
    spm.SentencePieceTrainer.train(
        input=",".join(texts),
        model_prefix=prefix,
        vocab_size=int(size),
        model_type="bpe",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )


def encode(prefix: str) -> None:
    model = spm.SentencePieceProcessor(model_file=f"{prefix}.model")
    for line in sys.stdin:
        print(" ".join(model.encode(line.strip(), out_type=str)))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("train", "encode"):
        sys.exit(__doc__)
    {"train": train, "encode": encode}[sys.argv[1]](*sys.argv[2:])
