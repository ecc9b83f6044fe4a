#!/usr/bin/env bash
# The paper's analyses, of all models side by side: Table 5 (AER) and Table 6 (diversity by temperature), Figures 3
# (sparsity), 4 (AER by layer), 5 (diversity) and 6 (null rate, and on shuffled targets), 7 to 9 (heat maps).
#   bash examples/paper/analysis.sh DATASET [--dry-run] [fairseq-train's flags]
# SEEDS="1 2 3" is the default: as in the paper, results are averaged over three seeds. Their spread is reported.
# ATTENTIONS="softmax rela_g" takes only these.
# HEATMAPS="3:cross:-1:mean 3:cross:5:2" draws these (sentence:kind:layer:head) instead of the default ones.
# LEVEL=word, the default, merges pieces to words first, as the paper does; LEVEL=subword does not.
# The report is OUT/paper/analysis-word/report.html, its numbers as tables in OUT/paper/analysis-word.txt. Another level,
# and a choice of seeds, attentions or heat maps, has a report of its own: none replaces another's. REPORT=DIR is another place.
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
case ${LEVEL:=word} in
  subword | word) ;;
  *) die "LEVEL=$LEVEL is not known; give subword or word" ;;
esac
SEEDS=${SEEDS:-1 2 3}
usual="softmax sparsemax entmax15 rela_i rela_g"
read -ra attentions <<< "${ATTENTIONS:-$usual}"
rows train.sh generate.sh analyze.sh -- "${attentions[@]}"

choice=$(suffix "=${attentions[*]}=$usual" "seeds=$SEEDS=1 2 3")
report=${REPORT:-$paper/analysis-$LEVEL$choice${HEATMAPS:+.maps}}
dumps=() shuffled=() aligned=() labels=() heatmaps=()
for attention in "${attentions[@]}"; do
  labels+=("$attention=$attention")
  for seed in $SEEDS; do
    run_results=$(results_directory "$(architecture "$attention")" "$seed")
    [ "$dry_run" ] || [ -e "$run_results/analysis/metrics.json" ] || continue
    dumps+=("$attention=$run_results/dump/test")
    shuffled+=(--shuffled "$attention=$run_results/dump/shuffled-test")
    [ "$gold_set" != gold ] || aligned+=(--aligned "$attention=$run_results/dump/gold")
  done
done
[ "${#dumps[@]}" -gt 0 ] || die "no model could be analysed"
for heatmap in ${HEATMAPS:-}; do heatmaps+=(--heatmap "$heatmap"); done
step --say "all models side by side: $report/report.html" --remove "$report" --log "$report.log" -- \
  fairseq-rela analyze "${dumps[@]}" "${shuffled[@]}" "${aligned[@]}" "${gold_flags[@]}" "${heatmaps[@]}" \
  --level "$LEVEL" --out "$report"
say "translations, and analyses at subword level"
table "analysis$choice" "${labels[@]}"
say "Figures 3 to 6, Tables 5 and 6, at $LEVEL level"
step --stdout "$report.txt" -- python "$examples/paper/analysis_tables.py" "$report/metrics.json"
[ "$dry_run" ] || cat "$report.txt"
