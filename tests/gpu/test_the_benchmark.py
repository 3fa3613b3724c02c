"""On a real GPU: contestants answer and learn there as on the processor, in one process and in two, and after a kill.

The processor's numbers come again to the bit. A GPU's need not: some of its kernels add up in an order of their own.
What is asked here are the same numbers within limits.
"""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

from elsewhere import moved, numbers

from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl_bench import costs, runner
from icl_bench.budgets import BUDGETS, Budget
from icl_bench.catalogue import CONTESTANTS
from icl_bench.command import main
from icl_bench.entries import Shape, resolve
from icl_bench.results import read_results

pytestmark = pytest.mark.usefixtures("as_installed")

HERE, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHAPE = Shape(d=5, n=64, width=32, depth=2, longest=257)
TINY = Budget("tiny", 2, 8, 8, 1, 12, 4, (1e-3, 1e-2), 2, 5, 8, 4)
NAMES = ("gla", "gated-delta", "softmax", "book-gla")
ASKED = {"tasks": ["ar1-0.9", "ar1-0.95-noise"], "only_tested": [], "budget": TINY, "quiet": True}
#: Of the largest number: of one pass and its gradients; of errors after some steps of training, of which each adds to
#: what the one before it rounded.
PASS, TRAINED = 1e-3, 1e-2
#: All that are trained by gradients; others answer on the processor.
LEARNING = [name for name in CONTESTANTS if not name.startswith("tuned-") and name != "answer-0"]


@pytest.fixture(scope="module")
def there():
    """The table of a run on the GPU, in this process."""
    return runner.run(NAMES, device="cuda", **ASKED).table


def agree(one, other, limit):
    """The same rows, with errors within a limit of the largest."""
    one, other = (table.reset_index(drop=True) for table in (one, other))
    plain = ["contestant", "kind", "trained_on", "rate", "seed", "task", "variant"]
    assert one[plain].equals(other[plain])
    for a, b in zip(one["errors"], other["errors"], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(np.max(a), 1))


@pytest.mark.parametrize("name", LEARNING)
def test_every_contestant_answers_and_learns_as_on_the_processor(name):
    """Answers to prompts and gradients of a model that is moved there. A gradient's limit is of its own largest number;
    of a hundredth of the model's largest, if that is more.
    """
    pytest.importorskip((CONTESTANTS[name].needs or ("torch",))[0])
    torch.manual_seed(0)
    made, found = resolve(name).build(SHAPE), []
    for device in (HERE, GPU):
        model = moved(made, device)
        prompt = DriftingRegression(5, 64, 0.9).sample(4, generator=make_generator("contestants"), device=device)
        model.loss(prompt, since=1).backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        assert all(each.device == device for each in gradients)
        found.append([numbers(each) for each in (model.predictions(prompt), *gradients)])
    least = max(np.abs(each).max() for each in found[0][1:]) / 100
    for place, (here, far) in enumerate(zip(*found, strict=True)):
        assert np.abs(here - far).max() <= PASS * max(np.abs(here).max(), least if place else 0)


def test_a_run_there_finds_what_the_processor_finds(there):
    agree(runner.run(NAMES, **ASKED).table, there, TRAINED)


def test_two_processes_find_what_one_finds(there, tmp_path):
    """Two programs of their own, which find the library by themselves and share the GPU."""
    agree(runner.run(NAMES, device="cuda", jobs=2, folder=tmp_path / "out", **ASKED).table, there, TRAINED)


_RUN = """
import sys
from dataclasses import replace
from icl_bench import runner, training_jobs
from icl_bench.budgets import BUDGETS
loss, steps = training_jobs._loss, []
training_jobs._loss = lambda *given: steps.append(1) or loss(*given)
budget = replace(BUDGETS["small"], steps=int(sys.argv[2]), rates=(8e-3,), seeds=1)
runner.run(["delta-rule"], budget=budget, only_tested=[], device="cuda", quiet=True, folder=sys.argv[1])
print(len(steps))
"""


def test_a_killed_run_goes_on(tmp_path):
    """kill -9 when a state is kept: the same call goes on from there, and ends where it would have ended."""
    steps, library = 240, Path(runner.__file__).parents[2]

    def begin(folder):
        command = [sys.executable, "-c", _RUN, str(tmp_path / folder), str(steps)]
        return subprocess.Popen(command, cwd=library, stdout=subprocess.PIPE, text=True)

    killed, until = begin("killed"), time.monotonic() + 120
    try:
        while not next((tmp_path / "killed").glob("*/*.safetensors"), None):
            assert time.monotonic() < until
            assert killed.poll() is None
            time.sleep(0.01)
    finally:
        killed.kill()
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed/results.parquet").exists()
    taken = {folder: int(begin(folder).communicate()[0]) for folder in ("killed", "whole")}
    assert taken["whole"] == steps
    assert taken["killed"] in range(40, steps, 50)  # a state is kept every 50 steps
    after, whole = (read_results(tmp_path / name / "results.parquet").table for name in ("killed", "whole"))
    for a, b in zip(after["errors"], whole["errors"], strict=True):
        assert abs(np.mean(a) / np.mean(b) - 1) < TRAINED


def test_the_command_runs_there(tmp_path, capsys, monkeypatch):
    """As somebody types it, but shorter: a table, a report, and a device that the results name."""
    monkeypatch.setitem(BUDGETS, "small", replace(BUDGETS["small"], steps=20, prompts=20))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "gla", "softmax", "--device", "cuda", "--out", "out"]) == 0
    assert "gla" in capsys.readouterr().out
    assert read_results(tmp_path / "out/results.parquet").meta["device"] == "cuda"
    assert list((tmp_path / "out").glob("*.html"))


@pytest.mark.parametrize("name", ["gla", "softmax", "delta-rule", "lstm"])
def test_memory_of_a_step_is_near_what_was_told(name):
    """Torch's own count on the GPU, of two steps of AdamW at the budget small: at most what is told beforehand for a
    process, 1.6 times the tensors that are counted on the processor.
    """
    budget, contestant = BUDGETS["small"], resolve(name)
    told = costs.step_bytes(contestant, budget.shape, budget.batch)
    model = contestant.build(budget.shape).to(GPU)
    rule = torch.optim.AdamW(model.parameters())
    prompt = DriftingRegression(5, 64, 0.9).sample(budget.batch, generator=make_generator("memory"), device=GPU)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        rule.zero_grad()
        model.loss(prompt, since=1).backward()
        rule.step()
    assert 0.3 * told < torch.cuda.max_memory_allocated() - before < 1.6 * told
