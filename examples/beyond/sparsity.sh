#!/usr/bin/env bash
# Sparsity under control: train ReLA with thresholds driven to several sparsities, and see what that costs.
#   bash examples/beyond/sparsity.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# SETTINGS="none target:0.7 target:0.9 threshold:learn threshold:1 …" are what is trained; what was done is not done
# again. Ends with a table, OUT/beyond/sparsity.tsv, and a figure beside it: measured sparsity and BLEU by target.
# A target rises within SPARSITY_WARMUP updates, half of them by default. The variables of the recipes apply.
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
arch=$(architecture "${arch:-rela_g}")
warmup=${SPARSITY_WARMUP:-$((UPDATES / 2))} tag=${TAG:+$TAG-} rows=()
bash "$root/examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
for setting in ${SETTINGS:-none target:0.7 target:0.8 target:0.9 target:0.95 target:0.98 threshold:learn}; do
  value=${setting#*:}
  case $setting in
    none) flags=() ;;
    target:*) flags=(--rela-target-sparsity "$value" --rela-sparsity-warmup "$warmup") ;;
    threshold:*) flags=(--rela-threshold "$value") ;;
    *) die "SETTINGS: '$setting' is not known; give none, target:SHARE, threshold:NUMBER or threshold:learn" ;;
  esac
  # without a threshold it is the run of any other recipe
  if [ "$setting" = none ]; then TAG=${tag%-}; else TAG=$tag${setting/:/}; fi
  export TAG
  bash "$root/examples/train.sh" "$dataset" "$arch" ${dry_run:+--dry-run} "${flags[@]}" "${extra[@]}"
  bash "$root/examples/generate.sh" "$dataset" "$arch" ${dry_run:+--dry-run}
  bash "$root/examples/analyze.sh" "$dataset" "$arch" ${dry_run:+--dry-run}
  rows+=("$setting=$(run_directory "$arch" "$SEED")")
done
run mkdir -p "$out/beyond"
piped /dev/null "$out/beyond/sparsity.tsv" python "$root/examples/table.py" runs "${rows[@]}"
run python "$root/examples/beyond/sparsity_figure.py" "$out/beyond/sparsity.tsv" "$out/beyond/sparsity.png"
[ "$dry_run" ] || cat "$out/beyond/sparsity.tsv"
