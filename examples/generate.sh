#!/usr/bin/env bash
# Average the last checkpoints, translate the test set, and score the translation.
#   bash examples/generate.sh DATASET ARCH [--dry-run] [fairseq-generate's flags]
#
# score.txt has two lines: BLEU of the detokenised text by sacrebleu, with its signature, and BLEU of tokens. The paper
# reports the first, and in Table 1 also tokenised BLEU by multi-bleu.perl on its own tokenised text. Here both sides are
# tokenised by sacremoses and scored by sacrebleu without its tokeniser, so the second number is close, not the same.
# A step that is finished and up to date is not repeated.
# Variables: AVERAGE (5 checkpoints), BEAM (4), LENPEN (0.6), AT (an earlier update), DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
find_run

# --- average
average_checkpoints

# --- translate
log=$results_dir/generate.log translation=$results_dir/translation.$TARGET
step --say "$title: translate the test set (beam $BEAM, lenpen $LENPEN)" \
  --makes "$log" --log "$log" --from "$results_dir/average.pt" \
  --settings "$results_dir/generate.settings" "BEAM=$BEAM" "LENPEN=$LENPEN" "FLAGS=${extra[*]-}" -- \
  "${launch[@]}" fairseq-generate "$out/data-bin" --user-dir "$user_dir" --task translation_attention \
  --path "$results_dir/average.pt" "${device_flags[@]}" \
  --beam "$BEAM" --lenpen "$LENPEN" \
  --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 --remove-bpe "$joined_by" "${extra[@]}"
step --makes "$translation" --stdout "$translation" --from "$log" -- \
  python "$examples/translation.py" "$log" "$reference"

# --- score
score() {  # NAME COMMAND…: what sacrebleu says, in NAME.json
  local json=$results_dir/$1.json; shift
  step --makes "$json" --stdout "$json" --from "$translation" -- "$@" --format json --width 2
}
tokenize() {  # TEXT: into TEXT.tok
  step --makes "$1.tok" --stdout "$1.tok" --stdin "$1" -- sacremoses -q -l "$TARGET" -j 1 tokenize -x
}
if [ "$TOKENIZED" ]; then
  score tokenized sacrebleu "$reference" -i "$translation" --tokenize none --force
else
  if [ -n "$SACREBLEU_SET" ] && [ "$CHECKSUMS" != none ]; then
    score bleu env "SACREBLEU=$out/sacrebleu" sacrebleu -t "$SACREBLEU_SET" -l "$SOURCE-$TARGET" -i "$translation"
  else
    score bleu sacrebleu "$reference" -i "$translation"
  fi
  if [ "$dry_run" ] || command -v sacremoses > /dev/null; then
    tokenize "$translation"
    tokenize "$reference"
    score tokenized sacrebleu "$reference.tok" -i "$translation.tok" --tokenize none --force
  else
    say "no BLEU of tokens: it needs sacremoses (pip install sacremoses)"
  fi
fi
step -- python "$examples/table.py" score "$results_dir"
