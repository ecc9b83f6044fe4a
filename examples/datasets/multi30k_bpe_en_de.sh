# shellcheck shell=bash disable=SC2034
# Multi30k as github.com/LividWo/Revisit-MMT gives it for fairseq: in lower case, tokenised, in 10,000 joint BPE pieces.
# With their setting, a softmax Transformer of the size tiny has 41.02 BLEU of tokens there (README-baseline.md).
SOURCE=en TARGET=de
revisit=https://raw.githubusercontent.com/LividWo/Revisit-MMT/master/data/multi30k-en-de
# "-": no checksum is published for these files. The first download records one, and later downloads are checked
# against it.
FILES=("$revisit"/{train,valid,test.2016}.{en,de})
FILES=("${FILES[@]/%/ -}")
TRAIN=(train.{en,de}) VALID=(valid.{en,de}) TEST=(test.2016.{en,de})
VALID_LINES=1014 TEST_LINES=1000
SEGMENTED=yes TOKENIZED=yes

# DATA_DIR may have the same files compressed.
if [ -e "${DATA_DIR:-}/train.en.gz" ]; then
  FILES=("${FILES[@]/% -/.gz -}")
  TRAIN=("${TRAIN[@]/%/.gz}") VALID=("${VALID[@]/%/.gz}") TEST=("${TEST[@]/%/.gz}")
fi

EMBEDDINGS=${EMBEDDINGS:-all} SIZE=${SIZE:-tiny}
# Their setting: two GPUs with 4,096 tokens each, layer norm after each sublayer, the last 10 checkpoints of one epoch
# each (about 55 updates; here every 50), beam 5, and fairseq's default length penalty. Their --patience is left out.
LR=${LR:-0.005} WARMUP=${WARMUP:-2000} NORM=${NORM:-post} UPDATES=${UPDATES:-8000}
DROPOUT=${DROPOUT:-0.3} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.0}
MAX_TOKENS=${MAX_TOKENS:-4096} TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-8192}
SAVE_INTERVAL=${SAVE_INTERVAL:-50} AVERAGE=${AVERAGE:-10} BEAM=${BEAM:-5} LENPEN=${LENPEN:-1}
