#!/usr/bin/env bash
# Section 5.2: how often the cross-attention heads are null after an auxiliary, a verb or a comma of the target.
#   bash examples/paper/tags.sh DATASET ARCH [--dry-run] [fairseq-train's flags]
#   TAGS=FILE bash examples/paper/tags.sh DATASET ARCH
#   TAGGER=COMMAND bash examples/paper/tags.sh DATASET ARCH
# TAGS has one line for each sentence of the test set, with one tag for each word between spaces of text/test.TARGET.
# TAGGER is a command that reads these sentences from its input and prints such lines, such as a script around your tagger.
# Where the target is German or English, it is by default the Hanover Tagger, which needs no download (pip install HanTa).
# toy's tags come from its own grammar. A model that is not trained yet is trained first.
# Writes RUN/tags/report.html, with heat maps of a sentence for commas and of one for verbs, and RUN/tags.tsv.
# Variables: SHOWN (AUX VERB), the tags in the table
set -euo pipefail
# shellcheck source=examples/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=examples/paper/rows.sh
. "$examples/paper/rows.sh"
arguments "$@"
load_dataset
find_environment
SEEDS=$SEED
find_run
dump=$results_dir/dump/test
case $TARGET in de | en) TAGGER=${TAGGER:-python $examples/paper/hanta_tags.py $TARGET} ;; esac
[ -n "${TAGS:-}${TAGGER:-}" ] || die "give TAGS=FILE, one tag per target word, or TAGGER=COMMAND that makes such lines"
[ -z "${TAGS:-}" ] || [ "$dry_run" ] || [ -f "$TAGS" ] || die "TAGS=$TAGS is not a file"
rows train.sh analyze.sh -- "$arch"
export PYTHONPATH=$examples:$root${PYTHONPATH:+:$PYTHONPATH}
if [ -z "${TAGS:-}" ]; then
  TAGS=$results_dir/test.tags
  step --say "tags by $TAGGER" --stdin "$text/test.$TARGET" --stdout "$TAGS" -- bash -c "$TAGGER"
fi
step --stdout "$results_dir/marked.tags" -- python "$examples/paper/tags.py" mark "$TAGS" "$text/test.$TARGET"
step --say "$title: null rates after tags" --log "$results_dir/tags.log" --remove "$results_dir/tags" -- \
  fairseq-rela analyze "$arch=$dump" --target-tags "$results_dir/marked.tags" --out "$results_dir/tags"
read -ra shown <<< "${SHOWN:-AUX VERB}"
step --stdout "$results_dir/tags.tsv" -- python "$examples/paper/tags.py" table "$results_dir/tags/metrics.json" "${shown[@]}" ,
[ "$dry_run" ] || cat "$results_dir/tags.tsv"
