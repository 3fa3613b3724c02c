"""What chance does to the tests: its sum over a run, tests that do not say so, the assertions of tests/chance.py."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import chance
import numpy as np
import pytest
from scipy import stats

from icl import profile

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "browser")
#: What a standard error, a quantile or the p-value of a test is called.
SPREADS = {"std", "sem", "var", "se", "isf", "ppf", "pvalue", "ttest_1samp", "kstest", "binomtest"}
INEQUALITIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SAID = re.compile(r"\|z\||by chance|[Ff]alse failure|fails falsely")
#: What has none of these words is no test that is found: most need not be looked into.
LOOKS_LIKE = re.compile(rf"\b({'|'.join(sorted(SPREADS))}|sample|reveal)\b|{SAID.pattern}")
#: Tests that look like it, and why chance has no part in them.
NOT = {
    "test_rates_hold_where_they_can_be_counted": "one draw, counted",
    # A spread is what is tested, or shows that a test is not empty.
    "test_gates_are_their_formulas": "gates differ",
    "test_the_gated_delta_rule_is_the_field_s_operator": "gates differ",
    "test_layer_selects_by_hand": "steps differ",
    "test_the_judge_finds_longhorn_on_the_bound": "se is rounding",
    "test_settled_risks_are_means_of_each_trials_end": "a standard error against another, of one sample",
    "test_the_same_error_everywhere_has_no_standard_error": "se is rounding",
}


def undeclared(source: str) -> list[str]:
    """Tests that compare with what chance does, and carry no mark.

    Found are inequalities of an assert in which a standard error, a quantile or a p-value stands, samples of a thousand
    prompts and more, and words of the docstring. What a test's helpers do is not looked at.
    """
    found = []
    if not LOOKS_LIKE.search(source):
        return found
    lines = source.splitlines()
    for test in ast.parse(source).body:
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        if not LOOKS_LIKE.search("\n".join(lines[test.lineno - 1 : test.end_lineno])):
            continue
        if any(re.search(r"mark\.(statistical|one_draw)", ast.unparse(mark)) for mark in test.decorator_list):
            continue
        asserted = [node for each in ast.walk(test) if isinstance(each, ast.Assert) for node in ast.walk(each.test)]
        compared = [
            getattr(inner, "id", getattr(inner, "attr", None))
            for node in asserted
            if isinstance(node, ast.Compare) and any(isinstance(op, INEQUALITIES) for op in node.ops)
            for inner in ast.walk(node)
        ]
        samples = [
            call.args[0].value
            for call in ast.walk(test)
            if isinstance(call, ast.Call) and getattr(call.func, "attr", None) in ("sample", "reveal")
            if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, int)
        ]
        said = SAID.search(ast.get_docstring(test) or "")
        if SPREADS & set(compared) or max(samples, default=0) >= 1000 or said:
            found.append(test.name)
    return found


def test_a_run_fails_by_chance_once_in_a_million(request):
    """The rates of all assertions of the tests that were collected, in a whole run of all there are, sum to 1e-6."""
    count, rate = chance.total(request.session.items)
    assert rate <= chance.A_RUN, f"{count} assertions at {chance.FALSE_FAILURE} each"


def test_every_statistical_test_says_so():
    """Each test that compares with what chance does is marked, or stands in the table above."""
    found = {name for path in FILES for name in undeclared(path.read_text(encoding="utf-8"))}
    assert sorted(found - NOT.keys()) == []
    assert sorted(NOT.keys() - found) == []


def test_a_test_of_one_draw_says_of_what(request):
    """It holds for the numbers that it draws, is outside of the sum, says why, and makes no assertion of chance.py."""
    for item in request.session.items:
        if mark := item.get_closest_marker("one_draw"):
            assert len(mark.args) == 1, item.name
            assert isinstance(mark.args[0], str), item.name
            assert item.get_closest_marker("statistical") is None, item.name


@pytest.mark.parametrize(
    "line",
    [
        "assert abs(x.mean() - 1) < 4 * x.std() / 10",
        "assert abs(mean - exact) < 5 * se",
        "assert z < stats.norm.isf(1e-3)",
        "assert stats.kstest(x, 'norm').pvalue > 0.01",
        "task.sample(1_000, generator=g)",
        "'''Within 4 standard errors, |z| < 4.'''",
        "'''Fails by chance once in 100.'''",
    ],
)
def test_an_unmarked_one_is_found(line):
    """Standard errors, quantiles, p-values, large samples and words; with the mark it is not."""
    test = f"def test_it():\n    {line}\n"
    assert undeclared(test) == ["test_it"]
    assert undeclared(f"@pytest.mark.statistical(2)\n{test}") == []
    assert undeclared(f"@pytest.mark.one_draw('one training')\n{test}") == []
    assert undeclared("def test_it():\n    assert abs(x.mean() - 1) < 1e-9\n") == []


FAULTY = """
import chance
import pytest

def test_unmarked():
    chance.assert_z(0.0)

@pytest.mark.statistical
def test_more_than_it_says():
    chance.assert_z(0.0)
    chance.assert_p(0.5)

@pytest.mark.statistical(2)
def test_as_it_says():
    chance.assert_z(chance.rng(3).normal())
    chance.assert_p(0.5)
"""


def test_under_fresh_seeds_marked_tests_run_alone(tmp_path):
    """The seed and the sum are said, what is not marked does not run, and two assertions for one are named."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_faulty.py").write_text(FAULTY)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path]
    command += ["-p", "no:cacheprovider", "-o", f"pythonpath={ROOT / 'lib'} {ROOT / 'tests'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"ICL_FRESH": "7"})
    assert "fresh seeds: ICL_FRESH=7" in done.stdout
    assert "3 assertions that chance could fail: at most 3.0e-09 a run" in done.stdout
    assert "test_more_than_it_says makes 2 statistical assertions and states 1" in done.stdout
    assert "1 failed, 1 passed, 1 deselected" in done.stdout


def test_an_assertion_of_an_unmarked_test_is_named(request):
    """A test without the mark makes none."""
    harness = request.config.pluginmanager.get_plugin("harness")
    run = harness.pytest_runtest_call(SimpleNamespace(name="test_it", get_closest_marker=lambda name: None))
    next(run)
    chance.assert_z(0.0)
    with pytest.raises(AssertionError, match="test_it makes 1 statistical assertions and states 0"):
        run.send(None)
    chance.made.clear()


def test_fresh_seeds_draw_other_numbers_each_time_the_same(monkeypatch):
    """Of numpy's generators and of named streams, whatever their number; what is fixed stays."""
    monkeypatch.setattr(profile, "make_generator", profile.make_generator)

    def drawn():
        return chance.rng(3).normal(), chance.rng([3, 4]).normal(), profile.make_generator("a", seed=2).initial_seed()

    usual, fixed = drawn(), chance.fixed("a", seed=2).initial_seed()
    assert usual[0] == np.random.default_rng(3).normal()
    assert usual[2] == fixed
    monkeypatch.setattr(chance, "FRESH", "7")
    chance.freshen()
    seven = drawn()
    assert seven == drawn()
    monkeypatch.setattr(chance, "FRESH", "8")
    assert all(len(set(each)) == 3 for each in zip(usual, seven, drawn(), strict=True))
    assert chance.fixed("a", seed=2).initial_seed() == fixed
    with pytest.raises(ValueError, match="name must be a text"):
        profile.make_generator("")


def test_limits_are_those_of_the_normal_law_and_wider_for_skewed_values():
    """6.11 for one number, 6.2 for two, Student's for few values; too few of them for their skewness are refused."""
    assert chance.limit() == pytest.approx(stats.norm.isf(5e-10), abs=0.01)
    assert chance.limit(2) == pytest.approx(stats.norm.isf(2.5e-10), abs=0.01)
    assert chance.limit(of=24) == pytest.approx(stats.t.isf(5e-10, 23), abs=0.01)
    assert 6.9 < chance.limit(skewed=0.05) < 7
    with pytest.raises(AssertionError, match=r"2000 values are too few for their skewness, 0\.300"):
        chance.limit(of=2000, skewed=0.3)


def test_rates_hold_where_they_can_be_counted(monkeypatch):
    """20,000 means of 300 squares of normal numbers, at a rate of 1 %: `limit` and `assert_near` fail no more often.

    Without the correction for skewness the first would, at 1.6 %.
    """
    rate = 0.01
    values = np.random.default_rng(0).normal(size=(20_000, 300)) ** 2
    z = (values.mean(1) - 1) / (values.std(1, ddof=1) / 300**0.5)
    allowed = stats.binom.isf(1e-9, 20_000, rate) / 20_000
    assert (np.abs(z) > chance.limit(of=300, skewed=8**0.5 / 300**0.5, rate=rate)).mean() < allowed
    assert (np.abs(z) > chance.limit(of=300, rate=rate)).mean() > allowed
    monkeypatch.setattr(chance, "FALSE_FAILURE", rate)
    failed = 0
    for each in values[:2_000]:
        try:
            chance.assert_mean(each, 1, error=(2 / 300) ** 0.5)
        except AssertionError:
            failed += 1
    assert failed <= stats.binom.isf(1e-9, 2_000, rate)
    chance.made.clear()


@pytest.mark.parametrize(
    "assertion",
    [
        lambda x: chance.assert_mean(x + 0.1, 0),
        lambda x: chance.assert_mean(x + 0.1, 0, error=0.01),
        lambda x: chance.assert_z(6.2),
        lambda x: chance.assert_p([0.5, 4e-10]),
        lambda x: chance.assert_within((1.1 * x**2).sum(), stats.chi2(10_000)),
        lambda x: chance.assert_counts((x > 0.1).sum(), 10_000, 0.5),
        lambda x: chance.assert_above(x, by=9),
        lambda x: chance.assert_mostly(x > 0, by=9),
        lambda x: chance.assert_errors(x, np.full(10_000, 0.8)),
        lambda x: chance.assert_standard_normal(np.stack([x, 1.1 * x[::-1]], 1)),
    ],
)
def test_each_assertion_sees_a_fault(assertion):
    """10,000 numbers that are off by a tenth, or not off where they should be."""
    with pytest.raises(AssertionError):
        assertion(np.random.default_rng(0).normal(size=10_000))
    chance.made.clear()


def test_fresh_seeds_are_numbers(monkeypatch):
    """Another value is refused when the tests begin."""
    monkeypatch.setenv("ICL_FRESH", "x")
    with pytest.raises(ValueError, match=r"^ICL_FRESH must be a whole number, or empty for the usual seeds, got 'x'$"):
        runpy.run_path(chance.__file__)
