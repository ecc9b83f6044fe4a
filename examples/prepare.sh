#!/usr/bin/env bash
# Fetch a data set, check it, take its text out, segment it with sentencepiece, and preprocess it for fairseq.
#   bash examples/prepare.sh DATASET [--dry-run]
#
# A finished step is not repeated, and an interrupted download continues. Variables:
#   OUT         where everything goes (runs/DATASET)
#   CACHE_DIR   where downloads are kept (~/.cache/fairseq-rela)
#   DATA_DIR    a directory that has the original files already: nothing is downloaded
#   MIRROR      fetch from MIRROR/host/path instead of https://host/path
#   CHECKSUMS   none: the files are not the originals, so checksums and line counts are not compared;
#               or a file like sha256sum's output, to compare with instead of the data set's own checksums.
#               No checksum is published for some files. The first download records one, and later downloads are
#               checked against it.
#   EXTRA_TRAIN PREFIX of more text to train on: PREFIX.en and PREFIX.de
#   PIECES, COVERAGE, EMBEDDINGS, MAX_PIECES, SAMPLE, MIN_WORDS, MAX_WORDS, MAX_RATIO, WORKERS: see settings.sh
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
arguments "$@"
load_dataset
find_environment
index=$out/originals.tsv
"$python" "$examples/recorded_settings.py" "$out/settings" OUT "PIECES=$PIECES" "COVERAGE=$COVERAGE" \
  "EMBEDDINGS=$EMBEDDINGS" "MAX_PIECES=$MAX_PIECES" "SAMPLE=$SAMPLE" "MIN_WORDS=$MIN_WORDS" "MAX_WORDS=$MAX_WORDS" \
  "MAX_RATIO=$MAX_RATIO" "EXTRA_TRAIN=$EXTRA_TRAIN" "CORPUS=$CORPUS"

# --- the original files
if ! finished "$text/done"; then
  say "the original files"
  if [ "${#MADE_BY[@]}" -gt 0 ]; then step -- "${MADE_BY[@]}"; fi
  export CACHE_DIR CHECKSUMS
  [ "${#FILES[@]}" -eq 0 ] || "$python" "$examples/download.py" "$index" "${FILES[@]}"
fi

# --- text
[ -z "$EXTRA_TRAIN" ] || TRAIN+=("$(realpath "$EXTRA_TRAIN.$SOURCE")" "$(realpath "$EXTRA_TRAIN.$TARGET")")
take=(
  python "$examples/take_text.py" --out "$text" --langs "${langs[@]}" --index "$index" --encoding "$ENCODING"
  --train "${TRAIN[@]}" --min-words "$MIN_WORDS" ${MAX_WORDS:+--max-words "$MAX_WORDS"} ${MAX_RATIO:+--max-ratio "$MAX_RATIO"}
)
if [ -n "$SAMPLE" ]; then
  # shellcheck disable=SC2206
  take+=(--sample $SAMPLE)
else
  take+=(--test "${TEST[@]}")
  if [ -n "$VALID_EVERY" ]; then take+=(--valid-every "$VALID_EVERY"); else take+=(--valid "${VALID[@]}"); fi
fi
[ "${#NOISY[@]}" -eq 0 ] || take+=(--noisy "${NOISY[@]}" --noisy-labels "$NOISY_LABELS")
[ "${#GOLD[@]}" -eq 0 ] || take+=(--gold "${GOLD[@]}" --gold-links "$GOLD_LINKS" --gold-encoding "$GOLD_ENCODING")
if [ -z "$CHECKSUMS" ]; then
  take+=(${TEST_LINES:+--test-lines "$TEST_LINES"} ${VALID_LINES:+--valid-lines "$VALID_LINES"} ${GOLD_LINES:+--gold-lines "$GOLD_LINES"})
fi
if finished "$text/done"; then
  # GOLD_DIR may be given later
  [ "${#GOLD[@]}" -eq 0 ] || step --makes "$text/gold.links" -- "${take[@]}" --only-gold
else
  step --say text -- "${take[@]}"
fi
[ -z "$SEGMENTED" ] ||
  step --makes "$reference" --stdin "$text/test.$TARGET" --stdout "$reference" -- sed -E 's/@@( |$)//g'
if [ -n "$SACREBLEU_SET" ] && [ "$CHECKSUMS" != none ]; then
  step --makes "$out/sacrebleu/$SACREBLEU_SET/raw/${SACREBLEU_SET//\//_}.${TEST[0]%%:*}" -- \
    python "$examples/sacrebleu_set.py" "$out/sacrebleu" "$SACREBLEU_SET" "$index" "${TEST[@]}"
fi

# --- sentencepiece, unless the text is in pieces already
[ "$dry_run" ] || mkdir -p "$pieces"
[ "$SEGMENTED" ] ||
  step --say "sentencepiece, $PIECES pieces for both languages" --makes "$pieces/spm.model" --log "$out/logs/sentencepiece.log" -- \
    python "$examples/segment.py" train --coverage "$COVERAGE" "$pieces/spm" "$PIECES" "$text/train.$SOURCE" "$text/train.$TARGET"
encode() {  # SPLIT [NAME]: pieces/NAME from text/SPLIT
  local lang name=${2:-$1}
  for lang in "${langs[@]}"; do
    finished "$pieces/$name.$lang" || step --makes "$pieces/$name.$lang" --stdin "$text/$1.$lang" --stdout "$pieces/$name.$lang" -- \
      "${encoder[@]}"
  done
}

# --- fairseq-preprocess
preprocess() {  # DIRECTORY FLAGS…
  local directory=$1; shift
  step --makes "$directory" --log "$out/logs/preprocess.log" -- \
    fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --destdir "$directory.part" --workers "$WORKERS" "$@"
}
if ! finished "$out/data-bin"; then
  say "fairseq-preprocess"
  # pairs of more than MAX_PIECES are left out
  if ! finished "$pieces/train.$SOURCE" || ! finished "$pieces/train.$TARGET"; then
    encode train all
    step -- python "$examples/parallel_text.py" extract --langs "${langs[@]}" --max-words "$MAX_PIECES" --min-words 1 \
      --out "$pieces/train" "$pieces/all.$SOURCE" "$pieces/all.$TARGET"
    step -- rm "$pieces/all.$SOURCE" "$pieces/all.$TARGET"
  fi
  encode valid
  encode test
  joined=()
  [ "$EMBEDDINGS" != all ] || joined=(--joined-dictionary)
  preprocess "$out/data-bin" "${joined[@]}" \
    --trainpref "$pieces/train" --validpref "$pieces/valid" --testpref "$pieces/test"
fi

# --- for analyze.sh: the test set, as `test`; the same with shuffled targets, as `test1`; and pairs labelled by what is wrong
#     with them, where the data set has such pairs, as `test2`. The sentences with gold links have a directory of their own.
dictionaries=(--srcdict "$out/data-bin/dict.$SOURCE.txt" --tgtdict "$out/data-bin/dict.$TARGET.txt")
if ! finished "$out/data-bin-test"; then
  say "the test set for the analyses, and the same with shuffled targets"
  step -- fairseq-rela filter --shuffle --source "$text/test.$SOURCE" --target "$text/test.$TARGET" --out "$text/shuffled-test"
  encode shuffled-test/shuffled shuffled-test
  sets=$pieces/test,$pieces/shuffled-test
  if [ "${#NOISY[@]}" -gt 0 ]; then
    encode noisy
    sets+=,$pieces/noisy
  fi
  preprocess "$out/data-bin-test" --testpref "$sets" "${dictionaries[@]}"
fi
if [ "$gold_set" = gold ] && ! finished "$out/data-bin-gold"; then
  say "the sentences with gold alignments"
  encode gold
  preprocess "$out/data-bin-gold" --testpref "$pieces/gold" "${dictionaries[@]}"
fi
say "ready: $out/data-bin"
