#!/usr/bin/env bash
# The paper's Table 4: its counts of the operations of softmax and ReLA-g, where they are equal, and measured times of
# attention with its norm and gate beside them.
#   bash examples/paper/table4.sh DATASET [--dry-run]
# No model is trained, and the data set only says where the table is kept: OUT/paper/table4.txt.
# Variables: LENGTHS (100 1000, as in the paper), REPEATS (5), DEVICES
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_device
device=cuda
[ "$DEVICES" != cpu ] || device=cpu
read -ra lengths <<< "${LENGTHS:-100 1000}"
export PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}
step --stdout "$out/paper/table4.txt" -- "${launch[@]}" python "$examples/paper/table4.py" \
  --lengths "${lengths[@]}" --repeats "${REPEATS:-5}" --device "$device"
[ "$dry_run" ] || cat "$out/paper/table4.txt"
