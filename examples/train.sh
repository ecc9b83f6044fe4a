#!/usr/bin/env bash
# Train a model with the paper's settings, or the data set's own where it is small.
#   bash examples/train.sh DATASET ARCH [--dry-run] [fairseq-train's flags]
# ARCH is an architecture (transformer_rela_g_tiny), or an attention (rela_g) in the data set's size.
#
# What was interrupted goes on at its last checkpoint. Variables, each with a default in lib.sh or datasets/DATASET.sh:
#   DEVICES   cpu, a number of GPUs, torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS (all the GPUs here, else cpu)
#   SEED      1; TAG keeps runs with other settings apart
#   UPDATES WARMUP LR NORM DROPOUT ATTENTION_DROPOUT WEIGHT_DECAY TOKENS_PER_UPDATE MAX_TOKENS SAVE_INTERVAL AVERAGE
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_devices
find_run
[ "$dry_run" ] || [ -d "$out/data-bin" ] || die "$out/data-bin is missing; run 'bash examples/prepare.sh $dataset' first"

# TOKENS_PER_UPDATE = tokens × update_freq × workers, with at most MAX_TOKENS in a batch
update_freq=$(((TOKENS_PER_UPDATE + MAX_TOKENS * workers - 1) / (MAX_TOKENS * workers)))
tokens=$((TOKENS_PER_UPDATE / (update_freq * workers)))
case $EMBEDDINGS in
  all) share=(--share-all-embeddings) ;;
  decoder) share=(--share-decoder-input-output-embed) ;;
  *) die "EMBEDDINGS=$EMBEDDINGS is not known; give all or decoder" ;;
esac
case $NORM in
  pre) norm=(--encoder-normalize-before --decoder-normalize-before) ;;
  post) norm=() ;;
  *) die "NORM=$NORM is not known; give pre or post" ;;
esac

train=(
  "${launch[@]}" fairseq-train "$out/data-bin" --user-dir "$user_dir" --arch "$arch" "${share[@]}" "${norm[@]}"
  "${device_flags[@]}"
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay "$WEIGHT_DECAY" --clip-norm 0.0
  --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1
  --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT"
  # 1: at its default of 8, fairseq's HEAD drops a last batch of fewer sentences
  --max-tokens "$tokens" --update-freq "$update_freq" --required-batch-size-multiple 1
  --seed "$SEED" --max-update "$UPDATES"
  --save-dir "$run_dir/checkpoints" --save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates "$AVERAGE"
  --no-epoch-checkpoints --log-format json --log-interval 25 "${extra[@]}"
)

if [ "$dry_run" ]; then
  show "${train[@]}"
  echo
  exit
fi
# glibc keeps freed memory instead of giving it back and having it zeroed again: 13 % more tokens a second on a CPU
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456
trained=$(cat "$run_dir/trained" 2> /dev/null || echo 0)
if [ "$trained" -ge "$UPDATES" ]; then
  say "$arch, seed $SEED: trained before, $trained updates"
  exit
fi
# shellcheck disable=SC2034
FLAGS=${extra[*]-}
same_settings "$run_dir/settings" LR WARMUP NORM DROPOUT ATTENTION_DROPOUT WEIGHT_DECAY TOKENS_PER_UPDATE EMBEDDINGS FLAGS
say "$arch, seed $SEED: $UPDATES updates of $((tokens * update_freq * workers)) tokens on $DEVICES; log: $run_dir/train.log"
show "${train[@]}" > "$run_dir/train.cmd"
began=$SECONDS
"${train[@]}" 2>&1 | tee -a "$run_dir/train.log" | python "$root/examples/progress.py" "$UPDATES" ||
  die "training failed: $(tail -n 1 "$run_dir/train.log") (all of it is in $run_dir/train.log)"
echo "$((SECONDS - began)) s to $UPDATES updates" >> "$run_dir/time.txt"
echo "$UPDATES" > "$run_dir/trained"
