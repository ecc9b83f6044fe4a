#!/usr/bin/env bash
# The paper's Table 3: BLEU of the sparse attentions beside softmax on other languages, one data set at a time
# (the paper's are wmt14_en_fr, wmt18_en_fi, wmt18_zh_en and wmt16_ro_en; rela_i is our addition).
#   bash examples/paper/table3.sh DATASET [--dry-run] [fairseq-train's flags]
# SEEDS="1 2 3" trains each row with these seeds; ATTENTIONS="softmax rela_g" takes only these. Writes OUT/paper/table3.tsv;
# a choice of seeds or attentions has a file of its own.
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
SEEDS=${SEEDS:-1}
usual="softmax sparsemax entmax15 rela_i rela_g"
read -ra attentions <<< "${ATTENTIONS:-$usual}"
rows train.sh generate.sh -- "${attentions[@]}"
labels=()
for attention in "${attentions[@]}"; do labels+=("$attention=$attention"); done
table "table3$(suffix "=${attentions[*]}=$usual" "seeds=$SEEDS=1")" "${labels[@]}"
