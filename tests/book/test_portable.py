"""Chapters as other processors compute them: every value that a page shows counts, and is named if it differs."""

import json
import os
import re
import subprocess
import sys

import chapters
import nbformat
import portable
import pytest
import runs

SPEC = {
    "title": "A figure",
    "description": "It falls to 0.5.",
    "encoding": {
        "x": {"field": "n", "type": "quantitative", "scale": {"type": "log", "domain": [1e-6, 1.0]}},
        "y": {"field": "error", "type": "quantitative", "scale": {"type": "linear", "domain": [-1.0, 1.0]}},
    },
    "datasets": {"data-1a": [{"n": 1e-3, "error": 0.0}, {"n": 1.0, "error": 0.5}], "data-2b": [{"free": 3.0}]},
}
TABLE = "<table><tr><th>filter</th><th>error</th></tr><tr><td>RLS</td><td>0.529</td></tr></table>"
CLAIM = {"id": "gla.x", "verdict": "reproduced", "measured": "z = -4.3", "samples": None}


def chapter(*, said="lost in 4 of 9", printed="rest 0.12", table=TABLE, claim=CLAIM, spec=SPEC):
    """An executed chapter with one output of every kind."""
    spec = spec if isinstance(spec, str) else json.dumps(spec)
    figure = f'<figure><img alt="" src="data:{hash(spec)}"><script type="application/json">{spec}</script></figure>'
    bundles = [
        {runs.SAID: said, "text/html": "<!-- checked -->", "text/plain": ""},
        {"text/html": table, "text/plain": "shown nowhere"},
        {runs.CHECK: claim, "text/html": f"<p>{claim['measured']}</p>", "text/plain": ""},
        {"text/html": figure, "text/plain": ""},
    ]
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in bundles]
    outputs += [nbformat.v4.new_output("stream", name="stdout", text=part) for part in (printed[:5], printed[5:])]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=outputs)])


def test_a_second_run_that_shows_the_same_is_no_difference():
    """Addresses, pieces of printed text, bytes of pictures and data within a thousandth of the axis do not count."""
    assert portable.differences(chapter(), chapter()) == []
    at = [chapter(printed=f"a<b at 0x{address}>\nrest") for address in ("7f01", "7f02ab")]
    assert portable.differences(*at) == []
    near = json.dumps(SPEC).replace("data-1a", "data-9f").replace('"error": 0.5', '"error": 0.5019')
    near = near.replace('"n": 0.001', '"n": 0.001013').replace("3.0", "3.0029")
    assert portable.differences(chapter(), chapter(spec=near)) == []


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"said": "lost in 5 of 9"}, "cell 1, sentence: lost in 4 … lost in [4 -> 5]"),
        ({"printed": "rest 0.13"}, "cell 1, text: rest 0.12 … rest [0.12 -> 0.13]"),
        ({"table": TABLE.replace("0.529", "0.545")}, "cell 1, text: RLS | 0.529 … RLS | [0.529 -> 0.545]"),
        (
            {"claim": CLAIM | {"measured": "z = -5.0"}},
            "cell 1, claim gla.x: reproduced: z = … reproduced: z = [-4.3 -> -5.0]",
        ),
        (
            {"claim": CLAIM | {"verdict": "misprint"}},
            "cell 1, claim gla.x: reproduced: z = … [reproduced: -> misprint:]",
        ),
    ],
)
def test_another_value_is_named(other, line):
    """A sentence, a printed number, a cell of a table, what a claim measured and its verdict."""
    (found,) = portable.differences(chapter(), chapter(**other))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"error": 0.5', '"error": 0.5021', "error 0.5 … [0.5 -> 0.5021]"),
        ('"error": 0.0', '"error": null', "error 0.0 … [0.0 -> None]"),
        ('"n": 0.001', '"n": 0.0010141', "n 0.001 … [0.001 -> 0.0010141]"),
        ("3.0", "3.0031", "free 3.0 … [3.0 -> 3.0031]"),
        ("to 0.5.", "to 0.6.", "description It falls to … It falls to [0.5. -> 0.6.]"),
        ('{"free": 3.0}', '{"free": 3.0}, {"free": 3.0}', "24 -> 26 parts"),
    ],
)
def test_another_datum_of_a_figure_is_named(old, new, line):
    """By more than a thousandth of the axis, on a logarithm's scale too; a word of the figure, and a row more."""
    spec = json.dumps(SPEC)
    assert spec.count(old) >= 1
    found = portable.differences(chapter(), chapter(spec=spec.replace(old, new, 1)))
    (found,) = [re.sub(r"\d+ -> \d+ parts", "24 -> 26 parts", each) for each in found]
    assert found == f"cell 1, figure 'A figure': {line}"


def test_a_chapter_that_differs_is_named_with_its_failure(tiny, monkeypatch, capfd):
    """A cell that fails there is a difference, and so is what comes after it; a chapter that is the same passes."""
    setting = {"other": {"THERE": "1"}}
    monkeypatch.setattr(portable, "PROCESSORS", setting)
    monkeypatch.setattr(portable, "acting", lambda names, environment: iter(names))
    fails = "import os\nassert 'THERE' not in os.environ, 'gla.x: not so'"
    tiny.chapters(a=[fails, "print(os.environ.get('THERE', 0))"], b=["print(2)"])
    assert portable.main(["--page", "a", "b"]) == 1
    said, complained = capfd.readouterr()
    assert "cell 1, error: nothing -> AssertionError: gla.x: not so\ncell 2, text: 0 … [0 -> 1]\n" in said
    assert complained == "Not as on this machine: book/a on other\n"
    assert portable.main(["--page", "b"]) == 0
    assert capfd.readouterr().err == ""


def test_a_processor_acts_or_is_left_out_by_name(monkeypatch, capsys):
    """The libraries are asked which code they take: it is what was asked for, and another than without asking."""
    asked = {}

    def ask(environment, chosen=portable.probe):
        key = str(sorted(environment.items()))
        if key not in asked:
            asked[key] = chosen(environment)
        return asked[key]

    monkeypatch.setattr(portable, "probe", ask)
    here, names = dict(os.environ), ["Prescott", "two-threads"]
    found = list(portable.acting(names, here))
    for name in found:
        got = ask(here | portable.PROCESSORS[name])
        assert got != ask(here)
        assert all(portable.PROCESSORS[name].get(key, value) == value for key, value in got.items())
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in said] == [name for name in names if name not in found]


def test_what_a_processor_cannot_do_is_left_out(monkeypatch, capsys):
    """One that dies of an unknown instruction, one that takes other code than it was asked for, and the one here."""
    takes = {"a": {"C": "a"}, "b": None, "c": {"C": "own"}, "own": {"C": "own"}, "": {"C": "own"}}
    monkeypatch.setattr(portable, "PROCESSORS", {name: {"C": name} for name in takes if name})
    monkeypatch.setattr(portable, "probe", lambda environment: takes[environment.get("C", "")])
    assert list(portable.acting(["a", "b", "c", "own"], {})) == ["a"]
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == [f"{name} is left out" for name in ("b", "c", "own")]
    assert "computes like it" in said[2]


def test_every_chapter_gets_its_turn(monkeypatch):
    """The commit draws them, as many as fit; a hundred commits draw all."""
    monkeypatch.setattr(portable.measurements, "of", lambda page: {"seconds": 10.0})
    pages = chapters.with_cells()
    drawn = [portable.fitting(pages, f"{commit:040x}", 30) for commit in range(100)]
    assert drawn[7] == portable.fitting(pages, f"{7:040x}", 30)
    assert all(len(set(each)) == 6 for each in drawn)
    assert {page for each in drawn for page in each} == set(pages)


def test_an_inserted_value_is_compared_as_far_as_a_text_shows_it():
    """A value that a text inserts differs where its first four digits do."""

    def run(value):
        data, name = {runs.GLUED: repr(value)}, {"scrapbook": {"name": "turn"}}
        output = nbformat.v4.new_output("display_data", data, metadata=name)
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("glue()", outputs=[output])])

    assert portable.differences(run(0.123456), run(0.123457)) == []
    assert portable.differences(run(0.1234), run(0.1235)) == ["cell 1, value turn: 0.1234 … [0.1234 -> 0.1235]"]


def test_a_processor_that_acts_can_compute():
    """Libraries take instructions that this machine lacks without a word, and die of them later."""
    for name in portable.acting(["Haswell", "SkylakeX"], dict(os.environ)):
        task = (
            "import numpy, torch; numpy.linalg.svd(numpy.eye(99) + 1); torch.randn(99, 99).exp().matmul(torch.eye(99))"
        )
        environment = os.environ | portable.PROCESSORS[name]
        assert subprocess.run([sys.executable, "-c", task], env=environment, check=False).returncode == 0, name
