"""Charts of arrays hand the numbers they are given to the chart, and describe them as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from icl_book import charts, notation

LAM = np.linspace(0.5, 1.0, 51)
VALLEY = (LAM - 0.8) ** 2 + 0.2
SAID = {
    "x_title": "forgetting factor λ",
    "y_title": "error",
    "title": "A valley",
    "alt": "Look at the valley between its two ends.",
}


def rows(figure, layer):
    """Data of one layer of a figure."""
    spec = figure.spec
    return spec["datasets"][spec["layer"][layer].get("data", spec.get("data"))["name"]]


def test_curves_are_the_arrays():
    """Shared abscissae, own abscissae and a constant arrive as they are; floors are dashed."""
    figure = charts.curves(
        LAM, {"GLA": VALLEY, "RLS": ([0.6, 0.7], [0.3, 0.4]), "Kalman": 0.1}, floors=["Kalman"], **SAID
    )
    drawn = {name: [(r["x"], r["y"]) for r in rows(figure, 0) if r["by"] == name] for name in ("GLA", "RLS", "Kalman")}
    assert drawn["GLA"] == list(zip(LAM, VALLEY, strict=True))
    assert drawn["RLS"] == [(0.6, 0.3), (0.7, 0.4)]
    assert {y for _, y in drawn["Kalman"]} == {0.1}
    dashes = figure.spec["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dashes["domain"], dashes["range"], strict=True))["Kalman"] != [1, 0]


def test_best_points_errors_and_bands():
    """The star is on the least point, error bars are two standard errors long, a band has its own ends."""
    figure = charts.curves(
        LAM,
        {"GLA": VALLEY, "Kalman": 0.1},
        best=["GLA"],
        points={"GLA": ([0.6], [0.25], [0.01])},
        bands={"GLA": (VALLEY - 0.1, VALLEY + 0.1)},
        **SAID,
    )
    band, dot, star = rows(figure, 0), rows(figure, 3), rows(figure, -1)
    assert dot == [{"x": 0.6, "y": 0.25, "bar": 0.02, "by": "GLA"}]
    assert [(r["x"], r["by"]) for r in star] == [(pytest.approx(0.8), "GLA")]
    spread = {r["by"]: r["high"] - r["low"] for r in band}
    assert spread == {"GLA": pytest.approx(0.2), "Kalman": 0}


def test_a_point_of_a_curve_that_is_named_gets_the_star():
    """Not the least one; a star may have a name of its own, and one that asks for a least point needs its curve."""
    figure = charts.curves(LAM, {"GLA": VALLEY, "RLS": LAM}, best={"GLA": (0.9, 0.21)}, **SAID)
    assert rows(figure, -1) == [{"x": 0.9, "y": 0.21, "by": "GLA"}]
    assert rows(charts.curves(LAM, {"GLA": VALLEY}, best={"optimum": (0.9, 0.21)}, **SAID), -1)[0]["by"] == "optimum"
    with pytest.raises(ValueError, match=r"must name curves, got \['LMS'\]"):
        charts.curves(LAM, {"GLA": VALLEY}, best=["LMS"], **SAID)


def test_unknown_names_take_the_sequence_and_known_ones_keep_their_colour():
    figure = charts.curves(LAM, {"GLA": VALLEY, "d = 2": LAM, "d = 10": 2 * LAM}, **SAID)
    colours = figure.spec["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert colours == [charts.METHODS["GLA"], charts.SEQUENCE[0], charts.SEQUENCE[-1]]
    with pytest.raises(ValueError, match="the sequence has 5"):
        charts.curves(LAM, {f"d = {d}": LAM for d in range(6)}, **SAID)
    with pytest.raises(ValueError, match=r"must name curves, got \['RLS'\]"):
        charts.curves(LAM, {"GLA": VALLEY}, floors=["RLS"], **SAID)


@pytest.mark.parametrize(
    ("heights", "words"),
    [
        (VALLEY, "GLA: falls from 0.29 at 0.5 to 0.2 at 0.8, then rises to 0.24 at 1."),
        (-VALLEY, "GLA: rises from -0.29 at 0.5 to -0.2 at 0.8, then falls to -0.24 at 1."),
        (LAM, "GLA: rises from 0.5 at 0.5 to 1 at 1."),
        (-LAM, "GLA: falls from -0.5 at 0.5 to -1 at 1."),
        (0.3, "GLA: 0.3 throughout."),
        (25_260 * LAM**5, "GLA: rises from 789 at 0.5 to 25,300 at 1."),
        (
            np.where(LAM < 1, LAM, 1e-16),
            "GLA: rises from 0.5 at 0.5 to 0.99 at 0.99, then falls to 0 but for rounding at 1.",
        ),
        (np.sin(40 * LAM), "GLA: from 0.913 at 0.5 to 0.745 at 1, between -0.999 and 1."),
    ],
    ids=["valley", "hill", "rising", "falling", "constant", "thousands", "rounding", "waves"],
)
def test_the_description_says_the_course(heights, words):
    """The author's sentence comes first, then what the data do: a hill is not called a valley."""
    assert charts.curves(LAM, {"GLA": heights}, **SAID).alt == f"{SAID['alt']} {words}"


def test_rounding_is_described_by_what_it_is_beside():
    """On a plain axis beside all curves, on a logarithmic one beside the curve's own values; a vertical line is one."""
    drawn = {"GLA": VALLEY, "RLS": 1e-15 * LAM, "optimum": ([0.8, 0.8], [0, 1])}
    assert (
        "RLS: 0 but for rounding throughout. optimum: a vertical line at 0.8." in charts.curves(LAM, drawn, **SAID).alt
    )
    del drawn["optimum"]
    assert "RLS: rises from 5e-16 at 0.5 to 1e-15 at 1." in charts.curves(LAM, drawn, log_y=True, **SAID).alt


@given(arrays.arrays(float, st.integers(2, 9), elements=st.floats(-9, 9)))
def test_the_description_is_true(heights):
    """Where it says falls, rises or throughout, every step does."""
    words, steps = charts.curves(np.arange(len(heights)), {"GLA": heights}, **SAID).alt, np.diff(heights)
    if "throughout" in words:
        assert np.ptp(heights) < 1e-7
    elif ", then " not in words and "between" not in words:
        level = 1e-7 + 0.005 * np.ptp(heights)
        assert (steps <= level).all() if "falls" in words else (steps >= -level).all()


def test_thousands_are_written_out():
    values = {"a": 999.4, "b": 999.6, "c": -25_260.0, "d": 999_400.0, "e": 999_600.0}
    figure = charts.intervals(values, x_title="error", title="Five", alt="Look at the five rows.")
    assert figure.alt.endswith("a: 999. b: 1,000. c: -25,300. d: 999,000. e: 1e+06.")


def test_intervals_are_two_standard_errors_long():
    figure = charts.intervals({"a": (1.0, 0.1), "b": 2.0}, x_title="error", title="Two", alt="Look at the two rows.")
    drawn = [(r["row"], r["x"], r["low"], r["high"]) for r in rows(figure, 0)]
    assert drawn == [("a", 1.0, 0.8, 1.2), ("b", 2.0, 2.0, 2.0)]
    assert figure.alt.endswith("a: 1. b: 2.")


def test_tiles_are_the_matrix():
    """A column is an x, a row a y; the star of a row is on its least tile; a matrix turned round is refused."""
    said = {"x_title": "x", "y_title": "y", "value_title": "error", "title": "T", "alt": "Look at all of these tiles."}
    figure = charts.tiles([1, 2, 3], [4, 5], [[3, 1, 2], [2, 4, 1]], best=True, **said)
    assert {(r["x"], r["y"]): r["value"] for r in rows(figure, 0)}[2, 4] == 1
    assert [(r["x"], r["y"]) for r in rows(figure, 1)] == [(2, 4), (3, 5)]
    with pytest.raises(ValueError, match=r"shape \(2, 3\), got \(3, 2\)"):
        charts.tiles([1, 2, 3], [4, 5], np.ones((3, 2)), **said)


def test_a_strip_has_as_much_ink_as_weight():
    figure = charts.strip({"GLA": [0.25, 0.5, 1.0]}, title="Ink", alt="Look at the three tokens of it.")
    assert [r["ink"] for r in rows(figure, 0)] == [0.25, 0.5, 1.0]
    with pytest.raises(ValueError, match=r"weights in \[0, 1\]"):
        charts.strip({"GLA": [2.0]}, title="Ink", alt="Look at the three tokens of it.")


def test_a_slider_is_labelled_by_the_notation_table():
    """Letter and meaning are the table's; the step is a round one; a name without a row needs words."""
    drift = charts.slider("gamma", 0.6, 0.99, value=0.95)
    assert drift["label"] == "γ, autoregressive coefficient of the drift"
    assert drift["step"] == 0.005
    assert charts.slider("n", 1, 300, value=50)["step"] == 1
    assert charts.slider("sigma_e", 0.1, 1.0, value=0.5, words="innovations")["label"] == "σₑ, innovations"
    with pytest.raises(ValueError, match="not in the notation table"):
        charts.slider("speed", 0, 1, value=0.5)
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        charts.slider("lam", 0, 1, value=2)


def test_two_sliders_have_two_labels():
    one, two = (charts.slider(name, 0, 1, value=0.5, words="what is kept") for name in ("a1", "a2"))
    with pytest.raises(ValueError, match="must have a label each"):
        charts.explorable("f", one, two, question="Where?", answer="It is at one half.")
    made = charts.explorable("f", one, question="Where?", answer="It is at one half.", d=10)
    assert made.program == {"function": "f", "controls": (one,), "constants": {"d": 10}}


def test_every_symbol_has_a_letter():
    """No letter of the notation table is left in TeX."""
    letters = {symbol.code: notation.letter(symbol) for symbol in notation.SYMBOLS}
    assert not [letter for letter in letters.values() if set(letter) & set("\\{}")]
    assert (letters["sigma_e"], letters["D1"], letters["W_KQ"]) == ("σₑ", "D₁", "W_KQ")
