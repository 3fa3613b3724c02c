"""A cell of the benchmark: the training that one would write by hand, named by all that decides it, and kept whole."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from icl import _source
from icl.experiments.training import AdamW
from icl.profile import make_generator
from icl.tasks import DriftingRegression, clean
from icl_bench import training_jobs
from icl_bench.budgets import Budget
from icl_bench.entries import resolve

TINY = Budget("tiny", 2, 8, 8, 1, 12, 4, (1e-3, 1e-2), 2, 5, 8, 4)
SAME = {"ar1-0.9": ("same",)}


def of(contestant, *, seed=0, rate=1e-2, **change):
    asked = training_jobs.JobSpec(contestant.spec, contestant.kind, contestant.name, contestant.path, contestant.source)
    training = ("ar1-0.9", "ar1-0.95-noise")
    return replace(training_jobs.Job(asked, TINY, "all", training, (), rate, seed), **change)


def test_a_cell_is_a_training_written_by_hand(mine):
    """Start, prompts, steps and schedule against a loop of torch's own AdamW; validation and test errors, rtol 1e-6."""
    cell = of(mine, seed=1)
    found = training_jobs.run_job(cell, SAME, None)
    model, config = training_jobs._build(mine, TINY, 1), TINY.config(1e-2, 2)
    assert config.optimiser == AdamW(lr=1e-2, weight_decay=0.0, beta2=0.99)
    rule = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0)
    source, generator = cell.mixture(), training_jobs.profile.make_generator("icl-bench/training/all", seed=1)
    base = int(training_jobs._hash_json(cell.to_dict()), 16) >> 2
    with torch.random.fork_rng(devices=[]):
        for step in range(TINY.steps):
            torch.manual_seed(base + step)
            prompt = source.sample(4, generator=generator)
            loss = (prompt.y - model.predictions(prompt))[:, 1:].square().mean()
            rule.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rule.param_groups[0]["lr"] = config.step_size(step + 1)
            rule.step()
    model.eval()
    prompt = training_jobs.prompts_for("ar1-0.9", "same", TINY)[1]
    with torch.no_grad():
        parts = type(prompt)(prompt.x.float(), prompt.y.float(), prompt.w.float())
        squares = (model.predictions(parts).double() - clean(prompt)).square()[:, -4:].mean(1)
    np.testing.assert_allclose(found.errors["ar1-0.9", "same"], squares, rtol=1e-5)


def test_a_cell_has_another_name_for_all_that_decides_it(mine, tmp_path, monkeypatch):
    """Rate, seed, sizes, tasks, the contestant's source, library and tool each give files of another name; what tests
    are of not.
    """
    one = of(mine)
    others = [
        *(of(mine, seed=1), of(mine, rate=2e-2), of(mine, training=("ar1-0.9",), trained_on="ar1-0.9")),
        *(of(mine, budget=replace(TINY, **change)) for change in ({"steps": 13}, {"width": 16}, {"choosing": 9})),
        *(of(replace(mine, source="0" * 64)), of(replace(mine, kind="model")), of(mine, device="cuda:1")),
    ]
    names = {each.files(tmp_path).name for each in (one, *others)}
    assert len(names) == 1 + len(others)
    assert of(mine, budget=replace(TINY, prompts=6, seeds=3, name="other")).files(tmp_path) == one.files(tmp_path)
    assert of(mine, device="cuda:0").files(tmp_path) == of(mine, device="cuda:1").files(tmp_path)
    assert of(mine, device="cuda").files(tmp_path) == of(mine, device="cuda:1").files(tmp_path)
    monkeypatch.setattr(training_jobs, "_program", training_jobs._program.__wrapped__)
    of_libraries = set()
    for files in ({"icl": "a", "icl_bench": "a"}, {"icl": "b", "icl_bench": "a"}, {"icl": "a", "icl_bench": "b"}):
        monkeypatch.setattr(
            _source, "digest", lambda *packages, files=files: " ".join(files[each] for each in packages)
        )
        of_libraries.add(one.files(tmp_path).name)
    assert len(of_libraries) == 3


def test_a_cell_that_is_there_is_read_and_asked_for_more_tests_adds_them(mine, tmp_path, monkeypatch):
    """A second call reads; another test is made from the kept state, without a step, and added."""
    folder = tmp_path / "new" / "run"
    first = training_jobs.run_job(of(mine), SAME, folder)
    more = training_jobs.run_job(of(mine), {"ar1-0.9": ("same", "longer")}, folder)
    np.testing.assert_array_equal(more.errors["ar1-0.9", "same"], first.errors["ar1-0.9", "same"])
    assert more.errors["ar1-0.9", "longer"].shape == (TINY.prompts,)
    monkeypatch.setattr(training_jobs, "_train", None)
    again = training_jobs.run_job(of(mine), SAME, folder)
    assert again.validation == first.validation
    assert set(again.errors) == set(more.errors)


def test_threads_are_left_as_they_were(mine):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        training_jobs.run_job(of(mine), {}, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_another_source_than_the_one_asked_for_is_refused(mine):
    asked = replace(of(mine).contestant, source="0" * 64)
    with pytest.raises(ValueError, match="has another source here than where the run was started"):
        asked.resolve()


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text[:100],
        lambda text: text.replace("0.", "1.", 1),
        lambda text: "",
        lambda text: re.sub(r'"checksum": "\w+"', '"checksum": "0"', text),
        lambda text: "[]",
        lambda text: "\xff",
    ],
)
def test_a_damaged_cell_is_refused_with_its_path(mine, tmp_path, edit):
    """Cut short, a digit changed, empty, another checksum, no text: none is taken for whole."""
    cell = of(mine)
    training_jobs.run_job(cell, SAME, tmp_path)
    path = cell.files(tmp_path).with_suffix(".json")
    path.write_text(edit(path.read_text()))
    with pytest.raises(ValueError, match=rf"{path.name} cannot be used .*remove it and run again"):
        training_jobs.run_job(cell, SAME, tmp_path)


def test_a_cell_of_something_else_is_refused(mine, tmp_path):
    """A whole file under another cell's name."""
    one, other = of(mine), of(mine, seed=1)
    training_jobs.run_job(one, {}, tmp_path)
    one.files(tmp_path).with_suffix(".json").rename(other.files(tmp_path).with_suffix(".json"))
    with pytest.raises(ValueError, match="it is of something else"):
        training_jobs.run_job(other, {}, tmp_path)


def test_test_prompts_are_everybodys():
    """The same prompts at each call, other ones for the variant, whose examples are twice as many."""
    task, prompt = training_jobs.prompts_for("ar1-0.9", "same", TINY)
    assert torch.equal(prompt.x, training_jobs.prompts_for("ar1-0.9", "same", TINY)[1].x)
    longer = training_jobs.prompts_for("ar1-0.9", "longer", TINY)[1]
    assert (task.n, prompt.x.shape, longer.x.shape) == (8, (5, 9, 2), (5, 17, 2))
    assert not torch.equal(longer.x[:, :9], prompt.x)


def test_squared_errors_are_against_clean_labels_and_infinite_where_an_answer_is_not_a_number(mine):
    """Answering 0 against the clean labels by hand, over more prompts than one part; NaN is not passed on."""
    prompt = training_jobs.prompts_for("ar1-0.95-noise", "same", replace(TINY, prompts=230))[1]
    zero = resolve("answer-0").build(TINY.shape)
    found = training_jobs.squared_errors(zero, prompt, 4)
    np.testing.assert_allclose(found, clean(prompt).square()[:, -4:].mean(1), rtol=1e-12)
    assert not np.allclose(found, prompt.y.square()[:, -4:].mean(1))
    model = training_jobs._build(mine, TINY, 0)
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    assert np.isinf(training_jobs.squared_errors(model, prompt, 4)).all()


def test_what_is_kept_is_plain_json(mine, tmp_path):
    """JSON that says what it is of: nothing has to be unpickled to be read."""
    cell = of(mine)
    training_jobs.run_job(cell, SAME, tmp_path)
    content = json.loads(cell.files(tmp_path).with_suffix(".json").read_text())
    assert set(content) == {"format", "what", "found", "checksum"}
    assert content["what"] == cell.to_dict()
    assert set(content["found"]) == {"validation", "seconds", "errors", "settings", "trouble"}


def test_the_digest_of_prompts_is_that_of_every_processor():
    """Prompts that differ by rounding, or by the sign of a 0, have one digest; others have another."""
    prompt = DriftingRegression(4, 30, 0.9).sample(20, generator=make_generator("digest"), dtype=torch.float64)
    rounded = replace(prompt, x=prompt.x * (1 + 1e-14), w=prompt.w * (1 - 1e-14))
    assert training_jobs._digest(rounded) == training_jobs._digest(prompt)
    assert training_jobs._digest(replace(prompt, y=prompt.y + 1e-4)) != training_jobs._digest(prompt)
    zeros = replace(prompt, y=0 * prompt.y)
    assert training_jobs._digest(zeros) == training_jobs._digest(replace(prompt, y=-0.0 * prompt.y))
