"""On a real GPU: everything that takes tensors stays there, with the processor's numbers to a few roundings.

What is called is the table of `house/test_devices.py`, which shows the same on a device that is made up, to the bit;
here the GPU's own kernels round in their own way.
"""

import warnings

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

from elsewhere import numbers, parts
from house import test_devices
from house.test_devices import DRAWING, LOOPS, asked, ran

from icl.profile import make_generator

pytestmark = pytest.mark.usefixtures("as_installed")

HERE, GPU = torch.device("cpu"), torch.device("cuda", 0)
#: Roundings of the largest number, of 1 if that is less, of the type that both results have.
ROUNDINGS = 1000


def strays(expected, found, *, made):
    """What of a result is on the other device, of another type, or another number.

    Args:
        made: whether it is a model that was made, as all are on the processor, to be moved as a whole.
    """
    for (where, here), (_, there) in zip(parts(expected), parts(found), strict=True):
        if isinstance(here, torch.Tensor) and there.device != GPU and not made:
            yield f"{where or 'the result'} is on {there.device}"
        if where.endswith("seconds") or isinstance(here, str):
            continue
        a, b = numbers(here), numbers(there)
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"{where or 'the result'} is {b.dtype} {b.shape}, on the processor {a.dtype} {a.shape}"
        elif a.dtype.kind in "fc":
            # Losses that a training tells in float64 are numbers of a model in float32.
            least = np.finfo(a.dtype if isinstance(here, torch.Tensor) else np.float32).eps
            largest = max(1.0, np.abs(a[np.isfinite(a)]).max(initial=0.0))
            if not np.allclose(a, b, rtol=0, atol=ROUNDINGS * least * largest, equal_nan=True):
                yield f"{where or 'the result'} is off by {np.nanmax(np.abs(a - b)) / least / largest:.0f} roundings"
        elif not np.array_equal(a, b):
            yield f"{where or 'the result'} is {b.ravel()[:3]}, on the processor {a.ravel()[:3]}"


@pytest.mark.parametrize("name", asked())
def test_all_stays_there_with_the_processors_numbers(name):
    """The valid call of each public function, class and method, with all its tensors there and `device` too."""
    expected = ran(name, device=HERE)
    if expected is not None:
        assert list(strays(expected, ran(name, device=GPU), made=isinstance(expected, torch.nn.Module))) == []


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_there_leads_there(name):
    """With a generator of the GPU: results are there, and the same when they are drawn again."""
    one, two = (ran(name, device=GPU, generator=make_generator("elsewhere", device=GPU)) for _ in range(2))
    for (where, a), (_, b) in zip(parts(one), parts(two), strict=True):
        if isinstance(a, torch.Tensor) and not isinstance(one, torch.nn.Module):
            assert a.device == GPU, where
        if not where.endswith("seconds"):
            np.testing.assert_array_equal(numbers(a), numbers(b), err_msg=where)


def waits(work, size):
    """How often the processor waits for the GPU in some work that was made ready for a size."""
    work(size)()  # what is loaded at the first call
    begun = work(size)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            begun()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in told)


@pytest.mark.parametrize("name", LOOPS)
def test_no_step_of_a_loop_waits(name, monkeypatch):
    """Filters, layers, solvers and operators wait for the GPU as often for more steps."""
    monkeypatch.setattr(test_devices, "THERE", GPU)
    # Operators work in blocks of 32: 2 and 5 of them.
    size, larger = (40, 160) if name in test_devices.OPERATORS else (5, 10)
    few, many = (waits(LOOPS[name], steps) for steps in (size, larger))
    # Now and then torch waits once more for something of its own.
    assert abs(many - few) <= 1


def test_a_wait_is_seen():
    """What the count above counts."""
    numbers_there = torch.arange(3.0, device=GPU)
    assert waits(lambda size: lambda: [each.item() for each in numbers_there[:size]], 3) == 3
