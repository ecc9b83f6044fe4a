#!/usr/bin/env bash
# Check the kernels' numbers on a GPU, measure everything, and write one report to send.
#
#   bash examples/gpu_report.sh [OUT.md]       (default: gpu_report.md)
#
# DEVICE   cuda, cuda:1, … or cpu             (default: cuda)
# DTYPE    bf16, fp16 or fp32                 (default: bf16)
# PYTHON   the interpreter to use             (default: .venv/bin/python if there is one, else python3)
# SMALL=1  tiny sizes: a check that it runs, not a measurement
set -euo pipefail

die() { echo "gpu_report.sh: $*" >&2; exit 1; }

out=${1:-gpu_report.md}
[ -d "$(dirname "$out")" ] || die "$out: the directory $(dirname "$out") does not exist"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-}
if [ -z "$python" ]; then
  if [ -x .venv/bin/python ]; then python=.venv/bin/python; else python=python3; fi
fi
parts=$(mktemp -d)
trap 'rm -rf "$parts" "$out.part"' EXIT

bench() {
  local name=$1
  shift
  echo "== bench $name" >&2
  "$python" -m fairseq_rela.cli bench "$name" --device "${DEVICE:-cuda}" --dtype "${DTYPE:-bf16}" \
    --report "$parts/$name.md" "$@"
}

# the kernels' numbers against float64: on a GPU; elsewhere pytest has nothing to run, and the report says so
echo "== tests of the kernels" >&2
status=0
"$python" -m pytest -m gpu tests/test_kernels.py tests/test_kernels_sharp.py > "$parts/tests.txt" 2>&1 || status=$?
{
  echo "# tests of the kernels"
  echo
  echo "- command: \`pytest -m gpu tests/test_kernels.py tests/test_kernels_sharp.py\`, exit status $status"
  grep -E '^(FAILED|ERROR)|passed|failed|skipped|error' "$parts/tests.txt" | tail -20 | sed 's/^/- /' || echo '- pytest did not run'
  echo
} > "$parts/tests.md"

if [ "${SMALL:-}" = 1 ]; then
  model=(--size tiny --vocabulary 40 --repeats 1)
  bench op --lengths 8 --rows 64 --width 8 --entmax-lengths 8 --repeats 1
  bench train "${model[@]}" --lengths 6 --tokens 12 --entmax-lengths 6
  bench decode "${model[@]}" --lengths 3 --output-length 2 --entmax
  bench memory --lengths 64 --heads 1 --repeats 1
else
  bench op --lengths 128 512 1024 2048 4096 8192 --rows 262144 --repeats 20
  bench train --lengths 25 512 2048 --tokens 16384 --repeats 20
  bench decode --lengths 25 500 --entmax --repeats 10
  bench memory --lengths 1024 4096 16384 --repeats 1
fi
cat "$parts"/{tests,op,train,decode,memory}.md > "$out.part"
mv "$out.part" "$out"
echo "written: $out" >&2
