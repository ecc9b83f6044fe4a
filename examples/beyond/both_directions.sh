#!/usr/bin/env bash
# Word alignment by two models that translate in opposite directions, on the sentences with gold links.
#   bash examples/beyond/both_directions.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# ATTENTION is rela_gc by default. Trains it in the data set's direction and in the other one; a model that is trained already
# is not trained again. Ends with the error rate of each direction and of both joined, by weights and by norms. Where the
# attention is read is chosen by the gold links of one half of the sentences, or without gold links by the agreement of the
# directions. The other half is scored. Variables:
#   REVERSE_UPDATES  updates of the other direction (UPDATES)
#   SYMMETRIZE       how the directions are joined: intersect, union, grow-diag or grow-diag-final-and (the default)
#   SEED, TAG, DEVICES, OUT, UPDATES and others as in train.sh
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
[ -n "$gold_set" ] || die "$dataset has no gold alignments to score with"
SYMMETRIZE=${SYMMETRIZE:-grow-diag-final-and}
arch=$(architecture "${arch:-rela_gc}")

run_recipe() {  # SCRIPT ARGUMENTS…: one of the recipes on this data set
  local script=$1; shift
  bash "$examples/$script" "$dataset" "$@" ${dry_run:+--dry-run}
}
run_recipe prepare.sh
export SAVE_INTERVAL

# direction NAME [LANGUAGE FLAGS]: train, average, and dump the attention on the sentences with gold links
direction() {
  local name=$1 dump
  shift
  run_recipe train.sh "$arch" "$@" "${extra[@]}"
  find_run
  average_checkpoints
  dump=$both/$name
  step --say "$title: the attention from ${2:-$SOURCE} to ${4:-$TARGET}" --makes "$dump.log" --log "$dump.log" \
    --from "$results_dir/average.pt" --remove "$dump" --remove "$dump.log" -- \
    "${launch[@]}" fairseq-generate "$out/data-bin-$gold_set" --user-dir "$user_dir" --task translation_attention \
    --path "$results_dir/average.pt" "${device_flags[@]}" --score-reference --max-tokens "$MAX_TOKENS" \
    --required-batch-size-multiple 1 --attn-dump "$dump" --attn-dump-norms "$@"
}
find_run
both=$results_dir/both
direction forward
export TAG=${TAG:+$TAG-}reverse UPDATES=${REVERSE_UPDATES:-$UPDATES}
direction reverse --source-lang "$TARGET" --target-lang "$SOURCE"

[ "$dry_run" ] || echo
step --stdout "$both.tsv" -- \
  python "$examples/beyond/both_directions.py" "$SYMMETRIZE" "$both/forward" "$both/reverse" "${gold_flags[@]}"
[ "$dry_run" ] || cat "$both.tsv"
