#!/usr/bin/env bash
# The test command: builds the environment if it is missing, then runs the tests.
#   bash tests/run.sh [pytest's arguments, e.g. tests/test_norms.py -k rms]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash examples/setup_env.sh
# the tests' models are tiny: more threads only wait for each other
OMP_NUM_THREADS=1 exec "${RELA_VENV:-.venv}/bin/python" -m pytest "$@"
