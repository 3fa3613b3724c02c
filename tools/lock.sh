#!/usr/bin/env bash
# Remakes requirements.lock: the newest versions that pyproject.toml allows, one for every Python and platform.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv

"$scratch/venv/bin/uv" pip compile --quiet --no-header --no-annotate --universal --fork-strategy fewest --all-extras \
    pyproject.toml >"$scratch/pins"
{
    cat <<'HEADER'
# The exact version of every package the book is built, tested and read with: one file for readers, CI and Binder.
# Made by `make lock` from pyproject.toml, for Python 3.11 and newer; not to be edited by hand.
# PyTorch's CUDA libraries are left out: on Linux, torch from PyPI names their exact versions itself and draws them in;
# the CPU build (TORCH=cpu) needs none.
HEADER
    grep -vE '^(cuda|nvidia|triton)' "$scratch/pins"
} >"$scratch/lock"
mv "$scratch/lock" requirements.lock
echo "requirements.lock: $(grep -c == requirements.lock) packages. Now: make check test book"
