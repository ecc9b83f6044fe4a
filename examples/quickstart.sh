#!/usr/bin/env bash
# The main job, from nothing: set up, make a corpus, train transformer_rela_g_tiny, stop and resume, average, translate, score.
#   bash examples/quickstart.sh [--small] [OUT]      OUT defaults to quickstart-out
# --small proves in a minute or two only that everything runs. A run that was interrupted goes on where it stopped.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
size=full out=
for word in "$@"; do
  case $word in
    --small) size=small ;;
    -*) echo "quickstart.sh: unknown option '$word'; known is --small" >&2; exit 1 ;;
    *) out=$word ;;
  esac
done
out=${out:-$root/quickstart-out}

if [ "$size" = small ]; then
  sentences=2000 held_out=100 pieces=500 updates=150 warmup=50
else
  sentences=20000 held_out=500 pieces=1500 updates=2400 warmup=400
fi
arch=transformer_rela_g_tiny

mkdir -p "$out/logs"
out=$(cd "$out" && pwd)
[ ! -f "$out/size" ] || [ "$(cat "$out/size")" = "$size" ] ||
  { echo "quickstart.sh: $out holds a $(cat "$out/size") run; remove it or name another directory" >&2; exit 1; }
echo "$size" > "$out/size"

number=0
say() { number=$((number + 1)); printf '[%d/8] %s\n' "$number" "$1"; }
# once NAME COMMAND…: run it unless it has been; what it prints goes to logs/NAME.log
once() {
  local name=$1; shift
  [ ! -f "$out/logs/$name.done" ] || { echo "  done before"; return; }
  "$@" > "$out/logs/$name.log" 2>&1 ||
    { tail -n 15 "$out/logs/$name.log" >&2; echo "quickstart.sh: $name failed; its log is $out/logs/$name.log" >&2; exit 1; }
  touch "$out/logs/$name.done"
}
started=$SECONDS

say "set-up"
bash "$root/examples/setup_env.sh"
venv=${RELA_VENV:-$root/.venv}
PATH="$(cd "$venv" && pwd)/bin:$PATH"
user_dir=$(fairseq-rela user-dir)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # so small a model gains little from more, and loses much on a busy machine
device=(--cpu)
! nvidia-smi -L > /dev/null 2>&1 || device=()

say "corpus: $sentences sentence pairs made by rule"
once corpus fairseq-rela toy-corpus "$out/text" --train "$sentences" --valid "$held_out" --test "$held_out"

say "sentencepiece, $pieces pieces for both languages, and fairseq-preprocess"
prepare() {
  mkdir -p "$out/pieces"
  python "$root/examples/segment.py" train "$out/pieces/spm" "$pieces" "$out/text/train.src" "$out/text/train.tgt"
  for file in {train,valid,test}.{src,tgt}; do
    python "$root/examples/segment.py" encode "$out/pieces/spm" < "$out/text/$file" > "$out/pieces/$file"
  done
  rm -rf "$out/data-bin"
  fairseq-preprocess --source-lang src --target-lang tgt --joined-dictionary --destdir "$out/data-bin" \
    --trainpref "$out/pieces/train" --validpref "$out/pieces/valid" --testpref "$out/pieces/test"
}
once prepare prepare

# --required-batch-size-multiple 1: at its default of 8, fairseq's HEAD drops a last batch of fewer sentences
train() {
  fairseq-train "$out/data-bin" --user-dir "$user_dir" --arch "$arch" --share-all-embeddings "${device[@]}" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --clip-norm 0.0 \
    --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates "$warmup" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.1 \
    --max-tokens 1000 --required-batch-size-multiple 1 --seed 1 \
    --max-update "$1" --save-interval-updates $((updates / 10)) --keep-interval-updates 5 --no-epoch-checkpoints \
    --save-dir "$out/checkpoints" --log-format json --log-interval 25 2>&1 |
    tee -a "$out/logs/train.log" | python "$root/examples/progress.py" "$updates"
}
trained() { compgen -G "$out/checkpoints/checkpoint_*_$1.pt" > /dev/null; }
say "train $arch for $((updates / 2)) updates"
if trained $((updates / 2)) || trained "$updates"; then echo "  done before"; else train $((updates / 2)); fi
say "resume it and go on to $updates"
if trained "$updates"; then echo "  done before"; else train "$updates"; fi
trained "$updates" || { echo "quickstart.sh: training failed; its log is $out/logs/train.log" >&2; exit 1; }

say "average the last 5 checkpoints"
once average fairseq-rela average "$out/checkpoints" --num-update-checkpoints 5 --output "$out/average.pt"

say "translate the test set (beam 4, lenpen 0.6)"
translate() {
  fairseq-generate "$out/data-bin" --user-dir "$user_dir" --path "$out/average.pt" "${device[@]}" \
    --beam 4 --lenpen 0.6 --max-tokens 4000 --required-batch-size-multiple 1 --remove-bpe sentencepiece
}
once generate translate
grep '^D-' "$out/logs/generate.log" | sort -t- -k2 -n | cut -f3 > "$out/translation.tgt"

say "score"
once score sacrebleu "$out/text/test.tgt" --input "$out/translation.tgt" --tokenize none --force --format text --width 1
grep '^BLEU' "$out/logs/score.log"

cat <<SUMMARY

Done in $((SECONDS - started)) s. In $out:
  text/            the corpus, with its gold word alignments
  data-bin/        the same for fairseq
  checkpoints/     the training's; average.pt is the mean of the last 5
  translation.tgt  the test set, translated; text/test.tgt is what it should be
  logs/            what each step printed
Try it:
  echo "$(head -n 1 "$out/text/test.src")" | $venv/bin/python $root/examples/segment.py encode $out/pieces/spm |
    $venv/bin/fairseq-interactive $out/data-bin --user-dir $user_dir --path $out/average.pt --remove-bpe sentencepiece
SUMMARY
