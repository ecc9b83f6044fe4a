#!/usr/bin/env bash
# Everything from the start: set up, make a corpus, train a ReLA model and a softmax model side by side, average,
# translate, score, dump their attention, analyse it, and test whether it detects noisy sentence pairs.
#   bash examples/quickstart.sh [--small] [OUT]      OUT defaults to quickstart-out
# --small only shows in a minute or two that everything runs. An interrupted run continues where it stopped.
# Each step is a recipe on the data set `toy`; the variables of the recipes (UPDATES, CORPUS, …) apply.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
die() { echo "quickstart.sh: $*" >&2; exit 1; }
size=full OUT=
for word in "$@"; do
  case $word in
    --small) size=small ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
    -*) die "unknown option '$word'; known are --small, --help" ;;
    *) [ -z "$OUT" ] || die "'$OUT' and '$word': give one directory"; OUT=$word ;;
  esac
done
OUT=${OUT:-$root/quickstart-out}
mkdir -p "$OUT/logs"
OUT=$(cd "$OUT" && pwd)
export OUT
if [ "$size" = small ]; then
  export CORPUS=${CORPUS:---train 2000 --valid 100 --test 100 --noise 200 --max-clauses 2}
  export PIECES=${PIECES:-500} UPDATES=${UPDATES:-150} WARMUP=${WARMUP:-50}
else
  export UPDATES=${UPDATES:-3600}
fi
[ ! -f "$OUT/size" ] || [ "$(cat "$OUT/size")" = "$size" ] ||
  die "$OUT holds a $(cat "$OUT/size") run; remove it or name another directory"
echo "$size" > "$OUT/size"
rela=rela_gc  # the attention that is compared with softmax
attentions=("$rela" softmax)
run_of() { echo "$OUT/transformer_${1}_tiny.seed${SEED:-1}"; }

number=0
say() { number=$((number + 1)); printf '[%d/6] %s\n' "$number" "$1"; }
failed() { tail -n 3 "$1" >&2; die "$2 failed; all it printed is in $1"; }

# Each background job is a process group of its own. All of them end with this script.
jobs=()
stop_jobs() { local job; for job in ${jobs[@]+"${jobs[@]}"}; do kill -- "-$job" 2> /dev/null || true; done; jobs=(); }
trap stop_jobs EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
beside() {  # LOG COMMAND…
  local log=$1; shift
  set -m
  "$@" > "$log" 2>&1 &
  set +m
  jobs+=("$!")
}

# both RECIPE: run it for both attentions at once
both() {
  local recipe=$1 attention index
  for attention in "${attentions[@]}"; do
    beside "$OUT/logs/$recipe-$attention.log" bash "$root/examples/$recipe.sh" toy "$attention"
  done
  for index in "${!attentions[@]}"; do
    wait "${jobs[index]}" || failed "$OUT/logs/$recipe-${attentions[index]}.log" "$recipe.sh toy ${attentions[index]}"
  done
  stop_jobs
}

started=$SECONDS
say "set-up"
bash "$root/examples/setup_env.sh"
RELA_VENV=$(cd "${RELA_VENV:-$root/.venv}" && pwd)
export RELA_VENV
# Two models of this size share a GPU, or have one core each.
if nvidia-smi -L > /dev/null 2>&1; then export DEVICES=${DEVICES:-1}; else export DEVICES=${DEVICES:-cpu}; fi
set_up=$SECONDS

say "corpus, sentencepiece and fairseq-preprocess"
bash "$root/examples/prepare.sh" toy > "$OUT/logs/prepare.log" 2>&1 || failed "$OUT/logs/prepare.log" "prepare.sh toy"
sed -n "s|^$OUT/text/\(.*\) of .*|  \1 pairs|p" "$OUT/logs/prepare.log"

say "train ${attentions[*]} side by side, $UPDATES updates each"
logs=()
for attention in "${attentions[@]}"; do logs+=("$attention=$(run_of "$attention")/train.log"); done
"$RELA_VENV/bin/python" "$root/examples/progress.py" "$UPDATES" "${logs[@]}" &
progress=$!
trap 'kill "$progress" 2> /dev/null || true; stop_jobs' EXIT
both train
kill "$progress" 2> /dev/null || true
trap stop_jobs EXIT
[ ! -t 2 ] || echo >&2

say "average the last checkpoints, translate the test set, score"
both generate
for attention in "${attentions[@]}"; do echo "  $attention: $(cat "$(run_of "$attention")/score.txt")"; done

say "dump the attention, analyse it with the gold alignments, and detect noise with it"
both analyze

say "one report of both models"
ATTENTIONS="${attentions[*]}" SEEDS=${SEED:-1} LEVEL=subword REPORT=$OUT/paper/analysis \
  bash "$root/examples/paper/analysis.sh" toy > "$OUT/logs/report.log" 2>&1 ||
  failed "$OUT/logs/report.log" "paper/analysis.sh toy"

runs=()
for attention in "${attentions[@]}"; do runs+=("$attention=$(run_of "$attention")"); done
echo
"$RELA_VENV/bin/python" "$root/examples/table.py" compare "${runs[@]}" | tee "$OUT/table.txt"
cat <<SUMMARY

Done in $((SECONDS - started)) s, $((SECONDS - set_up)) s of them after set-up. The report: $OUT/paper/analysis/report.html
Also in $OUT:
  corpus/          the text with its gold word alignments; noisy.* has labelled noise
  data-bin/        the same text for fairseq
  transformer_*/   of each model: checkpoints/, average.pt, translation.tgt, score.txt, dump/, analysis/, noisy.log
  logs/            what each step printed
Try it:
  echo "$(head -n 1 "$OUT/text/test.src")" | $RELA_VENV/bin/python $root/examples/segment.py encode $OUT/pieces/spm |
    $RELA_VENV/bin/fairseq-interactive $OUT/data-bin --user-dir $root/fairseq_rela --path $(run_of "$rela")/average.pt --remove-bpe sentencepiece --required-batch-size-multiple 1
See what both models attend to, for sentences that you type:
  $RELA_VENV/bin/fairseq-rela explore --path $rela=$(run_of "$rela")/average.pt --compare softmax=$(run_of softmax)/average.pt $OUT/data-bin --sentencepiece-model $OUT/pieces/spm.model --text "$(head -n 1 "$OUT/text/test.src")"
SUMMARY
