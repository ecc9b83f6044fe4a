#!/usr/bin/env bash
# The paper's analyses, of all models side by side: Table 5 (AER) and Table 6 (diversity by temperature), Figures 3
# (sparsity), 4 (AER by layer), 5 (diversity) and 6 (null rate, and on shuffled targets), 7 to 10 (heat maps).
#   bash examples/paper/analysis.sh DATASET [--dry-run] [fairseq-train's flags]
# SEEDS="1 2 3" as in the paper, whose spread is reported; ATTENTIONS="softmax rela_g" only these;
# HEATMAPS="3:cross:-1:mean 3:cross:5:2" draws these (sentence:kind:layer:head) instead of the usual ones.
# AER needs gold alignments: hansards_en_fr brings its own, for wmt14_en_de give GOLD_DIR (see datasets/wmt14_en_de.sh).
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$root/examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
SEEDS=${SEEDS:-1 2 3}
read -ra attentions <<< "${ATTENTIONS:-softmax sparsemax entmax15 rela_i rela_g}"
rows train.sh generate.sh analyze.sh -- "${attentions[@]}"

dumps=() shuffled=() labels=() flags=()
for attention in "${attentions[@]}"; do
  labels+=("$attention=$attention")
  for seed in $SEEDS; do
    run_dir=$(run_directory "$(architecture "$attention")" "$seed")
    [ "$dry_run" ] || [ -e "$run_dir/analysis/metrics.json" ] || continue
    dumps+=("$attention=$run_dir/dump/$analysis_set")
    shuffled+=(--shuffled "$attention=$run_dir/dump/shuffled-$analysis_set")
  done
done
[ "${#dumps[@]}" -gt 0 ] || die "no model could be analysed"
if [ "$analysis_set" = gold ]; then
  flags=(--gold "$text/gold.links" --gold-base "$GOLD_BASE")
  [ -z "$GOLD_REVERSE" ] || flags+=(--gold-reverse)
fi
for heatmap in ${HEATMAPS:-}; do flags+=(--heatmap "$heatmap"); done
say "all models side by side: $out/paper/analysis/report.html"
run rm -rf "$out/paper/analysis"
logged "$out/paper/analysis.log" fairseq-rela analyze "${dumps[@]}" "${shuffled[@]}" "${flags[@]}" --out "$out/paper/analysis"
table analysis "${labels[@]}"
