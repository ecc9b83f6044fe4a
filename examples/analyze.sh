#!/usr/bin/env bash
# Attention of the averaged model on reference translations, and the paper's analyses of it.
#   bash examples/analyze.sh DATASET ARCH [--dry-run] [fairseq-rela analyze's flags]
#
# The sentences are those with gold word alignments where the data set has them, else the test set; the same with
# shuffled targets stand beside them. Writes dump/, analysis/report.html, analysis/metrics.json and filter/; and noisy/,
# where the data set has pairs labelled by what is wrong with them.
# For wmt14_en_de, GOLD_DIR says where the RWTH alignments are, which may not be redistributed: give it to
# prepare.sh too. Variables: AVERAGE, DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
find_run
data=$out/data-bin-$analysis_set
[ "$dry_run" ] || [ -d "$data" ] || die "$data is missing; run 'bash examples/prepare.sh $dataset' first"
# shellcheck source=examples/average.sh
. "$root/examples/average.sh"

dump() {  # SUBSET DIRECTORY
  fresh "$2.log" "$run_dir/average.pt" && return
  run rm -rf "$2" "$2.log"
  logged "$2.log.part" "${launch[@]}" fairseq-generate "$data" --gen-subset "$1" --user-dir "$user_dir" \
    --task translation_attention --path "$run_dir/average.pt" "${device_flags[@]}" --score-reference \
    --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 --attn-dump "$2"
  run mv "$2.log.part" "$2.log"
}
true_pairs=$run_dir/dump/$analysis_set shuffled=$run_dir/dump/shuffled-$analysis_set
say "$arch, seed $SEED: the attention on the $analysis_set set, and on the same with shuffled targets"
dump 'test' "$true_pairs"
dump test1 "$shuffled"

gold=()
if [ "$analysis_set" = gold ]; then
  gold=(--gold "$text/gold.links" --gold-base "$GOLD_BASE")
  [ -z "$GOLD_REVERSE" ] || gold+=(--gold-reverse)
fi
# shellcheck disable=SC2034
FLAGS=${extra[*]-}
remember "$run_dir/analysis.settings" FLAGS
if ! fresh "$run_dir/analysis/metrics.json" "$true_pairs.log" "$shuffled.log" "$run_dir/analysis.settings"; then
  say "$arch, seed $SEED: fairseq-rela analyze"
  run rm -rf "$run_dir/analysis"
  logged "$run_dir/analysis.log" fairseq-rela analyze "$arch=$true_pairs" --shuffled "$arch=$shuffled" "${gold[@]}" \
    --out "$run_dir/analysis" "${extra[@]}"
fi
if ! fresh "$run_dir/filter.log" "$true_pairs.log" "$shuffled.log"; then
  say "$arch, seed $SEED: does null attention tell shuffled pairs from true ones?"
  logged "$run_dir/filter.log.part" fairseq-rela filter "$true_pairs" --shuffled "$shuffled" --evaluate \
    --scores "$true_pairs.log" --shuffled-scores "$shuffled.log" --out "$run_dir/filter"
  run mv "$run_dir/filter.log.part" "$run_dir/filter.log"
fi
noisy=$run_dir/dump/noisy
if [ "${#NOISY[@]}" -gt 0 ]; then
  dump test2 "$noisy"
  if ! fresh "$run_dir/noisy.log" "$noisy.log"; then
    say "$arch, seed $SEED: which scores tell noisy pairs from clean ones?"
    logged "$run_dir/noisy.log.part" fairseq-rela filter "$noisy" --labels "$text/noisy.labels" --evaluate \
      --scores "$noisy.log" --out "$run_dir/noisy"
    run mv "$run_dir/noisy.log.part" "$run_dir/noisy.log"
  fi
fi
run python "$root/examples/table.py" analysis "$run_dir"
