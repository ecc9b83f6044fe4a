#!/usr/bin/env bash
# Language models on one side of a data set, by their perplexity: each attention beside stock fairseq's transformer_lm.
#   bash examples/beyond/language_model.sh DATASET [--dry-run] [fairseq-train's flags]
#
# All are trained with the same flags, seed and number of updates, and the checkpoint that is best on the validation set
# is scored with fairseq-eval-lm on the test set. What was done is not done again, so rows can be added one by one, or
# trained at the same time from several shells. Variables, beside those of train.sh:
#   ATTENTIONS       stock rela_g: stock is transformer_lm in the same size, the others rows of the catalog
#   SIDE             the language (the data set's source)
#   CONTEXT          tokens a sample (512); the text is cut there, whatever the sentences
#   CONTEXT_WINDOW   tokens of context that each scored token has at least, in the last column (half of CONTEXT)
#   UPDATES WARMUP LR TOKENS_PER_UPDATE MAX_TOKENS (600, 100, 0.01, 4096: minutes on one core)
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
# the data sets' own are for translation
UPDATES=${UPDATES:-600} WARMUP=${WARMUP:-100} LR=${LR:-0.01}
TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-4096} MAX_TOKENS=${MAX_TOKENS:-4096}
CONTEXT=${CONTEXT:-512}
load_dataset
find_environment
find_devices
SIDE=${SIDE:-$SOURCE} CONTEXT_WINDOW=${CONTEXT_WINDOW:-$((CONTEXT / 2))}
case " ${langs[*]} " in *" $SIDE "*) ;; *) die "SIDE=$SIDE is not known; give $SOURCE or $TARGET" ;; esac
read -ra attentions <<< "${ATTENTIONS:-stock rela_g}"
[ -z "$arch" ] || attentions=("$arch")

# The flags that transformer_lm_ATTENTION_SIZE sets. Stock's transformer_lm alone has embeddings of width 512 whatever
# its own width, and layer norm after each sublayer; its named sizes, and all of ours, have it before.
stock_flags() {
  local width=512 ffn=2048 layers=6 heads=8
  case $SIZE in
    base) ;;
    big) width=1024 ffn=4096 layers=12 heads=16 ;;
    iwslt_de_en) ffn=1024 heads=4 ;;
    tiny) width=128 ffn=256 layers=4 heads=4 ;;
    *) die "SIZE=$SIZE is not known; give base, big, iwslt_de_en or tiny" ;;
  esac
  echo --decoder-embed-dim $width --decoder-input-dim $width --decoder-output-dim $width --decoder-ffn-embed-dim $ffn \
    --decoder-layers $layers --decoder-attention-heads $heads --decoder-normalize-before
}

out=$OUT/lm-$SIDE data=$OUT/lm-$SIDE/data-bin user_dir=$root/fairseq_rela
update_freq=$(((TOKENS_PER_UPDATE + MAX_TOKENS * workers - 1) / (MAX_TOKENS * workers)))
tokens=$((TOKENS_PER_UPDATE / (update_freq * workers)))
[ "$tokens" -ge "$CONTEXT" ] || die "a batch of $tokens tokens has no sample of $CONTEXT; raise MAX_TOKENS or TOKENS_PER_UPDATE, or lower CONTEXT"

take_side() {
  local split files=()
  bash "$root/examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
  for split in train valid test; do files+=("--${split}pref" "$pieces/$split.$SIDE"); done
  run rm -rf "$data.part"
  logged "$out/preprocess.log" fairseq-preprocess --only-source "${files[@]}" --destdir "$data.part" --workers "$WORKERS"
  run mv "$data.part" "$data"
}

train() {  # ATTENTION
  local size_flags=() trained train
  if [ "$1" = stock ]; then read -ra size_flags <<< "$(stock_flags)"; fi
  train=(
    "${launch[@]}" fairseq-train "$data" --user-dir "$user_dir" --arch "$arch" "${size_flags[@]}"
    --task language_modeling --sample-break-mode none --tokens-per-sample "$CONTEXT"
    --share-decoder-input-output-embed "${device_flags[@]}"
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay "$WEIGHT_DECAY" --clip-norm 0.0
    --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT"
    --max-tokens "$tokens" --update-freq "$update_freq" --required-batch-size-multiple 1
    --seed "$SEED" --max-update "$UPDATES" --save-dir "$run_dir/checkpoints"
    --save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates 1 --no-epoch-checkpoints
    --log-format json --log-interval 25 "${extra[@]}"
  )
  if [ "$dry_run" ]; then show "${train[@]}"; echo; return; fi
  trained=$(cat "$run_dir/trained" 2> /dev/null || echo 0)
  [ "$trained" -lt "$UPDATES" ] || return 0
  # shellcheck disable=SC2034
  FLAGS=${extra[*]-}
  settings_apart="TAG or OUT"
  same_settings "$run_dir/settings" LR WARMUP DROPOUT ATTENTION_DROPOUT WEIGHT_DECAY TOKENS_PER_UPDATE CONTEXT FLAGS
  say "$arch, seed $SEED: $UPDATES updates of $((tokens * update_freq * workers)) tokens on $DEVICES; log: $run_dir/train.log"
  show "${train[@]}" > "$run_dir/train.cmd"
  local began=$SECONDS
  "${train[@]}" 2>&1 | tee -a "$run_dir/train.log" | python "$root/examples/progress.py" "$UPDATES" ||
    die "training failed: $(tail -n 1 "$run_dir/train.log") (all of it is in $run_dir/train.log)"
  echo "$((SECONDS - began)) s to $UPDATES updates" >> "$run_dir/time.txt"
  echo "$UPDATES" > "$run_dir/trained"
}

# evaluate NAME SUBSET WINDOW: the perplexity of SUBSET is the last word of NAME.log.
evaluate() {
  local log=$run_dir/$1.log
  fresh "$log" "$run_dir/trained" && return
  # a window makes samples of CONTEXT - WINDOW new tokens
  logged "$log.part" "${launch[@]}" fairseq-eval-lm "$data" --user-dir "$user_dir" --gen-subset "$2" \
    --path "$run_dir/checkpoints/checkpoint_best.pt" --task language_modeling --sample-break-mode none \
    --tokens-per-sample "$CONTEXT" --context-window "$3" --max-tokens "$tokens" "${device_flags[@]}"
  run mv "$log.part" "$log"
}
perplexity() { sed -n 's/.*Perplexity: //p' "$run_dir/$1.log"; }
parameters() { sed -n 's/.*num. model params: //p' "$run_dir/test.log"; }
learning_rate() { sed -n 's/^LR=//p' "$run_dir/settings"; }
row() { local IFS=$'\t'; echo "$*"; }

# as in train.sh: glibc keeps freed memory
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456
made "$data" || take_side
window=test-window$CONTEXT_WINDOW
rows=("$(row attention parameters valid test "test, window $CONTEXT_WINDOW" updates LR seed)")
for attention in "${attentions[@]}"; do
  arch=transformer_lm_${attention}_$SIZE
  run_dir=$(run_directory "$arch" "$SEED")
  if [ "$attention" = stock ]; then arch=transformer_lm; fi
  find_devices
  train "$attention"
  say "$attention: perplexity"
  find_device
  evaluate valid valid 0
  evaluate 'test' 'test' 0
  evaluate "$window" 'test' "$CONTEXT_WINDOW"
  if [ -z "$dry_run" ]; then
    rows+=("$(row "$attention" "$(parameters)" "$(perplexity valid)" "$(perplexity test)" "$(perplexity "$window")" \
      "$(cat "$run_dir/trained")" "$(learning_rate)" "$SEED")")
  fi
done
[ "$dry_run" ] || printf '%s\n' "${rows[@]}" | tee "$out/perplexity${TAG:+.$TAG}.tsv"
