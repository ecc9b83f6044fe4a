# shellcheck shell=bash disable=SC2154
# What the paper's tables share: rows that are trained, translated and scored for every seed, and the table of them.

# rows SCRIPT… -- ATTENTION…: run the scripts for each attention and seed. A row that fails is reported and left out:
# row 4 of Table 1, ReLU alone, is expected to fail.
rows() {
  local scripts=() script attention seed flags
  while [ "$1" != -- ]; do scripts+=("$1"); shift; done
  shift
  bash "$examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
  for attention in "$@"; do
    for seed in $SEEDS; do
      for script in "${scripts[@]}"; do
        flags=()
        [ "$script" != train.sh ] || flags=("${extra[@]}")
        SEED=$seed bash "$examples/$script" "$dataset" "$attention" ${dry_run:+--dry-run} "${flags[@]}" ||
          { echo "$recipe: $attention, seed $seed, failed in $script" >&2; break; }
      done
    done
  done
}

# joined ATTENTION: the result directories of all its seeds, separated by commas.
joined() {
  local seed runs=
  for seed in $SEEDS; do runs+=,$(results_directory "$(architecture "$1")" "$seed"); done
  echo "${runs#,}"
}

# suffix NAME=VALUE=DEFAULT…: '' where all values are the defaults, else the others, for the name of a file. So a run with
# other settings never replaces what an earlier one has measured.
suffix() {
  local word name value text=
  for word in "$@"; do
    name=${word%%=*} value=${word#*=}
    [ "${value%=*}" = "${value##*=}" ] || text+=.$name${value%=*}
  done
  echo "${text// /+}"
}

# table NAME LABEL=ATTENTION…: the scores of the runs there are, kept in PAPER/NAME.tsv.
table() {
  local file=$paper/$1.tsv row labels=(); shift
  for row in "$@"; do labels+=("${row%=*}=$(joined "${row##*=}")"); done
  step --stdout "$file" -- python "$examples/table.py" runs "${labels[@]}"
  [ "$dry_run" ] || cat "$file"
}
