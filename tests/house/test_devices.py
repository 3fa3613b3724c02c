"""Everything keeps to the device it is given, with the processor's numbers; no loop copies or reads at every step.

No GPU is needed: the second device is made up (`elsewhere`). What is called, and with what, is the table of valid calls
that `calls` has of the whole library, so that a new function is asked here without a line of its own.
"""

import inspect
import typing

import numpy as np
import pytest
import torch
from elsewhere import THERE, Elsewhere, Generator, TwoDevices, Watch, moved, numbers, parts
from house.calls import ASKED_OF, call_of

from icl import filters, solvers
from icl.experiments.training import AdamW, Config, fit
from icl.experiments.training_variants import minimise
from icl.models.causal import Causal
from icl.models.delta_layers import DeltaRule
from icl.models.operators import chunked, delta_chunked, delta_recurrent, parallel, recurrent
from icl.profile import make_generator
from icl.tasks import DriftingRegression

pytestmark = pytest.mark.usefixtures("as_installed")

#: Of the processor by design: what there, and why.
HERE = {
    "icl.theory.": "closed forms in numpy's float64; they take no tensors",
    **dict.fromkeys(
        [f"icl_book.{name}." for name in ("exercises", "grading")],
        "what a page shows: tables and words",
    ),
    "icl_book.chapters.selective_step.StepGate": "a closed form in numpy's float64, and the layer that attains it",
    "icl_bench.report.": "tables and words",
    "icl_bench.results.": "tables",
    "icl_bench.leaderboard.": "tables",
    "icl_bench.comparison.compare": "a grid of predictors and tasks, judged where `run_grid` draws them",
    "icl.tasks.series.": "one series of a few thousand rows, in numpy",
    "icl.tvp.": "a table of one's own, in numpy",
}
#: Not asked below: what, and why.
OTHERWISE = {
    "icl_bench.entries.torch_seeded": "takes a device by its name: tests/icl_bench/test_entries.py",
    "icl_bench.runner.plan": "takes a device by its name: tests/icl_bench/test_runner_on_devices.py",
    "icl_bench.validation.validate": "takes a device by its name: tests/icl_bench/test_runner_on_devices.py",
    "icl_bench.costs.measure_cost": "takes a device by its name: tests/icl_bench/test_runner_on_devices.py",
    "icl.profile.make_generator": "makes a generator of torch's own for a device of torch's own",
    "icl.experiments.training_variants.minimise": "its loss is about a model that it does not see: tested below",
}


def asked():
    """Names of all that is asked here."""
    return [name for name in ASKED_OF if not name.startswith(tuple(HERE)) and name not in OTHERWISE]


def ran(name, *, device, generator=None):
    """What the valid call gives with everything on a device, and its call; None if it takes no tensors and no device.

    Args:
        generator: to draw from, in place of one of the processor.
    """
    torch.default_generator.manual_seed(0)
    function, kind = ASKED_OF[name]
    call = call_of(function, kind)
    takes = "device" in call.parameters
    draws = generator is not None and "generator" in call.parameters
    holds = any(isinstance(each, torch.Tensor) for _, each in parts([call.given, call.owner]))
    if not (takes or holds or draws):
        return None
    given = moved(call.given, device)
    if draws:
        given["generator"] = generator
    elif takes:
        given["device"] = device
    target = getattr(moved(call.owner, device), function.__name__) if kind else call.function
    found = target(**given)
    return list(found) if inspect.isgenerator(found) else found


def unlike(name, expected, found, *, made=False):
    """What of a result is on the other device, or another number.

    Args:
        made: whether it is a model that was made, as all are on the processor, to be moved as a whole.
    """
    made = made or (isinstance(found, torch.nn.Module) and inspect.isclass(ASKED_OF[name][0]))
    for (where, here), (_, there) in zip(parts(expected), parts(found), strict=True):
        if isinstance(here, torch.Tensor) and not isinstance(there, Elsewhere) and not made:
            yield f"{where or 'the result'} is on the processor"
        if not where.endswith("seconds") and not isinstance(here, str):
            a, b = numbers(here), numbers(there)
            if a.dtype != b.dtype or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
                yield f"{where or 'the result'} is {b.ravel()[:3]}, on the processor {a.ravel()[:3]}"


@pytest.mark.parametrize("name", asked())
def test_all_stays_where_it_is_with_the_same_numbers(name):
    """The valid call of each public function, class and method, with all its tensors elsewhere and `device` too.

    Results are elsewhere, and to the bit those of the processor. What is random draws the same with a generator of the
    second device, and leads there.
    """
    expected = ran(name, device=torch.device("cpu"))
    if expected is not None:
        with Watch():
            found = ran(name, device=THERE)
        assert list(unlike(name, expected, found)) == []


#: Draws numbers for numpy.
LEADS_BACK = {"icl.tasks.quadratics.rotation", "icl.tasks.rules.word_vectors"}
DRAWING = [
    name
    for name in asked()
    if "generator" in inspect.signature(ASKED_OF[name][0]).parameters and name not in LEADS_BACK
]


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_elsewhere_leads_there(name):
    """With a generator of the second device and no device told, the same numbers as with one of the processor."""
    expected = ran(name, device=torch.device("cpu"), generator=make_generator("elsewhere"))
    with Watch():
        found = ran(name, device=THERE, generator=Generator().manual_seed(make_generator("elsewhere").initial_seed()))
    assert list(unlike(name, expected, found, made=isinstance(found, torch.nn.Module))) == []


#: Reads numbers of the second device: what, and why.
READS = {
    "icl.filters.run_filter": "once, after the last step: whether all predictions are finite",
    "icl.filters.track": "as run_filter",
    "icl.models.experts.merge": "the heads' weights decide what is made of them, once",
    "icl.models.s6.S6": "the rates that it is made with",
}
CALLED = [name for name in asked() if name.startswith(("icl.models.", "icl.filters.", "icl.self_tuning."))]


@pytest.mark.parametrize("name", CALLED)
def test_no_check_of_a_call_reads(name):
    """The valid call of every model, layer and operator reads no number elsewhere: a GPU would be waited for."""
    ran(name, device=torch.device("cpu"))
    with Watch() as watch:
        ran(name, device=THERE)
    assert (watch.reads != []) == (name in READS), watch.reads


def makers(kind):
    """Names of public functions that return one of this kind."""
    return [
        name
        for name, (function, of) in ASKED_OF.items()
        if of is None and inspect.isfunction(function) and typing.get_type_hints(function).get("return") is kind
    ]


def spent(work, size):
    """Copies and reads of some work that was made ready for a size."""
    with Watch() as watch:
        begun = work(size)
        watch.copies.clear()
        watch.reads.clear()
        begun()
        return len(watch.copies), len(watch.reads)


def drawn(*shape):
    return torch.randn(*shape, generator=make_generator("loops")).to(THERE)


def filtering(name):
    def work(time):
        one, x, y = call_of(*ASKED_OF[name])(), drawn(3, time, 2), drawn(3, time)
        return lambda: filters.run_filter(one, x, y)

    return work


def solving(solver):
    def work(steps):
        one, H, b = solver(), drawn(3, 2, 2), drawn(3, 2)
        H = H @ H.mT
        return lambda: solvers.run_solver(one, (H + H.mT) / 2, b, steps)

    return work


def reading(name):
    def work(time):
        model = moved(call_of(*ASKED_OF[name]).owner, THERE)
        like = next(model.parameters())
        x, y = drawn(3, time, model.d).to(like), drawn(3, time).to(like)
        return lambda: model.errors(x, y)

    return work


def operating(operator, *gates):
    def work(time):
        q, k, v = drawn(3, 2, time, 2, 4).unbind(0)
        held = [torch.full_like(q[..., 0], gate) for gate in gates]
        return lambda: operator(q, k, v, *held)

    return work


LOOPS = {name: filtering(name) for name in makers(filters.Filter)}
LOOPS |= {name: solving(call_of(*ASKED_OF[name])) for name in makers(solvers.Solver)}
LOOPS |= {"preconditioned": solving(lambda: solvers.conjugate_gradients(torch.tensor([[2.0, 0.1], [0.1, 1.0]])))}
LOOPS |= {"a setting each": solving(lambda: solvers.chebyshev(torch.tensor([0.1, 0.2, 0.3]), 9.0))}
LOOPS |= {
    name: reading(name)
    for name, (_, kind) in ASKED_OF.items()
    if kind and name.endswith(".errors") and issubclass(kind, Causal)
}
OPERATORS = {form.__name__: operating(form, 0.9) for form in (recurrent, parallel, chunked)}
OPERATORS |= {form.__name__: operating(form, 0.9, 0.5) for form in (delta_recurrent, delta_chunked)}
LOOPS |= OPERATORS


@pytest.mark.parametrize("name", LOOPS)
def test_no_step_of_a_loop_copies_or_reads(name):
    """Twice as many steps copy and read as often: filters and layers over time, solvers over iterations."""
    size = 40 if name in OPERATORS else 5  # blocks are of 32
    assert spent(LOOPS[name], size) == spent(LOOPS[name], 2 * size)


def test_a_step_of_training_copies_prompts_and_a_loss_and_reads_what_may_diverge():
    """Of a delta rule with a generator of the processor: weights and inputs go there, the loss comes back; read are
    whether weights and the gradient's norm are finite. With a generator elsewhere the loss alone is copied.
    """
    task = DriftingRegression(2, 6, 0.9)

    def training(generator):
        def work(steps):
            model = DeltaRule(2, lam=0.9, mu=0.1).to(THERE)
            config = Config(steps, 4, AdamW(), clip=1.0)
            return lambda: fit(model, lambda model, prompt: model.loss(prompt), task, config, generator=generator())

        return work

    for generator, copies in ((lambda: make_generator("x"), 3), (lambda: Generator().manual_seed(1), 1)):
        few, many = (np.array(spent(training(generator), steps)) for steps in (2, 4))
        assert ((many - few) / 2).tolist() == [copies, 2]


def test_a_minimum_is_found_elsewhere():
    """L-BFGS on a loss of the model that is moved: the processor's losses."""
    found = []
    for device in (torch.device("cpu"), THERE):
        with Watch():
            model = torch.nn.Linear(2, 1, dtype=torch.float64)
            torch.nn.init.ones_(model.weight), torch.nn.init.ones_(model.bias)
            model.to(device)
            target = torch.tensor([[0.5, -1.0]], dtype=torch.float64).to(device)
            found.append(minimise(model, lambda model=model, at=target: (model.weight - at).square().sum()).losses)
    np.testing.assert_array_equal(*found)


def test_what_stays_on_the_processor_has_a_reason():
    """Nothing is excepted that is not there, and what is left out takes no tensor in its signature."""
    for prefix in HERE:
        left = [name for name in ASKED_OF if name.startswith(prefix)]
        assert left
        for name in left:
            function, _ = ASKED_OF[name]
            told = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
            assert torch.Tensor not in told.values(), name
            assert "device" not in told, name
    assert OTHERWISE.keys() | LEADS_BACK <= ASKED_OF.keys()


def test_the_second_device_refuses_what_a_gpu_refuses():
    """Two devices in one operation, numpy, a generator of the wrong one; copies and reads are counted."""
    near = torch.arange(3.0)
    with Watch() as watch:
        far = near.to(THERE)
        for wrong in (
            lambda: far + near,
            lambda: near[far > 1],
            lambda: far[near > 1],
            lambda: torch.stack([far, near]),
            lambda: near.double().normal_(generator=Generator()),
            lambda: torch.randn(3, generator=make_generator("x"), device=THERE),
        ):
            with pytest.raises(TwoDevices):
                wrong()
        for wrong in (far.numpy, lambda: np.asarray(far)):
            with pytest.raises(TypeError, match="another device"):
                wrong()
        assert (watch.copies, watch.reads) == (["_to_copy"], [])
        assert (far * near.sum()).tolist() == [0.0, 3.0, 6.0]
        assert far.sum().item() == 3
        assert far[far > 1].shape == (1,)
        assert watch.copies == ["_to_copy", "_to_copy"]
        assert watch.reads == ["_local_scalar_dense", "index"]
    assert near.device.type == "cpu"
    with pytest.raises(TwoDevices):
        far @ near
