# shellcheck shell=bash disable=SC2034
# Multi30k task 1, English-German: 29,000 captions of pictures in natural case. The test set is that of 2016.
SOURCE=en TARGET=de
multi30k=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw
FILES=(
  "$multi30k/train.en.gz sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"
  "$multi30k/train.de.gz sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"
  "$multi30k/val.en.gz sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"
  "$multi30k/val.de.gz sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"
  "$multi30k/test_2016_flickr.en.gz sha256:611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"
  "$multi30k/test_2016_flickr.de.gz sha256:9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"
)
TRAIN=(train.{en,de}.gz)
VALID=(val.{en,de}.gz)
TEST=(test_2016_flickr.{en,de}.gz)
VALID_LINES=1014 TEST_LINES=1000

PIECES=${PIECES:-4000} EMBEDDINGS=${EMBEDDINGS:-all} SIZE=${SIZE:-tiny}
# the best of the trials in RESULTS.md, for softmax and rela_g alike
LR=${LR:-0.005} WARMUP=${WARMUP:-300} NORM=${NORM:-pre} UPDATES=${UPDATES:-2600}
DROPOUT=${DROPOUT:-0.3} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.0}
MAX_TOKENS=${MAX_TOKENS:-4000} TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-4000}
