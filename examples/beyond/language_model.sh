#!/usr/bin/env bash
# Train language models on one side of a data set and compare their perplexity with stock fairseq's transformer_lm.
#   bash examples/beyond/language_model.sh DATASET [--dry-run] [fairseq-train's flags]
#
# All are trained with the same flags, seed and number of updates, and the checkpoint that is best on the validation set
# is scored with fairseq-eval-lm on the test set. A finished run is not repeated, so rows can be added one by one, or
# trained at the same time from several shells. Variables, beside those of train.sh:
#   ATTENTIONS       stock rela_g: stock is transformer_lm in the same size, the others are rows of the catalog
#   SIDE             the language (the data set's source)
#   CONTEXT          tokens per sample (512); the text is cut there, also within sentences
#   CONTEXT_WINDOW   tokens of context that each scored token has at least, in the last column (half of CONTEXT)
#   UPDATES WARMUP LR TOKENS_PER_UPDATE MAX_TOKENS (600, 100, 0.01, 4096: minutes on one core)
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
# the data sets' own settings are for translation
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

out=$OUT/lm-$SIDE data=$OUT/lm-$SIDE/data-bin
update_freq=$(((TOKENS_PER_UPDATE + MAX_TOKENS * workers - 1) / (MAX_TOKENS * workers)))
tokens=$((TOKENS_PER_UPDATE / (update_freq * workers)))
[ "$tokens" -ge "$CONTEXT" ] || die "a batch of $tokens tokens has no sample of $CONTEXT; raise MAX_TOKENS or TOKENS_PER_UPDATE, or lower CONTEXT"

# The flags that make stock's transformer_lm the same size as ours.
stock=()
case " ${attentions[*]} " in
  *" stock "*)
    words=$("$python" "$examples/stock_model.py" language "$SIZE") || exit 1
    mapfile -t stock <<< "$words" ;;
esac

train() {  # SIZE_FLAGS…
  local train=(
    "${launch[@]}" fairseq-train "$data" --user-dir "$user_dir"
    # model
    --arch "$arch" "$@" --share-decoder-input-output-embed
    # samples
    --task language_modeling --sample-break-mode none --tokens-per-sample "$CONTEXT"
    # devices
    "${device_flags[@]}"
    # optimiser
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay "$WEIGHT_DECAY" --clip-norm 0.0
    --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT"
    # batches and length
    --max-tokens "$tokens" --update-freq "$update_freq" --required-batch-size-multiple 1
    --seed "$SEED" --max-update "$UPDATES"
    # checkpoints and log
    --save-dir "$run_dir/checkpoints" --save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates 1
    --no-epoch-checkpoints --log-format json --log-interval 25
    "${extra[@]}"
  )
  "$python" "$examples/training.py" --run "$run_dir" --updates "$UPDATES" --title "$arch, seed $SEED" \
    --tokens $((tokens * update_freq * workers)) --devices "$DEVICES" \
    --settings "LR=$LR" "WARMUP=$WARMUP" "DROPOUT=$DROPOUT" "ATTENTION_DROPOUT=$ATTENTION_DROPOUT" \
    "WEIGHT_DECAY=$WEIGHT_DECAY" "TOKENS_PER_UPDATE=$TOKENS_PER_UPDATE" "CONTEXT=$CONTEXT" "FLAGS=${extra[*]-}" -- "${train[@]}"
}

evaluate() {  # NAME SUBSET WINDOW: the perplexity of SUBSET is in NAME.log
  # a window makes samples of CONTEXT - WINDOW new tokens
  step --makes "$run_dir/$1.log" --log "$run_dir/$1.log" --from "$run_dir/trained" -- \
    "${launch[@]}" fairseq-eval-lm "$data" --user-dir "$user_dir" --gen-subset "$2" \
    --path "$run_dir/checkpoints/checkpoint_best.pt" --task language_modeling --sample-break-mode none \
    --tokens-per-sample "$CONTEXT" --context-window "$3" --max-tokens "$tokens" \
    --required-batch-size-multiple 1 "${device_flags[@]}"
}

# --- one side of the data set
if ! finished "$data"; then
  bash "$examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
  files=()
  for split in train valid 'test'; do files+=("--${split}pref" "$pieces/$split.$SIDE"); done
  step --makes "$data" --log "$out/preprocess.log" -- \
    fairseq-preprocess --only-source "${files[@]}" --destdir "$data.part" --workers "$WORKERS"
fi

# --- train and score
window=test-window$CONTEXT_WINDOW runs=()
for attention in "${attentions[@]}"; do
  run_dir=$(run_directory "transformer_lm_${attention}_$SIZE" "$SEED")
  find_devices
  if [ "$attention" = stock ]; then
    arch=${stock[0]}
    train "${stock[@]:1}"
  else
    arch=transformer_lm_${attention}_$SIZE
    train
  fi
  say "$attention: perplexity"
  find_device
  evaluate valid valid 0
  evaluate 'test' 'test' 0
  evaluate "$window" 'test' "$CONTEXT_WINDOW"
  runs+=("$attention=$run_dir")
done
tsv=$out/perplexity${TAG:+.$TAG}.tsv
step --stdout "$tsv" -- python "$examples/beyond/perplexity_table.py" "$CONTEXT_WINDOW" "$SEED" "${runs[@]}"
[ "$dry_run" ] || cat "$tsv"
