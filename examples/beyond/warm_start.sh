#!/usr/bin/env bash
# Warm start: train fairseq's own softmax Transformer, convert it to ReLA and train on, beside ReLA from scratch.
#   bash examples/beyond/warm_start.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# ATTENTION is rela_g by default. Prints the validation loss of both by updates, after how many updates the warm start
# reaches each loss of the training from scratch, and the scores. What is trained already is not trained again.
# Variables: UPDATES of softmax and of scratch; WARM_UPDATES (a third of them), WARM_LR (a third of LR) and WARM_WARMUP
# (a third of WARMUP) of the warm start; SAVE_INTERVAL between validations (UPDATES / 15, at most 5000); SEED, TAG,
# DEVICES and OUT as in train.sh
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
save_interval=${SAVE_INTERVAL:-}
load_dataset
find_environment
attention=${arch:-rela_g}
SAVE_INTERVAL=${save_interval:-$((UPDATES / 15 < 5000 ? (UPDATES / 15 > 0 ? UPDATES / 15 : 1) : 5000))}
export SEED UPDATES SAVE_INTERVAL
WARM_UPDATES=${WARM_UPDATES:-$((UPDATES / 3))} WARM_WARMUP=${WARM_WARMUP:-$(((WARMUP + 2) / 3))}
WARM_LR=${WARM_LR:-$(awk "BEGIN { print $LR / 3 }")}

# fairseq's own architecture of the data set's size, and the flags that it needs
stock=$("$python" "$examples/stock_model.py" translation "$SIZE") || exit 1
mapfile -t stock <<< "$stock"

run_recipe() {  # SCRIPT ARCH…: one of the recipes on this data set
  local script=$1; shift
  bash "$examples/$script" "$dataset" "$@" ${dry_run:+--dry-run}
}
run_recipe prepare.sh
run_recipe train.sh "${stock[@]}" "${extra[@]}"
run_recipe train.sh "$attention" "${extra[@]}"

softmax=$(run_directory "${stock[0]}" "$SEED") scratch=$(run_directory "$(architecture "$attention")" "$SEED")
warm=$(TAG=${TAG:+$TAG.}warm run_directory "$(architecture "$attention")" "$SEED")
converted=$softmax/converted.$attention.pt
best=$softmax/checkpoints/checkpoint_best.pt
step --makes "$converted" --from "$best" -- fairseq-rela convert --from "$best" --to "$attention" --output "$converted"
TAG=${TAG:+$TAG.}warm LR=$WARM_LR WARMUP=$WARM_WARMUP UPDATES=$WARM_UPDATES \
  run_recipe train.sh "$attention" --finetune-from-model "$converted" "${extra[@]}"
run_recipe generate.sh "${stock[0]}"
run_recipe generate.sh "$attention"
TAG=${TAG:+$TAG.}warm UPDATES=$WARM_UPDATES run_recipe generate.sh "$attention"
[ "$dry_run" ] || echo
step -- python "$examples/beyond/warm_start_table.py" "$scratch" "$warm" "$SAVE_INTERVAL"
[ "$dry_run" ] || echo
step -- python "$examples/table.py" compare "softmax=$softmax" "scratch=$scratch" "warm=$warm"
