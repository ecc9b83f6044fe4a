#!/usr/bin/env bash
# The paper's Table 2: parameters of the recipe's own models, speed of a training step and of translating the test set at
# batch size 1, relative to softmax, with the paper's figures beside them.
#   bash examples/paper/table2.sh DATASET [--dry-run] [fairseq-train's flags]
# Models that are not trained yet are trained first. As in the paper: 500 steps of about 25,000 target tokens with
# attention dropout 0.1, and the mean of 3 runs. On a CPU give fewer; the table says how many were used.
# Variables: ATTENTIONS (softmax sparsemax entmax15 rela_g; the first is 1.00×), TOKENS (25000), STEPS (500), RUNS (3),
# SENTENCES of the test set (0: all), SEEDS (one seed), DEVICES. Writes OUT/paper/table2.tsv; times that were measured with
# other settings stay in files of their own.
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
training=training-step$choice$(suffix "tokens=${TOKENS:-25000}=25000" "steps=${STEPS:-500}=500")
measure "$training" training_step.py --tokens "${TOKENS:-25000}" --max-tokens "$MAX_TOKENS" --steps "${STEPS:-500}" \
  --runs "${RUNS:-3}" --attention-dropout 0.1
measure_decoding
step --stdout "$paper/table2$choice.tsv" -- python "$examples/paper/speed_tables.py" table2 \
  "$paper/$training.json" "$paper/$decoding.json"
[ "$dry_run" ] || cat "$paper/table2$choice.tsv"
