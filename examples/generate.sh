#!/usr/bin/env bash
# Average the last checkpoints, translate the test set, and score the translation.
#   bash examples/generate.sh DATASET ARCH [--dry-run] [fairseq-generate's flags]
#
# score.txt has two lines: BLEU of the detokenised text by sacrebleu, with its signature, and BLEU of the text
# tokenised by sacremoses on both sides, as in the paper's Table 1. What is done and still right is not done again.
# Variables: AVERAGE (5 checkpoints), BEAM (4), LENPEN (0.6), DEVICES, SEED, TAG, OUT
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
find_run
# shellcheck source=examples/average.sh
. "$root/examples/average.sh"

log=$run_dir/generate.log translation=$run_dir/translation.$TARGET reference=$text/test.$TARGET
# shellcheck disable=SC2034
FLAGS=${extra[*]-}
remember "$run_dir/generate.settings" BEAM LENPEN FLAGS
if ! fresh "$log" "$run_dir/average.pt" "$run_dir/generate.settings"; then
  say "$arch, seed $SEED: translate the test set (beam $BEAM, lenpen $LENPEN)"
  logged "$log.part" "${launch[@]}" fairseq-generate "$out/data-bin" --user-dir "$user_dir" --task translation_attention \
    --path "$run_dir/average.pt" "${device_flags[@]}" --beam "$BEAM" --lenpen "$LENPEN" \
    --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 --remove-bpe sentencepiece "${extra[@]}"
  run mv "$log.part" "$log"
fi
in_order() { grep '^D-' | sort -t- -k2 -n | cut -f3; }
if [ "$dry_run" ]; then
  echo "grep ^D- $(show "$log") | sort -t- -k2 -n | cut -f3 > $(show "$translation")"
elif ! fresh "$translation" "$log"; then
  piped "$log" "$translation" in_order
  lines=$(wc -l < "$translation") expected=$(wc -l < "$reference")
  [ "$lines" -eq "$expected" ] || die "$translation has $((lines)) lines and $reference $((expected)): fairseq-generate left sentences out, see $log"
fi

score() {  # NAME ARGUMENTS…: a JSON of sacrebleu
  local name=$1; shift
  fresh "$run_dir/$name.json" "$translation" || piped /dev/null "$run_dir/$name.json" "$@" --format json --width 2
}
tokenized() {  # IN OUT
  fresh "$2" "$1" || piped "$1" "$2" sacremoses -q -l "$TARGET" -j 1 tokenize -x
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
    tokenized "$translation" "$translation.tok"
    tokenized "$reference" "$reference.tok"
    score tokenized sacrebleu "$reference.tok" -i "$translation.tok" --tokenize none --force
  else
    say "no BLEU of tokens: that needs sacremoses (pip install sacremoses)"
  fi
fi
run python "$root/examples/table.py" score "$run_dir"
