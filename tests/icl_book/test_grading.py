"""Graded exercises: a right answer earns, all others are refused in time and told why, without what is right."""

import json
import linecache
import re
import sys
import threading
import time
import types
import warnings

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from icl._bounds import validated
from icl_book import grading
from icl_book.grading import Refused, barred, breach, earn, judge, seeded

LSTSQ = ["numpy.linalg.lstsq"]
CASES = [{"a": 2.0, "n": 3}, {"a": 0.5, "n": 4}]


def reference(a, n):
    return a ** np.arange(n)


def cell(source, name="answer", names=None):
    """A function of a notebook's cell, whose source can be read as IPython's can; other cells' names are in `names`."""
    names = {"np": np} if names is None else names
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names[name]


def answer(line, before="", names=None):
    return cell(f"{before}\ndef answer(a, n):\n    {line}\n", names=names)


def test_a_right_answer_earns(capsys):
    """It says on how many cases, as array or list; `right` may be numbers or a function; one case is said otherwise."""
    right = answer("return [a**k for k in range(n)]")
    assert judge(right, CASES, reference).passed
    assert judge(right, CASES, [reference(**case) for case in CASES]).message == "right on 2 cases"
    assert judge(right, CASES[:1], reference).message == "right on this case"
    assert earn(right, CASES, reference) is None
    assert capsys.readouterr().out == "right on 2 cases\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise NotImplementedError", "not yet: it is not written"),
        ("return None", "returned nothing"),
        ("return 1.0", "returned a number, shape (3,) is wanted"),
        ("return a * np.arange(n)", "is wrong in 1 of 3 numbers, first at 0"),
        ("return np.array([1.0, 2.0, 4.0])", "with a=0.5, n=4, case 2 of 2: it returned shape (3,), shape (4,)"),
        ("return 1 / 0", "raised ZeroDivisionError"),
        ("raise SystemExit", "raised RuntimeError: SystemExit instead of an answer"),
    ],
)
def test_a_wrong_answer_is_told_why(line, said):
    """The message names the case and the fault and holds no number of a right answer; `earn` raises it, in one line."""
    outcome = judge(answer(line), CASES, reference)
    assert not outcome.passed
    assert said in outcome.message
    with pytest.raises(Refused) as refused:
        earn(answer(line), CASES, reference)
    assert refused.value._render_traceback_() == [f"Refused: {outcome.message}"]


def test_a_number_is_wrong_without_the_right_one():
    """Of one number only is said that it is wrong, or that it is not finite; a right nan, inf and 0 may be earned."""
    assert judge(answer("return 3.0"), CASES, [1.25, 1.25]).message.endswith("it is wrong: another number is right")
    assert judge(answer("return np.inf"), CASES, [1.25, 1.25]).message.endswith("it is not finite")
    assert judge(answer("return [np.nan, np.inf, 1e-12]"), CASES[:1], [[np.nan, np.inf, 0.0]]).passed


def test_an_answer_may_not_change_its_case_nor_speak():
    """What an answer does to its arguments stays with it, and neither its words nor its warnings come through."""
    case = {"a": np.zeros(3), "n": 1}
    loud = answer("a += 1; print('x'); import warnings; warnings.warn('y'); return np.log(-a)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judge(loud, [case], lambda a, n: np.full(3, np.nan)).passed
    assert (case["a"] == 0).all()


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True:\n        try:\n            a += 1\n        except Exception:\n            pass",
    ],
)
def test_an_endless_answer_is_late(body):
    """It is refused after its seconds and half a second more at most, and its thread ends."""
    threads, began = threading.active_count(), time.monotonic()
    outcome = judge(answer(body), CASES, reference, seconds=0.1)
    assert "takes longer than the 0.1 seconds" in outcome.message
    assert time.monotonic() - began < 3
    assert threading.active_count() == threads


def test_an_answer_that_will_not_end_is_left_behind():
    """One that holds whatever is raised in it is refused in time too; here it is let go afterwards."""
    names = {"np": np, "go": [True]}
    stubborn = cell(
        "def answer(a, n):\n    while go[0]:\n        try:\n            a += 1\n        except:\n            pass\n",
        names=names,
    )
    began = time.monotonic()
    assert "takes longer" in judge(stubborn, CASES, reference, seconds=0.1).message
    assert time.monotonic() - began < 3
    names["go"][0] = False


BY_SOURCE = {
    "by name": ("return np.linalg.lstsq(a, n)", ""),
    "by alias": ("return fit(a, n)", "from numpy.linalg import lstsq as fit"),
    "by another module": ("import scipy.linalg as s; return s.lstsq(a, n)", ""),
    "by getattr": ("return getattr(np.linalg, 'lstsq')(a, n)", ""),
    "by a name put together": ("return getattr(np.linalg, 'lst' + 'sq')(a, n)", ""),
    "by getattr under another name": ("return get(np.linalg, 'lst' + 'sq')(a, n)", "get = getattr"),
    "by eval": ("return eval('np.linalg.lst' + 'sq')(a, n)", ""),
    "by importlib": ("import importlib; return importlib.import_module('numpy')", ""),
    "by __dict__": ("return np.linalg.__dict__['lst' + 'sq'](a, n)", ""),
    "by star": ("return 1", "from numpy.linalg import *"),
    "by operator": ("return attrgetter('lst' + 'sq')(np.linalg)(a, n)", "from operator import attrgetter"),
    "by a reference": ("return _reference(a, n)", ""),
    "by what ran before": ("return Out[3]", ""),
    "by a generator's frame": ("g = (g.gi_frame.f_back for _ in [0]); return next(g).f_globals", ""),
    "by a traceback's frame": ("try: 1 / 0\n    except Exception as e: return e.with_traceback(None).tb_frame", ""),
}


@pytest.mark.parametrize("way", BY_SOURCE)
def test_a_call_that_is_not_allowed_is_seen_in_the_source(way):
    """Whatever name it goes by, with the line; nothing of the answer runs."""
    found = breach(answer(*BY_SOURCE[way]), LSTSQ)
    assert found.startswith("line ")
    assert " of the answer uses " in found
    assert judge(answer(*BY_SOURCE[way]), CASES, reference, not_allowed=LSTSQ).message == found


def test_a_call_is_seen_in_what_the_answer_calls():
    """In a helper of another cell, in a class, and as a name that another cell gave it."""
    names = {"np": np}
    cell("def helper(a, n):\n    return np.linalg.lstsq(a, n)", "helper", names)
    assert "lstsq" in breach(cell("def answer(a, n):\n    return helper(a, n)", names=names), LSTSQ)
    cell("class Kept:\n    def __call__(self, a, n):\n        return np.linalg.lstsq(a, n)", "Kept", names)
    assert "lstsq" in breach(cell("def answer(a, n):\n    return Kept()(a, n)", names=names), LSTSQ)
    cell("fit = np.linalg.lstsq", "fit", names)
    assert "lstsq" in breach(cell("def answer(a, n):\n    return fit(a, n)", names=names), LSTSQ)


@pytest.mark.parametrize(
    "source",
    [
        "import json.encoder",
        "import json as j",
        "from json import encoder",
        "from json.encoder import JSONEncoder as e",
        "import logging.config\nx = json.dumps",
    ],
)
def test_a_module_may_be_barred_as_a_whole(source):
    """With all that is in it, however it is imported; what is beside it may be used."""
    names = {"json": json}
    assert "json, which this exercise does not allow" in breach(answer("return 1", source, names), ["json"])
    assert breach(answer("return 1", source, names), ["csv"]) == ""


def test_names_of_its_own_are_an_answers_own():
    """A variable named as a function is, an attribute of another name and a function of its own are no breach."""
    own = "lstsq = a + n; _kept = lstsq; return np.linalg.norm(_kept)"
    assert breach(answer(own), LSTSQ) == ""
    kept = "class Kept(dict):\n    def __init__(self):\n        super().__init__()\n"
    assert breach(answer("return Kept() and len", f"{kept}if __name__ == '__main__':\n    pass")) == ""
    assert breach(cell("def helper(a):\n    return a\ndef answer(a, n):\n    return helper(a)"), LSTSQ) == ""


def test_an_answer_is_a_function_whose_code_can_be_read():
    """A built-in, a class and a function without source are refused; nothing is called."""
    for other in (len, int):
        assert "must be a function written with def" in breach(other)
    names = {}
    exec("def answer(a, n): return 1", names)
    assert "cannot be read" in breach(names["answer"])


def test_barred_functions_raise_by_every_name_and_come_back():
    """Kept in a list, imported under another name or built in: a barred function raises, and afterwards works again."""
    kept = [np.linalg.lstsq, json.dumps, np.convolve]
    arguments = [(np.eye(2), np.ones(2), None), ([1],), (np.ones(2), np.ones(2))]
    with barred([*LSTSQ, "json", "numpy.convolve", "numpy.dot"]):
        for function, given in zip(kept, arguments, strict=True):
            with pytest.raises(PermissionError, match="is not allowed in this exercise"):
                function(*given)
        with pytest.raises(PermissionError, match=r"json\.encoder\.JSONEncoder is not allowed"):
            json.encoder.JSONEncoder()
        with pytest.raises(PermissionError, match=r"numpy\.dot is not allowed"):
            np.dot(np.eye(2), np.eye(2))
    assert all(function(*given) is not None for function, given in zip(kept, arguments, strict=True))
    assert json.encoder.JSONEncoder().encode([1]) == "[1]"
    assert np.dot(2.0, 3.0) == 6


@validated
def trace(x: Float[Tensor, "d d"]):
    """A door that nobody has called before it is barred."""
    return x.trace()


def test_a_function_first_called_while_barred_checks_its_arguments_afterwards(monkeypatch):
    """Its code has another signature then. Injected fault: a signature read at the first call."""
    monkeypatch.setitem(sys.modules, "door", types.SimpleNamespace(trace=trace))
    with barred(["door.trace"]), pytest.raises(PermissionError):
        trace(torch.eye(2))
    assert trace(torch.eye(2)) == 2
    with pytest.raises(ValueError, match="x must"):
        trace(torch.ones(2, 3))


def test_what_the_source_does_not_show_is_barred_at_run_time():
    """A function hidden in a list of another cell passes the reading and raises when it is called."""
    names = {"np": np, "tools": [np.linalg.lstsq]}
    hidden = cell("def answer(a, n):\n    return tools[0](a, n)", names=names)
    assert breach(hidden, LSTSQ) == ""
    outcome = judge(hidden, CASES, reference, not_allowed=LSTSQ)
    assert "PermissionError: numpy.linalg.lstsq is not allowed" in outcome.message


WRONG = "return np.zeros(n)"


@pytest.mark.parametrize(
    "name", ["allclose", "isclose", "asarray", "abs", "arange", "linalg.solve", "random.default_rng"]
)
def test_no_marks_once_a_function_was_replaced(monkeypatch, name):
    """A right answer, a wrong one, and one that the replaced function makes right: refused by name."""
    monkeypatch.setattr(f"numpy.{name}", lambda *given, **named: 0.0)
    for line in (WRONG, "return 0.0", "return [a**k for k in range(n)]"):
        outcome = judge(answer(line), CASES, reference)
        assert not outcome.passed
        assert re.match(rf"no marks: numpy\.(\w+\.)*{name} was replaced", outcome.message)


def test_no_marks_once_a_functions_code_was_replaced():
    """The function stays the same object; a built-in name is looked at too."""
    kept = np.allclose._implementation.__code__
    np.allclose._implementation.__code__ = (lambda *given, **named: True).__code__
    try:
        assert "numpy.allclose was replaced" in judge(answer(WRONG), CASES, reference).message
    finally:
        np.allclose._implementation.__code__ = kept
    assert judge(answer("return [a**k for k in range(n)]"), CASES, reference).passed


def test_no_marks_for_an_answer_that_replaces_a_function_as_it_runs(monkeypatch):
    """By a way that its source does not show."""
    monkeypatch.setattr(np, "median", np.median)
    names = {"np": np, "tools": [np.__dict__]}
    hidden = cell("def answer(a, n):\n    tools[0].update(median=0)\n    return [a**k for k in range(n)]", names=names)
    assert "numpy.median was replaced" in judge(hidden, CASES, reference).message


def test_a_judge_that_passes_a_known_wrong_answer_gives_no_marks(monkeypatch):
    """The canary: with a comparison that says yes to everything, neither a right nor a wrong answer passes."""
    monkeypatch.setattr(grading, "_fault", lambda *given: "")
    for line in (WRONG, "return [a**k for k in range(n)]"):
        assert "an answer known to be wrong passes" in judge(answer(line), CASES, reference).message
    monkeypatch.undo()
    for right in (np.inf, np.nan, [0.0, np.inf], np.zeros((0, 2)), 1e300):
        assert grading._doubt([{}], [np.asarray(right, dtype=float)], 1.0, 1e9) == ""


@pytest.mark.parametrize(
    "source",
    [
        "np.allclose = lambda *a, **k: True",
        "import numpy\ndef helper():\n    numpy.linalg.norm = 1",
        "import scipy.linalg as s\ndel s.lstsq",
        "from numpy import linalg\nlinalg.solve: object = 1",
        "import numpy as np\nsetattr(np, 'all' + 'close', max)",
        "from unittest import mock",
        "import unittest.mock as m",
        "from unittest.mock import patch",
    ],
)
def test_every_cell_of_the_notebook_is_looked_at(source):
    """A part of a module that any cell replaces is named, though the answer's own cell is clean; nothing runs."""
    names = {"np": np, "In": ["", "import numpy as np", source, "not python (", "x = 1"]}
    found = breach(answer("return [a**k for k in range(n)]", names=names))
    assert found.startswith("a cell of the notebook has ")
    assert found.endswith(", and no cell may replace a part of what it imports")


def test_what_cells_do_to_their_own_things_is_theirs():
    """Attributes of a notebook's own objects, and settings by subscript or call, are no replacement."""
    honest = "import numpy as np\nclass A: pass\nA.b = 1; A().c = 2\nnp.seterr(all='ignore'); np.e\nx = {}; x[0] = 1"
    assert breach(answer("return 1", names={"np": np, "In": [honest, "setattr(A, 'd', 3)", "self.mock = 1"]})) == ""


def test_seeds_are_the_label_and_the_secret(monkeypatch):
    """Equal for equal ones, others otherwise; without a secret the variable's, and without that the default's."""
    draw = lambda *given: seeded(*given).random()  # noqa: E731
    assert draw("ps1", "a") == draw("ps1", "a")
    assert len({draw("ps1", "a"), draw("ps1", "b"), draw("ps2", "a")}) == 3
    monkeypatch.setenv(grading.SECRET_VARIABLE, "a")
    assert draw("ps1") == draw("ps1", "a")
    monkeypatch.delenv(grading.SECRET_VARIABLE)
    assert draw("ps1") == draw("ps1", grading.DEFAULT_SECRET)


def test_what_is_at_hand_belongs_to_its_module():
    """A function imported before the answer is the barred module's, by where it was defined; others are not."""
    assert grading._forbidden_name(json.loads, {"json": json}) == "json"
    assert grading._forbidden_name(json, {"json": json}) == "json"
    assert grading._forbidden_name(np.dot, {"json": json}) == ""
    assert grading._forbidden_name(3.0, {"json": json}) == ""
