"""Figures say what they show: axes have names and units, errors their floors."""

import chapters
import figures
import pytest

HEAD = "---\nkernelspec:\n  display_name: Python 3\n  name: python3\n---\n\n# A page\n\nWith 0.95 it is at 40%.\n\n"
GOOD = {"x_title": '"layers"', "y_title": '"population risk"', "floors": '["Kalman"]', "title": '"It falls"'}


def page(call="charts.curves", before="", after="", **changes):
    """A page with one figure."""
    said = ", ".join(f"{name}={value}" for name, value in (GOOD | changes).items() if value)
    return f"{HEAD}```{{code-cell}}\n{before}{call}(data, {said}{after})\n```\n"


def test_the_books_figures_say_what_they_show():
    """All figures of all chapters; those without a floor are listed, with a reason, and no other is."""
    figures.examine(chapters.with_cells())
    drawn = [figure for name in chapters.with_cells() for figure in figures.find_figures(chapters.source(name))]
    assert set(figures.without_floor()) <= {figure.title for figure in drawn}


OWN = {"x_title": "", "before": "AXES = {'x_title': 'energy'}\n", "after": ", **AXES"}
FAULTS = {
    "an empty title": ({"y_title": '""'}, "y_title must name the axis"),
    "a time without a unit": ({"x_title": '"time per prompt"'}, "x_title 'time per prompt' does not say"),
    "no axis": ({"x_title": ""}, "x_title must name"),
    "an axis that nobody can read": ({"x_title": "titles[0]"}, "x_title must name"),
    "an axis of the page's own": (OWN, "x_title 'energy' does not say"),
    "no floor": ({"floors": ""}, "it draws an error without floor or optimum"),
    "an empty list of floors": ({"floors": "[]"}, "it draws an error without floor or optimum"),
    "dots without a unit": ({"call": "charts.dots", "x_title": '"duration"'}, "x_title 'duration' does not say"),
    "a heat map": ({"call": "charts.heatmap", "value_title": '"time"'}, "value_title 'time' does not say"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault):
    """Each is found, alone, with the figure's title and the cell's line."""
    changes, says = FAULTS[fault]
    (found,) = figures.faults(page(**changes), set())
    assert says in found
    assert found.startswith("the figure '")
    assert "cell at line 11" in found


RIGHT = {
    "as it is": {},
    "an optimum": {"floors": "", "best": "names"},
    "measured in the floor": {"floors": "", "y_title": '"error over the floor"'},
    "no error": {"floors": "", "y_title": '"forgetting factor λ"'},
    "with its unit": {"x_title": '"time per prompt (µs)"'},
    "the flow's own time": {"x_title": '"time of the flow"'},
    "axes of the page's own": {"x_title": "", "before": "AXES = {'x_title': 'layers'}\n", "after": ", **AXES"},
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_let_through(name):
    """A floor, an optimum or an axis that starts at the floor; units, and names of what has none."""
    assert figures.faults(page(**RIGHT[name]), set()) == []


def test_a_figure_without_a_floor_is_listed(tmp_path, monkeypatch):
    """Its title under `book/figures.yml`, with a reason; a figure that has a floor is not listed."""
    monkeypatch.setattr(chapters, "ROOT", tmp_path)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.md").write_text(page(floors=""))
    with pytest.raises(chapters.Broken, match=r"book/a.md: the figure 'It falls', .* without floor"):
        figures.examine(["book/a"])
    listed = tmp_path / "book/figures.yml"
    listed.write_text("It falls: nobody knows it\n")
    figures.examine(["book/a"])
    (tmp_path / "book/a.md").write_text(page())
    with pytest.raises(chapters.Broken, match="says that it has no floor, and it has"):
        figures.examine(["book/a"])
    for broken in ("- a", "It falls:", "a: [b"):
        listed.write_text(broken)
        with pytest.raises(chapters.Broken, match=r"book/figures.yml: "):
            figures.examine(["book/a"])
