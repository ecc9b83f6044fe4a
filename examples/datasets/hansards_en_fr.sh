# shellcheck shell=bash disable=SC2034
# Canadian Hansards, English-French, of the HLT-NAACL 2003 shared task: a random 100,000 of its 1.1M pairs, and its
# 447 sentences with word alignments made by hand. The text is tokenised already, so BLEU is of tokens.
SOURCE=en TARGET=fr
wpt=https://web.eecs.umich.edu/~mihalcea/wpt/data
FILES=(
  # "-": no checksum is published for these files. The first download records one, and later downloads are checked
  # against it.
  "$wpt/English-French.training.tar.gz -"
  "$wpt/English-French.test.tar.gz -"
)
TRAIN=('English-French.training.tar.gz:English-French/training/*.'{e,f})
GOLD=(English-French.test.tar.gz:English-French/test/test.{e,f})
GOLD_LINKS=English-French.test.tar.gz:English-French/answers/test.wa.nonullalign
GOLD_LINES=447 GOLD_BASE=1 GOLD_ENCODING=latin-1
ENCODING=latin-1 TOKENIZED=yes
SAMPLE=${SAMPLE:-100000 1000 1000}  # pairs to train on, to validate and to test
MIN_WORDS=${MIN_WORDS:-4} MAX_WORDS=${MAX_WORDS:-40} MAX_RATIO=${MAX_RATIO:-2}

# DATA_DIR may have a sample that was drawn before, in UTF-8.
if [ -e "${DATA_DIR:-}/train100k.en.gz" ]; then
  FILES=({train100k,valid1k,mttest1k}.{en,fr}.gz gold.{en,fr,talp})
  TRAIN=(train100k.{en,fr}.gz) VALID=(valid1k.{en,fr}.gz) TEST=(mttest1k.{en,fr}.gz)
  GOLD=(gold.{en,fr}) GOLD_LINKS=gold.talp GOLD_ENCODING=utf-8 ENCODING=utf-8
  SAMPLE=
fi

PIECES=${PIECES:-8000} EMBEDDINGS=${EMBEDDINGS:-all} SIZE=${SIZE:-tiny}
LR=${LR:-0.005} WARMUP=${WARMUP:-300} NORM=${NORM:-pre} UPDATES=${UPDATES:-5000}
DROPOUT=${DROPOUT:-0.1} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.0}
MAX_TOKENS=${MAX_TOKENS:-4000} TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-4000}
