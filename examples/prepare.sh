#!/usr/bin/env bash
# Fetch a data set, check it, take its text out, segment it with sentencepiece, and give it to fairseq.
#   bash examples/prepare.sh DATASET [--dry-run]
#
# What was done is not done again; an interrupted download goes on. Variables:
#   OUT         where everything goes (runs/DATASET)
#   CACHE_DIR   where downloads are kept (~/.cache/fairseq-rela)
#   DATA_DIR    a directory that has the original files already: nothing is downloaded
#   MIRROR      fetch from MIRROR/host/path instead of https://host/path
#   CHECKSUMS   none: the files are not the originals, their checksums and line counts are not compared;
#               or a file like sha256sum's output, to compare with instead of the data set's own
#   EXTRA_TRAIN PREFIX of further text to train on: PREFIX.en and PREFIX.de
#   PIECES, COVERAGE, EMBEDDINGS, MAX_PIECES, SAMPLE, MIN_WORDS, MAX_WORDS, MAX_RATIO, WORKERS   see lib.sh and datasets/
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=examples/download.sh
. "$root/examples/download.sh"
arguments "$@"
load_dataset
find_environment
parallel_text=(python "$root/examples/parallel_text.py")

both() { echo "$1.$SOURCE" "$1.$TARGET"; }

# extract NAME ENCODING SPECS… [-- OPTIONS]: text/NAME out of the originals.
extract() {
  local name=$1 encoding=$2 specs=(); shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do specs+=("$(located "$1")"); shift; done
  [ $# -eq 0 ] || shift
  run "${parallel_text[@]}" extract --langs "${langs[@]}" --encoding "$encoding" --out "$text/$name" "$@" "${specs[@]}"
}

# expect NAME LINES: the original has so many.
expect() {
  local lines
  [ -z "$2" ] || [ -n "$CHECKSUMS" ] || [ -n "$dry_run" ] || {
    lines=$(wc -l < "$text/$1.$SOURCE")
    [ "$lines" -eq "$2" ] || die "$text/$1.$SOURCE has $((lines)) lines, the original has $2: fetch it anew, or give CHECKSUMS=none"
  }
}

# So that `sacrebleu -t` finds its test set and downloads nothing: the archive is the same as its own.
offer_to_sacrebleu() {
  local raw=$out/sacrebleu/$SACREBLEU_SET/raw archive=${TEST[0]%%:*}
  run mkdir -p "$raw"
  run tar -xf "$(original "$archive")" -C "$raw" "${TEST[@]#*:}"
  run cp "$out/settings" "$raw/${SACREBLEU_SET//\//_}.$archive"  # by this file it knows that it need not fetch it
}

take_text() {
  local filter=(--min-words "$MIN_WORDS") file
  [ -z "$MAX_WORDS" ] || filter+=(--max-words "$MAX_WORDS")
  [ -z "$MAX_RATIO" ] || filter+=(--max-ratio "$MAX_RATIO")
  if [ "${#GOLD[@]}" -gt 0 ]; then
    extract gold "$GOLD_ENCODING" "${GOLD[@]}"
    expect gold "$GOLD_LINES"
    run "${parallel_text[@]}" links "$(located "$GOLD_LINKS")" --out "$text/gold.links"
    filter+=(--unlike "$text/gold")  # what is aligned by hand is not trained on
  fi
  if [ -z "$SAMPLE" ]; then
    extract test "$ENCODING" "${TEST[@]}"
    expect test "$TEST_LINES"
  fi
  if [ "${#NOISY[@]}" -gt 0 ]; then
    extract noisy "$ENCODING" "${NOISY[@]}"
    piped "$(located "$NOISY_LABELS")" "$text/noisy.labels" cat
  fi
  if [ -n "$SACREBLEU_SET" ] && [ "$CHECKSUMS" != none ]; then offer_to_sacrebleu; fi
  if [ -z "$SAMPLE$VALID_EVERY" ]; then
    extract valid "$ENCODING" "${VALID[@]}"
    expect valid "$VALID_LINES"
  fi
  [ -z "$EXTRA_TRAIN" ] || TRAIN+=("$(realpath "$EXTRA_TRAIN.$SOURCE")" "$(realpath "$EXTRA_TRAIN.$TARGET")")
  if [ -n "$SAMPLE$VALID_EVERY" ]; then
    local how=(--every "$VALID_EVERY")
    # shellcheck disable=SC2206
    [ -z "$SAMPLE" ] || how=(--sample $SAMPLE)
    extract all "$ENCODING" "${TRAIN[@]}" -- "${filter[@]}"
    run "${parallel_text[@]}" split "$text/all" --langs "${langs[@]}" "${how[@]}" --out "$text"
    run rm "$text/all.$SOURCE" "$text/all.$TARGET"
  else
    extract train "$ENCODING" "${TRAIN[@]}" -- "${filter[@]}"
  fi
  [ "$dry_run" ] || touch "$text/done"
}

encode() {  # SPLIT [OUT]
  local lang
  for lang in "${langs[@]}"; do
    made "$pieces/${2:-$1}.$lang" ||
      piped "$text/$1.$lang" "$pieces/${2:-$1}.$lang" python "$root/examples/segment.py" encode "$pieces/spm"
  done
}

preprocess() {  # DESTINATION FLAGS…
  local destination=$1; shift
  run rm -rf "$destination.part"
  logged "$out/logs/preprocess.log" fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" \
    --destdir "$destination.part" --workers "$WORKERS" "$@"
  run mv "$destination.part" "$destination"
}

settings_apart=OUT
same_settings "$out/settings" PIECES COVERAGE EMBEDDINGS MAX_PIECES SAMPLE MIN_WORDS MAX_WORDS MAX_RATIO EXTRA_TRAIN CORPUS
if ! made "$text/done"; then
  say "the original files"
  originals
  say "text"
  take_text
fi
# GOLD_DIR may be given later
if [ "$analysis_set" = gold ] && ! made "$text/gold.links" && made "$text/done"; then
  extract gold "$GOLD_ENCODING" "${GOLD[@]}"
  expect gold "$GOLD_LINES"
  run "${parallel_text[@]}" links "$(located "$GOLD_LINKS")" --out "$text/gold.links"
fi

run mkdir -p "$pieces"
if ! made "$pieces/spm.model"; then
  say "sentencepiece, $PIECES pieces for both languages"
  logged "$out/logs/sentencepiece.log" python "$root/examples/segment.py" train --coverage "$COVERAGE" \
    "$pieces/new" "$PIECES" "$text/train.$SOURCE" "$text/train.$TARGET"
  run mv "$pieces/new.vocab" "$pieces/spm.vocab"
  run mv "$pieces/new.model" "$pieces/spm.model"
fi
if ! made "$out/data-bin"; then
  say "fairseq-preprocess"
  if ! made "$pieces/train.$SOURCE" "$pieces/train.$TARGET"; then
    encode train all
    run "${parallel_text[@]}" extract --langs "${langs[@]}" --max-words "$MAX_PIECES" --min-words 1 \
      --out "$pieces/train" "$pieces/all.$SOURCE" "$pieces/all.$TARGET"
    run rm "$pieces/all.$SOURCE" "$pieces/all.$TARGET"
  fi
  encode valid
  encode test
  joined=()
  [ "$EMBEDDINGS" != all ] || joined=(--joined-dictionary)
  preprocess "$out/data-bin" "${joined[@]}" \
    --trainpref "$pieces/train" --validpref "$pieces/valid" --testpref "$pieces/test"
fi
# for analyze.sh: the set whose attention is studied, as `test`; the same with shuffled targets, as `test1`; and pairs
# labelled by what is wrong with them, where the data set has such, as `test2`
if ! made "$out/data-bin-$analysis_set"; then
  say "the $analysis_set set for the analyses, and the same with shuffled targets"
  run fairseq-rela filter --shuffle --source "$text/$analysis_set.$SOURCE" --target "$text/$analysis_set.$TARGET" \
    --out "$text/shuffled-$analysis_set"
  [ "$analysis_set" = test ] || encode "$analysis_set"
  encode "shuffled-$analysis_set/shuffled" "shuffled-$analysis_set"
  sets=$pieces/$analysis_set,$pieces/shuffled-$analysis_set
  if [ "${#NOISY[@]}" -gt 0 ]; then
    encode noisy
    sets+=,$pieces/noisy
  fi
  preprocess "$out/data-bin-$analysis_set" --testpref "$sets" \
    --srcdict "$out/data-bin/dict.$SOURCE.txt" --tgtdict "$out/data-bin/dict.$TARGET.txt"
fi
say "ready: $out/data-bin"
