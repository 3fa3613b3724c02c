"""Who works on which GPU, what is examined and timed there, and that every contestant keeps to its device. None of this
needs a GPU: torch is told that there are some, and cells note where they would have been; models are moved to a second
device that is made up (`elsewhere`).
"""

import contextlib
from dataclasses import replace

import pytest
import torch
from elsewhere import THERE, Watch, moved, numbers

from icl.models.causal import Causal
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl_bench import costs, runner, training_jobs, validation
from icl_bench.catalogue import CONTESTANTS
from icl_bench.entries import Shape, resolve, torch_seeded
from icl_bench.runner import Budget

pytestmark = pytest.mark.usefixtures("as_installed")

TINY = Budget("tiny", 2, 8, 8, 1, 4, 4, (1e-3, 1e-2), 3, 4, 8, 4)
SHAPE = Shape(d=3, n=6, width=16, depth=2, longest=25)


@pytest.fixture
def gpus(monkeypatch):
    """Tell torch how many GPUs there are, and to start kernels on them without a driver."""

    def told(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    return told


@pytest.fixture
def worked(monkeypatch):
    """Cells that are not worked on, but note where they would have been."""
    seen = []

    def work(cell, tests, folder):
        seen.append((cell.contestant.name, cell.device))
        return training_jobs.JobResult(cell.rate, 1.0, {}, {})

    monkeypatch.setattr(training_jobs, "run_job", work)
    monkeypatch.setattr(runner, "_floors", lambda pair, *_: (pair, {}))
    return seen


def plan(device, names=("gla", "answer-0"), **more):
    return runner.plan(names, tasks=["ar1-0.9"], only_tested=[], budget=TINY, device=device, **more)


def test_gpus_are_taken_in_turn_by_what_is_trained(gpus, worked, tmp_path):
    """Two rates and then three seeds on three GPUs; what is not trained stays on the processor."""
    gpus(3)
    runner._run_jobs(plan("cuda"), tmp_path, 1, False, True)
    assert worked == [
        *(("gla", "cuda:0"), ("gla", "cuda:1")),
        *(("gla", "cuda:0"), ("gla", "cuda:1"), ("gla", "cuda:2"), ("answer-0", "cpu")),
    ]


def test_a_worker_counts_its_own_gpus(gpus, worked, tmp_path):
    """Four where the run was started, one where a cell is worked on, as on a cluster that gives each worker one."""
    gpus(4)
    asked = plan("cuda", names=("gla",))
    gpus(1)
    runner._run_jobs(asked, tmp_path, 1, False, True)
    assert {device for _, device in worked} == {"cuda:0"}
    gpus(0)
    with pytest.raises(ValueError, match="a worker sees no GPU"):
        runner._run_jobs(asked, tmp_path, 1, False, True)


def test_one_gpu_by_its_number(gpus, worked, tmp_path):
    """All cells are there; the table says that it was a GPU and not which, so that it goes on on another."""
    gpus(2)
    asked = plan("cuda:1", names=("gla",))
    runner._run_jobs(asked, tmp_path, 1, False, True)
    assert {device for _, device in worked} == {"cuda:1"}
    made = runner._results(asked, {}, {}, {"gla": []}, {"gla": costs.MeasuredCost(1, 1.0, None, None, 1.0)})
    assert made.meta["device"] == "cuda"
    runner._check_compatible(made, replace(asked, device="cuda:0"), tmp_path)
    with pytest.raises(ValueError, match="results of another device"):
        runner._check_compatible(made, replace(asked, device="cpu"), tmp_path)


@pytest.mark.parametrize(
    ("count", "device", "message"),
    [
        (0, "cuda", "device cuda is not here: torch sees no GPU"),
        (2, "cuda:2", "device cuda:2 is not here: torch sees 2 GPUs, the first is cuda:0"),
        (1, "cuda:1", "torch sees 1 GPU, the first is cuda:0"),
        (2, "cuda:", "device must be cpu or cuda, got 'cuda:'"),
        (2, "cuda:x", "device must be cpu or cuda"),
        (2, "cudas", "device must be cpu or cuda"),
        (2, torch.device("cuda"), "device must be a str"),
    ],
)
def test_a_gpu_that_is_not_here_is_refused_before_anything_is_done(gpus, count, device, message):
    gpus(count)
    with pytest.raises(ValueError, match=message):
        plan(device)


def test_contestants_are_examined_and_weighed_where_they_are_trained(gpus, monkeypatch, tmp_path):
    """And the time that is told beforehand is measured there."""
    gpus(2)
    seen = []

    def examined(contestant, shape, *, device="cpu"):
        seen.append(device)
        return ()

    monkeypatch.setattr(validation, "validate", examined)
    monkeypatch.setattr(costs, "measure_cost", lambda *_, device="cpu": seen.append(device))
    monkeypatch.setattr(runner, "_run_jobs", lambda *_: ({}, {}))
    monkeypatch.setattr(runner, "_results", lambda *_: None)
    monkeypatch.setattr(runner.tables, "write_results", lambda *_: None)
    runner.run(plan("cuda:1", names=("gla",)), folder=tmp_path, quiet=True)
    assert seen == ["cuda:1", "cuda:1"]


def test_a_time_is_taken_when_its_own_gpu_is_done(monkeypatch):
    """Torch is asked to wait for the GPU that works, not for the first one."""
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: waited.append(device))
    monkeypatch.setattr(costs, "torch_seeded", lambda **_: contextlib.nullcontext())
    assert costs._seconds(lambda: None, "cuda:1") >= 0
    assert set(waited) == {"cuda:1"}


def test_the_stream_of_a_gpu_is_put_back(monkeypatch):
    """Of the one that is named, whatever is drawn in between."""
    states = {"cuda:1": torch.tensor([7], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    with torch_seeded(3, device="cuda:1"):
        states["cuda:1"] += 1
    assert states["cuda:1"].tolist() == [7]


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_attention_of_a_gpu_counts_as_the_processor_counts_it(kernel):
    """Torch's kernels for GPUs, asked for shapes alone, and its kernel for the processor: the same operations."""
    q, k, v = torch.zeros(3, 2, 4, 16, 8).unbind(0)
    attention = torch.ops.aten
    more = {"flash": (), "efficient": (None, False), "cudnn": (None, False)}[kernel]
    there = getattr(attention, f"_scaled_dot_product_{kernel}_attention")
    meta = [each.to("meta") for each in (q, k, v)]
    one = costs.count(lambda: attention._scaled_dot_product_flash_attention_for_cpu(q, k, v))
    other = costs.count(lambda: there(*meta, *more))
    assert one.flops == other.flops == 2 * 4 * 16 * 16 * (2 * 8 + 5 + 2 * 8)
    assert not other.unknown


@pytest.mark.parametrize("name", [name for name, known in CONTESTANTS.items() if not known.needs])
def test_every_contestant_keeps_to_its_device(name):
    """Answers and gradients of a model that is moved, with prompts there: the processor's to a few roundings of the
    largest, where kernels are chosen by device, and no copy or read that grows with the prompt. Filters and tunables
    answer on the processor.
    """
    torch.manual_seed(0)
    made = resolve(name).build(SHAPE)
    if not isinstance(made, Causal):
        return
    found, spent = [], []
    for device, n in ((torch.device("cpu"), 6), (THERE, 6), (THERE, 12)):
        with Watch() as watch:
            model = moved(made, device)
            prompt = DriftingRegression(3, n, 0.9).sample(2, generator=make_generator("contestants"), device=device)
            watch.copies.clear()
            watch.reads.clear()
            model.loss(prompt, since=1).backward()
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            assert all(each.device == device for each in gradients)
            spent.append((len(watch.copies), len(watch.reads)))
            found.append([torch.as_tensor(numbers(each)) for each in (model.predictions(prompt), *gradients)])
    for here, there in zip(*found[:2], strict=True):
        assert (here - there).abs().max() <= 50 * torch.finfo(here.dtype).eps * here.abs().max().clamp(min=1)
    assert spent[1] == spent[2]
