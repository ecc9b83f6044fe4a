# shellcheck shell=bash disable=SC2034
# The embedded corpus: two invented languages made by rule, with gold word alignments and labelled noise. Nothing is
# downloaded. The quickstart runs on it, and it is the quickest way to try any recipe or table.
SOURCE=src TARGET=tgt
CORPUS=${CORPUS:---train 20000 --valid 500 --test 500 --noise 1000 --max-clauses 2}
case $OUT in /*) toy=$OUT/corpus ;; *) toy=$PWD/$OUT/corpus ;; esac
# shellcheck disable=SC2206
MADE_BY=(fairseq-rela toy-corpus "$toy" $CORPUS)
TRAIN=("$toy"/train.{src,tgt})
VALID=("$toy"/valid.{src,tgt})
TEST=("$toy"/test.{src,tgt})
GOLD=("$toy"/test.{src,tgt})
GOLD_LINKS=$toy/test.align
TRAIN_LINKS=$toy/train.align
NOISY=("$toy"/noisy.{src,tgt})
NOISY_LABELS=$toy/noisy.labels
TOKENIZED=yes
TAGGER=${TAGGER:-python $examples/paper/toy_tags.py $toy}  # of paper/tags.sh

PIECES=${PIECES:-1500} EMBEDDINGS=${EMBEDDINGS:-all} SIZE=${SIZE:-tiny}
LR=${LR:-0.003} WARMUP=${WARMUP:-300} NORM=${NORM:-pre} UPDATES=${UPDATES:-3600}
DROPOUT=${DROPOUT:-0.1} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.0}
MAX_TOKENS=${MAX_TOKENS:-1000} TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-1000}
