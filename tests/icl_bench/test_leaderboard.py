"""Rows of the leaderboard: what a run found gets there, whole; a digit that does not fit is refused by name; and those
of the repository hold together, with floors that are this library's.
"""

import copy
import importlib.util
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from icl import _files
from icl_bench import leaderboard, training_jobs
from icl_bench.budgets import BUDGETS
from icl_bench.results import COLUMNS, FORMAT, BenchResults
from icl_bench.tasks import BENCH_TASKS

ROWS = Path(__file__).resolve().parents[2] / "book" / "results" / "leaderboard"
COMMIT = "0123abc"
SMALL = BUDGETS["small"]
#: Of the rates that were tried, the best, a middle one.
RATE = SMALL.rates[1]
#: Whose test prompts and floors are the real ones here, and made anew.
REAL = "ar1-0.9"


def floor_of(name, variant):
    task, prompt = training_jobs.prompts_for(name, variant, SMALL)
    known = BENCH_TASKS[name]
    errors = known.floors(task)[known.reference(task)].errors(prompt)
    return training_jobs._digest(prompt), np.asarray(errors)[:, -SMALL.last :].mean(1)


@pytest.fixture(scope="module")
def results():
    """A run of two contestants on everything: errors are drawn, but the prompts and floors of one task are its own."""
    draw = np.random.default_rng(0)
    lines, about = [], {}
    for name, task in BENCH_TASKS.items():
        prompts = {}
        for variant in training_jobs.VARIANTS[:1] if task.shifted else training_jobs.VARIANTS:
            prompts[variant] = f"{name} {variant}"
            floor = draw.gamma(2.0, 0.1, SMALL.prompts)
            if name == REAL:
                prompts[variant], floor = floor_of(name, variant)
            lines.append(("Bayes", "floor", "", math.nan, 0, name, variant, floor.tolist()))
            for who, times in (("mine", 1.5), ("other", 1.2)):
                for seed in range(SMALL.seeds):
                    errors = floor * times * draw.uniform(0.9, 1.1) + draw.gamma(1.0, 0.01, SMALL.prompts)
                    lines.append((who, "layer", "all", RATE, seed, name, variant, errors.tolist()))
        told = {"title": task.title, "about": task.about, "shifted": task.shifted, "reference": "Bayes"}
        about[name] = told | {"prompts": prompts}
    told = {
        "spec": "/home/somebody/here/my_layer.py:Mine",
        "kind": "layer",
        "about": "A layer.",
        "source": "ab" * 32,
        "parameters": 100,
        "flops": 200.0,
        "state_bytes": None,
        "us_per_token": 1.5,
        "rates": {"all": {repr(rate): abs(rate - RATE) + 1 for rate in SMALL.rates}},
        "rate": {"all": repr(RATE)},
        "seconds": 12.0,
        "warnings": [],
    }
    meta = {
        "format": FORMAT,
        "budget": SMALL.to_dict(),
        "train": "all",
        "tasks": about,
        "contestants": {"mine": told, "other": told},
        "device": "cpu",
        "library": "x",
        "versions": {"torch": "1"},
    }
    return BenchResults(pd.DataFrame(lines, columns=list(COLUMNS)), meta)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    place = tmp_path_factory.mktemp("written")
    for who in ("mine", "other"):
        leaderboard.submit(results, who, commit=COMMIT, link="https://x.org/y", by="N", folder=place / "new" / "rows")
    return place / "new" / "rows"


@pytest.fixture
def folder(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "rows"))


def changed(folder, change, *, summed=True, who="mine"):
    """A row's file changed, with its checksum made anew unless a test is about that."""
    path = folder / f"{who}.json"
    content = json.loads(path.read_text())
    change(content["row"])
    if summed:
        content["checksum"] = _files.checksum(content["row"])
    path.write_text(json.dumps(content))


def first(made, **numbers):
    made["tasks"][0] |= numbers


def test_a_run_becomes_a_row_and_a_line(results, folder):
    """Multiples are means over means; a geometric mean over tasks by hand; the nearest to the floor is first."""
    rows = leaderboard.read_rows(folder, again=[REAL])
    assert [made["contestant"] for made in rows] == ["mine", "other"]
    table = results.table
    for each in rows[0]["tasks"]:
        mine = table[(table.task == each["task"]) & (table.variant == each["variant"])]
        floor = np.mean(mine[mine.kind == "floor"].errors.iloc[0])
        risk = np.mean(np.stack(mine[mine.contestant == "mine"].errors))
        assert each["ratio"] == pytest.approx(risk / floor, rel=1e-12)
        assert each["ratio_se"] > 0
    found = leaderboard.board(rows)
    assert found.contestant.tolist() == ["other", "mine"]
    origin = ["device", "by", "commit", "link", "date"]
    assert found[origin].values.tolist() == [[made[name] for name in origin] for made in rows[::-1]]
    tests = leaderboard.by_task(rows)
    for mean, variant, shifted in (
        ("trained on", "same", False),
        ("shifted", "same", True),
        ("longer", "longer", False),
    ):
        some = tests[(tests.contestant == "mine") & (tests.variant == variant) & (tests.shifted == shifted)]
        assert found[mean].iloc[1] == pytest.approx(np.exp(np.log(some.ratio).mean()), rel=1e-12)
        assert 0 < found[f"{mean}, se"].iloc[1] < 0.2
    assert rows[0]["spec"] == "my_layer.py:Mine"
    assert "somebody" not in (folder / "mine.json").read_text()


def test_a_training_that_diverged_is_infinite_on_the_board(results, tmp_path):
    """Null in the file, as JSON has no infinity; last on the board."""
    table = results.table.copy()
    lost = (table.contestant == "mine") & (table.seed == 0) & (table.task == "switches") & (table.variant == "longer")
    table.loc[lost, "errors"] = pd.Series([[math.inf] * SMALL.prompts] * lost.sum(), index=table.index[lost])
    wild = BenchResults(table, results.meta)
    for who in ("mine", "other"):
        leaderboard.submit(wild, who, commit=COMMIT, folder=tmp_path)
    found = leaderboard.board(leaderboard.read_rows(tmp_path)).set_index("contestant")
    assert found.loc["mine", "longer"] == math.inf
    assert math.isfinite(found.loc["mine", "trained on"])
    assert "Infinity" not in (tmp_path / "mine.json").read_text()


PLANTED = {
    "a digit alone": (lambda m: first(m, risk=m["tasks"][0]["risk"] * 1.1), "its checksum is not that of its row"),
    "a risk": (lambda m: first(m, risk=m["tasks"][0]["risk"] * 1.0001), "ar1-0.8, same: ratio must be risk"),
    "a ratio": (lambda m: first(m, ratio=m["tasks"][0]["ratio"] * 0.9), "ratio must be risk / floor"),
    "a seed": (lambda m: first(m, low=m["tasks"][0]["ratio"] * 1.1), "must lie between low and high"),
    "a negative error": (lambda m: first(m, se=-1.0), "se must be a number >= 0"),
    "a floor": (
        lambda m: first(m, floor=m["tasks"][0]["floor"] / 2, ratio=m["tasks"][0]["ratio"] * 2, low=None),
        "must",
    ),
    "a mean": (lambda m: m["means"]["shifted"].update(ratio=1.0), "the mean 'shifted' must be 1"),
    "a mean's error": (lambda m: m["means"]["longer"].update(se=9.0), "must have a standard error up to"),
    "a task": (lambda m: m["tasks"].pop(), "every task of the benchmark once a variant"),
    "a task twice": (lambda m: m["tasks"].append(m["tasks"][0]), "every task of the benchmark once a variant"),
    "prompts": (lambda m: first(m, prompts="0"), "test prompts are not those of"),
    "shifted": (lambda m: first(m, shifted=True), "shifted must say"),
    "another budget": (lambda m: m["budget"].update(steps=601), "budget must be one of small"),
    "a medium budget": (lambda m: m.update(budget=BUDGETS["medium"].to_dict()), "rates|of the budget medium"),
    "a task by itself": (lambda m: m.update(train="each"), "trained on all tasks at once"),
    "no commit": (lambda m: m.update(commit=""), "commit must be the hash"),
    "a word for a commit": (lambda m: m.update(commit="main"), "commit must be the hash"),
    "a link": (lambda m: m.update(link="javascript:x"), "link must begin with https"),
    "a rate": (lambda m: m.update(rate=repr(SMALL.rates[0])), "rate must be the one with the least error"),
    "a rate of one's own": (lambda m: m["rates"].update({"0.5": 0.1}), "rates must be those of the budget"),
    "a cost": (lambda m: m.update(seconds=-1), "seconds must be a number"),
    "a name": (lambda m: m.update(contestant="../x"), "contestant must be a name that a file can have"),
    "another name": (lambda m: m.update(contestant="x"), "it is of x"),
    "nothing": (lambda m: m.pop("means"), "it lacks 'means'"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_refused_by_name(folder, what):
    """One thing changed in one row of two, its checksum made anew: the file is named, and what is wrong with it."""
    change, words = PLANTED[what]
    changed(folder, change, summed=what != "a digit alone")
    with pytest.raises(
        ValueError, match=rf"mine\.json is no row of this leaderboard: .*({words})|other\.json.*{words}"
    ):
        leaderboard.read_rows(folder)


def lower(made, times):
    """Multiply a row's errors, its own checks kept: errors, multiples and means fit one another."""
    for each in made["tasks"]:
        each |= {name: each[name] and each[name] * times for name in ("risk", "se", "ratio", "ratio_se", "low", "high")}
    for mean in made["means"].values():
        mean |= {name: mean[name] and mean[name] * times for name in ("ratio", "se")}


@pytest.mark.parametrize("reference", ["Bayes", "genie"])
def test_errors_below_the_least_possible_are_refused(folder, reference):
    """All of a row's errors halved, whether typed or by a leak: every other check passes, and the test is named. By
    chance a multiple may lie a few standard errors below 1, and below another reference anything may.
    """

    def halve(made, reference=reference):
        lower(made, 0.5)
        for each in made["tasks"]:
            each["reference"] = reference

    for who in ("mine", "other"):
        changed(folder, halve, who=who)
    said = r"mine\.json is .* ar1-0\.8, same: ratio must not lie 5 standard errors below"
    with pytest.raises(ValueError, match=said):
        leaderboard.read_rows(folder)
    made = json.loads((folder / "mine.json").read_text())["row"]
    with pytest.raises(ValueError, match=r"this row: ar1-0\.8, same: ratio must not lie 5"):
        leaderboard.write_row(made, folder / "x")
    for who in ("mine", "other"):
        changed(folder, lambda made: halve(made, "best linear") or lower(made, 2.0), who=who)
        changed(folder, lambda made: first(made, ratio_se=0.11, reference="Bayes"), who=who)
        changed(folder, lambda made: first(made, ratio=0.5, risk=0.5 * made["tasks"][0]["floor"], low=None), who=who)
        changed(folder, mean_again, who=who)
    assert len(leaderboard.read_rows(folder)) == 2
    for error in (None, 0.09):
        for who in ("mine", "other"):
            changed(folder, lambda made, error=error: first(made, ratio_se=error), who=who)
        with pytest.raises(ValueError, match="ratio must not lie 5"):
            leaderboard.read_rows(folder)


def mean_again(made):
    """Make the first group's mean that of its multiples."""
    tests = leaderboard._tests_of(made["tasks"], "trained on")
    made["means"]["trained on"] = {"ratio": leaderboard._geometric(tests), "se": None}


def test_rows_that_agree_on_a_wrong_floor_are_found_out(folder):
    """Both rows have the same wrong floor, or the same other prompts: made anew, they are not this library's."""

    def real(made):
        return next(each for each in made["tasks"] if each["task"] == REAL)

    def halve(made):
        each = real(made)
        each |= {"floor": each["floor"] / 2, "ratio": each["ratio"] * 2, "low": None, "high": None}
        mean_again(made)

    kept = {path: path.read_text() for path in folder.iterdir()}
    for change, words in ((halve, "floor, .* is not this library's"), (None, "prompts are not this library's")):
        for who in ("mine", "other"):
            changed(folder, change or (lambda made: real(made).update(prompts="0")), who=who)
        leaderboard.read_rows(folder)
        with pytest.raises(ValueError, match=rf"{REAL}, same: the rows' (test )?{words}"):
            leaderboard.read_rows(folder, again=[REAL])
        for path, text in kept.items():
            path.write_text(text)


def test_another_format_and_what_is_no_json_are_refused(folder):
    for text, words in (
        ("{", "no row of this leaderboard"),
        ("[]", "no row of this leaderboard"),
        ('{"format": "icl-bench row 9"}', "format 'icl-bench row 9'"),
        ('{"format": NaN}', "NaN where a number"),
    ):
        (folder / "a.json").write_text(text)
        with pytest.raises(ValueError, match=rf"a\.json .*{words}"):
            leaderboard.read_rows(folder)
    assert leaderboard.read_rows(folder / "nowhere") == []
    assert len(leaderboard.board([])) == len(leaderboard.by_task([])) == 0


def test_what_cannot_be_compared_is_not_written(results, tmp_path):
    """No such contestant, a budget of one's own, a task left out, a commit that is none: refused, and no file."""
    meta = copy.deepcopy(results.meta)
    meta["budget"]["steps"] = 7
    some = results.table[results.table.task != "switches"]
    for run, who, commit, words in (
        (results, "gla", COMMIT, "contestant must be one of the run's, mine, other, got 'gla'"),
        (results, "mine", "HEAD", "commit must be the hash"),
        (BenchResults(results.table, meta), "mine", COMMIT, "budget must be one of small"),
        (BenchResults(some, results.meta), "mine", COMMIT, "every task of the benchmark"),
    ):
        with pytest.raises(ValueError, match=words):
            leaderboard.submit(run, who, commit=commit, folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    made = leaderboard.row(results, "mine", commit=COMMIT)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written to"):
        leaderboard.write_row(made, tmp_path / "file" / "x")


def test_the_repositorys_rows_hold_together():
    """All of them: checksum, form, numbers that follow from one another; prompts and floors of two tasks made anew."""
    rows = leaderboard.read_rows(ROWS, again=["ar1-0.95-noise", "ar1-0.6"])
    assert all(made["by"] for made in rows)
    # Filters are not trained, and a search that takes a moment is told as none.
    trained = [made for made in rows if made["rates"]]
    assert trained
    assert all(made["seconds"] > 0 for made in trained)


def test_the_chapters_layer_is_the_example():
    """The cell that a reader sees is `examples/my_layer.py` to the letter, its first line apart."""
    chapter = ROWS.parents[1].joinpath("synthesis/bring-your-own-layer.md").read_text(encoding="utf-8")
    (cell,) = re.findall(r"^```\{code-cell\}\n(import torch\n.*?class MyLayer\(.*?)^```$", chapter, re.S | re.M)
    example = ROWS.parents[2].joinpath("examples/my_layer.py").read_text(encoding="utf-8")
    first, _, rest = example.partition("\n\n")
    assert first.startswith('"""A layer of one\'s own')
    assert rest == cell


def examples_layer(width):
    told = importlib.util.spec_from_file_location("my_layer", ROWS.parents[2] / "examples/my_layer.py")
    module = importlib.util.module_from_spec(told)
    told.loader.exec_module(module)
    return module.MyLayer(width)


@pytest.mark.parametrize("logit", [-1e3, -1e4])
def test_the_examples_layer_forgets_at_once_and_keeps_its_digits(logit):
    """After one token whose gate closes, float32 gives the outputs of float64 to 2e-6 of the largest, and gradients.

    A difference of summed logarithms is off by 2.6e-5 and 5e-4.
    """
    layer = examples_layer(8)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weights in layer.parameters():
            weights.copy_(0.3 * torch.randn(weights.shape, generator=generator))
        layer.gates.weight[:, 0] = torch.tensor([1.0, 0.0])
        layer.qkv.weight[:, 0] = 0
        layer.gates.bias.fill_(3.0)
        h = torch.randn(3, 60, 8, generator=generator)
        h[:, :, 0] = 0
        h[:, 5, 0] = logit
    found = layer(h)
    found.square().sum().backward()
    assert all(bool(weights.grad.isfinite().all()) for weights in layer.parameters())
    expected = copy.deepcopy(layer).double()(h.double())
    assert (found - expected).abs().max() <= 2e-6 * expected.abs().max()


def test_the_examples_layer_is_its_recurrence():
    """All tokens at once against the state token by token, float64, rtol 1e-9."""
    generator = torch.Generator().manual_seed(3)
    layer = examples_layer(6).double()
    with torch.no_grad():
        for weights in layer.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator, dtype=torch.float64))
        h = torch.randn(2, 9, 6, generator=generator, dtype=torch.float64)
        q, k, v = layer.qkv(h).chunk(3, dim=-1)
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
        a, b = layer.gates(h).sigmoid().unbind(-1)
        S, read = torch.zeros(2, 6, 6, dtype=torch.float64), []
        for i in range(9):
            S = a[:, i, None, None] * S
            u = b[:, i, None] * (v[:, i] - torch.einsum("bkv,bk->bv", S, k[:, i]))
            S = S + torch.einsum("bk,bv->bkv", k[:, i], u)
            read.append(torch.einsum("bkv,bk->bv", S, q[:, i]))
        expected = layer.out(torch.stack(read, 1))
        torch.testing.assert_close(layer(h), expected, rtol=1e-9, atol=1e-12)
