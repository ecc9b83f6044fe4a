#!/usr/bin/env bash
# The paper's analyses, of all models side by side: Table 5 (AER) and Table 6 (diversity by temperature), Figures 3
# (sparsity), 4 (AER by layer), 5 (diversity) and 6 (null rate, and on shuffled targets), 7 to 10 (heat maps).
#   bash examples/paper/analysis.sh DATASET [--dry-run] [fairseq-train's flags]
# SEEDS="1 2 3" is the default: as in the paper, results are averaged over three seeds. Their spread is reported.
# ATTENTIONS="softmax rela_g" takes only these.
# HEATMAPS="3:cross:-1:mean 3:cross:5:2" draws these (sentence:kind:layer:head) instead of the default ones.
# LEVEL=word merges pieces to words first, as the paper does; the default is subword. Each level has its own report:
# OUT/paper/analysis and OUT/paper/analysis-word.
# All is measured on the test set, AER on the sentences with gold alignments, in one report. hansards_en_fr and toy have
# gold alignments; for wmt14_en_de give GOLD_DIR (see datasets/wmt14_en_de.sh).
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
SEEDS=${SEEDS:-1 2 3}
read -ra attentions <<< "${ATTENTIONS:-softmax sparsemax entmax15 rela_i rela_g}"
rows train.sh generate.sh analyze.sh -- "${attentions[@]}"

case ${LEVEL:=subword} in
  subword) report=$out/paper/analysis ;;
  word) report=$out/paper/analysis-word ;;
  *) die "LEVEL=$LEVEL is not known; give subword or word" ;;
esac
dumps=() shuffled=() aligned=() labels=() heatmaps=()
for attention in "${attentions[@]}"; do
  labels+=("$attention=$attention")
  for seed in $SEEDS; do
    run_dir=$(run_directory "$(architecture "$attention")" "$seed")
    [ "$dry_run" ] || [ -e "$run_dir/analysis/metrics.json" ] || continue
    dumps+=("$attention=$run_dir/dump/test")
    shuffled+=(--shuffled "$attention=$run_dir/dump/shuffled-test")
    [ "$gold_set" != gold ] || aligned+=(--aligned "$attention=$run_dir/dump/gold")
  done
done
[ "${#dumps[@]}" -gt 0 ] || die "no model could be analysed"
for heatmap in ${HEATMAPS:-}; do heatmaps+=(--heatmap "$heatmap"); done
step --say "all models side by side: $report/report.html" --remove "$report" --log "$report.log" -- \
  fairseq-rela analyze "${dumps[@]}" "${shuffled[@]}" "${aligned[@]}" "${gold_flags[@]}" "${heatmaps[@]}" \
  --level "$LEVEL" --out "$report"
table analysis "${labels[@]}"
