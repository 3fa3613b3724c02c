"""A fault of the library that no test sees is found, one that a test sees is killed, and nothing is tried twice."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOOLS = Path(__file__).resolve().parents[2] / "tools"

MODULE = '''"""A module."""


def seen(x):
    """Twice x, for x of at most 9."""
    if x > 9:
        raise ValueError(f"x must be at most {9 - 0}, got {x}")
    return x + x


def unseen(n: int) -> int:
    """The sum of 1 .. n, slowly."""
    total: "int | 2 + 2" = 0
    while n > 0:
        total += n
        n -= 1
    return float(total)
'''
OF_ONE = """
import warnings

import pytest
import yaml
from icl.small import seen, unseen


@pytest.mark.filterwarnings("ignore:as marked")
def test_seen():
    warnings.warn("as marked")
    assert seen(3) == 6
    assert [seen(9), seen(8.5)] == [18, 17]
    with pytest.raises(ValueError, match="got 10"):
        seen(9.5 + 0.5)
    with pytest.raises(ValueError, match="got 9.5"):
        seen(9.5)
"""
OF_BOTH = f"""{OF_ONE}

def test_unseen():
    assert [unseen(-2), unseen(0), unseen(1), unseen(4)] == [0, 0, 1, 10]
"""
#: As the book's own tests do: what is set aside has to be found all the same.
SETTING_ASIDE = """
import gc


def pytest_collection_finish():
    gc.freeze()
"""
#: It loads the tool once. Each line that it reads is a folder, in which a copy of it then is the tool, and whether the
#: disk is full there; it answers with the tool's status.
START = """
import os, pathlib, sys
import library_mutants as tool
for line in sys.stdin:
    folder, full = line.split()
    if not (child := os.fork()):
        os.chdir(folder)
        sys.stdout, sys.stderr = open("said", "w"), open("complained", "w")
        os.dup2(sys.stderr.fileno(), 2)
        sys.argv, tool.ROOT, tool.LEAST = ["tool", "icl/small"], pathlib.Path.cwd(), 0.05
        tool.full = (lambda: True) if full == "full" else tool.full
        sys.exit(tool.main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def tool():
    """The process in which the tool is loaded."""
    pipe = subprocess.PIPE
    command, lean = [sys.executable, "-c", START], {"PYTHONPATH": str(TOOLS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, env=lean, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()


def tried(tool, folder, tests, listed, full="no"):
    """What the tool says of a library of one module with these tests, its status, and the lines it has kept."""
    (folder / "lib/icl").mkdir(parents=True, exist_ok=True)
    (folder / "tests/icl").mkdir(parents=True, exist_ok=True)
    (folder / "lib/icl/__init__.py").touch()
    (folder / "lib/icl/small.py").write_text(MODULE)
    (folder / "tests/conftest.py").write_text(SETTING_ASIDE)
    (folder / "tests/icl/test_small.py").write_text(tests)
    (folder / "tests/mutants.yml").write_text(json.dumps({"icl/small": {"a reason": listed}}))
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["lib"]\nfilterwarnings = ["error:as marked"]\n'
    )
    tool.stdin.write(f"{folder} {full}\n")
    tool.stdin.flush()
    status = int(tool.stdout.readline())
    complained = (folder / "complained").read_text()
    assert not complained, complained[-1000:]
    kept = [json.loads(line) for line in (folder / ".mutants/tried.jsonl").read_text().splitlines()]
    return (folder / "said").read_text(), status, kept


def test_a_fault_survives_without_its_test_and_is_killed_with_it(tool, tmp_path):
    """Of one function the faults die, of the other they live until it has a test; an endless one is too long.

    What is killed is not tried again, what may survive is listed, and what is listed has to survive.
    """
    dies = "total += n => total -= n"
    live = [f"unseen: while n > 0: => while {same}:" for same in ("n >= 0", "n > -1")]
    other = "seen: return x + x => return x - x"
    said, status, first = tried(tool, tmp_path, OF_ONE, [other])
    assert status == 1
    assert {(row["function"], row["kind"]) for row in first} == {("seen", "killed"), ("unseen", "survived")}
    assert f"no test gets there): unseen: {dies}" in said
    assert f"listed, but killed: {other}" in said

    said, status, both = tried(tool, tmp_path, OF_BOTH, live)
    again = both[len(first) :]
    assert {row["function"] for row in again} == {"unseen"}
    assert {row["kind"] for row in again} == {"killed", "too long", "survived"}
    count = len({row["key"] for row in first})
    assert f"{count - 2:4}/{count:<4} killed" in said
    assert "2 survive,   2 of them listed" in said
    assert "survives" not in said
    assert status == 0
    assert "9 -" not in said


def test_what_ends_from_outside_kills_no_fault(tool, tmp_path):
    """A test that the system killed, or that failed on a full disk, says nothing of a fault: it is tried again."""
    ended = OF_ONE.replace("    assert seen(3) == 6", "    if seen(3) != 6:\n        os.kill(os.getpid(), 9)")
    said, status, first = tried(tool, tmp_path, f"import os\n{ended}", [])
    assert status == 1
    assert "not tried (ended from outside, most likely for want of memory): seen: return x + x => return x - x" in said
    assert ("seen", "not tried") in {(row["function"], row["kind"]) for row in first}

    said, status, second = tried(tool, tmp_path, OF_BOTH, [], "full")
    assert status == 1
    assert "not tried (no space is left on the disk): seen: return x + x => return x - x" in said
    assert {row["kind"] for row in second[len(first) :]} == {"not tried", "survived", "too long"}

    said, _, third = tried(tool, tmp_path, OF_BOTH, [])
    assert "not tried" not in said
    assert {row["kind"] for row in third[len(second) :]} == {"killed"}


def test_what_may_survive_still_stands_in_the_library():
    """Each listed fault is in a function that there is, whose text has the line that it changes."""
    root = TOOLS.parent
    for module, reasons in yaml.safe_load((root / "tests/mutants.yml").read_text(encoding="utf-8")).items():
        tree = ast.parse((root / f"lib/{module}.py").read_text(encoding="utf-8"))
        for listed in (change for changes in reasons.values() for change in changes):
            name, _, change = listed.partition(": ")
            functions = [node for node in ast.walk(tree) if getattr(node, "name", "") == name.rpartition(".")[2]]
            assert any(change.partition(" => ")[0] in ast.unparse(node) for node in functions), (module, listed)
