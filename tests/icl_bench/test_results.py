"""Results of the benchmark: files that are whole or refused, statistics against simulation and a second derivation."""

import json
import math

import chance
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from shared import same_runs

from icl_bench import results as tables
from icl_bench.results import COLUMNS, ZERO, BenchResults, aggregate, concat, paired_comparison, per_task, summary

# Files.


def test_what_is_written_is_read_to_the_bit(made_up, tmp_path):
    """Infinite errors, minus nought, the least number there is and letters of any alphabet too; NaN stays a rate."""
    results = made_up(("gla", "ein Näme, \N{GREEK SMALL LETTER GAMMA}"))
    results.table.at[4, "errors"] = [math.inf, -0.0, 5e-324, *results.table.at[4, "errors"][3:]]
    results.meta["contestants"]["gla"]["rates"]["all"]["0.016"] = math.inf
    path = tmp_path / "results.parquet"
    tables.write_results(path, results)
    first = path.read_bytes()
    again = tables.read_results(path)
    same_runs(again.table, results.table)
    assert again.meta == results.meta
    tables.write_results(path, again)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["results.parquet"]


def test_others_can_read_the_file(made_up, tmp_path):
    """With pandas alone: the same columns; and the meta as JSON under its name."""
    results, path = made_up(), tmp_path / "r.parquet"
    tables.write_results(path, results)
    assert tuple(pd.read_parquet(path).columns) == COLUMNS
    assert json.loads(pyarrow.parquet.read_metadata(path).metadata[b"icl-bench"]) == results.meta


def rewritten(path, change_table=lambda table: table, change_meta=lambda meta: meta):
    """A file somebody else wrote: another table or meta with the same checksum."""
    table = pyarrow.parquet.read_table(path)
    held = dict(table.schema.metadata)
    held[b"icl-bench"] = change_meta(held[b"icl-bench"])
    pyarrow.parquet.write_table(change_table(table).replace_schema_metadata(held), path)


def with_a_digit_changed(table):
    columns = table.to_pydict()
    columns["errors"][3][0] = np.nextafter(columns["errors"][3][0], 9.0)
    return pyarrow.table(columns, schema=table.schema)


def with_another_name(table):
    columns = table.to_pydict()
    columns["contestant"] = ["mine" if name == "gla" else name for name in columns["contestant"]]
    return pyarrow.table(columns, schema=table.schema)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: p.unlink(), "is no file: give the results.parquet of a run"),
        (lambda p: p.write_bytes(b""), "is no Parquet file"),
        (lambda p: p.write_text("contestant,kind\n"), "is no Parquet file"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "is damaged or cut short"),
        (lambda p: p.write_bytes(p.read_bytes()[:2000]), "is damaged or cut short"),
        (lambda p: pd.DataFrame({"a": [1]}).to_parquet(p), "was not written by icl-bench"),
        (lambda p: rewritten(p, lambda t: t.slice(1)), "damaged or was changed by hand"),
        (lambda p: rewritten(p, with_a_digit_changed), "damaged or was changed by hand"),
        (lambda p: rewritten(p, with_another_name), "damaged or was changed by hand"),
        (lambda p: rewritten(p, lambda t: t.drop_columns("kind")), "damaged or was changed by hand"),
        (lambda p: rewritten(p, change_meta=lambda m: m.replace(b"17000", b"17001")), "was changed by hand"),
        (lambda p: rewritten(p, change_meta=lambda m: m[:-1]), "damaged or was changed by hand"),
        (
            lambda p: rewritten(p, change_meta=lambda m: m.replace(b"bench 2", b"bench 1")),
            "of the format 'icl-bench 1'",
        ),
    ],
)
def test_what_is_damaged_changed_or_foreign_is_refused(made_up, tmp_path, change, reason):
    """By path and reason, whatever was done to it."""
    path = tmp_path / "results.parquet"
    tables.write_results(path, made_up())
    change(path)
    with pytest.raises(ValueError, match=reason) as refused:
        tables.read_results(path)
    assert str(path) in str(refused.value)


def test_a_bit_that_flips_anywhere_is_seen(made_up, tmp_path):
    """At 80 places of the file: it is refused, or it is the same table (what flipped said nothing of it)."""
    path, results = tmp_path / "results.parquet", made_up(seeds=1, prompts=2)
    tables.write_results(path, results)
    whole = path.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).integers(4, len(whole), 80):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            there = tables.read_results(path)
        except ValueError:
            refused += 1
        else:
            same_runs(there.table, results.table)
            assert there.meta == results.meta
    assert refused > 25


def test_what_json_does_not_hold_is_not_written(made_up, tmp_path):
    """Nothing is left of the attempt."""
    with pytest.raises(ValueError, match="meta must be what JSON holds"):
        tables.write_results(tmp_path / "r.parquet", made_up(device=object()))
    wrong = made_up()
    wrong.table["seed"] = "first"
    with pytest.raises(ValueError, match="table must hold names, numbers and lists of errors"):
        tables.write_results(tmp_path / "r.parquet", wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t, m: (t.drop(columns="kind"), m), "table must have the columns"),
        (lambda t, m: (t, m | {"format": "icl-bench 0"}), "meta must be of the format"),
    ],
)
def test_what_is_no_table_of_results_is_refused(made_up, change, reason):
    """Columns and format."""
    made = made_up()
    with pytest.raises(ValueError, match=reason):
        BenchResults(*change(made.table, made.meta))


def test_rows_that_cannot_be_compared_are_refused(made_up):
    """Other numbers of prompts, a single prompt, and one seed twice."""
    short = made_up()
    short.table.at[3, "errors"] = short.table.at[3, "errors"][:-1]
    with pytest.raises(ValueError, match=r"one error for each of at least 2 prompts, of gla on ar1-0\.9, same"):
        summary(short)
    with pytest.raises(ValueError, match="at least 2 prompts"):
        summary(made_up(prompts=1))
    twice = made_up()
    twice.table["seed"] = 0
    with pytest.raises(ValueError, match="table must hold a seed once, of gla"):
        summary(twice)


# Statistics.


def both(errors):
    """What spreads over seeds and over prompts both count, by least squares on indicators of seed and prompt."""
    seeds, prompts = errors.shape
    row, column = np.divmod(np.arange(errors.size), prompts)
    design = np.column_stack([row[:, None] == np.arange(seeds), column[:, None] == np.arange(1, prompts)]).astype(float)
    left = np.linalg.lstsq(design, errors.ravel())[1][0]
    return left / ((seeds - 1) * (prompts - 1)) / errors.size


def test_a_ratio_and_its_error_by_a_second_derivation(made_up):
    """The variance by deltas of every number: the ratio's gradient, taken numerically, times the errors' covariance."""
    results = made_up(seeds=3)
    found = summary(results).set_index(["contestant", "task", "variant"]).loc[("gla", "switches", "same")]
    table = results.table
    own = table[(table["task"] == "switches") & (table["variant"] == "same")]
    errors = np.array(own.loc[own["contestant"] == "gla", "errors"].tolist())
    floor = np.array(own.loc[own["contestant"] == "best linear", "errors"].tolist()[0])
    assert found["risk"] == pytest.approx(errors.mean(), rel=1e-12)
    assert found["ratio"] == pytest.approx(errors.mean() / floor.mean(), rel=1e-12)
    covariance = np.cov(errors.mean(0), floor) / floor.size
    a, b, h = errors.mean(), floor.mean(), 1e-6
    gradient = [((a + h) / b - (a - h) / b) / (2 * h), (a / (b + h) - a / (b - h)) / (2 * h)]
    seeds = errors.mean(1) / b
    expected = gradient @ covariance @ gradient + seeds.var(ddof=1) / 3 - both(errors / b)
    assert found["ratio_se"] == pytest.approx(expected**0.5, rel=1e-7)
    risk = errors.mean(0).var(ddof=1) / floor.size + errors.mean(1).var(ddof=1) / 3 - both(errors)
    assert found["se"] == pytest.approx(risk**0.5, rel=1e-12)
    assert (found["low"], found["high"]) == pytest.approx((seeds.min(), seeds.max()), rel=1e-12)
    # Seeds that differ by less than their prompts' noise take nothing off what prompts alone leave open.
    level, mine = errors / errors.mean(1, keepdims=True), own.index[own["contestant"] == "gla"]
    table.loc[mine, "errors"] = pd.Series(list(level), index=mine)
    found = summary(results).set_index(["contestant", "task", "variant"]).loc[("gla", "switches", "same")]
    assert found["se"] == pytest.approx((level.mean(0).var(ddof=1) / floor.size) ** 0.5, rel=1e-12)
    assert (found["reference"], found["seeds"], found["group"]) == ("best linear", 3, "trained on")


def simulated(repeats, *, seeds, prompts, tasks, rng):
    """Experiments whose ratio is 1.5: prompts' difficulty is shared with the floor, a seed's skill by its tasks."""
    rows = []
    for repeat in range(repeats):
        skill = np.exp(0.05 * rng.standard_normal(seeds))
        for task in range(tasks):
            hard = rng.gamma(4.0, 0.25, prompts)
            own = f"{repeat}.{task}"
            rows.append(("Bayes", "floor", "", np.nan, 0, own, "same", hard))
            for seed in range(seeds):
                errors = 1.5 * skill[seed] * hard * rng.gamma(16.0, 1 / 16, prompts)
                rows.append(("x", "layer", "all", 0.1, seed, own, "same", errors))
    return pd.DataFrame(rows, columns=list(COLUMNS))


@pytest.mark.statistical(2)
@pytest.mark.parametrize("seeds", [1, 4])
def test_standard_errors_are_what_repetition_shows(made_up, seeds):
    """1,500 experiments of 30 prompts: sees an error of 30% in the variance, terms of second order being 2%.

    One seed: the spread of skill cannot be known and is held at none.
    """
    rng = chance.rng(7)
    table = simulated(1500, seeds=seeds, prompts=30, tasks=1, rng=rng)
    if seeds == 1:
        mean = table.loc[table["kind"] == "layer", "errors"]
        floors = table.loc[table["kind"] == "floor", "errors"]
        # The skill of each experiment's seed taken out again, by drawing the same once more.
        table.loc[mean.index, "errors"] = pd.Series(
            [1.5 * floor * rng.gamma(16.0, 1 / 16, 30) for floor in floors], index=mean.index
        )
    tasks = {name: {"reference": "Bayes", "shifted": False} for name in dict.fromkeys(table["task"])}
    found = summary(BenchResults(table, made_up().meta | {"tasks": tasks}))
    low, high = chance.assert_errors(found["ratio"], found["ratio_se"] ** 2, order=0.02)
    assert 0.7 < low < high < 1.4
    # A ratio's bias is of second order, 0.1% here.
    z, skewed, error = chance.deviations(found["ratio"], 1.5)
    chance.assert_z(max(0, abs(z) - 0.0015 / error), skewed=skewed)


@pytest.mark.statistical(2)
def test_the_error_over_tasks_takes_a_seed_as_one(made_up):
    """200 experiments of 4 tasks and 6 seeds, whose skill is the same on all tasks.

    Task by task the seeds' part would come out a quarter in variance, and the test sees a half.
    """
    rng = chance.rng(8)
    found, meta = [], made_up().meta
    for _ in range(200):
        table = simulated(1, seeds=6, prompts=30, tasks=4, rng=rng)
        tasks = {name: {"reference": "Bayes", "shifted": False} for name in dict.fromkeys(table["task"])}
        found.append(aggregate(BenchResults(table, meta | {"tasks": tasks})).iloc[0])
    ratio, se = (np.array([row[name] for row in found]) for name in ("ratio", "ratio_se"))
    low, _ = chance.assert_errors(ratio, se**2, order=0.02)
    assert low > 0.45
    z, skewed, error = chance.deviations(ratio, 1.5)
    chance.assert_z(max(0, abs(z) - 0.003 / error), skewed=skewed)


def test_over_tasks_ratios_are_averaged_geometrically(made_up):
    """By groups, against the table by task; with nothing to average it is the task's own number."""
    results = made_up()
    tests, means = summary(results), aggregate(results).set_index(["contestant", "group"])
    for group in tables.GROUPS:
        own = tests[(tests["contestant"] == "gla") & (tests["group"] == group)]
        row = means.loc[("gla", group)]
        assert row["ratio"] == pytest.approx(np.exp(np.log(own["ratio"]).mean()), rel=1e-12)
        assert (row["low"], row["high"]) == pytest.approx((own["ratio"].min(), own["ratio"].max()), rel=1e-12)
        assert row["tasks"] == len(own)
    alone = tests[(tests["contestant"] == "gla") & (tests["group"] == "shifted")].iloc[0]
    assert means.loc[("gla", "shifted"), "ratio_se"] == pytest.approx(alone["ratio_se"], rel=1e-12)
    late = made_up(("z", "a"))
    order = [(name, group) for name in (ZERO, "z", "a") for group in tables.GROUPS]
    assert list(aggregate(late)[["contestant", "group"]].itertuples(index=False, name=None)) == order


def test_what_floors_say(made_up):
    """Every floor's own risk; multiples are of the reference, and the genie is no contestant."""
    results = made_up()
    floors = tables.floor_table(results)
    assert set(floors["floor"]) == {"genie", "Bayes", "best linear"}
    assert floors.groupby(["task", "variant"])["is_reference"].sum().eq(1).all()
    assert "genie" not in set(summary(results)["contestant"])


def test_without_a_floor_multiples_are_of_answering_0(made_up):
    """And say so; beside tasks that have a floor, theirs are left out of the mean."""
    bare = {"own.py:Task": ("own", False, "", 0.3)}
    results = made_up(tasks=bare)
    rows = summary(results)
    assert set(rows["reference"]) == {ZERO}
    assert rows.loc[rows["contestant"] == ZERO, "ratio"].eq(1).all()
    assert set(aggregate(results)["reference"]) == {ZERO}
    mixed = made_up(tasks={**bare, "switches": ("switches", False, "Bayes", 0.3)})
    means = aggregate(mixed)
    assert set(means["reference"]) == {"floor"}
    assert set(means["tasks"]) == {1}
    assert set(summary(mixed)["reference"]) == {ZERO, "Bayes"}
    lone = BenchResults(mixed.table[mixed.table["contestant"] != ZERO], mixed.meta)
    rows = summary(lone).set_index("task").loc["own.py:Task"]
    assert set(rows["reference"]) == {""}
    assert rows["ratio"].isna().all()


def test_a_training_that_diverged_makes_the_risk_infinite(made_up):
    """One seed of three is enough; no warning of numpy's, and the others' numbers stand."""
    results = made_up()
    place = results.table.index[(results.table["contestant"] == "softmax") & (results.table["seed"] == 1)][0]
    results.table.at[place, "errors"] = [math.inf] * 40
    row = summary(results).set_index(["contestant", "task", "variant"]).loc[("softmax", "ar1-0.9", "same")]
    assert (row["risk"], row["ratio"]) == (math.inf, math.inf)
    assert math.isnan(row["ratio_se"])
    means = aggregate(results).set_index(["contestant", "group"])["ratio"]
    assert means[("softmax", "trained on")] == math.inf
    assert math.isfinite(means[("gla", "trained on")])
    assert math.isinf(paired_comparison(results, "softmax", "gla")["ratio"][0])


def test_trainings_on_each_task_are_put_together(made_up):
    """Two trainings are "each"; a shifted task that both took is one row, their geometric mean on shared prompts."""
    base = made_up(seeds=2)
    tests = [("ar1-0.9", "ar1-0.9"), ("switches", "switches"), ("ar1-0.9", "ar1-0.6"), ("switches", "ar1-0.6")]
    rows = base.table[base.table["kind"] != "layer"]
    layers = base.table[(base.table["contestant"] == "gla") & (base.table["variant"] == "same")]
    own = [layers[layers["task"] == task].assign(trained_on=trained) for trained, task in tests]
    results = BenchResults(pd.concat([rows, *own]), base.meta | {"train": "each"})
    means = aggregate(results).set_index(["contestant", "group"])
    assert means.loc[("gla", "trained on"), "trained_on"] == "each"
    assert means.loc[("gla", "trained on"), "tasks"] == 2
    assert means.loc[("gla", "shifted"), "tasks"] == 1
    shifted = per_task(results).set_index(["contestant", "task"]).loc[("gla", "ar1-0.6")]
    alone = summary(base).set_index(["contestant", "task", "variant"]).loc[("gla", "ar1-0.6", "same")]
    # The same errors twice say no more than once.
    assert shifted["ratio_se"] == pytest.approx(alone["ratio_se"], rel=1e-12)
    one = BenchResults(pd.concat([rows, own[0]]), base.meta | {"train": "ar1-0.9"})
    groups = summary(one).set_index(["contestant", "task", "variant"])["group"]
    assert groups[("gla", "ar1-0.9", "same")] == "trained on"
    assert groups[(ZERO, "switches", "same")] == "shifted"


# Comparisons.


def test_a_pair_is_compared_prompt_by_prompt(made_up):
    """What prompts share cancels: the standard error is far below that of two numbers by themselves."""
    results = made_up()
    pairs = paired_comparison(results, "gla", "softmax").set_index(["task", "variant"])
    tests = summary(results).set_index(["contestant", "task", "variant"])
    for place, row in pairs.iterrows():
        one, other = tests.loc[("gla", *place)], tests.loc[("softmax", *place)]
        assert row["ratio"] == pytest.approx(one["risk"] / other["risk"], rel=1e-12)
        assert row["difference"] == pytest.approx(one["risk"] - other["risk"], rel=1e-9)
    assert (pairs["difference_se"] ** 2).mean() < (tests["se"] ** 2).loc[["gla", "softmax"]].mean()
    back = paired_comparison(results, "softmax", "gla").set_index(["task", "variant"])
    assert back["ratio"].to_numpy() == pytest.approx(1 / pairs["ratio"].to_numpy(), rel=1e-12)
    means = aggregate(results, against="softmax").set_index(["contestant", "group"])
    own = pairs[pairs["group"] == "longer"]
    assert means.loc[("gla", "longer"), "ratio"] == pytest.approx(np.exp(np.log(own["ratio"]).mean()), rel=1e-12)
    assert set(means["reference"]) == {"softmax"}
    zero = paired_comparison(results, "gla", ZERO)
    assert zero["ratio"].lt(1).all()


def test_a_pair_needs_names_that_are_there_and_a_test_in_common(made_up):
    """By name."""
    with pytest.raises(ValueError, match="one must be one of answer 0, gla, softmax, got 'rls'"):
        paired_comparison(made_up(), "rls", "gla")
    with pytest.raises(ValueError, match="other must be one of"):
        paired_comparison(made_up(), "gla", "Bayes")
    results = made_up()
    results.table.loc[results.table["contestant"] == "gla", "trained_on"] = "switches"
    with pytest.raises(ValueError, match="gla and softmax have no test in common"):
        paired_comparison(results, "gla", "softmax")


def test_runs_are_put_together(made_up):
    """Floors and answering 0 are there once; numbers are those of either; a run with itself is itself."""
    one, other = made_up(), made_up(("mine",), draw=3)
    both = concat([one, other])
    assert both.contestants == [ZERO, "gla", "softmax", "mine"]
    assert not both.table.drop(columns=["errors", "rate"]).duplicated().any()
    keys = ["contestant", "task", "variant"]
    found = summary(both).set_index(keys)
    pd.testing.assert_frame_equal(found.loc[["mine"]], summary(other).set_index(keys).loc[["mine"]])
    assert set(both.meta["contestants"]) == {"gla", "softmax", "mine"}
    own = [made_up((name,), train="each") for name in ("gla", "mine")]
    assert [concat(runs).meta["train"] for runs in (own, [own[1], one])] == ["each", "all"]
    twice = concat([one, one])
    same_runs(twice.table, one.table)
    assert twice.meta == one.meta


def changed(meta, *path, to):
    """The meta with one entry changed."""
    if not path:
        return to
    return meta | {path[0]: changed(meta[path[0]], *path[1:], to=to)}


@pytest.mark.parametrize(
    ("path", "to", "reason"),
    [
        (("budget", "width"), 64, "the same budget, got width 32 and 64"),
        (("tasks", "switches", "prompts", "longer"), "x", "the same test prompts, got others of switches, longer"),
        (("tasks", "switches", "reference"), "Bayes", "the same floors, got others of switches"),
        (("tasks", "ar1-0.6", "shifted"), False, 'train "all" on the same tasks, got ar1-0.6 in one'),
        (("contestants", "gla", "source"), "cd" * 32, "not have two contestants called gla, of different source"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(made_up, path, to, reason):
    """By what differs."""
    one = made_up()
    other = BenchResults(one.table, changed(one.meta, *path, to=to))
    with pytest.raises(ValueError, match=reason):
        concat([one, other])
    headed = BenchResults(one.table, one.meta | {"budget": {**one.meta["budget"], "heads": 2}})
    for runs, reason in (([one, headed], "heads None and 2"), ([headed, one], "heads 2 and None")):
        with pytest.raises(ValueError, match=f"the same budget, got {reason}"):
            concat(runs)


def test_runs_with_other_numbers_for_the_same_are_refused(made_up):
    """Floors, and a contestant of one name and source."""
    one = made_up()
    with pytest.raises(ValueError, match=r"not have other results of gla on ar1-0\.9, same"):
        concat([one, made_up(draw=1)])
    floors = made_up()
    floors.table.at[1, "errors"] = [0.1] * 40
    with pytest.raises(ValueError, match=r"same floors, got others of ar1-0\.9, same"):
        concat([one, floors])


def test_a_contestant_can_be_called_otherwise(made_up):
    """In table and meta; floors keep their names, and no name is given twice."""
    results = tables.rename(made_up(), {"gla": "Bayes"})
    assert results.contestants == [ZERO, "Bayes", "softmax"]
    assert list(results.meta["contestants"]) == ["Bayes", "softmax"]
    assert len(results.floors) == len(made_up().floors)
    assert summary(results)["ratio"].tolist() == summary(made_up())["ratio"].tolist()
    with pytest.raises(ValueError, match="a name that is taken"):
        tables.rename(made_up(), {"gla": "softmax"})
