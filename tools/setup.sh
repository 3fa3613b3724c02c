#!/usr/bin/env bash
# Makes .venv from requirements.lock and installs this package in it. Returns at once when nothing has changed.
# Files are taken only if their SHA-256 stands in requirements.hashes; PyTorch, which has many builds, comes without.
#   PYTHON=python3.12   which Python to use: 3.11 or newer, but none of 3.12.0-3.12.8, 3.13.0 and 3.13.1
#   TORCH=cpu           PyTorch's small CPU build; without it Linux gets the CUDA build
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv # a link into $envs, put there when what it points to is whole
envs=.venvs
lock=requirements.lock
hashes=requirements.hashes
log=.setup.log
need_mb=${SETUP_NEED_MB:-4096}

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

needs='Python 3.11 or newer (3.12 from 3.12.9 and 3.13 from 3.13.2 on)'

# The ast.unparse of 3.12.0-3.12.8, 3.13.0 and 3.13.1 writes f-strings in other quotes, and definitions are told apart by
# what it writes: recorded runs would be called older than they are.
is_good() {
    "$1" -c 'import sys
v = sys.version_info[:3]
sys.exit(v < (3, 11) or (3, 12) <= v < (3, 12, 9) or (3, 13) <= v < (3, 13, 2))' 2>/dev/null
}

# 3.11 comes first: it is what CI and Binder run. A name on the PATH may be a shim that does not run, so each is tried.
choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON was not found; name a $needs."
        is_good "$PYTHON" ||
            die "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 | tail -n 1); the book needs $needs."
        python=$PYTHON
        return
    fi
    for python in python3.11 python3.12 python3.13 python3; do
        if command -v "$python" >/dev/null && is_good "$python"; then return; fi
    done
    die "no $needs was found; install one, or name it: make PYTHON=/path/to/python3"
}

# What the environment was made from, and where, for it holds absolute paths. TORCH is not part of it: it counts only when
# the environment is made.
stamp() {
    "$1" - "$lock" pyproject.toml <<'PY'
import hashlib, os, pathlib, sys
hashes = [hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() for path in sys.argv[1:]]
print("{}.{}".format(*sys.version_info), os.getcwd(), *hashes)
PY
}

is_ready() {
    [ -f $venv/.ready ] || return 1
    # With no PYTHON asked for, the Python that .venv was made with is good enough.
    [ "$(cat $venv/.ready)" = "$(stamp "${PYTHON:-$venv/bin/python}" 2>/dev/null)" ]
}

[ -f $lock ] || die "$lock is missing; restore it (git checkout $lock) or make it anew (make lock)."
if is_ready; then exit 0; fi

choose_python
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python has no venv module; on Debian and Ubuntu: sudo apt install python3-venv"
(: >>$log) 2>/dev/null || die "$PWD cannot be written to; make it writable, or clone to where you may write."
# One at a time, for each removes what others have left. The lock is this shell's, and is given back however it ends.
exec 9>>$log
"$python" -c '
import fcntl, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("setup: another set-up is at work here; this one waits for it", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
'
if is_ready; then exit 0; fi
bad=$(grep -nvE '^(#.*|[a-z0-9]+(-[a-z0-9]+)*==[A-Za-z0-9.!]+( ; .+)?|)$' $lock | head -n 1 || true)
[ -z "$bad" ] || die "$lock:${bad%%:*}: not a pin of the form name==version: ${bad#*:}"
[ -f $hashes ] || die "$hashes is missing; restore it (git checkout $hashes) or make it anew (make lock)."
# Other hashes are no other environment, so they are not part of the stamp; but they have to be those of the lock.
pins() {
    awk '/^[a-z]/ && !/^torch==/ { sub(/ *\\$/, ""); print }' "$1"
}
[ "$(pins $hashes)" = "$(pins $lock)" ] || die "$hashes is not of $lock; restore both, or make them anew (make lock)."
free_mb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
[ "$free_mb" -ge "$need_mb" ] || die "the environment needs $need_mb MB of disk and $free_mb MB are free here."

# Made beside the old one and put in its place at the end, so that a run which fails or is killed changes nothing.
mkdir -p $envs
new=$(mktemp -d $envs/XXXXXX)
child=
clean_up() {
    status=$?
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        kill -- "-$child" 2>/dev/null || true
        # Until all of them are gone, they go on writing what is to be removed.
        wait "$child" 2>/dev/null || true
        while kill -0 -- "-$child" 2>/dev/null; do sleep 0.1; done
    fi
    if [ "$status" -ne 0 ]; then rm -rf "$new" && rmdir $envs 2>/dev/null || true; fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# In the background, because bash lets no trap run while it waits for a command in the foreground; in a process group of
# its own, so that what the command has started can be stopped with it.
logged() {
    set -m
    "$@" >>$log 2>&1 </dev/null 9>&- &
    child=$!
    set +m
    if wait "$child"; then child=; else child= && return 1; fi
}

last_error() {
    grep -iE '^ *(error|fatal)[: ]|Error: ' $log | grep -vi 'warning' | tail -n 1 || true
}

pip_install() {
    logged "$new/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off --no-compile "$@" && return
    error=$(last_error)
    broken=$(grep -o 'connection broken by .*' $log | tail -n 1 || true)
    die "pip failed: ${error:-$(tail -n 1 $log)}${broken:+; before that, $broken} (the whole log: $log)"
}

echo "setup: making .venv with $("$python" --version 2>&1): $(grep -c == $lock) packages, a minute or more (log: $log)"
: >$log
logged "$python" -m venv "$new" || die "$python -m venv failed: $(tail -n 1 $log) (the whole log: $log)"
# The lock is complete, so pip adds nothing of its own; a file whose hash is not in the list ends the set-up.
pip_install --no-deps --require-hashes -r $hashes
# PyTorch has a build for each kind of machine, from more than one index: it is held by its version alone. On Linux, that
# from PyPI draws in the CUDA libraries that it names.
torch=$(grep '^torch==' $lock || true)
if [ -n "$torch" ] && [ "${TORCH:-}" = cpu ]; then
    pip_install --no-deps --index-url https://download.pytorch.org/whl/cpu "$torch"
elif [ -n "$torch" ]; then
    pip_install --constraint $lock "$torch"
fi
pip_install --no-deps --no-build-isolation --editable .
# pip compiles 16,000 modules one after another, a third of its time. Some packages bring files that do not compile
# (templates, another Python's); pip passes over those as well.
logged "$new/bin/python" -m compileall -q -j 0 "$new/lib" || true
stamp "$new/bin/python" >"$new/.ready"
[ -L $venv ] || rm -rf $venv
ln -sfn "$new" $envs/link
"$python" -c 'import os, sys; os.replace(*sys.argv[1:])' $envs/link $venv # at no moment is there none
trap - EXIT INT TERM HUP
# What was there before, and what killed runs have left; one of those may still have a pip at work in it.
for other in "$envs"/*; do
    [ "$other" = "$new" ] || rm -rf "$other" 2>/dev/null || true
done
echo "setup: .venv is ready"
