# shellcheck shell=bash disable=SC2034
# WMT16 Romanian-English, 608K pairs in the paper (Table 3). Training settings: see settings.sh.
SOURCE=ro TARGET=en
FILES=(
  # sha256 as in TensorFlow Datasets, md5 as in sacrebleu; SETIMES: the checksum is of the file that OPUS offered
  # at its former address. If OPUS offers another file by now, CHECKSUMS=none takes it as it is.
  "https://data.statmt.org/wmt16/translation-task/training-parallel-ep-v8.tgz sha256:8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7"
  "https://object.pouta.csc.fi/OPUS-SETIMES/v2/tmx/en-ro.tmx.gz sha256:56bfaa2a8c8bdfccb7b50cc926067e2291347d807004e81faab8762ddbf26302"
  "https://data.statmt.org/wmt19/translation-task/dev.tgz sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
  "https://data.statmt.org/wmt16/translation-task/test.tgz md5:3d809cd0c2c86adb2c67034d15c4e446"
)
TRAIN=(
  training-parallel-ep-v8.tgz:training-parallel-ep-v8/europarl-v8.ro-en.{ro,en}
  en-ro.tmx.gz en-ro.tmx.gz  # both languages in one file
)
VALID=(dev.tgz:dev/newsdev2016-roen-{src.ro,ref.en}.sgm)
TEST=(test.tgz:test/newstest2016-roen-{src.ro,ref.en}.sgm)
SACREBLEU_SET=wmt16
