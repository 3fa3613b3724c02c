#!/usr/bin/env bash
# Remakes requirements.lock: the newest versions that pyproject.toml allows, one for every Python and platform; and
# requirements.hashes: the SHA-256 of each file of those versions on PyPI, but for PyTorch, which has many builds.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv

"$scratch/venv/bin/uv" pip compile --quiet --no-header --no-annotate --universal --fork-strategy fewest --all-extras \
    --generate-hashes pyproject.toml >"$scratch/pins"
{
    cat <<'HEADER'
# The exact version of every package the book is built, tested and read with: one file for readers, CI and Binder.
# Made by `make lock` from pyproject.toml, for Python 3.11 and newer; not to be edited by hand.
# PyTorch's CUDA libraries are left out: on Linux, torch from PyPI names their exact versions itself and draws them in;
# the CPU build (TORCH=cpu) needs none.
HEADER
    awk '/^[a-z]/ && !/^(cuda|nvidia|triton)/ { sub(/ *\\$/, ""); print }' "$scratch/pins"
} >"$scratch/lock"
{
    cat <<'HEADER'
# The SHA-256 of every file on PyPI of the versions in requirements.lock, PyTorch left out: tools/setup.sh takes no other.
# Made by `make lock` together with the lock; not to be edited by hand.
HEADER
    awk '/^[^ ]/ { taken = !/^(cuda|nvidia|torch==|triton)/ } taken' "$scratch/pins"
} >"$scratch/hashes"
mv "$scratch/lock" requirements.lock
mv "$scratch/hashes" requirements.hashes
echo "requirements.lock: $(grep -c == requirements.lock) packages. Now: make check test book"
