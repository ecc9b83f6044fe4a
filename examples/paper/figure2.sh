#!/usr/bin/env bash
# The paper's Figure 2: the test set in 10 equal groups by source length, and the decoding speed of each group relative to
# softmax, at batch size 1, as the mean of 3 runs. Writes OUT/paper/figure2.png and figure2.tsv.
#   bash examples/paper/figure2.sh DATASET [--dry-run] [fairseq-train's flags]
# Variables: ATTENTIONS (softmax sparsemax entmax15 rela_g; the first is 1.00×), RUNS (3), SENTENCES of the test set
# (0: all), SEEDS (one seed), DEVICES
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
# shellcheck source=examples/paper/trained.sh
. "$examples/paper/trained.sh"
arguments "$@"
load_dataset
find_environment
find_bench_device
trained_models
measure_decoding
step --stdout "$paper/figure2$choice.tsv" -- env "PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}" \
  python "$examples/paper/speed_tables.py" figure2 "$paper/$decoding.json" "$paper/figure2$choice.png"
[ "$dry_run" ] || cat "$paper/figure2$choice.tsv"
