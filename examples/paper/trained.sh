# shellcheck shell=bash disable=SC2034,SC2154
# What Table 2 and Figure 2 share: trained models, averaged, and the time each takes for every sentence of the test set.

# Sets `models`, NAME=CHECKPOINT for each of ATTENTIONS, after training and averaging what is missing; and `decoding` and
# `choice`, which name the files of these models and of this many runs and sentences.
trained_models() {
  local attention usual="softmax sparsemax entmax15 rela_g"
  read -ra attentions <<< "${ATTENTIONS:-$usual}"
  SEEDS=${SEEDS:-$SEED}
  case $SEEDS in *' '*) die "SEEDS=$SEEDS: speed is measured with one model of each attention; give one seed" ;; esac
  SEED=$SEEDS
  choice=$(suffix "=${attentions[*]}=$usual" "seed=$SEED=1" "runs=${RUNS:-3}=3")
  decoding=decoding$choice$(suffix "sentences=${SENTENCES:-0}=0")
  rows train.sh -- "${attentions[@]}"
  models=()
  for attention in "${attentions[@]}"; do
    arch=$attention
    find_run
    average_checkpoints
    models+=("$attention=$results_dir/average.pt")
  done
}

# measure NAME COMMAND…: a Python part of this directory, which writes PAPER/NAME.json. Measured again when a model or a
# setting that NAME does not have, such as the beam, has changed.
measure() {
  local name=$1 script=$2 sources=() model; shift 2
  for model in "${models[@]}"; do sources+=(--from "${model#*=}"); done
  step --say "$name: ${models[*]%%=*}" --makes "$paper/$name.json" "${sources[@]}" \
    --settings "$paper/$name.settings" "MODELS=${models[*]%%=*}" "FLAGS=$*" -- \
    "${launch[@]}" env "PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}" python "$examples/paper/$script" \
    "$out/data-bin" "$paper/$name.json" "${models[@]}" --device "$device" "$@"
}
measure_decoding() {
  measure "$decoding" decoding.py --beam "$BEAM" --lenpen "$LENPEN" --runs "${RUNS:-3}" --sentences "${SENTENCES:-0}"
}
find_bench_device() {
  find_device
  device=cuda
  [ "$DEVICES" != cpu ] || device=cpu
}
