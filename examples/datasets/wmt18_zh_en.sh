# shellcheck shell=bash disable=SC2034
# WMT18 Chinese-English, 25M pairs in the paper (Table 3). Training settings: see settings.sh.
# The CWMT part, about 9M pairs, is only for those who register (http://nlp.nju.edu.cn/cwmt-wmt/) and is not downloaded:
# put it in two files and give EXTRA_TRAIN=/path/cwmt for cwmt.zh and cwmt.en. Without it there are about 16M pairs.
# Chinese is not segmented into words first: sentencepiece needs no word boundaries. The paper does not say how it
# segmented Chinese.
SOURCE=zh TARGET=en
FILES=(
  # sha256 as in TensorFlow Datasets (which keeps a copy of the United Nations corpus), md5 as in sacrebleu
  "https://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz sha256:17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91"
  "https://storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz sha256:6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49"
  "https://data.statmt.org/wmt19/translation-task/dev.tgz sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
  "https://data.statmt.org/wmt18/translation-task/test.tgz md5:f996c245ecffea23d0006fa4c34e9064"
)
TRAIN=(
  training-parallel-nc-v13.tgz:training-parallel-nc-v13/news-commentary-v13.zh-en.{zh,en}
  UNv1.0.en-zh.tar.gz:en-zh/UNv1.0.en-zh.{zh,en}
)
VALID=(dev.tgz:dev/newstest2017-zhen-{src.zh,ref.en}.sgm)
TEST=(test.tgz:test/newstest2018-zhen-{src.zh,ref.en}.sgm)
SACREBLEU_SET=wmt18
COVERAGE=${COVERAGE:-0.9998}  # otherwise rare Chinese characters would take a third of the pieces
