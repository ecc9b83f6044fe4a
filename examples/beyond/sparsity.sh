#!/usr/bin/env bash
# Sparsity under control: train ReLA with thresholds driven to several sparsities, and see what that costs.
#   bash examples/beyond/sparsity.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# SETTINGS says what is trained. A finished run is not repeated:
#   none              without a threshold
#   threshold:learn   with learned thresholds, or threshold:0.5 with this one
#   target:0.9        driven to 90 % zeros; the target rises in the first half of the updates
#   tuned:0.9         the model of `none`, trained further with that target for a quarter of the updates, at a third of
#                     the learning rate; tuned:none is the same without a target
# Ends with a table, OUT/beyond/sparsity.tsv, and a figure beside it: measured sparsity and BLEU by target.
# The variables of the recipes apply.
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
arch=$(architecture "${arch:-rela_g}")
targets="0.7 0.8 0.9 0.95 0.98"
# shellcheck disable=SC2086
SETTINGS=${SETTINGS:-none threshold:learn $(printf 'target:%s ' $targets) tuned:none $(printf 'tuned:%s ' $targets)}
untuned=$(run_directory "$arch" "$SEED")/checkpoints/checkpoint_last.pt
prefix=${TAG:+$TAG-} rows=()

# one SETTING: train, translate and analyse it
one() (
  value=${1#*:} flags=()
  if [ "$1" != none ]; then TAG=$prefix${1/:/}; fi
  case $1 in
    none) ;;
    threshold:*) flags=(--rela-threshold "$value") ;;
    target:*) flags=(--rela-target-sparsity "$value" --rela-sparsity-warmup "$((UPDATES / 2))") ;;
    tuned:*)
      LR=$(awk "BEGIN { print $LR / 3 }") WARMUP=$(((WARMUP + 2) / 3)) UPDATES=$(((UPDATES + 3) / 4))
      SAVE_INTERVAL=$(((SAVE_INTERVAL + 3) / 4))
      flags=(--finetune-from-model "$untuned")
      [ "$value" = none ] || flags+=(--rela-target-sparsity "$value" --rela-sparsity-warmup "$((UPDATES / 2))") ;;
    *) die "SETTINGS: '$1' is not known; give none, threshold:, target: or tuned: and a number" ;;
  esac
  export TAG LR WARMUP UPDATES SAVE_INTERVAL
  bash "$examples/train.sh" "$dataset" "$arch" ${dry_run:+--dry-run} "${flags[@]}" "${extra[@]}"
  bash "$examples/generate.sh" "$dataset" "$arch" ${dry_run:+--dry-run}
  bash "$examples/analyze.sh" "$dataset" "$arch" ${dry_run:+--dry-run}
)

bash "$examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
for setting in $SETTINGS; do
  one "$setting"
  tag=$prefix${setting/:/}
  if [ "$setting" = none ]; then tag=${prefix%-}; fi
  rows+=("$setting=$(TAG=$tag run_directory "$arch" "$SEED")")
done
step --stdout "$out/beyond/sparsity.tsv" -- python "$examples/table.py" runs "${rows[@]}"
step -- python "$examples/beyond/sparsity_figure.py" "$out/beyond/sparsity.tsv" "$out/beyond/sparsity.png"
[ "$dry_run" ] || cat "$out/beyond/sparsity.tsv"
