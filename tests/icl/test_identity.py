"""Has the program changed? The identity of code, in a small library of its own."""

import functools
import itertools
import sys
import textwrap
from types import SimpleNamespace

import pytest

from icl import _identity

LIBRARY = {
    "_checks.py": "def number(name, value): ...\ndef covariance(name, value): return value\n",
    "base.py": """
        '''Words.'''
        import numpy as np

        from icl import _checks

        SLACK = 1e-6
        LOW, HIGH = 1, 2

        def _refuse(x):
            if x < 0:
                raise ValueError(f"x must be >= 0, got {x}")

        def step(x: float, *, lam: float = 0.9) -> float:
            '''One step.'''
            _checks.number("lam", lam)
            _refuse(x)
            return lam * np.sqrt(x) + SLACK

        def other(x):
            return x - SLACK

        def even(n):
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)
        """,
    "theory/__init__.py": "from icl.theory import forms\n",
    "theory/forms.py": """
        from dataclasses import dataclass

        from icl import base
        from icl.base import other as minus

        @dataclass(frozen=True)
        class Law:
            d: int

            def __post_init__(self):
                if self.d < 1:
                    raise ValueError("d")

            def value(self, step):
                return step + base.step(self.d)

        def loss(x):
            total = [base.step(base) for base in x]
            return sum(total) - minus(base.step(x[0]))
        """,
}
CELLS = ["import icl\nfrom icl import theory\n", "from icl.base import step\ntheory.forms.loss([step(2)])"]


@pytest.fixture
def identify(monkeypatch, tmp_path):
    """A function from a library's files to the identity of all that its definitions are, by dotted name."""
    numbers = itertools.count()
    remembering = {name: each for name, each in vars(_identity).items() if hasattr(each, "cache_clear")}

    def read(files, cells=CELLS):
        root = tmp_path / f"{next(numbers)}" / "icl"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(textwrap.dedent(text))
        (root / "__init__.py").write_text("")
        monkeypatch.setattr(_identity, "_ROOT", root)
        monkeypatch.setattr(_identity, "_known", {})
        # Memories of their own: what is remembered of the real library took seconds.
        for name, each in remembering.items():
            monkeypatch.setattr(_identity, name, functools.cache(each.__wrapped__))
        return _identity.reached(cells)

    return read


def edited(name, *changes):
    """The library with pieces of one file replaced; each must be there."""
    text = LIBRARY[name]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return LIBRARY | {name: text}


def test_a_program_reaches_what_it_names(identify):
    """What cells name is found through packages, re-exports and aliases, and nothing else is."""
    assert list(identify(LIBRARY)) == ["icl.base.step", "icl.theory.forms.loss"]
    assert list(identify(LIBRARY, ["from icl.theory import forms as f\nlaw = f.Law(3)\nlaw.loss"])) == [
        "icl.theory.forms.Law"
    ]
    assert identify(LIBRARY, ["def loss(step):\n    return step\nx = [step for step in (1, 2)]"]) == {}
    whole = identify(LIBRARY, ["from icl import base\nprint(base)"])
    assert list(whole) == ["icl.base"]
    assert whole != identify(edited("base.py", ("n == 0", "n == 1")), ["from icl import base\nprint(base)"])


SAME = {
    "a comment": edited("base.py", ("SLACK = 1e-6", "SLACK = 1e-6  # small")),
    "a docstring": edited("base.py", ("'''One step.'''", "'''Two words.\n\n            And more.'''")),
    "no docstring": edited("base.py", ("            '''One step.'''\n", "")),
    "layout": edited("base.py", ("lam * np.sqrt(x) + SLACK", "(\n                lam * np.sqrt(x) + SLACK)")),
    "an annotation": edited("base.py", ("x: float, *, lam: float = 0.9) -> float", "x, *, lam=0.9)")),
    "a bound": edited("base.py", ('_checks.number("lam", lam)', '_checks.number("lambda", lam, above=0)')),
    "no check": edited("base.py", ('            _checks.number("lam", lam)\n', "")),
    "no refusal": edited("base.py", ("            _refuse(x)\n", "")),
    "another refusal": edited("base.py", ("_refuse(x)\n", "if x > 3:\n                raise TypeError\n")),
    "what a refusal says": edited("base.py", ("x must be", "x has to be")),
    "an import": edited("base.py", ("import numpy as np", "import numpy as array"), ("np.", "array.")),
    "a name within": edited("base.py", ("SLACK", "MARGIN")),
    "what nobody reached": edited("base.py", ("n == 0", "n == 1")),
    "a refusing method": edited("theory/forms.py", ("self.d < 1", "self.d < 2")),
    "another place": {
        "_checks.py": LIBRARY["_checks.py"],
        "rooms/__init__.py": "from icl.rooms.small import step\n",
        "rooms/small.py": LIBRARY["base.py"].replace("other", "less"),
        "base.py": "from icl.rooms import step\n",
        "theory/__init__.py": "from icl.forms import loss\nfrom icl import forms\n",
        "forms.py": LIBRARY["theory/forms.py"]
        .replace("from icl import base", "from icl.rooms import small as base")
        .replace("from icl.base import other", "from icl.rooms.small import less"),
    },
}


@pytest.mark.parametrize("library", SAME.values(), ids=SAME)
def test_it_is_the_same_program(identify, library):
    """Words, layout, imports, names, places and refusals do not change what code is."""
    before = identify(LIBRARY)
    assert sorted(before.values()) == sorted(identify(library).values())


OTHER = {
    "a constant": edited("base.py", ("1e-6", "1e-5")),
    "a default": edited("base.py", ("0.9", "0.8")),
    "an operator": edited("base.py", ("lam * np", "lam / np")),
    "an outside name": edited("base.py", ("np.sqrt", "np.exp")),
    "deep below": edited("base.py", ("x - SLACK", "x + SLACK")),
    "two swapped": edited(
        "theory/forms.py",
        ("sum(total) - minus(base.step(x[0]))", "sum(total) - base.step(minus(x[0]))"),
    ),
    "a refusal that answers": edited("base.py", ("_refuse(x)\n", "if x > 3:\n                return 0\n")),
}


@pytest.mark.parametrize("library", OTHER.values(), ids=OTHER)
def test_it_is_another_program(identify, library):
    """Whatever enters the numbers, however deep, makes another identity of what is reached."""
    before = identify(LIBRARY)
    after = identify(library)
    assert before["icl.theory.forms.loss"] != after["icl.theory.forms.loss"]


@pytest.mark.parametrize(
    "inner",
    [
        "return sum(minus(each) for each in x)",
        "return {minus(each): each for each in x}",
        "for each in x:\n                total.append(minus(each))\n            return total",
        "if x:\n                pass\n            else:\n                return minus(x)",
    ],
)
def test_what_stands_further_inside_is_reached(identify, inner):
    """What is called in a comprehension, in a loop or in a branch alone enters the identity too."""
    library = edited("theory/forms.py", ("return sum(total) - minus(base.step(x[0]))", inner))
    below = edited("base.py", ("x - SLACK", "x + SLACK"))["base.py"]
    before, after = identify(library), identify(library | {"base.py": below})
    assert before["icl.theory.forms.loss"] != after["icl.theory.forms.loss"]


def test_circles_have_an_identity(identify):
    """Definitions that call one another have identities of their own, which follow a change of either."""
    cells = ["from icl import base\nbase.even(2), base.odd(2)"]
    before = identify(LIBRARY, cells)
    assert len(set(before.values())) == 2
    after = identify(edited("base.py", ("n != 0", "n != 1")), cells)
    assert not set(before.values()) & set(after.values())


def test_one_of_several_names(identify):
    """Of names bound together each has its own identity."""
    cells = ["from icl.base import LOW, HIGH\nLOW, HIGH"]
    assert len(set(identify(LIBRARY, cells).values())) == 2


def test_a_class_is_all_its_methods(identify):
    """A class is another when a method is, by what it calls too, and a parameter's name is not the library's."""
    cells = ["from icl.theory.forms import Law\nLaw"]
    before = identify(LIBRARY, cells)
    assert before != identify(edited("theory/forms.py", ("step + base", "step - base")), cells)
    assert before != identify(edited("base.py", ("1e-6", "1e-5")), cells)
    assert before == identify(edited("base.py", ("x - SLACK", "x + SLACK")), cells)
    assert before != identify(edited("theory/forms.py", ("d: int", "d: int = 3")), cells)


def test_the_program_that_runs(monkeypatch, tmp_path):
    """In a notebook it is the cells run so far, each once; else the file that was started; else unknown."""
    shell = SimpleNamespace(user_ns={"In": ["", "x = 1", "y = 2", "x = 1"]})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert _identity.running() == ["x = 1", "y = 2"]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    (tmp_path / "run.py").write_text("print(1)")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(tmp_path / "run.py")))
    assert _identity.running() == ["print(1)"]
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    assert _identity.running() == []


def test_every_definition_of_the_library_is_read():
    """The identities of the whole library can be taken, and those of its public functions differ from one another."""
    found = _identity.everything()
    names = ["icl.theory.one_layer.layer_risk", "icl.theory.floors.kalman_risk"]
    assert {_identity.identity(name) for name in names} <= found
    assert len({_identity.identity(name) for name in names}) == len(names)
    assert len(found) > 400


def test_a_program_is_its_cells_and_what_they_reach(identify):
    """The hash of cells follows their code and the library behind it, and neither comments nor layout."""
    identify(LIBRARY)
    before = _identity.program(CELLS)
    assert before == _identity.program([cell + "  # words" for cell in CELLS])
    assert before != _identity.program([CELLS[0], CELLS[1].replace("2", "3")])
    identify(edited("base.py", ("1e-6", "1e-5")))
    assert before != _identity.program(CELLS)
