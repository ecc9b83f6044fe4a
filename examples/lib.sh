# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# What the recipes share: their arguments, the data set's settings, the environment, and where a run's files are.
set -euo pipefail

recipe=${0##*/}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
examples=$root/examples user_dir=$root/fairseq_rela
die() { echo "$recipe: $*" >&2; exit 1; }
say() { if [ "$dry_run" ]; then echo "# $*"; else echo "[$dataset] $*"; fi; }

# step [OPTIONS] -- COMMAND…: run it unless what it makes is up to date; with --dry-run, print it. See step.py.
step() { "$python" "$examples/step.py" "$@"; }
# A dry run takes nothing as done.
finished() { [ -z "$dry_run" ] && [ -e "$1" ]; }

# --- arguments: DATASET [ARCH] [--dry-run], and in `extra` what is left for the command behind the recipe
dry_run='' dataset='' arch='' extra=()
datasets() { local file; for file in "$examples"/datasets/*.sh; do basename "$file" .sh; done | paste -sd ' '; }

arguments() {
  local word
  for word in "$@"; do
    case $word in
      --dry-run) dry_run=yes ;;
      -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
      *)
        if [ "${#extra[@]}" -eq 0 ] && [ -z "$dataset" ] && [ "${word#-}" = "$word" ]; then dataset=$word
        elif [ "${#extra[@]}" -eq 0 ] && [ -z "$arch" ] && [ "${word#-}" = "$word" ]; then arch=$word
        else extra+=("$word"); fi ;;
    esac
  done
  [ -n "$dataset" ] || die "no DATASET; known are $(datasets)"
  [ -f "$examples/datasets/$dataset.sh" ] || die "unknown data set '$dataset'; known are $(datasets)"
}

# --- settings: the environment's, then the data set's, then those of settings.sh
load_dataset() {
  FILES=() MADE_BY=() TRAIN=() VALID=() TEST=() GOLD=() NOISY=()
  GOLD_LINKS='' GOLD_LINES='' GOLD_BASE=0 GOLD_REVERSE='' GOLD_ENCODING=utf-8 ENCODING=utf-8 NOISY_LABELS='' TRAIN_LINKS=''
  VALID_EVERY='' VALID_LINES='' TEST_LINES='' TOKENIZED='' SEGMENTED='' SACREBLEU_SET=''
  [ -z "${DATA_DIR:-}" ] || [ -d "$DATA_DIR" ] || die "DATA_DIR=$DATA_DIR is not a directory"
  [ -z "${GOLD_DIR:-}" ] || [ -d "$GOLD_DIR" ] || die "GOLD_DIR=$GOLD_DIR is not a directory"
  OUT=${OUT:-$root/runs/$dataset}
  # shellcheck source=/dev/null
  . "$examples/datasets/$dataset.sh"
  local name
  for name in PIECES MAX_PIECES WARMUP UPDATES TOKENS_PER_UPDATE MAX_TOKENS AVERAGE BEAM SEED WORKERS SAVE_INTERVAL AT; do
    case ${!name-} in *[!0-9]*) die "$name=${!name} is not a whole number" ;; esac
  done
  # shellcheck source=examples/settings.sh
  . "$examples/settings.sh"
  case ${KEEP#-} in '' | *[!0-9]*) die "KEEP=$KEEP is not a whole number" ;; esac
  out=$OUT text=$OUT/text pieces=$OUT/pieces langs=("$SOURCE" "$TARGET")
  # What makes pieces of text, how fairseq joins them, and the words that a translation is compared with.
  encoder=(python "$examples/segment.py" encode "$pieces/spm") joined_by=sentencepiece reference=$text/test.$TARGET
  if [ "$SEGMENTED" ]; then  # the text comes in pieces: un@@ known
    encoder=(cat) joined_by=subword_nmt reference=$text/test.words.$TARGET
  fi
  paper=$out/paper${TAG:+.$TAG}${AT:+.at$AT}  # tables and reports of these runs
  # analyze.sh studies the test set, and word alignment on the sentences with gold links: `gold_set` is '' where there are
  # none, and `test` where they are the test set. Gold links that were given once are kept in text/.
  gold_set='' gold_flags=()
  if [ "${#GOLD[@]}" -gt 0 ] || [ -e "$text/gold.links" ]; then
    gold_set=gold gold_flags=(--gold "$text/gold.links" --gold-base "$GOLD_BASE" ${GOLD_REVERSE:+--gold-reverse})
    [ "${GOLD[*]-}" != "${TEST[*]-}" ] || gold_set='test'
  fi
}

# The environment: $RELA_VENV, else what is in PATH, else .venv.
find_environment() {
  local venv=${RELA_VENV:-}
  [ -n "$venv" ] || command -v fairseq-train > /dev/null || venv=$root/.venv
  [ ! -d "$venv" ] || PATH=$(cd "$venv" && pwd)/bin:$PATH
  [ "$dry_run" ] || command -v fairseq-train > /dev/null || die "fairseq-train was not found; run 'bash examples/setup_env.sh' first"
  python=$(command -v python || command -v python3) || die "Python was not found; run 'bash examples/setup_env.sh' first"
  export RECIPE=$recipe RECIPE_DATASET=$dataset RECIPE_DRY_RUN=$dry_run
}

# Set launch, device_flags and workers from DEVICES: all of them for training, one for translating and scoring.
launch=() device_flags=() workers=1
assign_devices() {  # all | one
  local assignments
  assignments=$(DEVICES=${DEVICES:-} "$python" "$examples/devices.py" "$1") || exit 1
  eval "$assignments"
}
find_devices() { assign_devices all; }
find_device() { assign_devices one; }

# --- a run: its architecture, and where its files are

# ARCH is an architecture, or the name of an attention in the data set's size: rela_g is transformer_rela_g_tiny.
architecture() {
  case $1 in
    transformer*) echo "$1" ;;
    *) echo "transformer_${1}_$SIZE" ;;
  esac
}
run_directory() { echo "$out/$1${TAG:+.$TAG}.seed$2"; }  # ARCHITECTURE SEED
results_directory() { echo "$(run_directory "$1" "$2")${AT:+/at$AT}"; }  # of the same run: its translation and analyses

# Sets run_dir, where the training is, and results_dir, where its translation and analyses are.
find_run() {
  [ -n "$arch" ] || die "no ARCH; give an architecture as transformer_rela_g_tiny, or an attention as rela_g"
  arch=$(architecture "$arch")
  run_dir=$(run_directory "$arch" "$SEED")
  results_dir=$(results_directory "$arch" "$SEED")
  title="$arch, seed $SEED${AT:+, update $AT}"
}

# results_dir/average.pt: fairseq-rela average CHECKPOINT… --output average.pt
average_checkpoints() {
  "$python" "$examples/average.py" "$run_dir" "$results_dir/average.pt" --updates "${AT:-$UPDATES}" --average "$AVERAGE" \
    --every "$SAVE_INTERVAL" --log "$out/logs/average.log" --title "$title" --train "$dataset $arch"
}
