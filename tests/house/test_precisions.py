"""In bfloat16, float16 and float32: a right answer in the same dtype, within a few of its roundings, or a refusal.

What is called, and with what, is the table of valid calls that `calls` has of the whole library: all of it
that takes floating tensors and neither draws nor is told a dtype. Its numbers are first rounded to what the dtype
holds, so that what is measured is the rounding of the computation alone, against the same in float64.
"""

import copy
import inspect
import re

import pytest
import torch
from elsewhere import changed, parts
from house.calls import ASKED_OF, call_of
from house.test_devices import HERE

pytestmark = pytest.mark.usefixtures("as_installed")

#: Rounding units of the largest number, or of 1 if that is less: the calls' longest sums are of 8 products.
ROUNDINGS = 8
#: Where rounding grows: what, and how many units.
MORE = {
    "icl_bench.sequence.InContext.": 128,  # norms that add the eps of the dtype to a small square
    "icl.convex.": 64,  # two steps whose lengths are searched for
}
#: What the answer does not come back in the dtype that was given, and why.
WIDER = {"icl_book.chapters.coefficient_fit.polynomial_losses": "a fit, in float64 whatever was asked"}
#: Parts of a state that are float64 in every dtype.
WIDE = {"icl.models.delta_layers.Kalman.": {".P"}, "icl.models.delta_layers.Mesa.": {".G", ".b"}}
#: Not asked: what, and why.
OTHERWISE = {
    "icl.experiments.training_variants.minimise": "a search: where it ends is no matter of a few roundings",
    "icl.models.one_layer.OneLayerGLA.set_weights": "sets parameters from numpy, and returns nothing",
}


def cast(value, dtype):
    """A copy of something with all its floating tensors in a dtype."""

    def rounded(each):
        if isinstance(each, torch.nn.Module):
            return copy.deepcopy(each).to(dtype)
        floating = isinstance(each, torch.Tensor) and each.is_floating_point()
        return each.detach().clone().to(dtype) if floating else each

    return changed(value, rounded)


def asked():
    """Names of all that is asked here."""
    for name, (function, _) in ASKED_OF.items():
        left_out = inspect.isclass(function) or name.startswith(tuple(HERE)) or name in OTHERWISE
        if not (left_out or {"generator", "dtype"} & inspect.signature(function).parameters.keys()):
            yield name


@pytest.mark.parametrize("name", [*asked()])
def test_dtypes_are_kept_and_right_or_refused(name):
    """The valid call in a dtype and in float64: dtype in is dtype out, and the numbers agree; or dtype is refused by
    name. float32 is never refused but where float64 is asked for.
    """
    torch.default_generator.manual_seed(0)
    function, kind = ASKED_OF[name]
    call = call_of(function, kind)
    floating = [each for _, each in parts([call.given, call.owner]) if isinstance(each, torch.Tensor)]
    if not any(each.is_floating_point() for each in floating):
        return

    def ran(dtype, precision):
        owner, given = (cast(cast(each, dtype), precision) for each in (call.owner, call.given))
        target = getattr(owner, function.__name__) if kind else call.function
        return [part for part in parts(target(**given)) if isinstance(part[1], torch.Tensor)]

    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        try:
            found = ran(dtype, dtype)
        except ValueError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert re.search(rf"dtype (torch.float64\b|must be torch.float32 or torch.float64).*, got {dtype}", refusal)
            assert dtype != torch.float32 or "dtype torch.float64" in refusal
            continue
        bound = next((bound for start, bound in MORE.items() if name.startswith(start)), ROUNDINGS)
        for (where, here), (_, wide) in zip(found, ran(dtype, torch.float64), strict=True):
            if not wide.is_floating_point():
                assert torch.equal(here, wide), (where, dtype)
                continue
            wide_parts = next((wide for start, wide in WIDE.items() if name.startswith(start)), set())
            assert here.dtype == (torch.float64 if name in WIDER or where in wide_parts else dtype), where
            gap, unit = (here.double() - wide.double()).detach().abs(), torch.finfo(dtype).eps / 2
            largest = wide.detach().abs().max().clamp(min=1) if gap.numel() else 1
            assert gap.numel() == 0 or gap.max() <= bound * unit * largest, (where, dtype)


def test_nothing_is_excepted_that_is_not_there():
    """An exception goes with what it is of."""
    assert OTHERWISE.keys() | WIDER <= ASKED_OF.keys()
    assert all(any(name.startswith(start) for name in ASKED_OF) for start in MORE)
