# shellcheck shell=bash disable=SC2154
# What the paper's tables share: rows that are trained, translated and scored for every seed, and the table of them.

# rows SCRIPT… -- ATTENTION…: the scripts for each attention and seed. A row that fails is said and left out: that of
# a bare ReLU is expected to.
rows() {
  local scripts=() script attention seed flags
  while [ "$1" != -- ]; do scripts+=("$1"); shift; done
  shift
  bash "$root/examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
  for attention in "$@"; do
    for seed in $SEEDS; do
      for script in "${scripts[@]}"; do
        flags=()
        [ "$script" != train.sh ] || flags=("${extra[@]}")
        SEED=$seed bash "$root/examples/$script" "$dataset" "$attention" ${dry_run:+--dry-run} "${flags[@]}" ||
          { echo "$recipe: $attention, seed $seed, ended in $script" >&2; break; }
      done
    done
  done
}

# joined ATTENTION SUFFIX: the run directories of all its seeds, with a suffix, apart by commas.
joined() {
  local seed found=
  for seed in $SEEDS; do found+=,$(run_directory "$(architecture "$1")" "$seed")$2; done
  echo "${found#,}"
}

# table NAME LABEL=ATTENTION…: the scores of the runs there are, kept in OUT/paper/NAME.tsv.
table() {
  local name=$1 row arguments=(); shift
  for row in "$@"; do arguments+=("${row%=*}=$(joined "${row##*=}" '')"); done
  run mkdir -p "$out/paper"
  piped /dev/null "$out/paper/$name.tsv" python "$root/examples/table.py" runs "${arguments[@]}"
  [ "$dry_run" ] || cat "$out/paper/$name.tsv"
}
