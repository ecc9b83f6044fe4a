#!/usr/bin/env bash
# Results on real text, in RESULTS.md. Trains, translates and analyses what is missing, and writes each row when it is
# known: what was interrupted goes on, and more machine time adds rows.
#   bash examples/results.sh [--dry-run] multi30k_en_de [trials | runs | scores | figures]…     (all four)
#   bash examples/results.sh [--dry-run] hansards_en_fr [runs | scores | figures | eflomal]…
# trials   the same few settings for softmax and rela_g, 400 updates each; which is best by the validation set
# runs     the budget for every attention, with the setting that won (SETTING=)
# scores   BLEU, compared with softmax's by paired bootstrap
# figures  the paper's Figures 3 to 6, and Table 6 as one, of all attentions side by side
# eflomal  AER of a word aligner trained on the same text, for scale (pip install eflomal)
# Variables: ATTENTIONS (softmax rela_g relu rela_i; to run some at a time, or side by side on several cores), SEED (1),
# SETTINGS (of the trials), DATA_DIR, OUT and the recipes' own; RESULTS, the file (examples/RESULTS.md)
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# the budget, the same for every attention
export SAVE_INTERVAL=${SAVE_INTERVAL:-100} WARMUP=${WARMUP:-300}
trial_updates=${TRIAL_UPDATES:-400}
read -ra settings <<< "${SETTINGS:-lr0.005 lr0.002 lr0.001 lr0.005-drop0.1 lr0.005-prenorm lr0.002-prenorm}"
tuned=(softmax rela_g)
SETTING=${SETTING:-lr0.005-prenorm}  # which won for both

steps=() words=()
for word in "$@"; do
  case $word in
    trials | runs | scores | figures | eflomal) steps+=("$word") ;;
    *) words+=("$word") ;;
  esac
done
arguments ${words[@]+"${words[@]}"}
case $dataset in
  multi30k_en_de) UPDATES=${UPDATES:-1000} default="softmax rela_g relu rela_i" ;;
  hansards_en_fr) UPDATES=${UPDATES:-1200} default="softmax rela_g" ;;
  *) die "no results are kept for $dataset; known are hansards_en_fr multi30k_en_de" ;;
esac
export UPDATES
[ -z "$arch" ] || die "unknown step '$arch'; known are trials runs scores figures eflomal"
load_dataset
find_environment
export OUT
results=${RESULTS:-$root/examples/RESULTS.md}
figures=$(dirname "$results")/figures
[ "${#steps[@]}" -gt 0 ] || { [ "$dataset" != multi30k_en_de ] || steps=(trials); steps+=(runs scores figures); }
read -ra attentions <<< "${ATTENTIONS:-$default}"
record() { run python "$root/examples/results.py" "$@"; }

# recipe SCRIPT ATTENTION SETTING: lr0.005-drop0.1-prenorm is a learning rate, attention dropout and the norm's place
recipe() {
  local script=$1 attention=$2 name=$3 norm=post dropout=0.0 lr=${3%%-*}
  case $name in *-drop0.1*) dropout=0.1 ;; esac
  case $name in *-prenorm*) norm=pre ;; esac
  TAG=$name LR=${lr#lr} ATTENTION_DROPOUT=$dropout NORM=$norm \
    bash "$root/examples/$script" "$dataset" "$attention" ${dry_run:+--dry-run}
}
run_of() { TAG=$2 run_directory "$(architecture "$1")" "$SEED"; }  # ATTENTION SETTING

trials() {
  local attention name found
  for attention in "${tuned[@]}"; do
    case " ${attentions[*]} " in *" $attention "*) ;; *) continue ;; esac
    found=()
    for name in "${settings[@]}"; do
      UPDATES=$trial_updates recipe train.sh "$attention" "$name"
      record trial "$results" "$trial_updates" "$dataset,$attention,$name=$(run_of "$attention" "$name")"
      found+=("$(run_of "$attention" "$name")")
    done
    [ "$dry_run" ] || say "$attention, best first: $(python "$root/examples/results.py" best "$trial_updates" "${found[@]}" |
      sed "s|.*/[^.]*\.\(.*\)\.seed$SEED\$|\1|" | paste -sd ' ')"
  done
}

runs() {
  local attention script
  for attention in "${attentions[@]}"; do
    for script in train.sh generate.sh analyze.sh; do
      recipe "$script" "$attention" "$SETTING" || { echo "$0: $attention ended in $script" >&2; continue 2; }
    done
    record run "$results" "$dataset,$attention,$SETTING,$SEED=$(run_of "$attention" "$SETTING")"
  done
}

# analysed: those that are, softmax first
analysed() {
  local attention
  for attention in softmax "${attentions[@]}"; do
    [ "$dry_run" ] || [ -e "$(run_of "$attention" "$SETTING")/analysis/metrics.json" ] || continue
    echo "$attention"
  done | awk '!seen[$0]++'
}

scores() {
  local attention named=()
  for attention in $(analysed); do named+=("$dataset,$attention,$SETTING,$SEED=$(run_of "$attention" "$SETTING")"); done
  record scores "$results" "$text/test.$TARGET" "${named[@]}"
}

figures() {
  local attention dumps=() flags=() figure
  for attention in $(analysed); do
    dumps+=("$attention=$(run_of "$attention" "$SETTING")/dump/$analysis_set")
    flags+=(--shuffled "$attention=$(run_of "$attention" "$SETTING")/dump/shuffled-$analysis_set")
  done
  [ "$analysis_set" != gold ] || flags+=(--gold "$text/gold.links" --gold-base "$GOLD_BASE")
  run rm -rf "$out/results"
  logged "$out/logs/results.log" fairseq-rela analyze "${dumps[@]}" "${flags[@]}" --out "$out/results"
  run mkdir -p "$figures"
  [ -z "$dry_run" ] || return 0
  for figure in sparsity alignment diversity diversity_tau null_rate; do
    [ ! -e "$out/results/$figure.png" ] || cp "$out/results/$figure.png" "$figures/$dataset-$figure.png"
  done
}

# the sentences with gold alignments are aligned together with the training text
eflomal() {
  local data=$out/eflomal side
  [ "$analysis_set" = gold ] || die "eflomal: $dataset has no gold alignments"
  [ "$dry_run" ] || command -v eflomal-align > /dev/null || die "no eflomal-align found: pip install eflomal"
  run mkdir -p "$data"
  for side in "${langs[@]}"; do piped /dev/null "$data/text.$side" cat "$text/gold.$side" "$text/train.$side"; done
  if ! made "$data/forward" "$data/reverse"; then
    run eflomal-align -s "$data/text.$SOURCE" -t "$data/text.$TARGET" --model 3 -f "$data/forward" -r "$data/reverse"
  fi
  record aer "$results" "$dataset" eflomal "$text/gold.links" "$GOLD_BASE" "$data/forward" "$data/reverse"
}

bash "$root/examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
for step in "${steps[@]}"; do "$step"; done
