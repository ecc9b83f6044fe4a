#!/usr/bin/env bash
# Section 5.2 and Figure 10: rank the training corpus by the null rate of its cross attention, and show random pairs of the
# best and of the worst end side by side in a page to judge, with heat maps of some.
#   bash examples/paper/ranking.sh DATASET ARCH [--dry-run]
# An end has 10,000 pairs as in the paper, or 1 % of the corpus where that is less; 100 pairs of each are shown. Where the
# data set has pairs that are labelled by what is wrong with them (toy), the share of wrong pairs at each end of those is
# printed, too. The model must be trained. Writes RUN/ranking/ranking.html, and ends.txt where there are labels.
# Variables: END (10000), SAMPLE_PAIRS (100), MAPS (4 of each end), AVERAGE, AT, DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
find_run
[ "$dry_run" ] || [ -d "$out/data-bin-test" ] || die "$out/data-bin-test is missing; run 'bash examples/prepare.sh $dataset' first"
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

# --- the training corpus. pieces/train has the lines of data-bin; text/train has more, since long pairs are left out
say "$title: the null rate of every training pair"
attention train "$out/data-bin" train --attn-dump-stats "$where/train.tsv"
step --say "$title: pairs of both ends" -- python "$examples/paper/ranking.py" select "$where/train.tsv" "$pieces/train" \
  "$SOURCE" "$TARGET" "$where/selected" --end "${END:-10000}" --sample "${SAMPLE_PAIRS:-100}"
step --log "$where/preprocess.log" --remove "$where/data-bin" -- \
  fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --testpref "$where/selected" --destdir "$where/data-bin" \
  --srcdict "$out/data-bin/dict.$SOURCE.txt" --tgtdict "$out/data-bin/dict.$TARGET.txt"
[ "$dry_run" ] || rm -f "$where/dump.log"
attention dump "$where/data-bin" 'test' --attn-dump "$where/dump"
step -- python "$examples/paper/ranking.py" page "$where/selected.json" "$where/dump" "$where/ranking.html" --maps "${MAPS:-4}"

# --- pairs whose noise is labelled
if [ "${#NOISY[@]}" -gt 0 ]; then
  attention noisy "$out/data-bin-test" test2 --attn-dump-stats "$where/noisy.tsv"
  step --stdout "$where/ends.txt" -- python "$examples/paper/ranking.py" ends "$where/noisy.tsv" "$text/noisy.labels" \
    --end "${END:-10000}"
  [ "$dry_run" ] || cat "$where/ends.txt"
fi
