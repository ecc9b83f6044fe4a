# shellcheck shell=bash disable=SC2034
# WMT14 English-French (paper, Table 3). The paper has 36M pairs and does not say which; all of WMT14's training text,
# which is taken here, has more. Training settings: see settings.sh.
SOURCE=en TARGET=fr
FILES=(
  # sha256 as in TensorFlow Datasets, md5 as in sacrebleu; "-" means that no checksum is published: the first
  # download records one, and later downloads are checked against it
  "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"
  "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
  "https://www.statmt.org/wmt13/training-parallel-un.tgz -"
  "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"
  "https://www.statmt.org/wmt10/training-giga-fren.tar -"
  "https://data.statmt.org/wmt19/translation-task/dev.tgz sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
  "https://www.statmt.org/wmt14/test-full.tgz md5:a8cd784e006feb32ac6f3d9ec7eb389a"
)
TRAIN=(
  training-parallel-europarl-v7.tgz:training/europarl-v7.fr-en.{en,fr}
  training-parallel-commoncrawl.tgz:commoncrawl.fr-en.{en,fr}
  training-parallel-un.tgz:un/undoc.2000.fr-en.{en,fr}
  training-parallel-nc-v9.tgz:training/news-commentary-v9.fr-en.{en,fr}
  training-giga-fren.tar:giga-fren.release2.fixed.{en,fr}.gz
)
VALID=(dev.tgz:dev/newstest2013.{en,fr})
TEST=(test-full.tgz:test-full/newstest2014-fren-{src.en,ref.fr}.sgm)
SACREBLEU_SET=wmt14/full
COVERAGE=${COVERAGE:-0.9998}  # text from the web has thousands of rare characters that should not take a piece each
