#!/usr/bin/env bash
# The paper's Table 1: BLEU of all 13 rows on one data set (the paper's is wmt14_en_de).
#   bash examples/paper/table1.sh DATASET [--dry-run] [fairseq-train's flags]
# SEEDS="1 2 3" trains each row with these seeds; ROWS="1 7" takes only these rows. The variables of the recipes apply to all.
# A finished run is not repeated, so the table can be filled row by row. Row 4, ReLU alone, is expected to fail.
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
SEEDS=${SEEDS:-1}
mapfile -t all < <(PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" "$examples/attentions.py" table1)
[ "${#all[@]}" -gt 0 ] || die "the catalog of attentions could not be read"
attentions=() labels=()
for row in ${ROWS:-$(seq ${#all[@]})}; do
  case $row in *[!0-9]* | 0) die "ROWS: there is no row $row; give numbers from 1 to ${#all[@]}" ;; esac
  [ "$row" -le ${#all[@]} ] || die "ROWS: there is no row $row; give numbers from 1 to ${#all[@]}"
  attentions+=("${all[row - 1]}")
  labels+=("$row ${all[row - 1]}=${all[row - 1]}")
done
rows train.sh generate.sh -- "${attentions[@]}"
table table1 "${labels[@]}"
