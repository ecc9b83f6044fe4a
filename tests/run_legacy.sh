#!/usr/bin/env bash
# The same tests on the stack that the field's papers ran on: Python 3.10, torch 1.12.1, fairseq 0.12.2.
# Its interpreter is searched for, or given as RELA_PYTHON_LEGACY. Its environment is .venv-legacy, or RELA_VENV_LEGACY.
# The arguments are those of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RELA_PYTHON=${RELA_PYTHON_LEGACY:-} RELA_VENV=${RELA_VENV_LEGACY:-.venv-legacy} RELA_TORCH=
bash examples/setup_env.sh --legacy
RELA_LEGACY=yes exec bash tests/run.sh "$@"
