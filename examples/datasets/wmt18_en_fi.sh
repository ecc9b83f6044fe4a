# shellcheck shell=bash disable=SC2034
# WMT18 English-Finnish, 3.3M pairs in the paper (Table 3). Training settings: see settings.sh.
SOURCE=en TARGET='fi'
FILES=(
  # sha256 as in TensorFlow Datasets, md5 as in sacrebleu
  "https://data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz sha256:953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96"
  "https://s3.amazonaws.com/web-language-models/paracrawl/release1/paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz sha256:ce3b46e928d37ae02ab8ce7e0ae0e1f89d1aed5e60271056913e35ff742e65ff"
  "https://data.statmt.org/wmt18/translation-task/rapid2016.tgz sha256:41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a"
  "https://www.statmt.org/wmt15/wiki-titles.tgz sha256:cd7cf81dbc99ef00b57e3106a4731b54cebcb7cff19088913cdab1c8114d3660"
  "https://data.statmt.org/wmt19/translation-task/dev.tgz sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
  "https://data.statmt.org/wmt18/translation-task/test.tgz md5:f996c245ecffea23d0006fa4c34e9064"
)
TRAIN=(
  training-parallel-ep-v8.tgz:training/europarl-v8.fi-en.{en,fi}
  paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz:paracrawl-release1.en-fi.zipporah0-dedup-clean.{en,fi}
  rapid2016.tgz:rapid2016.en-fi.{en,fi}
  wiki-titles.tgz:wiki/fi-en/titles.fi-en wiki-titles.tgz:wiki/fi-en/titles.fi-en  # both languages in one file
)
VALID=(dev.tgz:dev/newstest2017-enfi-{src.en,ref.fi}.sgm)
TEST=(test.tgz:test/newstest2018-enfi-{src.en,ref.fi}.sgm)
SACREBLEU_SET=wmt18
