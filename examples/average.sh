# shellcheck shell=bash disable=SC2154,SC2153
# average.pt: the mean of the last checkpoints of a training.

# fairseq writes no checkpoint_EPOCH_UPDATE.pt where an epoch ends: checkpoint_last.pt stands in for the last.
last_checkpoints() {
  local file update last=0
  while read -r update file; do
    echo "$file"
    last=$update
  done < <(
    for file in "$run_dir"/checkpoints/checkpoint_*_*.pt; do
      update=${file##*_}
      update=${update%.pt}
      [ ! -e "$file" ] || [ "$update" -gt "$UPDATES" ] || echo "$update $file"
    done | sort -n | tail -n "$1"
  )
  [ "$last" -ge "$trained" ] || echo "$run_dir/checkpoints/checkpoint_last.pt"
}

if [ "$dry_run" ]; then
  updates=$(seq -s , $((UPDATES - (AVERAGE - 1) * SAVE_INTERVAL)) "$SAVE_INTERVAL" "$UPDATES")
  echo "fairseq-rela average $(show "$run_dir")/checkpoints/checkpoint_*_{$updates}.pt --output $(show "$run_dir")/average.pt"
else
  trained=$(cat "$run_dir/trained" 2> /dev/null || echo 0)
  [ "$trained" -ge "$UPDATES" ] ||
    die "$run_dir has $trained of $UPDATES updates; run 'bash examples/train.sh $dataset $arch' first, or give UPDATES"
  remember "$run_dir/average.settings" AVERAGE UPDATES
  if ! fresh "$run_dir/average.pt" "$run_dir/trained" "$run_dir/average.settings"; then
    mapfile -t checkpoints < <(last_checkpoints "$AVERAGE" | tail -n "$AVERAGE")
    say "$arch, seed $SEED: average the last ${#checkpoints[@]} checkpoints"
    logged "$out/logs/average.log" fairseq-rela average "${checkpoints[@]}" --output "$run_dir/average.pt"
  fi
fi
