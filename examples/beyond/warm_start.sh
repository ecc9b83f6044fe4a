#!/usr/bin/env bash
# Warm start: train fairseq's own softmax Transformer, convert it to ReLA and train on, beside ReLA from scratch.
#   bash examples/beyond/warm_start.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# ATTENTION is rela_g unless given. Ends with the validation loss of both by updates, what scratch's losses took
# the warm start, and the scores. What is trained already is not trained again.
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

# fairseq's own architecture of the data set's size
case $SIZE in
  base) stock=(transformer) ;;
  big) stock=(transformer_vaswani_wmt_en_de_big) ;;
  iwslt_de_en) stock=(transformer_iwslt_de_en) ;;
  tiny)
    stock=(transformer)
    for side in encoder decoder; do
      stock+=("--$side-embed-dim" 128 "--$side-ffn-embed-dim" 256 "--$side-layers" 4 "--$side-attention-heads" 4)
    done ;;
  *) die "SIZE=$SIZE is not known; give base, big, iwslt_de_en or tiny" ;;
esac

# step SCRIPT ARCH…: one of the recipes on this data set
step() {
  local script=$1; shift
  bash "$root/examples/$script" "$dataset" "$@" ${dry_run:+--dry-run}
}
step prepare.sh
step train.sh "${stock[@]}" "${extra[@]}"
step train.sh "$attention" "${extra[@]}"

softmax=$(run_directory "${stock[0]}" "$SEED") scratch=$(run_directory "$(architecture "$attention")" "$SEED")
warm=$(TAG=${TAG:+$TAG.}warm run_directory "$(architecture "$attention")" "$SEED")
converted=$softmax/converted.$attention.pt
fresh "$converted" "$softmax/checkpoints/checkpoint_best.pt" ||
  run fairseq-rela convert --from "$softmax/checkpoints/checkpoint_best.pt" --to "$attention" --output "$converted"
TAG=${TAG:+$TAG.}warm LR=$WARM_LR WARMUP=$WARM_WARMUP UPDATES=$WARM_UPDATES \
  step train.sh "$attention" --finetune-from-model "$converted" "${extra[@]}"
step generate.sh "${stock[0]}"
step generate.sh "$attention"
TAG=${TAG:+$TAG.}warm UPDATES=$WARM_UPDATES step generate.sh "$attention"
[ -z "$dry_run" ] || exit 0

# losses RUN: updates and validation loss, at every SAVE_INTERVAL
losses() {
  sed -n 's/.*"valid_loss": "\([^"]*\)".*"valid_num_updates": "\([0-9]*\)".*/\2 \1/p' "$1/train.log" |
    awk -v every="$SAVE_INTERVAL" '$1 % every == 0 { loss[$1] = $2 } END { for (u in loss) print u, loss[u] }' | sort
}
echo
{
  echo "updates scratch warm"
  join -a 1 -a 2 -e - -o 0,1.2,2.2 <(losses "$scratch") <(losses "$warm") | sort -n
} | column -t
echo
awk '
  FNR == NR { warm[FNR] = $1; loss[FNR] = $2; next }
  {
    for (i = 1; i in warm && loss[i] > $2; i++);
    print "scratch, " $1 " updates: loss " $2 "; warm start: " (i in warm ? "after " warm[i] " updates" : "not reached")
  }' <(losses "$warm" | sort -n) <(losses "$scratch" | sort -n)
echo
python "$root/examples/table.py" compare "softmax=$softmax" "scratch=$scratch" "warm=$warm"
