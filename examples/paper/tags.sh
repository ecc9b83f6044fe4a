#!/usr/bin/env bash
# Section 5.2: how often the cross-attention heads are null after an auxiliary, a verb or a comma of the target.
#   TAGS=FILE bash examples/paper/tags.sh DATASET ARCH [--dry-run]
#   TAGGER=COMMAND bash examples/paper/tags.sh DATASET ARCH [--dry-run]
# TAGS has one line for each sentence of the test set, with one tag for each word between spaces of text/test.TARGET.
# TAGGER is a command that reads these sentences from its input and prints such lines, such as a script around your tagger.
# For German and English: pip install HanTa, and TAGGER="python examples/paper/hanta_tags.py de"; it needs no download.
# analyze.sh must have run. Writes RUN/tags/report.html and RUN/tags.tsv. Variables: SHOWN (AUX VERB), the tags in the table
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
arguments "$@"
load_dataset
find_environment
find_run
dump=$results_dir/dump/test
[ "$dry_run" ] || [ -d "$dump" ] || die "$dump is missing; run 'bash examples/analyze.sh $dataset $arch' first"
[ -n "${TAGS:-}${TAGGER:-}" ] || die "give TAGS=FILE, one tag per target word, or TAGGER=COMMAND that makes such lines"
[ -z "${TAGS:-}" ] || [ "$dry_run" ] || [ -f "$TAGS" ] || die "TAGS=$TAGS is not a file"
export PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}
if [ -z "${TAGS:-}" ]; then
  TAGS=$out/text/test.$TARGET.tags
  step --say "tags by $TAGGER" --stdin "$text/test.$TARGET" --stdout "$TAGS" -- bash -c "$TAGGER"
fi
step --stdout "$results_dir/marked.tags" -- python "$examples/paper/tags.py" mark "$TAGS" "$text/test.$TARGET"
step --say "$title: null rates after tags" --log "$results_dir/tags.log" --remove "$results_dir/tags" -- \
  fairseq-rela analyze "$arch=$dump" --target-tags "$results_dir/marked.tags" --out "$results_dir/tags"
read -ra shown <<< "${SHOWN:-AUX VERB}"
step --stdout "$results_dir/tags.tsv" -- python "$examples/paper/tags.py" table "$results_dir/tags/metrics.json" "${shown[@]}" ,
[ "$dry_run" ] || cat "$results_dir/tags.tsv"
