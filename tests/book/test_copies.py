"""Kernels that are copies of one process: what they have of it and what they have not, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chapters
import copies
import kernels
import pytest
import runs

# Elsewhere a build starts each kernel by itself.
pytestmark = pytest.mark.skipif(not copies.SUPPORTED, reason="only on Linux are kernels copies")

ROOT = Path(__file__).resolve().parents[2]
LIGHT = ("ipykernel.kernelapp", "colorsys")  # a kernel imports the first in any case, and the second never


@pytest.fixture
def light(monkeypatch):
    """Copies of a process that has not loaded what real chapters import."""
    monkeypatch.setattr(copies, "LOADED", LIGHT)


LOOKS = """
import json, os, sys
found = {"loaded": "colorsys" in sys.modules, "package": any(name.split(".")[0] == "icl" for name in sys.modules)}
import colorsys
found |= {"left": [hasattr(colorsys, "left"), "LEFT" in os.environ], "given": os.environ.get("GIVEN")}
found |= {"path": sys.path[0] == "LEFT", "files": os.listdir(), "folder": os.getcwd(), "parent": os.getppid()}
print(json.dumps(found))
colorsys.left = os.environ["LEFT"] = "here"
sys.path.insert(0, "LEFT")
"""


def test_a_copy_has_what_was_loaded_and_nothing_of_other_chapters(tiny, light, monkeypatch, tmp_path_factory):
    """Three chapters, one after another, find the module that was loaded, not the package, nothing that another has
    left, an empty folder and the environment that was given; outside, kernels are processes of this one as before.

    A kernel that is killed meanwhile is reported as dead.
    """
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    tiny.chapters(a=[LOOKS], b=[LOOKS], killed=[dies], c=[LOOKS], after=[LOOKS])
    given = os.environ | {"GIVEN": "this"}
    monkeypatch.setenv("GIVEN", "another")
    found, errors = {}, {}

    def run(name):
        notebook, folder = runs.download(f"book/{name}"), tmp_path_factory.mktemp(name)
        _, errors[name] = kernels.execute(notebook, folder, given, 60)
        found[name] = [json.loads(o.text) for c in notebook.cells for o in c.get("outputs", []) if "text" in o]
        assert all(each.pop("folder") == str(folder) for each in found[name])

    with copies.made(given), ThreadPoolExecutor() as pool:
        original = copies._original.pid
        killed = pool.submit(run, "killed")
        for name in ("a", "b", "c"):
            run(name)
        killed.result()
    run("after")
    new = {"package": False, "left": [False, False], "path": False, "given": "this", "files": []}
    copied = [new | {"loaded": True, "parent": original}]
    assert found == {
        **{"a": copied, "b": copied, "killed": [], "c": copied},
        "after": [new | {"loaded": False, "parent": os.getpid()}],
    }
    dead = errors.pop("killed")
    assert dead.startswith("The kernel died")
    assert set(errors.values()) == {None}
    assert not Path(f"/proc/{original}").exists()


SLEEPS = """
import os, pathlib, time
for number in (os.getpid(), os.getppid()):
    pathlib.Path({root!r}, f"{{number}}.pid").touch()
time.sleep(600)
"""


def test_ctrl_c_leaves_no_process(tiny):
    """Ctrl-C reaches the build and the process that is copied, as from a terminal; neither it nor a copy is left."""
    sleeps = SLEEPS.format(root=str(tiny.root))
    tiny.chapters(a=[sleeps], b=[sleeps], c=["x = 1"])
    with tiny.building(loaded=LIGHT, processes=3) as process:
        assert all(map(tiny.running, tiny.numbers()))
        os.killpg(process.pid, signal.SIGINT)
        process.join(60)
    assert process.exitcode == 130
    assert tiny.complained() == "Stopped; what had finished is kept.\n"
    assert len(tiny.numbers()) == 3
    assert not any(map(tiny.running, tiny.numbers()))


def test_a_process_that_loads_ends_with_a_build_that_was_killed(tmp_path):
    """What is to be copied does not load on for seconds, and then complains that nobody listens.

    Planted: without the watch it was there for 12 s more, and left a trace on the terminal.
    """
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    heard, say = os.pipe()
    if not (build := os.fork()):
        try:
            command = [sys.executable, "-P", str(ROOT / "book/_ext/original.py"), "slow"]
            subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, stdout=say, stderr=say)
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(heard) as pipe:
        assert pipe.readline() == "loading\n"
        os.kill(build, signal.SIGKILL)
        os.waitpid(build, 0)
        began = time.monotonic()
        assert pipe.read() == ""
    assert time.monotonic() - began < 30


def test_when_the_original_dies_the_next_kernel_says_so(light, tmp_path):
    """Killed in the middle of a build, it ends in a sentence, not in a broken pipe; nothing is left of it then."""
    with copies.made(os.environ):
        dying = copies._original
        dying.kill()
        dying.wait()
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^the process that kernels are copies of has ended$"):
                copies._copy([], str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^kernels are copied within `made` only$"):
        copies._copy([], str(tmp_path))


def test_what_cannot_be_loaded_is_named(tiny, monkeypatch):
    """A process that cannot load a module ends in a sentence with its name; kernels are then ordinary."""
    monkeypatch.setattr(copies, "LOADED", ("colorsys", "no_such_module"))
    said = r"^book/_ext/copies\.py: kernels cannot be copied: no_such_module cannot be loaded: ModuleNotFoundError"
    with pytest.raises(chapters.Broken, match=said), copies.made(os.environ):
        pass
    assert copies._original is None
    assert copies.KernelProvisionerFactory.instance().default_provisioner_name == "local-provisioner"


def test_what_asks_where_it_runs_is_not_loaded(tmp_path, monkeypatch):
    """A process that has loaded what looks whether it is in a notebook says so; no kernel is a copy of it.

    So each build shows that what it loads is none of these. Planted: with pandas loaded, wide tables broke their lines
    on pages as in a terminal; `make again` was red.
    """
    (tmp_path / "pandas.py").touch()
    monkeypatch.setattr(copies, "LOADED", ("colorsys", "pandas"))
    said = r"kernels cannot be copied: pandas would be loaded outside a notebook"
    with pytest.raises(chapters.Broken, match=said), copies.made(os.environ | {"PYTHONPATH": str(tmp_path)}):
        pass
