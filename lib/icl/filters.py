"""Adaptive filters as (init, step) pairs, batched over trials; one scan, :func:`run_filter`, runs any of them.

All estimate the weights of y_i = <w_i, x_i> recursively, and are judged by their a-priori predictions
y_hat_i = w_hat_i' x_i, made from the examples before i alone, the first of them from the initial weights. Notation of
[Sayed 2011]. There is one recurrence,

    w <- lam (w + k (y - w'x)),

and most filters are a gain k and a decay lam, often lam = 1. Of the others, :func:`gla` and :func:`steady_kalman` have
a fixed gain and no feedback, :func:`window` and :func:`faded_ridge` solve for w anew, and :func:`zero` never updates.
:meth:`Filter.update` takes examples one by one, as they come.

Inside a filter the axes of trials come last, behind the d of x and P: one step is then a few operations on long
vectors, many times faster than the same on small matrices (`benchmarks/filters.py`). Outside, trials come first as
everywhere in the library. A setting may be a tensor of shape (settings, 1), or of more axes, the last 1 standing for
the trials: one scan then tries them all on the same data.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt, Le
from jaxtyping import Bool, Float
from scipy.linalg import solve_discrete_are
from torch import Tensor

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, validated
from icl._device import DeviceCache
from icl._pickling import picklable, remade
from icl.kalman_updates import innovation
from icl.tasks import DriftingRegression

_Setting = float | Tensor


class FilterFailure(FloatingPointError):
    """A non-finite prediction: the filter diverged or lost its precision. Holds the predictions before it.

    Attributes:
        y_hat: all predictions, in the shape of :func:`run_filter`'s result: complete for the series that did not fail,
            NaN from its first prediction that was not finite on for one that did.
        position: the first position, over all series, whose prediction is not finite; 0 in :meth:`Filter.update`.
        series: index of the series that failed there, settings first, () for a single series.
    """

    y_hat: Tensor
    position: int
    series: tuple[int, ...]


@dataclass(frozen=True)
class Filter:
    """An adaptive filter: an initial state and an update.

    The filters of this module and of :mod:`icl.self_tuning` can be pickled, and so can their states, dataclasses of
    tensors.

    Attributes:
        init: from initial weights, d by trials, to a state: any dataclass with the estimate `w_hat`.
        step: from a state, an input x (d by trials), its label y and the prediction y_hat = w_hat'x of it to the state
            after that example. It checks nothing; :meth:`update` does.
        settings: shape of the settings that run side by side, () for a single one.
        failure: cause of a prediction that is not finite, and the remedy, for the message of :exc:`FilterFailure`.
        recipe: the call that made this filter, by which it is pickled: function, arguments, keyword arguments.
    """

    init: Callable[[Tensor], Any]
    step: Callable[[Any, Tensor, Tensor, Tensor], Any]
    settings: tuple[int, ...] = ()
    failure: str = "the filter diverged"
    recipe: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the call that made this filter; a filter of local functions has none, and cannot be pickled."""
        if self.recipe is None:
            return Filter, (self.init, self.step, self.settings, self.failure)
        return remade, self.recipe

    def update(self, state: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Any]:
        """Predict one label and learn from it: streaming use, one example at a time.

        >>> filter = nlms(0.5)
        >>> state = filter.init(torch.zeros(2))
        >>> for x, y in [([1.0, 0.0], 2.0), ([1.0, 1.0], 3.0)]:
        ...     y_hat, state = filter.update(state, torch.tensor(x), torch.tensor(y))
        >>> y_hat, state.w_hat
        (tensor(1.), tensor([1.5000, 0.5000]))

        Args:
            state: from `init` or the update before.
            x: input, (d,) or d by trials, in the dtype of the initial weights.
            y: its label, a tensor without the axis d.

        Returns:
            the a-priori prediction of y, and the state after the example.

        Raises:
            ValueError: if x and y do not fit the state or each other, or are not finite.
            FilterFailure: if the prediction is not finite. On a GPU, which would wait, and in `torch.vmap` no number is
                looked at.
        """
        # Checked by hand: through annotations it would take 5 us more, a seventh of a step of LMS.
        _checks.tensor("x", x)
        _checks.tensor("y", y)
        w_hat = state.w_hat
        if x.dim() == 0 or x.dim() > w_hat.dim() or x.shape[0] != w_hat.shape[0]:
            raise ValueError(f"x must have shape ({w_hat.shape[0]}, *trials) to match the state, got {tuple(x.shape)}")
        _checks.broadcasts("x", x, tuple(w_hat.shape))
        _checks.dtype("x", x, w_hat.dtype, "to match the state")
        _checks.shape("y", y, tuple(x.shape[1:]), "to match x")
        _checks.dtype("y", y, x.dtype, "to match x")
        y_hat = (w_hat * x).sum(0)
        if _checks.is_readable(y_hat) and _checks.is_readable(y):
            _finite_labels(y)
            if not _is_finite(y_hat):
                _finite("x", x)
                raise _failure(self, y_hat[..., None])
        return y_hat, self.step(state, x, y, y_hat)


@dataclass(frozen=True)
class Estimate:
    """State of the filters that keep their estimate only."""

    w_hat: Float[Tensor, "d *trials"]


@dataclass(frozen=True)
class LeastSquares:
    """State of RLS and the Kalman filter: the estimate and P.

    For the Kalman filter P is the covariance of w - w_hat; for RLS it is the inverse of the discounted sum of x x',
    which becomes one when multiplied by the variance of the labels' noise.
    """

    w_hat: Float[Tensor, "d *trials"]
    P: Float[Tensor, "d d *#trials"]


@dataclass(frozen=True)
class Window:
    """State of the sliding-window filters: the last K examples, newest first, padded with zeros."""

    w_hat: Float[Tensor, "d *#trials"]
    x: Float[Tensor, "K d *#trials"]
    y: Float[Tensor, "K *#trials"]
    n: int


@dataclass(frozen=True)
class Projection(Window):
    """State of affine projection: the last K examples and their Gram matrix G = X X'."""

    G: Float[Tensor, "K K *#trials"]


@dataclass(frozen=True)
class FadedSums:
    """State of :func:`faded_ridge`: the estimate, and the exponentially weighted sums of x x' and y x."""

    w_hat: Float[Tensor, "d *trials"]
    G: Float[Tensor, "d d *#trials"]
    b: Float[Tensor, "d *#trials"]


@dataclass(frozen=True)
class Track:
    """Trajectory of a filter: a-priori predictions y_hat, errors y - y_hat, estimates w_hat, and the last state.

    The estimates are those before every label and, last, the one after all, so that the one at i + 1 gives the
    a-posteriori prediction of label i. A leaky filter has applied its decay by then.
    """

    y_hat: Float[Tensor, "*trials time"]
    error: Float[Tensor, "*trials time"]
    w_hat: Float[Tensor, "*trials after d"]
    state: Any = None


# RLS: largest relative rounding of x'P x, in units of 2^-52. The error of predictions, relative to the largest label,
# was at most half of it over all inputs tried.
_LOST = 2e-6 * 2**52
_WIND_UP = (
    "RLS lost its precision (covariance wind-up): the inputs have not excited all directions for too long, or eps is "
    "too small; use faded_ridge, which keeps its regularisation (regularised forgetting), or window"
)
_SINGULAR = "the regularised least-squares problem is singular to rounding; choose a larger eps"
# Numbers in a block's state: 2 MiB of float64. More leave the caches; with fewer, overhead per operation dominates.
_CACHE = 2**18


def _setting(name: str, value: _Setting, *, at_most: float = float("inf")) -> DeviceCache:
    """Validate a positive setting: in range, and the same for all trials of a row."""
    setting = torch.as_tensor(value, dtype=torch.float64)
    if _checks.is_readable(setting, waits=True):  # once, when a filter is made
        _checks.real(name, setting.detach().cpu().numpy(), above=0, at_most=at_most)
    if setting.dim() and setting.shape[-1] != 1:
        raise ValueError(f"{name} must be one number or have shape (*settings, 1), got {tuple(setting.shape)}")
    return DeviceCache(setting)


def _axes(**settings: DeviceCache) -> tuple[int, ...]:
    """Broadcast shape of the settings, without the axis of trials."""
    shapes = [tuple(setting.shape) for setting in settings.values()]
    try:
        # Not torch's, which imports a linear-algebra library first: a third of a second.
        return np.broadcast_shapes(*shapes)[:-1]
    except ValueError:
        names, sizes = " and ".join(settings), " and ".join(map(str, shapes))
        raise ValueError(f"{names} must broadcast against each other, got {sizes}") from None


def _push(new: Tensor, history: Tensor) -> Tensor:
    """Shift a buffer of examples: the new one in front, the oldest dropped."""
    return torch.cat([new.to(history).expand_as(history[0])[None], history[:-1]])


def _regularise(G: Tensor, eps: _Setting) -> Tensor:
    """G + eps I, for every trial and setting."""
    return G + eps * torch.eye(len(G), dtype=G.dtype, device=G.device).reshape(*G.shape[:2], *[1] * (G.dim() - 2))


def _solve(A: Tensor, b: Tensor) -> Tensor:
    """A^-1 b for positive definite A (n, n, *trials), b (n, *trials): Gauss-Jordan without pivoting."""
    for i in range(len(A)):
        column, row, value = A[:, 0], A[i, 1:] / A[i, 0], b[i] / A[i, 0]
        A, b = torch.addcmul(A[:, 1:], column[:, None], row, value=-1), torch.addcmul(b, column, value, value=-1)
        A[i], b[i] = row, value
    return b


@picklable
@validated
def lms(mu: Annotated[_Setting, Gt(0)]) -> Filter:
    """Least mean squares [Sayed 2011, alg. 10.1]: w <- w + mu (y - w'x) x.

    Args:
        mu: step size, in units of 1/x^2.

    >>> import torch
    >>> from icl.filters import lms, run_filter
    >>> x, w = torch.eye(2).repeat(3, 1), torch.tensor([2.0, -1.0])
    >>> run_filter(lms(0.5), x, x @ w)  # both directions are seen three times; the error halves
    tensor([ 0.0000,  0.0000,  1.0000, -0.5000,  1.5000, -0.7500])
    """
    size = _setting("mu", mu)

    def step(state: Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> Estimate:
        return Estimate(torch.addcmul(state.w_hat, x, size.to(x) * (y - y_hat)))

    return Filter(Estimate, step, _axes(mu=size))


@picklable
@validated
def nlms(mu: Annotated[_Setting, Gt(0)], *, eps: NonNegative = 0.0) -> Filter:
    """Normalised LMS [Sayed 2011, alg. 10.2]: w <- w + mu (y - w'x) x / (eps + x'x).

    Args:
        mu: step size, dimensionless; 1 fits the newest label exactly and forgets all about the direction of x.
        eps: regularisation, in units of x^2. With 0 the units of x do not matter, and x = 0 changes nothing; to
            learn less from small inputs take a share of the mean squared length, e.g. 0.01 * x.square().sum(-1).mean().
    """
    size = _setting("mu", mu)

    def step(state: Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> Estimate:
        power = eps + x.square().sum(0)
        # No update for an input of 0, without regularisation too.
        gain = size.to(x) * (y - y_hat) / torch.where(power == 0, torch.inf, power)
        return Estimate(torch.addcmul(state.w_hat, x, gain))

    return Filter(Estimate, step, _axes(mu=size))


@picklable
@validated
def delta_rule(mu: Annotated[_Setting, Gt(0)], *, lam: Annotated[_Setting, Gt(0)]) -> Filter:
    """Leaky LMS: w <- lam (w + mu (y - w'x) x), the delta rule of fast weights with decay [Yang et al. 2024].

    Args:
        mu: step size, in units of 1/x^2.
        lam: decay, dimensionless; 1 is LMS.
    """
    fading, size, inner = _setting("lam", lam), _setting("mu", mu), lms(mu)

    def step(state: Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> Estimate:
        return Estimate(fading.to(x) * inner.step(state, x, y, y_hat).w_hat)

    return Filter(Estimate, step, _axes(lam=fading, mu=size))


@picklable
@validated
def normalised_delta_rule(
    mu: Annotated[_Setting, Gt(0)], *, lam: Annotated[_Setting, Gt(0)], eps: NonNegative = 0.0
) -> Filter:
    """Leaky NLMS: w <- lam (w + mu (y - w'x) x / (eps + x'x)), the delta rule with keys of length 1.

    With mu = 1 and lam = gamma it is the Kalman filter with an isotropic covariance P = p I throughout.

    Args:
        mu: step size, dimensionless.
        lam: decay, dimensionless; 1 is NLMS.
        eps: regularisation, in units of x^2, as in :func:`nlms`.
    """
    fading, size, inner = _setting("lam", lam), _setting("mu", mu), nlms(mu, eps=eps)

    def step(state: Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> Estimate:
        return Estimate(fading.to(x) * inner.step(state, x, y, y_hat).w_hat)

    return Filter(Estimate, step, _axes(lam=fading, mu=size))


@picklable
@validated
def apa(mu: Annotated[_Setting, Gt(0)], *, K: Count, eps: Positive) -> Filter:
    """Affine projection onto the last K examples [Sayed 2011, alg. 13.1]: w <- w + mu X'(eps I + X X')^-1 (y - X w).

    Args:
        mu: step size, dimensionless.
        K: number of examples; 1 is NLMS.
        eps: regularisation, in units of x^2: a small share of the mean squared length of an input, e.g.
            1e-6 * x.square().sum(-1).mean(). It also stands in for examples that have not come yet. With K > d
            predictions are off by up to some 1e-15 E x^2 / eps of the largest label.
    """
    size = _setting("mu", mu)

    # In float64: with more than d examples only eps keeps X X' + eps I from being singular.
    def init(w_hat: Tensor) -> Projection:
        inputs = w_hat.new_zeros(K, *w_hat.shape, dtype=torch.float64)
        return Projection(w_hat, inputs, inputs[:, 0], 0, inputs.new_zeros(K, K, *w_hat.shape[1:]))

    def step(state: Projection, x: Tensor, y: Tensor, y_hat: Tensor) -> Projection:
        X, Y = _push(x, state.x), _push(y, state.y)
        # X X' shifts along its diagonal; only the new example's row and column are computed.
        new = (X * X[0]).sum(1)
        G = torch.cat([new[None], torch.cat([new[1:, None], state.G[:-1, :-1]], dim=1)])
        gains = size.to(X) * _solve(_regularise(G, eps), Y - (X * state.w_hat).sum(1))
        return Projection(state.w_hat + (X * gains[:, None]).sum(0).to(x), X, Y, min(state.n + 1, K), G)

    return Filter(init, step, _axes(mu=size))


@picklable
@validated
def window(K: Count, *, eps: Positive) -> Filter:
    """Ridge regression on the last K examples, solved anew at every step: w = (X'X + eps I)^-1 X'y.

    With fewer than d examples it solves w = X'(X X' + eps I)^-1 y, the same in exact arithmetic; X'X is then singular,
    and a small eps would be lost beside it.

    Args:
        K: number of examples.
        eps: regularisation, in units of x^2: a share of the mean square of the smallest column, e.g.
            1e-2 * x.square().mean(0).min() for x of shape (time, d).

    >>> import torch
    >>> from icl.filters import run_filter, window
    >>> x, y = torch.ones(6, 1), torch.tensor([1.0, 1.0, 1.0, 3.0, 3.0, 3.0])
    >>> [round(float(y_hat), 2) for y_hat in run_filter(window(2, eps=1e-9), x, y)]  # means of the last two labels
    [0.0, 1.0, 1.0, 1.0, 2.0, 3.0]
    """

    def init(w_hat: Tensor) -> Window:
        inputs = w_hat.new_zeros(K, *w_hat.shape, dtype=torch.float64)
        return Window(w_hat, inputs, inputs[:, 0], 0)

    def step(state: Window, x: Tensor, y: Tensor, y_hat: Tensor) -> Window:
        X, Y, n = _push(x, state.x), _push(y, state.y), min(state.n + 1, K)
        # Summed anew: a running sum would keep the rounding of a large example after it has left.
        if n < len(x):
            rows = X[:n]
            w_hat = (rows * _solve(_regularise((rows[:, None] * rows).sum(2), eps), Y[:n])[:, None]).sum(0)
        else:
            w_hat = _solve(_regularise((X[:, :, None] * X[:, None]).sum(0), eps), (X * Y[:, None]).sum(0))
        return Window(w_hat.to(x), X, Y, n)

    return Filter(init, step, failure=_SINGULAR)


@picklable
@validated
def rls(lam: Annotated[_Setting, Gt(0), Le(1)], *, eps: Positive) -> Filter:
    """Exponentially weighted recursive least squares [Sayed 2011, alg. 30.1], from P = I / eps.

        k = P x / (lam + x'P x);    w <- w + k (y - w'x);    P <- (P - k x'P) / lam

    From w = 0 it is the ridge regression that minimises sum_i lam^(t-i) (y_i - w'x_i)^2 + lam^t eps w'w. The update of
    P is written u u', symmetric to the last bit: as k (P x)' the asymmetry of P grows without bound. It is
    :func:`~icl.kalman_updates.downdate` with lam for the noise, in one pass with 1 / lam. P is in float64 whatever x
    is, because float32 has no room for its largest and smallest eigenvalues together.

    Along directions that the inputs do not excite P grows by 1 / lam at every step (covariance wind-up), and rounds its
    other directions away. A series is stopped, with a :exc:`FilterFailure`, when the rounding of x'P x, 2^-52 sum_i
    x_i^2 P_ii, exceeds 2e-6 of its value after the update, x'P x / (lam + x'P x); up to there predictions were right to
    1e-6 of the largest label on all inputs tried: white, autoregressive, sinusoidal, constant, lam from 0.05 to 1. The
    remedies are :func:`faded_ridge`, which keeps its regularisation, and :func:`window`. Inputs of variance 1 in all
    directions are stopped for eps below some 1e-9, or, with eps = 1e-2, when lam^d is below some 1e-8: a memory of
    fewer than 2 examples for 20 weights.

    Args:
        lam: forgetting factor, dimensionless; w does not decay, examples are forgotten as others come.
        eps: initial regularisation, in units of x^2, the inverse of the initial P: a share of the mean square of
            the smallest column, e.g. 1e-2 * x.square().mean(0).min() for x of shape (time, d).

    >>> import torch
    >>> from icl.filters import rls, run_filter
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [2.0, -1.0]])
    >>> y_hat = run_filter(rls(0.9, eps=1e-6), x, x @ torch.tensor([2.0, -1.0]))
    >>> round(float(y_hat[-1]), 3)  # two clean labels determine two weights
    5.0
    """
    factor = _setting("lam", lam, at_most=1.0)

    def init(w_hat: Tensor) -> LeastSquares:
        return LeastSquares(w_hat, _per_trial(np.eye(len(w_hat)) / eps, w_hat))

    def step(state: LeastSquares, x: Tensor, y: Tensor, y_hat: Tensor) -> LeastSquares:
        age = factor.to(state.P)
        products = state.P * x[:, None]
        Px = products.sum(0)  # P is symmetric to the last bit: reduce over the faster axis
        s = (Px * x).sum(0)
        scale = age + s
        # Rounding of x'P x, compared with x'P x after the update, s / scale.
        rounding = (products.diagonal().movedim(-1, 0) * x).sum(0) * scale
        scale = torch.where(rounding > _LOST * s, torch.nan, scale)
        u = Px * (scale * age).rsqrt()
        P = (state.P * (1 / age)).addcmul_(u[:, None], u, value=-1)
        return LeastSquares(torch.addcmul(state.w_hat, Px.to(x), ((y - y_hat) / scale).to(x)), P)

    return Filter(init, step, _axes(lam=factor), _WIND_UP)


@picklable
@validated
def ridge(eps: Positive) -> Filter:
    """Ridge regression on all examples so far: RLS with lam = 1.

    Args:
        eps: regularisation, in units of x^2, as in :func:`rls`.
    """
    return rls(1.0, eps=eps)


@picklable
@validated
def faded_ridge(lam: Annotated[_Setting, Gt(0), Le(1)], *, eps: Annotated[_Setting, Gt(0)]) -> Filter:
    """Regularised-forgetting RLS: w = (G + eps I)^-1 b, solved anew at every step [von Oswald et al. 2025].

        G <- lam (G + x x'),    b <- lam (b + y x)

    RLS forgets its eps as it forgets examples, and then overfits the few that it remembers. Here w stays a shrunken
    estimate, as the posterior mean is, and inputs need not excite all directions. Costs d^3 / 3 a step. Where G is
    singular, as before d examples, predictions are off by up to some 1e-15 E x^2 / eps of the largest label.

    Args:
        lam: forgetting factor, dimensionless.
        eps: regularisation, in units of x^2: a share of the mean square of the smallest column, e.g.
            1e-2 * x.square().mean(0).min() for x of shape (time, d).
    """
    factor, keep = _setting("lam", lam, at_most=1.0), _setting("eps", eps)

    def init(w_hat: Tensor) -> FadedSums:
        sums = w_hat.new_zeros(len(w_hat), *w_hat.shape, dtype=torch.float64)
        return FadedSums(w_hat, sums, sums[0])

    def step(state: FadedSums, x: Tensor, y: Tensor, y_hat: Tensor) -> FadedSums:
        fading, X = factor.to(state.G), x.to(state.G)
        G, b = fading * torch.addcmul(state.G, X[:, None], X), fading * torch.addcmul(state.b, X, y.to(X))
        return FadedSums(_solve(_regularise(G, keep.to(G)), b).to(x), G, b)

    return Filter(init, step, _axes(lam=factor, eps=keep), _SINGULAR)


def _check_drift(task: Any) -> None:
    if not isinstance(task, DriftingRegression):
        raise ValueError(f"task must be a DriftingRegression, the drift these filters are for, got {task!r}")


def _per_trial(matrix: Any, w_hat: Tensor) -> Tensor:
    """Expand a (d, d) matrix over trials, without copies except under `torch.vmap`."""
    trials = w_hat.shape[1:]
    matrix = torch.as_tensor(matrix, device=w_hat.device) + w_hat.new_zeros((), dtype=torch.float64)
    return matrix.reshape(*matrix.shape, *[1] * len(trials)).expand(*matrix.shape, *trials)


@picklable
@validated
def kalman(task: DriftingRegression, *, sigma_y: NonNegative = 0.0, P_0: Any = None) -> Filter:
    """The Kalman filter of the drift (3) [Kalman 1960]: the posterior mean, optimal on this task.

        k = P x / (x'P x + sigma_y^2);  w <- gamma (w + k (y - w'x));  P <- gamma^2 (P after the label) + sigma_e^2 I

    P after the label in Joseph's form, (I - k x') P (I - k x')' + sigma_y^2 k k', whose second product takes back what
    rounding left of the first. Without label noise, an input along a direction that is known exactly (x'P x = 0, when
    sigma_e = 0) changes nothing.

    A diffuse start costs precision: with P_0 = kappa I predictions are off by up to some 1e-15 kappa E x^2 / sigma_y^2
    of the largest label, unless inputs lie along the axes. A kappa of 1e6 sigma_y^2 / E x^2 is as good as infinite.

    Args:
        task: gives d, gamma, sigma_w and sigma_e; the inputs' law does not matter to it.
        sigma_y: standard deviation of noise in the labels, in units of y. The task has none; real data do.
        P_0: covariance of w_1 - w_hat_1, before the first label: a number >= 0, for that times I, or a positive
            semi-definite (d, d) matrix. Default: the task's own, (gamma^2 sigma_w^2 + sigma_e^2) I.

    >>> from icl.filters import kalman, lms, run_filter
    >>> from icl.profile import make_generator
    >>> from icl.tasks import DriftingRegression
    >>> task = DriftingRegression(d=5, n=50, gamma=0.98, sigma_w=0.5, sigma_e=0.1)
    >>> prompt = task.sample(200, generator=make_generator("example"))
    >>> y_hat = [run_filter(filter, prompt.x, prompt.y) for filter in (kalman(task), lms(0.1))]
    >>> errors = [(each - prompt.y)[:, -1].square().mean() for each in y_hat]
    >>> bool(errors[0] < errors[1])
    True
    """
    _check_drift(task)
    noise = sigma_y**2
    start = task.gamma**2 * task.sigma_w**2 + task.sigma_e**2 if P_0 is None else P_0
    start = _checks.number("P_0", start, at_least=0) * np.eye(task.d) if np.ndim(start) == 0 else start
    start = _checks.covariance("P_0", start, task.d)

    def init(w_hat: Tensor) -> LeastSquares:
        _checks.shape("x", w_hat, (task.d, *[None] * (w_hat.dim() - 1)), "as (d, *trials) to match the task")
        return LeastSquares(w_hat, _per_trial(start, w_hat))

    def step(state: LeastSquares, x: Tensor, y: Tensor, y_hat: Tensor) -> LeastSquares:
        Px, s = innovation(state.P, x, noise)
        if not noise:
            # Innovation variance below round-off, relative to the variances that it is a difference of: no information.
            s = torch.where(s <= 1e-12 * (state.P.diagonal().movedim(-1, 0) * x * x).sum(0).abs(), torch.inf, s)
        k = Px / s
        # Joseph form; do not swap P x and x'P: the asymmetry of P would grow without bound.
        P = torch.addcmul(state.P, Px.unsqueeze(1), k, value=-1)
        P = torch.addcmul(P, k.unsqueeze(1), (P * x.unsqueeze(1)).sum(0) - noise * k, value=-1).mul_(task.gamma**2)
        P.diagonal().add_(task.sigma_e**2)
        return LeastSquares(torch.addcmul(state.w_hat, k.to(x), y - y_hat).mul_(task.gamma), P)

    return Filter(init, step)


@picklable
@validated
def steady_kalman(task: DriftingRegression) -> Filter:
    """The steady-state Kalman filter of the pseudo-observations y_i x_i = Lambda w_i + noise, its gain fixed.

        w <- gamma (w + K (y x - Lambda w)),    K = P Lambda (Lambda P Lambda + N)^-1,
        P = gamma^2 (I - K Lambda) P + sigma_e^2 I,    N = k (tr(Lambda) Lambda + (kurtosis - 2) Lambda^2)

    (not in the paper), k the weights' steady variance: the best filter whose gain does not depend on x. For Lambda = I
    it is one layer of gated attention at lam*, after an infinite prompt, in the recurrence of :func:`gla`.

    Raises:
        ValueError: if gamma >= 1 or sigma_e = 0, which have no steady state, or Lambda is singular.
    """
    _check_drift(task)
    if task.gamma >= 1 or not task.sigma_e:
        raise ValueError(f"gamma must be < 1 and sigma_e > 0 for a steady state, got {task.gamma!r}, {task.sigma_e!r}")
    H: np.ndarray = task.Lambda
    if np.linalg.eigvalsh(H)[0] <= 1e-12 * np.abs(H).max():
        raise ValueError("Lambda must be positive definite for a steady state that probes every direction")
    drift, noise = np.eye(task.d), np.trace(H) * H + (task.inputs.kurtosis - 2) * H @ H
    # In units of sigma_e^2: the solver's tolerances must not depend on the scale of the weights.
    P = solve_discrete_are(task.gamma * drift, H, drift, noise / (1 - task.gamma**2))
    K = np.linalg.solve(H @ P @ H + noise / (1 - task.gamma**2), H @ P).T
    return _fixed_gain(K, task.gamma * (drift - K @ H), task.gamma)


@picklable
@validated
def gla(A: Any, *, lam: Positive) -> Filter:
    """One layer of gated linear attention as a filter: w <- lam (w + y A'x), so that y_hat = g'A x (15).

    A Hebbian update: it writes y, where filters with feedback write the error of their own prediction.

    Args:
        A: (d, d) matrix of (15), `theory.one_layer.optimum(task, lam=lam).A` for one.
        lam: forgetting factor, dimensionless.
    """
    _checks.detached("A", A)
    A = np.asarray(_checks.real("A", np.asarray(A)), dtype=np.float64)
    _checks.shape("A", A, (len(A) if A.ndim else 1,) * 2)
    return _fixed_gain(A.T, lam * np.eye(len(A)), lam)


def _fixed_gain(K: np.ndarray, keep: np.ndarray, lam: float) -> Filter:
    """w <- keep w + lam K x y."""
    gain, transition = DeviceCache(lam * K), DeviceCache(keep)
    scalar = np.array_equal(keep, keep[0, 0] * np.eye(len(keep)))

    def init(w_hat: Tensor) -> Estimate:
        _checks.shape("x", w_hat, (len(K), *[None] * (w_hat.dim() - 1)), "as (d, *trials) to match the gain")
        return Estimate(w_hat)

    def step(state: Estimate, x: Tensor, y: Tensor, y_hat: Tensor) -> Estimate:
        w_hat = keep[0, 0] * state.w_hat if scalar else torch.tensordot(transition.to(x), state.w_hat, dims=1)
        return Estimate(w_hat + torch.tensordot(gain.to(x), x * y, dims=1))

    return Filter(init, step)


@picklable
def zero() -> Filter:
    """The zero predictor, a baseline: keeps its initial weights, by default 0."""
    return Filter(Estimate, lambda state, x, y, y_hat: state)


def _is_finite(array: Tensor) -> bool:
    # The sum shows it without a mask of the array's size, which would cost more than LMS; unless it overflows.
    return bool(torch.isfinite(array.sum())) or bool(torch.isfinite(array).all())


def _finite_labels(y: Tensor) -> None:
    if not _is_finite(y):
        raise ValueError(
            f"y must be finite, got {y[~torch.isfinite(y)][0].item()}: for a missing label give x = 0 and y = 0, "
            "from which no filter learns, or a mask"
        )


def _finite(name: str, array: Tensor) -> None:
    if not _is_finite(array):
        raise ValueError(f"{name} must be finite, got {array[~torch.isfinite(array)][0].item()}")


def _stack_steps(steps: list[Tensor]) -> Tensor:
    """Stack steps into one array; before the first example, steps may lack the axes of the settings."""
    return torch.stack([step.expand_as(steps[-1]) for step in steps])


def _data(x: Tensor, y: Tensor, w_0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Check the data and broadcast the initial weights over trials."""
    if not x.numel():
        raise ValueError(f"x must have shape (*trials, time, d) with none of them 0, got {tuple(x.shape)}")
    w_0 = (x.new_zeros(x.shape[-1]) if w_0 is None else w_0).expand(*x.shape[:-2], x.shape[-1])
    # An x that is not finite shows in its own prediction, a y may not.
    if _checks.is_readable(y) and _checks.is_readable(w_0):
        _finite_labels(y)
        _finite("w_0", w_0)
    return x, y, w_0


def _scan(
    filter: Filter, x: Tensor, y: Tensor, w_0: Tensor | None, mask: Tensor | None, state: Any, *, keep: bool
) -> tuple[Float[Tensor, "*trials time"], Float[Tensor, "*trials after d"] | None, Any]:
    """Predictions, the estimates on request, and the last state; see `run_filter` and `track`."""
    if mask is not None:
        _checks.tensor("mask", mask)
        if mask.dtype is not torch.bool:
            raise ValueError(f"mask must have dtype torch.bool, got {mask.dtype}")
        _checks.broadcasts("mask", mask, tuple(y.shape))
        y = torch.where(mask, y, torch.zeros((), dtype=y.dtype, device=y.device))
        mask = mask.to(x.dtype).expand(y.shape)
    x, y, w_0 = _data(x, y, w_0)
    alone = x.dim() == 2
    while x.dim() < 3 + len(filter.settings):
        x, y, w_0 = x[None], y[None], w_0[None]
        mask = mask if mask is None else mask[None]
    sizes = zip(reversed(x.shape[:-3]), reversed(filter.settings), strict=False)
    if any(size not in (1, full) and full != 1 for size, full in sizes):
        raise ValueError(f"x must broadcast against the filter's settings {filter.settings}, got {tuple(x.shape)}")

    x, y, w_0 = x.movedim((-2, -1), (0, 1)), y.movedim(-1, 0), w_0.movedim(-1, 0)
    mask = mask if mask is None else mask.movedim(-1, 0)
    # One step of one trial shows the size of a trial's state.
    one = filter.step(filter.init(w_0[..., :1]), x[0, ..., :1], y[0, ..., :1], y[0, ..., :1])
    shape = np.broadcast_shapes(one.w_hat.shape[1:-1], filter.settings)
    size = max(1, _CACHE // sum(part.numel() for part in vars(one).values() if isinstance(part, Tensor)))
    # Allocated and freed: only then does malloc raise its mmap threshold and reuse the memory of every step.
    x.new_empty(2**21)
    y_hat = x.new_empty(len(x), *shape, x.shape[-1])
    w_hat = x.new_empty(len(x) + 1, x.shape[1], *shape, x.shape[-1]) if keep else None
    states = []
    for block in (slice(at, at + size) for at in range(0, x.shape[-1], size)):
        w_block = w_hat[..., block] if w_hat is not None else None
        mask_block = mask[..., block] if mask is not None else None
        first = filter.init(w_0[..., block]) if state is None else _part(state, block)
        states.append(_run(filter, first, x[..., block], y[..., block], mask_block, y_hat[..., block], w_block))
    y_hat, w_hat = y_hat.movedim(0, -1), w_hat.movedim((0, 1), (-2, -1)) if w_hat is not None else None
    if alone:
        y_hat, w_hat = y_hat[..., 0, :], w_hat[..., 0, :, :] if w_hat is not None else None
    # The only GPU synchronisation, after all steps.
    if _checks.is_readable(y_hat, waits=True) and not _is_finite(y_hat):
        _finite("x", x)
        _finite_labels(y)
        _finite("w_0", w_0)
        raise _failure(filter, y_hat)
    return y_hat, w_hat, _joined(states)


def _part(state: Any, block: slice) -> Any:
    """State of some of its trials; what all trials share stays."""
    tensors = {each.name: getattr(state, each.name) for each in fields(state)}
    parts = {n: v[..., block] for n, v in tensors.items() if isinstance(v, Tensor) and v.dim() and v.shape[-1] != 1}
    return replace(state, **parts)


def _joined(states: list[Any]) -> Any:
    """State of all trials from those of blocks of them."""
    if len(states) == 1:
        return states[0]
    columns = {each.name: [getattr(state, each.name) for state in states] for each in fields(states[0])}
    joined = {n: torch.cat(v, -1) for n, v in columns.items() if isinstance(v[0], Tensor) and v[0].dim()}
    return replace(states[0], **joined)


def _failure(filter: Filter, y_hat: Tensor) -> FilterFailure:
    """Build the :exc:`FilterFailure` of the first non-finite prediction, with the predictions before it."""
    finite = torch.isfinite(y_hat).cumprod(-1).bool()
    lengths = finite.sum(-1)
    position = int(lengths.min())
    series = tuple((lengths == position).nonzero()[0].tolist())
    of = f" of series {series[0] if len(series) == 1 else series}" if series else ""
    error = FilterFailure(f"{filter.failure}: its prediction at position {position}{of} is not finite")
    error.y_hat, error.position, error.series = y_hat.detach().where(finite, torch.nan), position, series
    return error


def _run(
    filter: Filter, state: Any, x: Tensor, y: Tensor, mask: Tensor | None, y_hat: Tensor, w_hat: Tensor | None
) -> Any:
    """Run a filter over a block of trials whose state fits the cache; return the last state.

    Predictions are written, and estimates on request.
    """
    steps = max(1, 2 * _CACHE // x[0].numel())
    for start in range(0, len(x), steps):
        # Trials next to one another in memory, a few steps at a time: a copy of everything would not fit the cache.
        xs, ys = (array[start : start + steps] for array in (x, y))
        xs, ys = (array if array.stride(-1) == 1 else array.contiguous() for array in (xs, ys))
        estimates, predictions = [], []
        masks = mask[start : start + steps].unbind() if mask is not None else None
        for t, (xt, yt) in enumerate(zip(xs.unbind(), ys.unbind(), strict=True)):
            prediction = (state.w_hat * xt).sum(0)
            predictions.append(prediction)
            if w_hat is not None:
                estimates.append(state.w_hat)
            if masks is not None:  # no filter learns from an input of zeros, and time passes
                xt, prediction = xt * masks[t], prediction * masks[t]
            state = filter.step(state, xt, yt, prediction)
        y_hat[start : start + len(xs)] = _stack_steps(predictions)
        if w_hat is not None:
            w_hat[start : start + len(xs)] = _stack_steps(estimates)
    if w_hat is not None:
        w_hat[-1] = state.w_hat
    return state


@validated
def run_filter(
    filter: Filter,
    x: Float[Tensor, "*trials time d"],
    y: Float[Tensor, "*trials time"],
    *,
    w_0: Float[Tensor, "*#trials d"] | None = None,
    mask: Bool[Tensor, "*#trials time"] | None = None,
    state: Any = None,
) -> Float[Tensor, "*series time"]:
    """A-priori predictions: position i is predicted from the examples before it, the first from w_0.

    Where `mask` is False the label is missing, and may be anything: it is predicted, time passes (RLS forgets, the
    drift of :func:`kalman` goes on), and nothing is learnt.

    Fastest on arrays whose memory has the trials last, as its own results have: others are copied, some steps at a
    time.

    Args:
        filter: such as `lms(0.01)`.
        x: inputs; leading axes are trials. With mu of shape (settings, 1) the filter runs with each of them, and the
            result has shape (settings, batch, time); x may then be (batch, time, d), the same for all settings, or
            (settings, batch, time, d).
        y: labels.
        w_0: initial weights, (d,) or one a trial; default 0.
        mask: False where a label is missing.
        state: to go on from in place of w_0: the `state` of an earlier :func:`track` of the same trials.

    Raises:
        ValueError: if x, y and w_0 do not fit together, hold no position or are not finite.
        FilterFailure: if a prediction is not finite, with its position and series, the cause, and all predictions
            before it and of other series.

    >>> import torch
    >>> from icl.filters import nlms, run_filter
    >>> x, y = torch.ones(4, 3, 1), torch.ones(4, 3)  # 4 trials of 3 examples
    >>> mu = torch.tensor([[0.5], [1.0]])  # 2 step sizes, run side by side
    >>> y_hat = run_filter(nlms(mu), x, y)
    >>> y_hat.shape, y_hat[:, 0]
    (torch.Size([2, 4, 3]), tensor([[0.0000, 0.5000, 0.7500],
            [0.0000, 1.0000, 1.0000]]))
    """
    return _scan(filter, x, y, w_0, mask, state, keep=False)[0]


@validated
def track(
    filter: Filter,
    x: Float[Tensor, "*trials time d"],
    y: Float[Tensor, "*trials time"],
    *,
    w_0: Float[Tensor, "*#trials d"] | None = None,
    mask: Bool[Tensor, "*#trials time"] | None = None,
    state: Any = None,
) -> Track:
    """Like :func:`run_filter`, with estimates and errors, d + 2 numbers a position, and the state to go on from.

    >>> filter, x, y = rls(0.9, eps=0.1), torch.ones(6, 1), torch.arange(6.0)
    >>> begun = track(filter, x[:4], y[:4])
    >>> torch.equal(run_filter(filter, x[4:], y[4:], state=begun.state), run_filter(filter, x, y)[4:])
    True
    """
    y_hat, w_hat, state = _scan(filter, x, y, w_0, mask, state, keep=True)
    assert w_hat is not None
    return Track(y_hat, y - y_hat, w_hat, state)
