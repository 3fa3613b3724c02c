"""A task of one's own: what it draws becomes a prompt with its clean label; what is not as it must be is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icl.profile import make_generator
from icl.tasks import DriftingRegression, clean
from icl_bench.custom_task import CustomTask

pytestmark = pytest.mark.usefixtures("as_installed")
TIME = 5


class Squares:
    """Labels that are no <w, x> of any fixed weights: the square of an input's length, and noise."""

    def __init__(self, d=2, n=TIME - 1):
        self.d, self.n = d, n

    def parts(self, batch, generator, dtype):
        x = torch.randn(batch, self.n + 1, self.d, generator=generator, dtype=dtype)
        y = x.square().sum(-1)
        return x, y + torch.randn(y.shape, generator=generator, dtype=dtype), y

    def sample(self, batch, *, generator, dtype, device):
        return self.parts(batch, generator, dtype)


class Silent(Squares):
    """The same without noise, and with what is known of it."""

    def sample(self, batch, *, generator, dtype, device):
        x, _, y = self.parts(batch, generator, dtype)
        return x, y

    def floor(self, prompt):
        return np.full(prompt.y.shape, 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_clean_label_is_kept(dtype):
    """clean(prompt) is the third part, or the label where there is none, to rounding; dtype is the one asked for."""
    noisy = CustomTask("mine", Squares(), 2, 4)
    prompt = noisy.sample(3, generator=make_generator("own"), dtype=dtype)
    x, y, wanted = Squares().parts(3, make_generator("own"), dtype)
    assert prompt.y.dtype == dtype
    assert torch.equal(prompt.x, x)
    assert torch.equal(prompt.y, y)
    torch.testing.assert_close(clean(prompt), wanted)
    silent = CustomTask("mine", Silent(), 2, 4).sample(3, generator=make_generator("own"), dtype=dtype)
    torch.testing.assert_close(clean(silent), silent.y)


def test_a_prompt_passes_as_it_is():
    """Also an input of 0 with a label of 0, and a number type that has to be changed."""
    law = DriftingRegression(2, 4, 0.9)
    own = CustomTask("mine", law, 2, 4)
    ours, theirs = (task.sample(3, generator=make_generator("law")) for task in (own, law))
    assert all(torch.equal(getattr(ours, part), getattr(theirs, part)) for part in "xyw")

    class Dark(Squares):
        def sample(self, batch, *, generator, dtype, device):
            return torch.zeros(batch, TIME, 2), torch.zeros(batch, TIME)

    prompt = CustomTask("mine", Dark(), 2, 4).sample(3, generator=make_generator("own"), dtype=torch.float64)
    assert prompt.w.dtype == torch.float64
    assert not prompt.w.any()


def test_the_floor_is_the_tasks_own():
    prompt = CustomTask("mine", Silent(), 2, 4).sample(3, generator=make_generator("own"))
    np.testing.assert_array_equal(CustomTask("mine", Silent(), 2, 4).floor(prompt), np.full((3, TIME), 0.5))
    high = type("High", (Silent,), {"floor": lambda self, prompt: torch.full(prompt.y.shape, 1e3)})
    assert CustomTask("mine", high(), 2, 4).floor(prompt).mean() == 1e3
    without = CustomTask("mine", Squares(), 2, 4)
    assert not without.has_floor
    with pytest.raises(ValueError, match="task must have a method floor, got mine without one"):
        without.floor(prompt)


def drawing(made):
    """A task whose `sample` gives what is made of x, y and the clean label."""
    return sampling(lambda self, batch, *, generator, dtype, device: made(*self.parts(batch, generator, dtype)))


def flooring(made):
    return type("Bad", (Silent,), {"floor": lambda self, prompt: made(prompt.y)})()


def sampling(sample):
    return type("Bad", (Squares,), {"sample": sample})()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Squares(3), "task must have d = 2, as it was asked for, got 3 of mine: keep"),
        (Squares(2, 9), "task must have n = 4, as it was asked for, got 9 of mine"),
        (type("Bad", (), {"sample": None})(), "task must have d = 2, as it was asked for, got 'none' of mine"),
        (type("Bad", (), {"d": 2, "n": 4})(), "task must have a method sample, got mine without one"),
        (
            sampling(lambda self, batch: 3),
            r"task must have sample\(batch, \*, generator, dtype, device\), got mine with",
        ),
        (
            sampling(lambda self, batch, **_: (torch.randn(batch, TIME, 2), torch.ones(batch, TIME))),
            "task must draw from the generator alone",
        ),
        (sampling(lambda self, batch, **_: 1 / 0), "mine.sample must draw prompts, got ZeroDivisionError: division"),
        (drawing(lambda x, y, clean: None), r"mine.sample must give .*\(x, y\) or \(x, y, clean\), got NoneType"),
        (drawing(lambda x, y, clean: (x,)), r"must give .*\(x, y\) or \(x, y, clean\), got 1 values"),
        (drawing(lambda x, y, clean: (x.numpy(), y)), "mine.sample must give x as a torch tensor, got numpy.ndarray"),
        (
            drawing(lambda x, y, clean: (x[..., :1], y)),
            r"x of shape \(batch, n \+ 1, d\) = \(2, 5, 2\), got \(2, 5, 1\)",
        ),
        (drawing(lambda x, y, clean: (x[:, 1:], y)), r"got \(2, 4, 2\): the query is a position too"),
        (
            drawing(lambda x, y, clean: (x, y[:, 1:])),
            r"y of shape \(batch, n \+ 1\) = \(2, 5\), got \(2, 4\): the query",
        ),
        (drawing(lambda x, y, clean: (x, y, clean[..., None])), r"clean of shape \(batch, n \+ 1\) = \(2, 5\), got"),
        (drawing(lambda x, y, clean: (x, y / 0)), "y in finite real numbers, got inf"),
        (drawing(lambda x, y, clean: (x, y.long())), "y in finite real numbers, got torch.int64"),
        (drawing(lambda x, y, clean: (x, y, clean * torch.nan)), "clean in finite real numbers, got nan"),
        (drawing(lambda x, y, clean: (0 * x, y)), "inputs other than 0, got x = 0 with a label that is not"),
        (flooring(lambda y: 1 / 0), "mine.floor must give errors, got ZeroDivisionError"),
        (
            flooring(lambda y: y[0]),
            r"mine.floor must give real numbers of shape \(batch, n \+ 1\) = \(2, 5\), got float",
        ),
        (flooring(lambda y: None), "mine.floor must give real numbers of shape .*, got object"),
        (flooring(lambda y: -torch.ones(y.shape)), "mine.floor must give finite errors >= 0, got -1"),
        (flooring(lambda y: y * np.nan), "mine.floor must give finite errors >= 0, got nan"),
    ],
)
def test_what_is_not_as_it_must_be_is_refused_by_name(task, message):
    """Before anything is trained: when it is made."""
    with pytest.raises(ValueError, match=message):
        CustomTask("mine", task, 2, 4)


def test_later_draws_are_checked_too():
    """A task that is sound for two prompts and not for more; and a prompt of other sizes."""

    def late(x, y, clean):
        return (x, y) if len(x) == 2 else (x, y / 0)

    own = CustomTask("mine", drawing(late), 2, 4)
    with pytest.raises(ValueError, match="y in finite real numbers, got inf"):
        own.sample(3, generator=make_generator("own"))
    own = CustomTask("mine", DriftingRegression(2, 4, 0.9), 2, 4)
    object.__setattr__(own, "task", replace(own.task, n=5))
    with pytest.raises(ValueError, match=r"mine.sample must give x of shape \(batch, n \+ 1, d\) = \(3, 5, 2\)"):
        own.sample(3, generator=make_generator("own"))
