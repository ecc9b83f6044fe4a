# shellcheck shell=bash disable=SC2034
# IWSLT14 German-English, about 0.17M pairs of TED talks, split as in fairseq's prepare-iwslt14.sh. Text has its natural
# case and is not tokenised, while fairseq's script lower-cases and tokenises: scores cannot be compared with its 35.
SOURCE=de TARGET=en
FILES=(
  # fairseq's copy of https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz, which is gone.
  # "-": no checksum is published. The first download records one, and later downloads are checked against it.
  "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz -"
)
TRAIN=(de-en.tgz:de-en/train.tags.de-en.{de,en})
VALID_EVERY=23
TEST=(
  de-en.tgz:de-en/IWSLT14.TED.dev2010.de-en.{de,en}.xml
  de-en.tgz:de-en/IWSLT14.TEDX.dev2012.de-en.{de,en}.xml
  de-en.tgz:de-en/IWSLT14.TED.tst2010.de-en.{de,en}.xml
  de-en.tgz:de-en/IWSLT14.TED.tst2011.de-en.{de,en}.xml
  de-en.tgz:de-en/IWSLT14.TED.tst2012.de-en.{de,en}.xml
)
MAX_WORDS=${MAX_WORDS:-175} MAX_RATIO=${MAX_RATIO:-1.5}

# as in fairseq's own recipe for this set
PIECES=${PIECES:-10000} EMBEDDINGS=${EMBEDDINGS:-all} SIZE=${SIZE:-iwslt_de_en}
LR=${LR:-5e-4} WARMUP=${WARMUP:-4000} UPDATES=${UPDATES:-50000}
DROPOUT=${DROPOUT:-0.3} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.0} WEIGHT_DECAY=${WEIGHT_DECAY:-0.0001}
MAX_TOKENS=${MAX_TOKENS:-4096} TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-4096}
