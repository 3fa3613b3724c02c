"""What tests of several rooms need: data and models that hide nothing, and what they are judged by."""

import multiprocessing

import numpy as np
import pandas as pd
import torch

from icl import filters
from icl.models import untrained
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt, StationaryRegression
from icl.tasks.text import InContextText
from icl.theory.steady import DriftLaw


def started(function, *args):
    """A process that runs a function: a copy of this one, which has loaded what it needs, in tenths of a second."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    return process


def same_runs(one, other):
    """Two tables of the benchmark's runs are the same, to the bit."""
    pd.testing.assert_frame_equal(one.drop(columns="errors"), other.drop(columns="errors"), check_exact=True)
    for a, b in zip(one["errors"], other["errors"], strict=True):
        assert np.array(a).tobytes() == np.array(b).tobytes()


class Errors(torch.nn.Module):
    """A model that is called for its errors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        """Errors of these labels."""
        return self.model.errors(x, y)


def stirred(model, size=0.3, seed=0):
    """The model with noise on every parameter, so that no value hides it; matrices are then not symmetric."""
    generator = make_generator("stir", seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


def close(got, expected, rounding):
    """Whether two arrays are the same up to rounding of their largest value, or of 1 if that is less."""
    got, expected = (torch.as_tensor(a).detach() for a in (got, expected))
    return got.shape == expected.shape and bool(
        (got - expected).abs().max() <= rounding * expected.abs().max().clamp(min=1)
    )


def covariance(d, seed, white=0.0):
    """A random covariance with unequal eigenvalues and correlated coordinates, and so much of the identity."""
    root = np.random.default_rng(seed).normal(size=(d, d))
    return root @ root.T / d + white * np.eye(d)


def drift_law(d, s, v=0.0):
    """Weights of variance 1 with d dimensions over memory s and the labels' noise over their signal v."""
    return DriftLaw(d, np.sqrt(1 - s / d), np.sqrt(s / d), np.sqrt(v * d))


def wishart(d, n, batch, seed, root=None, rng=np.random.default_rng):
    """Curvatures X X'/n of so many prompts; root: (d, d) with Sigma = root root'."""
    X = rng(seed).normal(size=(batch, d, n))
    X = X if root is None else root @ X
    return X @ X.swapaxes(1, 2) / n


def task_name(task):
    """What a case of a test is called by its task."""
    return f"{type(task).__name__}, gamma = {task.gamma}" if hasattr(task, "gamma") else type(task).__name__


def sequences(stream, d, time, batch, *, seed, dtype=torch.float64):
    """Inputs and labels that have nothing to do with each other."""
    generator = make_generator(stream, seed=seed)
    x = torch.randn(batch, time, d, generator=generator, dtype=dtype)
    return x, torch.randn(batch, time, generator=generator, dtype=dtype)


def deep_prompt(n=20, d=3, batch=5, dtype=torch.float64) -> Prompt:
    """Prompts of a fast drift."""
    task = DriftingRegression(d=d, n=n, gamma=0.9, sigma_e=0.5)
    return task.sample(batch, generator=make_generator("deep prompts"), dtype=dtype)


class Replay(DriftingRegression):
    """A task whose samples are the prompts of one pool in their order: the same whatever is asked at a time.

    Notes down how many it was asked for, and in which dtype.
    """

    def __init__(self, total):
        super().__init__(d=3, n=8, gamma=0.9, sigma_e=0.3)
        pool = super().sample(total, generator=make_generator("replay"), dtype=torch.float64)
        object.__setattr__(self, "pool", pool)
        object.__setattr__(self, "asked", [])

    def sample(self, batch, *, generator, dtype=torch.float32, device=None):
        """The next prompts of the pool."""
        start = sum(asked for asked, _ in self.asked)
        self.asked.append((batch, dtype))
        return Prompt(*(a[start : start + batch].to(dtype) for a in vars(self.pool).values()))


def normal(*shape, name="memformer", seed=0):
    """Standard normal numbers of a named stream."""
    return torch.randn(shape, generator=make_generator(name, seed=seed), dtype=torch.float64)


def memory_prompts(d, n, batch=4, seed=0) -> Prompt:
    """Prompts of unequal, correlated inputs whose labels are linear in them."""
    half = normal(d, d, name="covariance") / 3 + torch.eye(d, dtype=torch.float64)
    task = StationaryRegression(d=d, n=n, Lambda=(half @ half.T).numpy())
    return task.sample(batch, generator=make_generator("memformer prompts", seed=seed), dtype=torch.float64)


#: Inputs of unequal sizes, a matrix without symmetry, and a filter of every kind for them.
UNEQUAL_DRIFT = DriftingRegression(d=3, n=29, gamma=0.95, sigma_e=0.3, Lambda=np.diag([0.5, 1.25, 2.0]))
LOPSIDED = np.array([[0.3, 0.1, -0.05], [0.02, 0.2, 0.1], [0.0, -0.1, 0.4]])
EVERY_FILTER = {
    "LMS": filters.lms(0.05),
    "NLMS": filters.nlms(0.7),
    "delta rule": filters.delta_rule(0.05, lam=0.9),
    "normalised delta rule": filters.normalised_delta_rule(0.7, lam=0.9),
    "APA": filters.apa(0.5, K=2, eps=1e-6),
    "RLS": filters.rls(0.9, eps=0.01),
    "window": filters.window(4, eps=0.01),
    "ridge": filters.ridge(0.1),
    "faded ridge": filters.faded_ridge(0.9, eps=0.5),
    "Kalman": filters.kalman(UNEQUAL_DRIFT, sigma_y=0.1),
    "steady Kalman": filters.steady_kalman(UNEQUAL_DRIFT),
    "GLA": filters.gla(LOPSIDED, lam=0.9),
    "zero": filters.zero(),
}


def read(filter, x, y, w_0=None):
    """Every state of a filter fed by hand, from w_0, before the first example to after the last: trials go last."""
    xs, ys = x.movedim((-2, -1), (0, 1)), y.movedim(-1, 0)
    state = filter.init(torch.zeros_like(xs[0]) if w_0 is None else w_0)
    yield state
    for xt, yt in zip(xs, ys, strict=True):
        state = filter.step(state, xt, yt, (state.w_hat * xt).sum(0))
        yield state


def streamed(filter, x, y):
    """Predictions of `update`, example by example, of inputs (time, d, *trials); and the last estimate."""
    state, said = filter.init(torch.zeros_like(x[0])), []
    for xt, yt in zip(x, y, strict=True):
        y_hat, state = filter.update(state, xt, yt)
        said.append(y_hat)
    return torch.stack(said), state.w_hat


def marked_texts(n=4, seed=0, **changes):
    """Texts of 2 and 3 tokens; those of class 1 begin with token 20."""
    draw = torch.randint(21, 60, (48, 3), generator=make_generator("texts", seed=seed)).tolist()
    table = tuple(tuple(([20] if row % 2 else []) + text)[: 2 + row // 2 % 2] for row, text in enumerate(draw))
    labels = tuple(row % 2 for row in range(48))
    return InContextText(table, labels, (3, 4), n, 2, 3, (5,), (6,), **changes)


def tiny_llama(**changes):
    """Two layers of width 16 with random weights."""
    given = {"layers": 2, "width": 16, "heads": 2, "words": 64, "places": 128, "spread": 0.3} | changes
    return untrained("llama", generator=make_generator("tiny"), **given)
