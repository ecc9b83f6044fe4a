# shellcheck shell=bash disable=SC2034
# WMT14 English-German, 4.5M pairs in the paper (Tables 1 and 2 and all analyses). Training settings: see settings.sh.
SOURCE=en TARGET=de
FILES=(
  # sha256 as in TensorFlow Datasets, md5 as in sacrebleu
  "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"
  "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
  "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"
  "https://data.statmt.org/wmt19/translation-task/dev.tgz sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
  "https://www.statmt.org/wmt14/test-full.tgz md5:a8cd784e006feb32ac6f3d9ec7eb389a"
)
TRAIN=(
  training-parallel-europarl-v7.tgz:training/europarl-v7.de-en.{en,de}
  training-parallel-commoncrawl.tgz:commoncrawl.de-en.{en,de}
  training-parallel-nc-v9.tgz:training/news-commentary-v9.de-en.{en,de}
)
VALID=(dev.tgz:dev/newstest2013.{en,de})
TEST=(test-full.tgz:test-full/newstest2014-deen-{src.en,ref.de}.sgm)
SACREBLEU_SET=wmt14/full

# The paper's gold alignments, 508 pairs, may not be redistributed. Register at
# https://www-i6.informatik.rwth-aachen.de/goldAlignment/, unpack, and give GOLD_DIR=…/DeEn
GOLD_ENCODING=latin-1 GOLD_BASE=1 GOLD_REVERSE=yes  # its links have the German word first
if [ -n "${GOLD_DIR:-}" ]; then
  GOLD=("$GOLD_DIR"/{en,de})
  GOLD_LINKS=$GOLD_DIR/alignmentDeEn.talp
  GOLD_LINES=508
fi
