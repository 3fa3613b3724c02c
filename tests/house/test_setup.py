"""tools/setup.sh: either a whole .venv, or one sentence that says why not and no .venv at all.

Most tests stand a script in for Python, so that they need no network and no time; one makes a real environment.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]

# A Python whose venv is a folder with this script in it, and whose pip does what $PIP_DOES says.
STAND_IN = f"""#!/bin/sh
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip") echo "$*" >>pip-calls && eval "${{PIP_DOES:-:}}" ;;
    "-c import ensurepip"*) [ -z "${{NO_VENV:-}}" ] ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
OLD = f"""#!/bin/sh
if [ "$1" = --version ]; then echo "Python 3.9.2"; exit; fi
exec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2); $2"
"""
# A stand-in of another version.
OTHER = """#!/bin/sh
if [ "$1" = --version ]; then echo "Python {version}"; exit; fi
case "$2" in *version_info*) exec {python} -c "import sys; sys.version_info = {numbers}
$2" ;; esac
exec "$(dirname "$0")/stand-in" "$@"
"""
SHIM = """#!/bin/sh
echo "command not found" >&2; exit 127
"""
TOOLS = (
    "awk",
    "bash",
    "cat",
    "cp",
    "df",
    "dirname",
    "env",
    "grep",
    "head",
    "ln",
    "mkdir",
    "mktemp",
    "rm",
    "rmdir",
    "sh",
    "sleep",
    "tail",
)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Clone:
    """A repository with nothing in it but what setup.sh reads."""

    def __init__(self, root: Path):
        self.root = root
        self.venv = root / ".venv"
        self.lock = root / "requirements.lock"
        (root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "setup.sh", root / "tools")
        (root / "pyproject.toml").write_text("[project]\nname = 'thing'\n")
        self.hashes = root / "requirements.hashes"
        self.pin("# a comment", "leaf==1.0")
        self.python = script(root / "stand-in", STAND_IN)
        # The machine's own settings must not decide what a test finds.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "SETUP_", "TORCH"))}

    def pin(self, *lines: str) -> None:
        """Write the lock, and a hash for each of its pins."""
        self.lock.write_text("".join(f"{line}\n" for line in lines))
        one = "0" * 64
        pins = [line for line in lines if "==" in line and "torch" not in line]
        self.hashes.write_text("".join(f"{pin} \\\n    --hash=sha256:{one}\n" for pin in pins))

    def command(self, **env: object) -> dict:
        settings = self.env | {"PYTHON": str(self.python)} | {k: str(v) for k, v in env.items()}
        return {"args": [self.root / "tools" / "setup.sh"], "env": settings, "cwd": "/"}

    def run(self, **env: object) -> subprocess.CompletedProcess:
        return subprocess.run(**self.command(**env), capture_output=True, text=True, timeout=120, check=False)

    def refusal(self, **env: object) -> str:
        done = self.run(**env)
        assert done.returncode not in (0, 127)
        assert not self.venv.exists()
        assert not self.environments()
        (sentence,) = done.stderr.splitlines()
        assert sentence.startswith("setup: ")
        return sentence

    def ready(self) -> bool:
        return (self.venv / ".ready").is_file()

    def environments(self) -> list[Path]:
        return list(self.root.glob(".venvs/*"))

    def pip_calls(self) -> list[str]:
        return (self.root / "pip-calls").read_text().splitlines()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_makes_the_environment_from_the_lock_and_then_returns_at_once(clone):
    assert clone.run().returncode == 0
    assert clone.ready()
    first, second = clone.pip_calls()
    assert first.endswith("--no-deps --require-hashes -r requirements.hashes")
    assert second.endswith("--no-deps --no-build-isolation --editable .")
    again = clone.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(clone.pip_calls()) == 2


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_makes_it_anew_when_what_it_was_made_from_changes(clone, changed):
    clone.run()
    (clone.venv / "old").touch()
    with (clone.root / changed).open("a") as file:
        file.write("# changed\n")
    assert clone.run().returncode == 0
    assert clone.ready()
    assert not (clone.venv / "old").exists()


def test_without_a_python_asked_for_keeps_the_one_it_was_made_with(clone):
    clone.run()
    again = clone.run(PYTHON="")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ({"TORCH": "cpu"}, "--no-deps --index-url https://download.pytorch.org/whl/cpu torch==2.0"),
        ({}, "--constraint requirements.lock torch==2.0"),
    ],
)
def test_torch_comes_by_its_version_and_all_else_by_its_hash(clone, kind, asked):
    """PyTorch alone, from its CPU index or the usual one, after what it needs; no other file without a hash."""
    clone.pin("leaf==1.0", "torch==2.0", "twig==3.0 ; sys_platform == 'linux'")
    assert clone.run(**kind).returncode == 0
    rest, torch, _ = clone.pip_calls()
    assert torch.endswith(asked)
    assert rest.endswith("--no-deps --require-hashes -r requirements.hashes")
    assert "index" not in rest
    assert "torch" not in clone.hashes.read_text()


def test_a_python_that_is_not_there(clone):
    assert "PYTHON=python9 was not found" in clone.refusal(PYTHON="python9")


def test_a_python_that_is_too_old(clone):
    old = script(clone.root / "old", OLD)
    assert "is Python 3.9.2; the book needs Python 3.11 or newer" in clone.refusal(PYTHON=old)


def of_version(path: Path, version: str) -> Path:
    return script(
        path, OTHER.format(version=version, python=sys.executable, numbers=tuple(map(int, version.split("."))))
    )


@pytest.mark.parametrize("version", ["3.12.0", "3.12.3", "3.12.8", "3.13.0", "3.13.1"])
def test_a_python_that_tells_recorded_runs_wrongly(clone, version):
    """Named with the cure, and refused by pip too."""
    said = clone.refusal(PYTHON=of_version(clone.root / "other", version))
    assert (
        f"is Python {version}; the book needs Python 3.11 or newer (3.12 from 3.12.9 and 3.13 from 3.13.2 on)" in said
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not SpecifierSet(project["requires-python"]).contains(version)


@pytest.mark.parametrize("version", ["3.11.0", "3.12.9", "3.13.2", "3.14.0"])
def test_a_python_beside_those(clone, version):
    assert clone.run(PYTHON=of_version(clone.root / "other", version)).returncode == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with the tools that setup.sh calls, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


def test_no_python_on_the_path_is_new_enough(clone, path):
    script(path / "python3", OLD)
    assert "no Python 3.11 or newer (3.12 from 3.12.9 and 3.13 from 3.13.2 on) was found" in clone.refusal(
        PYTHON="", PATH=path
    )


def test_a_name_on_the_path_that_does_not_run_is_passed_over(clone, path):
    script(path / "python3.11", SHIM)
    script(path / "python3", STAND_IN)
    assert clone.run(PYTHON="", PATH=path).returncode == 0
    assert clone.ready()


def test_a_python_that_tells_recorded_runs_wrongly_is_passed_over(clone, path):
    of_version(path / "python3.12", "3.12.3")
    script(path / "python3", STAND_IN)
    done = clone.run(PYTHON="", PATH=path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_python_without_venv(clone):
    assert "sudo apt install python3-venv" in clone.refusal(NO_VENV=1)


def test_a_full_disk(clone):
    sentence = clone.refusal(SETUP_NEED_MB=10**12)
    assert f"needs {10**12} MB of disk" in sentence
    assert "MB are free" in sentence


@pytest.mark.parametrize(
    "line", ["leaf", "leaf>=1.0", "Leaf==1.0", "leaf=1.0", "leaf==1.*", "-r other.txt", "<<<<<<< HEAD"]
)
def test_a_malformed_lock_names_file_and_line(clone, line):
    clone.lock.write_text(f"leaf==1.0\ntwig==2.0 ; sys_platform == 'darwin'\n{line}\n")
    assert f"requirements.lock:3: not a pin of the form name==version: {line}" in clone.refusal()


def test_a_missing_lock(clone):
    clone.lock.unlink()
    assert "requirements.lock is missing" in clone.refusal()


def test_missing_hashes(clone):
    clone.hashes.unlink()
    assert "requirements.hashes is missing" in clone.refusal()


@pytest.mark.parametrize("lock", ["leaf==1.1\n", "leaf==1.0\ntwig==1.0\n", "leaf==1.0 ; sys_platform == 'linux'\n"])
def test_hashes_of_another_lock(clone, lock):
    clone.lock.write_text(lock)
    assert "requirements.hashes is not of requirements.lock" in clone.refusal()


def test_pip_fails(clone):
    does = "echo ERROR: No matching distribution found for leaf==1.0; echo a hint; exit 1"
    sentence = clone.refusal(PIP_DOES=does)
    assert "ERROR: No matching distribution found for leaf==1.0" in sentence
    assert ".setup.log" in sentence
    assert "a hint" in (clone.root / ".setup.log").read_text()


def test_an_index_that_is_out_of_reach_is_named(clone):
    """What pip makes of it, a conflict, is not the cause."""
    broken = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by NewConnectionError(no route): /whl/cpu/torch/"
    )
    sentence = clone.refusal(PIP_DOES=f"echo '{broken}'; echo 'ERROR: ResolutionImpossible: see above'; exit 1")
    assert (
        "ERROR: ResolutionImpossible: see above; before that, connection broken by NewConnectionError(no route)"
        in sentence
    )


@pytest.mark.parametrize(("pin", "pip"), [("leaf", ":"), ("leaf==2.0", "exit 1")])
def test_a_failure_leaves_the_environment_that_was_whole(clone, pin, pip):
    clone.run()
    (clone.venv / "old").touch()
    clone.pin(pin)
    assert clone.run(PIP_DOES=pip).returncode == 1
    assert clone.ready()
    assert (clone.venv / "old").exists()
    assert len(clone.environments()) == 1


def test_a_moved_repository_gets_a_new_environment(clone, tmp_path_factory):
    clone.run()
    moved = tmp_path_factory.mktemp("moved") / "repository"
    clone.root.rename(moved)
    clone.root, clone.python = moved, moved / "stand-in"
    assert clone.run().returncode == 0
    assert len(clone.pip_calls()) == 4


def start_and_wait_for_pip(clone: Clone) -> tuple[subprocess.Popen, int]:
    """setup.sh, and the process id of a pip that takes its time."""
    # As from a terminal: a process group of its own, and an interrupt that is not ignored.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(**clone.command(PIP_DOES="echo $$ >pip-pid && exec sleep 60"), **quiet)
    finally:
        signal.signal(signal.SIGINT, inherited)
    written = clone.root / "pip-pid"
    deadline = time.monotonic() + 30
    while not (written.exists() and written.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(clone.environments()) == 1
    return process, int(written.read_text())


@pytest.mark.parametrize(("interrupt", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing(clone, interrupt, status):
    process, pip = start_and_wait_for_pip(clone)
    os.killpg(process.pid, interrupt)
    assert process.wait(timeout=30) == status
    assert not clone.venv.exists()
    assert not clone.environments()
    with pytest.raises(ProcessLookupError):
        os.kill(pip, 0)


def test_a_killed_run_leaves_no_environment_and_the_next_clears_up(clone):
    process, pip = start_and_wait_for_pip(clone)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert not clone.venv.exists()
    # Its pip may live on; it must not be in the way.
    assert clone.run().returncode == 0
    os.kill(pip, signal.SIGKILL)
    assert clone.ready()
    assert clone.environments() == [clone.venv.resolve()]


@pytest.mark.parametrize("later", [0.0, 0.3])
def test_of_two_at_once_one_waits_and_finds_what_the_other_made(clone, later):
    """Both end well, and pip ran for one of them.

    Planted: without the lock, two that began together said "ready" and had removed each other's environment; of two
    that did not, the later one's was removed under its pip.
    """
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = []
    for wait in (later, 0):
        both.append(subprocess.Popen(**clone.command(PIP_DOES='sleep 0.3 && [ -x "$0" ]'), **told))
        time.sleep(wait)
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "".join(said).count("setup: another set-up is at work here; this one waits for it") == 1
    assert clone.ready()
    assert len(clone.pip_calls()) == 2
    assert clone.environments() == [clone.venv.resolve()]


def test_a_folder_that_may_only_be_read_is_named(clone):
    """In a sentence, before anything is made; a folder in the log's place refuses a write to whoever asks, root too."""
    (clone.root / ".setup.log").mkdir()
    assert f"{clone.root} cannot be written to" in clone.refusal()


def make_wheel(folder: Path, name: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_with_a_real_python_and_a_real_pip(clone):
    """One environment for real, from wheels made here: the stand-in could be wrong about what pip does."""
    wheels = clone.root / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "leaf")
    make_wheel(wheels, "thing")
    (clone.root / "backend.py").write_text(
        "import shutil\n"
        "def build_editable(folder, *_):\n"
        "    return shutil.copy('wheels/thing-1.0-py3-none-any.whl', folder).rpartition('/')[2]\n"
    )
    (clone.root / "pyproject.toml").write_text(
        "[project]\nname = 'thing'\nversion = '1.0'\n"
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    whole = hashlib.sha256((wheels / "leaf-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    settings = clone.root / "pip.conf"
    settings.write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    offline = {"PYTHON": sys.executable, "PIP_CONFIG_FILE": settings}
    other = clone.root / "other.hashes"
    other.write_text(clone.hashes.read_text())  # the hash that `pin` writes is of no file
    clone.hashes.write_text(other.read_text().replace("0" * 64, whole))
    made = clone.run(**offline)
    assert made.returncode == 0, made.stderr

    # What it does not find, or finds with another hash, it says on standard error, and fails: that then nothing changes
    # is shown above. All is asked of one process, as pip takes a while to load.
    asked = (["leaf==2.0"], ["--force-reinstall", "--require-hashes", "-r", str(other)])
    program = f"""import leaf, thing
from pip._internal.cli.main import main
print([main(["install", *each]) for each in {asked}])"""
    failed = subprocess.run(
        [clone.venv / "bin" / "python", "-c", program],
        env=clone.env | {"PIP_CONFIG_FILE": str(settings)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert failed.stdout.splitlines()[-1] == "[1, 1]"
    assert "No matching distribution found for leaf==2.0" in failed.stderr
    assert "DO NOT MATCH THE HASHES" in failed.stderr
