#!/usr/bin/env bash
# Guided alignment: train one head of the cross attention towards given word links, and towards null where a word has none.
#   bash examples/beyond/guided_alignment.sh DATASET [ATTENTION] [--dry-run] [fairseq-train's flags]
# ATTENTION is rela_gc by default. Ends with BLEU of the test set, and the error rate of the guided head and how well it finds
# unlinked words, on the sentences with gold links. Translations with their links are in RUN/generate.log (lines A-). What is
# done is not done again. Variables:
#   LINKS        word links of the training text, one line per pair, i-j from 0, source first; or eflomal, to align the text
#                with it (pip install eflomal). Default: the data set's own links, if it has them (toy), else eflomal
#   SYMMETRIZE   how eflomal's two directions are joined: intersect, union, grow-diag or grow-diag-final-and (the default)
#   LAMBDA       weight of the alignment loss (0.5; fairseq has 0.05, which is slow in a short training)
#   NULL_WEIGHT  weight of an unlinked word in it (1)
#   SEED, TAG, DEVICES, OUT, UPDATES and others as in train.sh
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
[ -n "$gold_set" ] || die "$dataset has no gold alignments to score with"
LINKS=${LINKS:-${TRAIN_LINKS:-eflomal}} SYMMETRIZE=${SYMMETRIZE:-grow-diag-final-and}
LAMBDA=${LAMBDA:-0.5} NULL_WEIGHT=${NULL_WEIGHT:-1}
attention=${arch:-rela_gc} arch=${arch:-rela_gc}_align
find_run
guided=$out/guided aligned=$results_dir/aligned

run_recipe() {  # SCRIPT ARGUMENTS…: one of the recipes on this data set
  local script=$1; shift
  bash "$examples/$script" "$dataset" "$@" ${dry_run:+--dry-run}
}
run_recipe prepare.sh

# --- links between words
links=$LINKS
if [ "$LINKS" = eflomal ]; then
  [ "$dry_run" ] || command -v eflomal-align > /dev/null || die "eflomal-align was not found: pip install eflomal, or give LINKS"
  for side in "${langs[@]}"; do
    # the words of the pairs that are trained on: prepare.sh leaves long ones out
    step --makes "$guided/text.$side" --stdout "$guided/text.$side" --stdin "$pieces/train.$side" -- sed 's/ //g; s/▁/ /g; s/^ //'
  done
  step --say "word links by eflomal" --makes "$guided/reverse" --log "$out/logs/eflomal.log" -- \
    eflomal-align -s "$guided/text.$SOURCE" -t "$guided/text.$TARGET" --model 3 -f "$guided/forward" -r "$guided/reverse"
  links=$guided/links
  step --stdout "$links" --makes "$links" --from "$guided/reverse" --settings "$guided/links.settings" "SYMMETRIZE=$SYMMETRIZE" -- \
    python "$examples/beyond/joined_links.py" "$SYMMETRIZE" "$guided/forward" "$guided/reverse"
fi
[ "$dry_run" ] || [ -f "$links" ] || die "LINKS=$links is not a file; give word links of the training text, or eflomal"

# --- links between pieces, and the data with them
step --say "the training data with links" --makes "$pieces/train.align" --from "$links" \
  --settings "$guided/settings" "LINKS=$links" -- \
  fairseq-rela piece-links "$links" --source "$pieces/train.$SOURCE" --target "$pieces/train.$TARGET" --out "$pieces/train.align"
step --makes "$out/data-bin-align" --from "$pieces/train.align" --remove "$out/data-bin-align" --log "$out/logs/preprocess.log" -- \
  fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --destdir "$out/data-bin-align.part" --workers "$WORKERS" \
  --srcdict "$out/data-bin/dict.$SOURCE.txt" --tgtdict "$out/data-bin/dict.$TARGET.txt" \
  --trainpref "$pieces/train" --validpref "$pieces/valid" --align-suffix align

# --- train and translate
DATA_BIN=$out/data-bin-align run_recipe train.sh "$arch" --load-alignments \
  --criterion label_smoothed_cross_entropy_with_sparse_alignment --alignment-lambda "$LAMBDA" --null-weight "$NULL_WEIGHT" \
  "${extra[@]}"
run_recipe generate.sh "$arch" --print-alignment hard

# --- align the sentences with gold links, read with the whole target in view
gold_data=$out/data-bin-$gold_set
step --say "$title: align the sentences with gold links" --makes "$aligned.log" --log "$aligned.log" \
  --from "$results_dir/average.pt" --remove "$aligned" --remove "$aligned.log" -- \
  "${launch[@]}" fairseq-generate "$gold_data" --user-dir "$user_dir" --task translation_attention \
  --path "$results_dir/average.pt" "${device_flags[@]}" --score-reference --max-tokens "$MAX_TOKENS" \
  --required-batch-size-multiple 1 --attn-dump "$aligned" --attn-dump-full-context
rows=()
for eos in drop null; do
  step --makes "$aligned.$eos" --from "$aligned.log" -- fairseq-rela align "$aligned" --eos "$eos" --out "$aligned.$eos"
  rows+=("$attention, </s> ${eos/drop/dropped}=$aligned.$eos")
done
[ "$dry_run" ] || echo
step --stdout "$aligned.tsv" -- \
  python "$examples/beyond/guided_table.py" "$text/gold.links" "$GOLD_BASE" "${GOLD_REVERSE:-}" "$text/gold.$TARGET" "${rows[@]}"
[ "$dry_run" ] || cat "$aligned.tsv"
