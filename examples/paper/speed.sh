#!/usr/bin/env bash
# What the paper's Table 2 (parameters, speed), Table 4 (operations of attention alone) and Figure 2 (decoding by length) are
# about, beside stock fairseq, with models of the data set's size and vocabulary. The paper's own protocol, with trained
# models and softmax as 1.00×, is in table2.sh, table4.sh and figure2.sh.
#   bash examples/paper/speed.sh DATASET [--dry-run]
# Nothing is trained: models are newly initialised. What is compared is measured in turn.
# Variables: DEVICES, REPEATS (5), LENGTHS of the sentences (25 512), FIGURE_LENGTHS (10 20 40 80 160 320),
# ATTENTIONS (rela_i rela_g), SIZE, PIECES
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
device=cuda
[ "$DEVICES" != cpu ] || device=cpu
read -ra lengths <<< "${LENGTHS:-25 512}"
read -ra figure_lengths <<< "${FIGURE_LENGTHS:-10 20 40 80 160 320}"
common=(--repeats "${REPEATS:-5}" --device "$device")
where=$out/paper

# bench NAME ARGUMENTS…: fairseq-rela bench; what it prints is kept in NAME.txt, the numbers in NAME.json.
bench() {
  local name=$1; shift
  say "$name"
  step --makes "$where/$name.txt" --stdout "$where/$name.txt" -- \
    "${launch[@]}" fairseq-rela bench "$@" "${common[@]}" --json "$where/$name.json"
  [ "$dry_run" ] || cat "$where/$name.txt"
}
for attention in ${ATTENTIONS:-rela_i rela_g}; do
  model=(--attention "$attention" --size "$SIZE" --vocabulary "$PIECES")
  bench "table2-train-$attention" train "${model[@]}" --lengths "${lengths[@]}" --entmax-lengths "${lengths[0]}"
  bench "table2-decode-$attention" decode "${model[@]}" --lengths "${lengths[@]}" --entmax
  bench "figure2-$attention" decode "${model[@]}" --lengths "${figure_lengths[@]}" --entmax --plot "$where/figure2-$attention.png"
done
bench table4-op op --lengths "${lengths[@]}" --entmax-lengths "${lengths[0]}"
