#!/usr/bin/env bash
# Dump the attention of the averaged model on reference translations, and run the paper's analyses on it.
#   bash examples/analyze.sh DATASET ARCH [--dry-run] [fairseq-rela analyze's flags]
#
# The sentences are those of the test set. The same sentences with shuffled targets are analysed beside them, and in the
# same report the word alignment of the sentences with gold links, where the data set has them. Writes dump/,
# analysis/report.html, analysis/metrics.json and filter/; and noisy/ where the data set has pairs that are labelled by what
# is wrong with them.
# For wmt14_en_de, GOLD_DIR says where the RWTH alignments are, which may not be redistributed: give it to
# prepare.sh, too. Variables: AVERAGE, AT (an earlier update), DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
find_run
for data in "$out/data-bin-test" ${gold_set:+"$out/data-bin-$gold_set"}; do
  [ "$dry_run" ] || [ -d "$data" ] || die "$data is missing; run 'bash examples/prepare.sh $dataset' first"
done

# --- average
average_checkpoints

# --- dump the attention
dump() {  # DATA SUBSET DIRECTORY [FLAGS]
  step --makes "$3.log" --log "$3.log" --from "$results_dir/average.pt" --remove "$3" --remove "$3.log" -- \
    "${launch[@]}" fairseq-generate "$1" --gen-subset "$2" --user-dir "$user_dir" \
    --task translation_attention --path "$results_dir/average.pt" "${device_flags[@]}" --score-reference \
    --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 --attn-dump "$3" "${@:4}"
}
true_pairs=$results_dir/dump/test shuffled=$results_dir/dump/shuffled-test aligned=()
say "$title: the attention on the test set, and on the same with shuffled targets"
norms=()  # for word alignment
[ "$gold_set" != test ] || norms=(--attn-dump-norms)
dump "$out/data-bin-test" 'test' "$true_pairs" "${norms[@]}"
dump "$out/data-bin-test" test1 "$shuffled"
if [ "$gold_set" = gold ]; then
  say "$title: the attention on the sentences with gold alignments"
  dump "$out/data-bin-gold" 'test' "$results_dir/dump/gold" --attn-dump-norms
  aligned=(--aligned "$arch=$results_dir/dump/gold")
fi

# --- sparsity, null rate, diversity, word alignment
step --say "$title: fairseq-rela analyze" --makes "$results_dir/analysis/metrics.json" --remove "$results_dir/analysis" \
  --from "$true_pairs.log" --from "$shuffled.log" ${gold_set:+--from "$results_dir/dump/$gold_set.log"} \
  --settings "$results_dir/analysis.settings" "FLAGS=${extra[*]-}" "GOLD=${gold_flags[*]-}" \
  --log "$results_dir/analysis.log" -- \
  fairseq-rela analyze "$arch=$true_pairs" --shuffled "$arch=$shuffled" "${aligned[@]}" "${gold_flags[@]}" \
  --out "$results_dir/analysis" "${extra[@]}"

# --- null rate as a measure of quality
step --say "$title: does null attention tell shuffled pairs from true ones?" --makes "$results_dir/filter.log" \
  --from "$true_pairs.log" --from "$shuffled.log" --log "$results_dir/filter.log" -- \
  fairseq-rela filter "$true_pairs" --shuffled "$shuffled" --evaluate \
  --scores "$true_pairs.log" --shuffled-scores "$shuffled.log" --out "$results_dir/filter"
if [ "${#NOISY[@]}" -gt 0 ]; then
  noisy=$results_dir/dump/noisy
  dump "$out/data-bin-test" test2 "$noisy"
  step --say "$title: which scores tell noisy pairs from clean ones?" --makes "$results_dir/noisy.log" \
    --from "$noisy.log" --log "$results_dir/noisy.log" -- \
    fairseq-rela filter "$noisy" --labels "$text/noisy.labels" --evaluate \
    --scores "$noisy.log" --out "$results_dir/noisy"
fi
step -- python "$examples/table.py" analysis "$results_dir"
