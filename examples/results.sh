#!/usr/bin/env bash
# Results on real text, in RESULTS.md. Trains, translates and analyses what is missing, and writes the rows of what is
# done. An interrupted run continues where it stopped.
#   bash examples/results.sh [--dry-run] multi30k_en_de [trials | runs | ablation | tables | figures]…
#   bash examples/results.sh [--dry-run] hansards_en_fr [trials | runs | tables | figures | eflomal]…
#   bash examples/results.sh [--dry-run] multi30k_bpe_en_de [runs | tables | figures]…
# trials    the same few settings for each attention, 400 updates each, compared by the validation set
# runs      the budget: train, translate and analyse each attention with each seed
# ablation  the second table, of more attentions and fewer updates. An attention of `runs` is not trained again: the
#           checkpoints of its run at that update are averaged
# tables    BLEU with mean, range and paired bootstrap, sparsity, null rate, diversity, AER. Only runs that have come to
#           the budget have rows there; shorter ones are in the table "Trials"
# figures   validation loss by update, and the paper's Figures 3 to 6 and Table 6, of all attentions side by side
# eflomal   AER of a word aligner trained on the same text, for scale (pip install eflomal)
# Without a step: trials, runs, ablation, tables and figures. Variables: ATTENTIONS and SEEDS (only these are trained, to
# run some at a time or side by side), SETTING (lr0.005-prenorm; lr0.005 for multi30k_bpe_en_de), SETTINGS (of the
# trials), RESULTS (the file), DATA_DIR, OUT and those of the recipes.
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
steps=() words=()
for word in "$@"; do
  case $word in
    trials | runs | ablation | tables | figures | eflomal) steps+=("$word") ;;
    *) words+=("$word") ;;
  esac
done
arguments ${words[@]+"${words[@]}"}
[ -z "$arch" ] || die "unknown step '$arch'; known are trials runs ablation tables figures eflomal"

# --- the budget. An update has 4,000 tokens; the attention that others are compared with comes first.
ablation=() ablation_updates='' ablation_seed=1 tried=(softmax rela_g rela_gc rexa softmax_unit)
case $dataset in
  multi30k_en_de)
    budget=(softmax rela_g rela_gc rexa softmax_unit) seeds=(1 2 3) UPDATES=${UPDATES:-4000}
    ablation=(softmax rela_g rela_gc rexa softmax_unit rela_i relu relu_rmsnorm sparsemax entmax15
      rela_g_encoder_only rela_g_decoder_only rela_g_cross_only)
    ablation_updates=${ABLATION_UPDATES:-2000} ;;
  hansards_en_fr)
    budget=(softmax rela_g rela_gc rexa softmax_unit entmax15) seeds=(1) UPDATES=${UPDATES:-6000} ;;
  multi30k_bpe_en_de)  # only the published setting, which is in the data set's file
    budget=(softmax rela_gc rexa) tried=() seeds=(1) UPDATES=${UPDATES:-8000} SETTING=${SETTING:-lr0.005}
    WARMUP=${WARMUP:-2000} SAVE_INTERVAL=${SAVE_INTERVAL:-50} ;;
  *) die "no results are kept for $dataset; known are hansards_en_fr multi30k_bpe_en_de multi30k_en_de" ;;
esac
export TRIAL_UPDATES=${TRIAL_UPDATES:-400}
read -ra settings <<< "${SETTINGS:-lr0.005 lr0.002 lr0.001 lr0.005-prenorm lr0.002-prenorm}"
SETTING=${SETTING:-lr0.005-prenorm}  # the best of the trials
export UPDATES SAVE_INTERVAL=${SAVE_INTERVAL:-100} WARMUP=${WARMUP:-300}

load_dataset
find_environment
export OUT
results=${RESULTS:-$examples/RESULTS.md}
figures=$(dirname "$results")/figures
# shellcheck disable=SC2086
[ -z "${ATTENTIONS:-}" ] || PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" "$examples/attentions.py" known $ATTENTIONS
[ "${#steps[@]}" -gt 0 ] || steps=(trials runs ablation tables figures)
read -ra only_attentions <<< "${ATTENTIONS:-${budget[*]} ${ablation[*]-}}"
read -ra only_seeds <<< "${SEEDS:-${seeds[*]}}"

# chosen NAME NAMES…: whether NAME is among them
chosen() { local name=$1; shift; case " $* " in *" $name "*) ;; *) return 1 ;; esac; }
run_of() { TAG=$2 run_directory "$(architecture "$1")" "$3"; }  # ATTENTION SETTING SEED

# run_recipe SCRIPT ATTENTION SETTING SEED. A SETTING names a learning rate, attention dropout and the place of the
# norm: lr0.005-drop0.1-prenorm.
run_recipe() {
  local norm=post dropout=0.0 lr=${3%%-*}
  case $3 in *-drop0.1*) dropout=0.1 ;; esac
  case $3 in *-prenorm*) norm=pre ;; esac
  TAG=$3 LR=${lr#lr} ATTENTION_DROPOUT=$dropout NORM=$norm SEED=$4 bash "$examples/$1" "$dataset" "$2" ${dry_run:+--dry-run}
}
record() { step -- python "$examples/results.py" "$@"; }

trials() {
  local attention name trained
  for attention in "${tried[@]}"; do
    chosen "$attention" "${only_attentions[@]}" || continue
    trained=()
    for name in "${settings[@]}"; do
      UPDATES=$TRIAL_UPDATES run_recipe train.sh "$attention" "$name" "${seeds[0]}"
      trained+=("$(run_of "$attention" "$name" "${seeds[0]}")")
      record trial "$results" "$dataset" "$TRIAL_UPDATES" "$name" "$attention,${seeds[0]}=${trained[-1]}"
    done
    [ "$dry_run" ] || say "$attention, best first: $("$python" "$examples/results.py" best "$TRIAL_UPDATES" "${trained[@]}" |
      sed 's|.*/[^.]*\.\(.*\)\.seed[0-9]*$|\1|' | paste -sd ' ')"
  done
}

# whole_run ATTENTION SEED: train, translate, analyse. One that fails is reported, and the others go on.
whole_run() {
  local script
  for script in train.sh generate.sh analyze.sh; do
    if [ -n "${AT:-}" ] && [ "$script" = train.sh ]; then continue; fi
    run_recipe "$script" "$1" "$SETTING" "$2" || { echo "$recipe: $1, seed $2, failed in $script" >&2; return; }
  done
}

runs() {
  local attention seed
  for seed in "${only_seeds[@]}"; do
    for attention in "${budget[@]}"; do
      chosen "$attention" "${only_attentions[@]}" || continue
      if [ -n "$ablation_updates" ] && [ "$seed" = "$ablation_seed" ]; then
        KEEP=-1 whole_run "$attention" "$seed"  # for AT below
      else
        whole_run "$attention" "$seed"
      fi
    done
  done
}

ablation() {
  local attention
  for attention in "${ablation[@]}"; do
    chosen "$attention" "${only_attentions[@]}" || continue
    if chosen "$attention" "${budget[@]}"; then
      AT=$ablation_updates whole_run "$attention" "$ablation_seed"
    else
      UPDATES=$ablation_updates whole_run "$attention" "$ablation_seed"
    fi
  done
}

# the runs of both tables as ATTENTION,SEED=RUN
budget_runs() {
  local attention seed
  for attention in "${budget[@]}"; do
    for seed in "${seeds[@]}"; do echo "$attention,$seed=$(run_of "$attention" "$SETTING" "$seed")"; done
  done
}
ablation_runs() {
  local attention at
  for attention in "${ablation[@]}"; do
    at=''
    if chosen "$attention" "${budget[@]}"; then at=/at$ablation_updates; fi
    echo "$attention,$ablation_seed=$(run_of "$attention" "$SETTING" "$ablation_seed")$at"
  done
}

# the best row of cross attention for word alignment, of the runs that were analysed
best_alignments() {
  local named run
  [ -n "$gold_set" ] || return 0
  for named in "$@"; do
    run=${named#*=}
    [ "$dry_run" ] || [ -e "$run/dump/$gold_set.log" ] || continue
    step --makes "$run/best_alignment.json" --stdout "$run/best_alignment.json" --from "$run/dump/$gold_set.log" -- \
      python "$examples/best_alignment.py" "$run/dump/$gold_set" "${gold_flags[@]}"
  done
}

tables() {
  local named
  mapfile -t named < <(budget_runs)
  best_alignments "${named[@]}"
  record record "$results" "$dataset" "$UPDATES" "$SETTING" "$reference" "${named[@]}"
  [ "${#ablation[@]}" -gt 0 ] || return 0
  mapfile -t named < <(ablation_runs)
  record record "$results" "$dataset" "$ablation_updates" "$SETTING" "$reference" "${named[@]}"
}

# existing FILE ATTENTION: the runs of the attention that have this file, one per line
existing() {
  local seed run
  for seed in "${seeds[@]}"; do
    run=$(run_of "$2" "$SETTING" "$seed")
    if [ "$dry_run" ] || [ -e "$run/$1" ]; then echo "$run"; fi
  done
}

figures() {
  local attention run trained dumps=() shuffled=() aligned=() curves=() figure
  for attention in $(printf '%s\n' "${budget[@]}" ${ablation[@]+"${ablation[@]}"} | awk '!seen[$0]++'); do
    trained=$(existing train.log "$attention" | paste -sd ,)
    [ -z "$trained" ] || curves+=("$attention=$trained")
  done
  step -- python "$examples/curves.py" "$figures/$dataset-validation.png" "$dataset" ${curves[@]+"${curves[@]}"}
  for attention in "${budget[@]}"; do
    for run in $(existing analysis/metrics.json "$attention"); do
      dumps+=("$attention=$run/dump/test")
      shuffled+=(--shuffled "$attention=$run/dump/shuffled-test")
      [ "$gold_set" != gold ] || aligned+=(--aligned "$attention=$run/dump/gold")
    done
  done
  [ "${#dumps[@]}" -gt 0 ] || return 0
  step --remove "$out/results" --log "$out/logs/results.log" -- \
    fairseq-rela analyze "${dumps[@]}" "${shuffled[@]}" "${aligned[@]}" "${gold_flags[@]}" --out "$out/results"
  for figure in sparsity alignment diversity diversity_tau null_rate; do
    [ ! -e "$out/results/$figure.png" ] || step -- cp "$out/results/$figure.png" "$figures/$dataset-$figure.png"
  done
}

# The sentences with gold alignments are aligned together with the training text.
eflomal() {
  local data=$out/eflomal side
  [ -n "$gold_set" ] || die "eflomal: $dataset has no gold alignments"
  [ "$dry_run" ] || command -v eflomal-align > /dev/null || die "eflomal-align was not found: pip install eflomal"
  for side in "${langs[@]}"; do
    step --makes "$data/text.$side" --stdout "$data/text.$side" -- cat "$text/gold.$side" "$text/train.$side"
  done
  step --makes "$data/reverse" -- \
    eflomal-align -s "$data/text.$SOURCE" -t "$data/text.$TARGET" --model 3 -f "$data/forward" -r "$data/reverse"
  record aligner "$results" "$dataset" eflomal "$text/gold.links" "$GOLD_BASE" "$data/forward" "$data/reverse"
}

bash "$examples/prepare.sh" "$dataset" ${dry_run:+--dry-run}
for word in "${steps[@]}"; do "$word"; done
