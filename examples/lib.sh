# shellcheck shell=bash disable=SC2034,SC2153
# What the recipes share: their arguments, their variables, commands that are shown or run, files that appear whole.
set -euo pipefail

recipe=${0##*/}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
die() { echo "$recipe: $*" >&2; exit 1; }

# --- commands

# A command as one would type it: words are quoted where they must be.
show() {
  local word line=
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,@%+-]*) word="'${word//\'/\'\\\'\'}'" ;;
    esac
    line+=" $word"
  done
  printf '%s' "${line# }"
}

# run COMMAND…: run it, or with --dry-run show it.
run() {
  if [ "$dry_run" ]; then show "$@"; echo; else "$@"; fi
}

# piped IN OUT COMMAND…: COMMAND < IN > OUT, where OUT appears whole or not at all. IN may be /dev/null.
piped() {
  local in=$1 out=$2; shift 2
  if [ "$dry_run" ]; then
    if [ "$in" = /dev/null ]; then in=; else in=" < $(show "$in")"; fi
    echo "$(show "$@")$in > $(show "$out")"
  else
    "$@" < "$in" > "$out.part" || die "$out could not be made: '$(show "$@")' failed"
    mv "$out.part" "$out"
  fi
}

# logged LOG COMMAND…: what it prints goes to LOG; when it fails, the end of that is shown.
logged() {
  local log=$1; shift
  if [ "$dry_run" ]; then echo "$(show "$@") > $(show "$log") 2>&1"; return; fi
  mkdir -p "$(dirname "$log")"
  "$@" > "$log" 2>&1 || { tail -n 3 "$log" >&2; die "'$1 … ${*: -1}' failed; all it printed is in $log"; }
}

# made FILE…: they are all there, so that the step is done. With --dry-run nothing is.
made() {
  local file
  [ -z "$dry_run" ] || return 1
  for file in "$@"; do [ -e "$file" ] || return 1; done
}

# fresh FILE SOURCE…: it is there and not older than what it was made of.
fresh() {
  local file=$1 source; shift
  made "$file" || return 1
  for source in "$@"; do [ ! "$source" -nt "$file" ] || return 1; done
}

say() { if [ "$dry_run" ]; then echo "# $*"; else echo "[$dataset] $*"; fi; }

# same_settings FILE NAME…: FILE holds these variables as they are now, or is new.
same_settings() {
  local file=$1 name now=; shift
  [ -z "$dry_run" ] || return 0
  for name in "$@"; do now+="$name=${!name-}"$'\n'; done
  if [ ! -e "$file" ]; then
    mkdir -p "$(dirname "$file")"
    printf '%s' "$now" > "$file"
    return
  fi
  local differs
  differs=$(diff "$file" <(printf '%s' "$now") | sed -n 's/^< //p' | tr '\n' ' ') || true
  [ -z "$differs" ] || die "$(dirname "$file") was made with ${differs% }; remove it, or set ${settings_apart-OUT} to keep both"
}

# remember FILE NAME…: keep these variables in FILE, untouched if they are as before: what depends on FILE is made anew
# when they change.
remember() {
  local file=$1 name now=; shift
  [ -z "$dry_run" ] || return 0
  for name in "$@"; do now+="$name=${!name-}"$'\n'; done
  [ -e "$file" ] && [ "$(cat "$file")" = "${now%$'\n'}" ] || printf '%s' "$now" > "$file"
}

# --- arguments

dry_run='' dataset='' arch='' extra=()
datasets() { local file; for file in "$root"/examples/datasets/*.sh; do basename "$file" .sh; done | paste -sd ' '; }

# arguments "$@": DATASET [ARCH] [--dry-run] and what is left, for the command behind the recipe.
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
  [ -f "$root/examples/datasets/$dataset.sh" ] || die "unknown data set '$dataset'; known are $(datasets)"
}

# --- variables: the environment's, then the data set's, then the paper's

load_dataset() {
  VALID=() GOLD=() GOLD_LINKS='' GOLD_LINES='' GOLD_BASE=0 GOLD_REVERSE='' GOLD_ENCODING=utf-8 ENCODING=utf-8
  NOISY=() NOISY_LABELS=''
  VALID_EVERY='' VALID_LINES='' TEST_LINES='' TOKENIZED='' SACREBLEU_SET=''
  [ -z "${DATA_DIR:-}" ] || [ -d "$DATA_DIR" ] || die "DATA_DIR=$DATA_DIR is no directory"
  [ -z "${GOLD_DIR:-}" ] || [ -d "$GOLD_DIR" ] || die "GOLD_DIR=$GOLD_DIR is no directory"
  OUT=${OUT:-$root/runs/$dataset}
  # shellcheck source=/dev/null
  . "$root/examples/datasets/$dataset.sh"

  PIECES=${PIECES:-32000}            # of one sentencepiece BPE model for both languages
  COVERAGE=${COVERAGE:-1.0}          # share of the characters that get a piece
  EMBEDDINGS=${EMBEDDINGS:-decoder}  # what shares them: the decoder's two, as in the authors' code, or all
  MAX_PIECES=${MAX_PIECES:-256}      # longer pairs are not trained on
  SIZE=${SIZE:-base}
  NORM=${NORM:-post}                 # layer norm after each sublayer, as in the paper, or before it: post or pre
  LR=${LR:-0.0007} WARMUP=${WARMUP:-4000} UPDATES=${UPDATES:-300000}
  DROPOUT=${DROPOUT:-0.1} ATTENTION_DROPOUT=${ATTENTION_DROPOUT:-0.1} WEIGHT_DECAY=${WEIGHT_DECAY:-0.0}
  TOKENS_PER_UPDATE=${TOKENS_PER_UPDATE:-25000} MAX_TOKENS=${MAX_TOKENS:-6250}
  AVERAGE=${AVERAGE:-5} BEAM=${BEAM:-4} LENPEN=${LENPEN:-0.6} SEED=${SEED:-1}
  SAMPLE=${SAMPLE:-} MIN_WORDS=${MIN_WORDS:-1} MAX_WORDS=${MAX_WORDS:-} MAX_RATIO=${MAX_RATIO:-}
  EXTRA_TRAIN=${EXTRA_TRAIN:-} CORPUS=${CORPUS:-} CHECKSUMS=${CHECKSUMS:-} WORKERS=${WORKERS:-1}
  CACHE_DIR=${CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fairseq-rela}
  local name
  for name in PIECES MAX_PIECES WARMUP UPDATES TOKENS_PER_UPDATE MAX_TOKENS AVERAGE BEAM SEED WORKERS; do
    case ${!name} in '' | *[!0-9]*) die "$name=${!name} is no whole number" ;; esac
  done
  # every 5,000 updates as in the authors' recipe; ten times in a short training
  SAVE_INTERVAL=${SAVE_INTERVAL:-$((UPDATES / 10 < 5000 ? (UPDATES / 10 > 0 ? UPDATES / 10 : 1) : 5000))}

  out=$OUT text=$OUT/text pieces=$OUT/pieces
  langs=("$SOURCE" "$TARGET")
  analysis_set='test'
  [ "${#GOLD[@]}" -eq 0 ] || analysis_set=gold
}

# The environment: $RELA_VENV, else what is in the path, else .venv.
find_environment() {
  local venv=${RELA_VENV:-}
  [ -n "$venv" ] || command -v fairseq-train > /dev/null || venv=$root/.venv
  [ -z "$venv" ] || PATH=$(cd "$venv" 2> /dev/null && pwd)/bin:$PATH
  [ "$dry_run" ] || command -v fairseq-train > /dev/null || die "no fairseq-train found; run 'bash examples/setup_env.sh' first"
}

# --- devices

# DEVICES=cpu | 4 (GPUs here) | torchrun:2x8 | slurm:2x8 (machines x GPUs of each). Sets launch, device_flags, workers.
find_devices() {
  local gpus machines each
  if [ -z "${DEVICES:-}" ]; then
    gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU') || true
    DEVICES=$([ "${gpus:-0}" -gt 0 ] && echo "$gpus" || echo cpu)
  fi
  case $DEVICES in
    cpu)
      # more threads gain little on small models, and lose much on a busy machine
      launch=(env "OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}") device_flags=(--cpu) workers=1 ;;
    torchrun:[1-9]*x[1-9]* | slurm:[1-9]*x[1-9]*)
      machines=${DEVICES#*:} each=${DEVICES##*x}
      machines=${machines%x*}
      case $machines$each in *[!0-9]*) bad_devices ;; esac
      workers=$((machines * each))
      if [ "${DEVICES%%:*}" = torchrun ]; then
        # run the recipe on every machine, with its NODE_RANK; fairseq takes its rank from torchrun
        launch=(torchrun --nnodes "$machines" --nproc_per_node "$each" --node_rank "${NODE_RANK:-0}"
          --master_addr "${MASTER_ADDR:-127.0.0.1}" --master_port "${MASTER_PORT:-29500}" --no_python)
        device_flags=(--distributed-world-size "$workers")
      else
        # one task a machine: fairseq starts one process a GPU there, and finds the others through the port
        launch=(srun --nodes "$machines" --ntasks-per-node 1 --gpus-per-node "$each")
        device_flags=(--distributed-world-size "$workers" --distributed-port "${MASTER_PORT:-29500}")
      fi ;;
    0* | *[!0-9]*) bad_devices ;;
    *) launch=() workers=$DEVICES device_flags=(--distributed-world-size "$DEVICES") ;;
  esac
}
bad_devices() { die "DEVICES=$DEVICES is not known; give cpu, a number of GPUs, torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS"; }

# translating and scoring take one device
find_device() {
  find_devices
  if [ "$DEVICES" = cpu ]; then return; fi
  launch=() device_flags=()
}

# --- a run: the architecture, and where its files are

# ARCH is an architecture, or the name of an attention in the data set's size: rela_g is transformer_rela_g_tiny.
architecture() {
  case $1 in
    transformer*) echo "$1" ;;
    *) echo "transformer_${1}_$SIZE" ;;
  esac
}
run_directory() { echo "$out/$1${TAG:+.$TAG}.seed$2"; }  # ARCHITECTURE SEED

find_run() {
  [ -n "$arch" ] || die "no ARCH; give an architecture as transformer_rela_g_tiny, or an attention as rela_g"
  arch=$(architecture "$arch")
  run_dir=$(run_directory "$arch" "$SEED")
  settings_apart="TAG or OUT"
  user_dir=$root/fairseq_rela
}
