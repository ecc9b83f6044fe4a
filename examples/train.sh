#!/usr/bin/env bash
# Train a model with the paper's settings as far as it gives them (settings.sh says which), or with the data set's own
# where it is small.
#   bash examples/train.sh DATASET ARCH [--dry-run] [fairseq-train's flags]
# ARCH is an architecture (transformer_rela_g_tiny), or an attention (rela_g) in the data set's size.
#
# An interrupted training continues from its last checkpoint. Variables; their defaults are in settings.sh and
# datasets/DATASET.sh:
#   DEVICES   cpu, a number of GPUs, torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS (all the GPUs here, else cpu)
#   SEED      1
#   TAG       keeps runs with other settings apart: the run is in OUT/ARCH.TAG.seedN
#   DATA_BIN  another directory of fairseq-preprocess than OUT/data-bin
#   KEEP      how many checkpoints are kept (AVERAGE); -1 keeps all
#   UPDATES WARMUP LR NORM DROPOUT ATTENTION_DROPOUT WEIGHT_DECAY TOKENS_PER_UPDATE MAX_TOKENS SAVE_INTERVAL AVERAGE
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
find_devices
find_run
data=${DATA_BIN:-$out/data-bin}
[ "$dry_run" ] || [ -d "$data" ] || die "$data is missing; run 'bash examples/prepare.sh $dataset' first"

# An update has TOKENS_PER_UPDATE = tokens × update_freq × workers, with at most MAX_TOKENS in one batch.
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
  "${launch[@]}" fairseq-train "$data" --user-dir "$user_dir"
  # model
  --arch "$arch" "${share[@]}" "${norm[@]}"
  # devices
  "${device_flags[@]}"
  # optimiser. The paper: Adam's betas, warm-up and schedule. The authors' code: epsilon, no clipping, no weight decay
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay "$WEIGHT_DECAY" --clip-norm 0.0
  --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
  # loss and regularisation, as in the paper
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1
  --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT"
  # batches; with fairseq's default of 8 sentences, a last batch of fewer sentences is dropped
  --max-tokens "$tokens" --update-freq "$update_freq" --required-batch-size-multiple 1
  # length
  --seed "$SEED" --max-update "$UPDATES"
  # checkpoints and log
  --save-dir "$run_dir/checkpoints" --save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates "$KEEP"
  --no-epoch-checkpoints --log-format json --log-interval 25
  "${extra[@]}"
)
"$python" "$examples/training.py" --run "$run_dir" --updates "$UPDATES" --title "$arch, seed $SEED" \
  --tokens $((tokens * update_freq * workers)) --devices "$DEVICES" \
  --settings "LR=$LR" "WARMUP=$WARMUP" "NORM=$NORM" "DROPOUT=$DROPOUT" "ATTENTION_DROPOUT=$ATTENTION_DROPOUT" \
  "WEIGHT_DECAY=$WEIGHT_DECAY" "TOKENS_PER_UPDATE=$TOKENS_PER_UPDATE" "EMBEDDINGS=$EMBEDDINGS" "FLAGS=${extra[*]-}" \
  -- "${train[@]}"
