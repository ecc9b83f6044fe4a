#!/usr/bin/env bash
# Section 5.2 and Figure 10: rank the training corpus by the null rate of its cross attention, and show random pairs of the
# best and of the worst end side by side in a page to judge, with heat maps of some. Then the share of wrong pairs at each
# end of pairs whose noise is labelled, and AUROC, which is the harder question.
#   bash examples/paper/ranking.sh DATASET ARCH [--dry-run] [fairseq-train's flags]
# A model that is not trained yet is trained first. An end has 10,000 pairs as in the paper, or 1 % of the corpus where that
# is less; 100 pairs of each are shown. The labelled pairs are the data set's own (toy), or the test set with noise in half of
# its targets: those of other pairs, too short, with a part too much, or the source itself. Writes RUN/ranking/ranking.html,
# ends.txt and noisy.txt.
# Variables: END (10000), SAMPLE_PAIRS (100), MAPS (4 of each end), AVERAGE, AT, DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
find_device
SEEDS=$SEED
find_run
rows train.sh -- "$arch"
average_checkpoints
where=$results_dir/ranking
export PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}

# attention NAME DATA SUBSET FLAG FILE: the attention on reference translations; the log is NAME.log
attention() {
  step --makes "$where/$1.log" --log "$where/$1.log" --from "$results_dir/average.pt" --remove "$5" --remove "$5.partial" -- \
    "${launch[@]}" fairseq-generate "$2" --gen-subset "$3" --user-dir "$user_dir" --task translation_attention \
    --path "$results_dir/average.pt" "${device_flags[@]}" --score-reference --max-tokens "$MAX_TOKENS" \
    --required-batch-size-multiple 1 "$4" "$5"
}
preprocess() {  # DIRECTORY PREFIX
  step --log "$where/preprocess.log" --remove "$1" -- \
    fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --testpref "$2" --destdir "$1" \
    --srcdict "$out/data-bin/dict.$SOURCE.txt" --tgtdict "$out/data-bin/dict.$TARGET.txt"
}

# --- the training corpus. pieces/train has the lines of data-bin; text/train has more, since long pairs are left out
say "$title: the null rate of every training pair"
attention train "$out/data-bin" train --attn-dump-stats "$where/train.tsv"
step --say "$title: pairs of both ends" -- python "$examples/paper/ranking.py" select "$where/train.tsv" "$pieces/train" \
  "$SOURCE" "$TARGET" "$where/selected" --end "${END:-10000}" --sample "${SAMPLE_PAIRS:-100}"
preprocess "$where/data-bin" "$where/selected"
[ "$dry_run" ] || rm -f "$where/dump.log"
attention dump "$where/data-bin" 'test' --attn-dump "$where/dump"
step -- python "$examples/paper/ranking.py" page "$where/selected.json" "$where/dump" "$where/ranking.html" --maps "${MAPS:-4}"

# --- pairs whose noise is labelled
noisy_labels=$text/noisy.labels noisy_data=$out/data-bin-test noisy_set=test2
if [ "${#NOISY[@]}" -eq 0 ]; then
  noisy_labels=$where/injected.labels noisy_data=$where/data-bin-injected noisy_set='test'
  step --say "$title: noise in half of the test set" -- python "$examples/paper/noise.py" "$text/test.$SOURCE" \
    "$text/test.$TARGET" "$where/injected.text.$SOURCE" "$where/injected.text.$TARGET" "$noisy_labels"
  for lang in "${langs[@]}"; do
    step --stdin "$where/injected.text.$lang" --stdout "$where/injected.$lang" -- "${encoder[@]}"
  done
  preprocess "$noisy_data" "$where/injected"
fi
attention noisy "$noisy_data" "$noisy_set" --attn-dump "$where/noisy"
step --stdout "$where/ends.txt" -- python "$examples/paper/ranking.py" ends "$where/noisy" "$noisy_labels" --end "${END:-10000}"
step --stdout "$where/noisy.txt" -- fairseq-rela filter "$where/noisy" --labels "$noisy_labels" --evaluate --scores "$where/noisy.log"
[ "$dry_run" ] || cat "$where/ends.txt" "$where/noisy.txt"
