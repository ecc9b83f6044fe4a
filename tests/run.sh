#!/usr/bin/env bash
# The test command: builds the environment if it is missing, then runs the tests.
#
#   bash tests/run.sh                       all tests
#   bash tests/run.sh -m "not slow"         without whole workflows
#   bash tests/run.sh tests/test_norms.py -k rms
#
# The arguments are pytest's. All tests, and all that -m selects, run in two processes if there are two cores
# (JOBS=1 for one process, JOBS=4 for four).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -n "${RELA_LEGACY:-}" ] || bash examples/setup_env.sh

jobs=${JOBS:-}
if [ -z "$jobs" ]; then
  jobs=1
  case " $* " in
    *" tests/"* | *" -n"* | *" -x "* | *" --pdb "*) ;;  # a few tests start sooner in one process
    *) [ "$(nproc 2> /dev/null || echo 1)" -lt 2 ] || jobs=2 ;;
  esac
fi
# a file's tests share models that they train: a file stays in one process
[ "$jobs" = 1 ] || set -- -n "$jobs" --dist loadfile "$@"
# the tests' models are tiny: more threads only wait for each other
OMP_NUM_THREADS=1 exec "${RELA_VENV:-.venv}/bin/python" -m pytest "$@"
