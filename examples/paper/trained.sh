# shellcheck shell=bash disable=SC2034,SC2154
# What Table 2 and Figure 2 share: trained models, averaged, and the time each takes for every sentence of the test set.

# Sets `models`, NAME=CHECKPOINT for each of ATTENTIONS, after training and averaging what is missing.
trained_models() {
  local attention
  read -ra attentions <<< "${ATTENTIONS:-softmax sparsemax entmax15 rela_g}"
  SEEDS=${SEEDS:-$SEED}
  case $SEEDS in *' '*) die "SEEDS=$SEEDS: speed is measured with one model of each attention; give one seed" ;; esac
  SEED=$SEEDS
  rows train.sh -- "${attentions[@]}"
  models=()
  for attention in "${attentions[@]}"; do
    arch=$attention
    find_run
    average_checkpoints
    models+=("$attention=$results_dir/average.pt")
  done
}

# measure NAME COMMAND…: a Python part of this directory, which writes OUT/paper/NAME.json. Measured again when a model or
# a setting has changed.
measure() {
  local name=$1 script=$2 sources=() model; shift 2
  for model in "${models[@]}"; do sources+=(--from "${model#*=}"); done
  step --say "$name: ${models[*]%%=*}" --makes "$out/paper/$name.json" "${sources[@]}" \
    --settings "$out/paper/$name.settings" "MODELS=${models[*]%%=*}" "FLAGS=$*" -- \
    "${launch[@]}" env "PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}" python "$examples/paper/$script" \
    "$out/data-bin" "$out/paper/$name.json" "${models[@]}" --device "$device" "$@"
}
measure_decoding() {
  measure decoding decoding.py --beam "$BEAM" --lenpen "$LENPEN" --runs "${RUNS:-3}" --sentences "${SENTENCES:-0}"
}
find_bench_device() {
  find_device
  device=cuda
  [ "$DEVICES" != cpu ] || device=cpu
}
