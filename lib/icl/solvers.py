"""First-order methods on quadratics as (init, step) pairs, batched over problems; :func:`run_solver` runs any of them.

All minimise f(w) = w'Hw / 2 - b'w, whose gradient is H w - b, with H symmetric and positive semi-definite and b in its
range; there a minimiser solves H w = b. For the least-squares problem of a prompt [Dutta & Sra 2025, (2.11)] H is
:func:`~icl.tasks.quadratics.hessians` and b = H w*. Every method here sees H through gradients alone: its iterates
differ from w_0 by combinations of the gradients so far (the linear first-order methods of the paper, sec. 2.2), and
from w_0 = 0 they lie in the Krylov spaces span(b, H b, H^2 b, ..).

Problems come first: H (batch, d, d), b (batch, d). A setting is one number, or a tensor (batch,) with one for each
problem. Steps are in units of 1/H.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Natural, Positive, validated
from icl._device import DeviceCache

_Setting = float | Tensor
# Rounding threshold of conjugate gradients, in units of d eps. With a tenth they drift on singular problems.
_SLACK = 4


@dataclass(frozen=True)
class Solver:
    """An iterative method: an initial state and a step.

    Attributes:
        init: from H, b and initial iterates w_0 (batch, d) to a state: any dataclass with the iterates `w`.
        step: from a state, H and b to the state after one more gradient.
    """

    init: Callable[[Tensor, Tensor, Tensor], Any]
    step: Callable[[Any, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Iterate:
    """State of gradient descent: the iterate."""

    w: Float[Tensor, "batch d"]


@dataclass(frozen=True)
class Velocity:
    """State of heavy-ball momentum: the iterate and the step v that led to it, 0 at first."""

    w: Float[Tensor, "batch d"]
    v: Float[Tensor, "batch d"]


@dataclass(frozen=True)
class LookAhead:
    """State of Nesterov's method: the iterate and the one before it, the same at first."""

    w: Float[Tensor, "batch d"]
    before: Float[Tensor, "batch d"]


@dataclass(frozen=True)
class SemiIteration:
    """State of the Chebyshev semi-iteration: momentum's, and the ratio of successive Chebyshev polynomials."""

    w: Float[Tensor, "batch d"]
    v: Float[Tensor, "batch d"]
    ratio: Float[Tensor, "#batch 1"]


@dataclass(frozen=True)
class Conjugate:
    """State of conjugate gradients.

    Attributes:
        w: iterates.
        unit: largest entry of b and of the first residual, the unit of all but w: squares then stay finite.
        r: the residual b - H w, updated recursively.
        p: the direction in the residual's space, r + gamma p; the step is taken along s = M p.
        rho: r'M r, the square of the residual's norm.
        before: rho of the step before; infinite before the first.
        size: the larger of the first rho and b'M b, the reference for rho in the stopping test.
        peak: the largest curvature s'H s / p's met so far.
        alpha: length of the step that led to w; 0 once the problem has stopped.
        gamma: that step's coefficient of the direction before; 0 at the first step, and once the problem has stopped.
        entry: the largest entry of H; 1 if that is 0.
        bend: the least s'H s / s's met so far of those that prove H indefinite; infinite if none does.
    """

    w: Float[Tensor, "batch d"]
    unit: Float[Tensor, "batch 1"]
    r: Float[Tensor, "batch d"]
    p: Float[Tensor, "batch d"]
    rho: Float[Tensor, "batch 1"]
    before: Float[Tensor, "batch 1"]
    size: Float[Tensor, "batch 1"]
    peak: Float[Tensor, "batch 1"]
    alpha: Float[Tensor, "batch 1"]
    gamma: Float[Tensor, "batch 1"]
    entry: Float[Tensor, "batch 1"]
    bend: Float[Tensor, "batch 1"]


def _setting(name: str, value: _Setting, **bounds: float) -> DeviceCache:
    """Validate a setting: in range, and of shape () or (batch, 1), in float64."""
    _checks.real(name, value.detach().cpu().numpy() if isinstance(value, Tensor) else value, **bounds)
    setting = torch.as_tensor(value, dtype=torch.float64)
    if setting.dim() > 1:
        raise ValueError(f"{name} must be one number or have shape (batch,), got {tuple(setting.shape)}")
    return DeviceCache(setting[:, None] if setting.dim() else setting)


def _fits(H: Tensor, **settings: DeviceCache) -> None:
    """Refuse settings made for another number of problems than H has."""
    for name, setting in settings.items():
        if setting.shape and setting.shape[0] != len(H):
            raise ValueError(f"{name} must have one number for each of {len(H)} problems, got {setting.shape[0]}")


def _interval(low: _Setting, high: _Setting) -> tuple[DeviceCache, DeviceCache]:
    """The bounds of a spectrum in float64, 0 < low <= high."""
    # Steps are in units of 1 / high, which float64 has to hold.
    least, most = _setting("low", low, above=0), _setting("high", high, at_least=1e-300)
    if least.shape and most.shape and least.shape != most.shape:
        raise ValueError(f"low and high must be for the same problems, got {least.shape[0]} and {most.shape[0]}")
    if (least.numbers > most.numbers).any():
        raise ValueError(f"low must be at most high, got {low!r} above {high!r}")
    return least, most


def _times(H: Tensor, w: Tensor) -> Tensor:
    return (H @ w[..., None])[..., 0]


@validated
def gradient_descent(eta: Annotated[_Setting, Gt(0)]) -> Solver:
    """Gradient descent (2.10) with A = eta I: w <- w - eta (H w - b).

    Args:
        eta: step size, in units of 1/H; converges if below 2 over the largest eigenvalue of H.

    >>> import torch
    >>> from icl.solvers import gradient_descent, run_solver
    >>> H, b = torch.diag(torch.tensor([1.0, 4.0]))[None], torch.tensor([[2.0, 4.0]])  # solution (2, 1)
    >>> run_solver(gradient_descent(0.25), H, b, steps=2)[0]
    tensor([[0.0000, 0.0000],
            [0.5000, 1.0000],
            [0.8750, 1.0000]])
    """
    size = _setting("eta", eta)

    def init(H: Tensor, b: Tensor, w_0: Tensor) -> Iterate:
        _fits(H, eta=size)
        return Iterate(w_0)

    def step(state: Iterate, H: Tensor, b: Tensor) -> Iterate:
        return Iterate(state.w - size.to(H) * (_times(H, state.w) - b))

    return Solver(init, step)


@validated
def momentum(eta: Annotated[_Setting, Gt(0)], beta: Annotated[_Setting, Ge(0), Le(1)]) -> Solver:
    """Momentum gradient descent, the heavy ball [Polyak 1964; Dutta & Sra 2025, app. B.2].

        v <- beta v - eta (H w - b);    w <- w + v,    from v = 0

    Args:
        eta: step size, in units of 1/H; :func:`tuned_momentum` gives the best.
        beta: momentum, the share of the last step that is repeated, dimensionless; with 1 it need not converge.
    """
    size, keep = _setting("eta", eta), _setting("beta", beta)

    def init(H: Tensor, b: Tensor, w_0: Tensor) -> Velocity:
        _fits(H, eta=size, beta=keep)
        return Velocity(w_0, torch.zeros_like(w_0))

    def step(state: Velocity, H: Tensor, b: Tensor) -> Velocity:
        v = keep.to(H) * state.v - size.to(H) * (_times(H, state.w) - b)
        return Velocity(state.w + v, v)

    return Solver(init, step)


@validated
def nesterov(eta: Annotated[_Setting, Gt(0)], beta: Annotated[_Setting, Ge(0), Le(1)]) -> Solver:
    """Nesterov's accelerated gradient [Nesterov 2004, sec. 2.2; Dutta & Sra 2025, app. B.1].

        u = w + beta (w - the w before);    w <- u - eta (H u - b)

    The gradient is taken at the point u that momentum alone would lead to, not at w.

    Args:
        eta: step size, in units of 1/H; :func:`tuned_nesterov` gives the best.
        beta: momentum, the share of the last step that is repeated, dimensionless.
    """
    size, keep = _setting("eta", eta), _setting("beta", beta)

    def init(H: Tensor, b: Tensor, w_0: Tensor) -> LookAhead:
        _fits(H, eta=size, beta=keep)
        return LookAhead(w_0, w_0)

    def step(state: LookAhead, H: Tensor, b: Tensor) -> LookAhead:
        u = state.w + keep.to(H) * (state.w - state.before)
        return LookAhead(u - size.to(H) * (_times(H, u) - b), state.w)

    return Solver(init, step)


@validated
def tuned_momentum(low: Annotated[_Setting, Gt(0)], high: Annotated[_Setting, Gt(0)]) -> tuple[_Setting, _Setting]:
    """Optimal (eta, beta) of :func:`momentum` for eigenvalues of H that fill [low, high] [Polyak 1964].

        eta = 4 / (sqrt(high) + sqrt(low))^2,    beta = ((sqrt(high) - sqrt(low)) / (sqrt(high) + sqrt(low)))^2

    In the long run errors then shrink by sqrt(beta) a step, up to a factor that grows with the number of steps. Numbers
    give numbers, tensors (batch,) tensors.

    Args:
        low: smallest eigenvalue.
        high: largest eigenvalue, >= low.
    """
    for name, value in (("low", low), ("high", high)):
        _checks.instance(name, value, int, float, np.number, np.ndarray, Tensor)
    _interval(low, high)
    root = (low / high) ** 0.5
    return 4 / (1 + root) ** 2 / high, ((1 - root) / (1 + root)) ** 2


@validated
def tuned_nesterov(low: Annotated[_Setting, Gt(0)], high: Annotated[_Setting, Gt(0)]) -> tuple[_Setting, _Setting]:
    """Optimal (eta, beta) of :func:`nesterov` for eigenvalues of H that fill [low, high].

        eta = 4 / (3 high + low),    beta = (c - 2) / (c + 2),    c = sqrt(3 high / low + 1)

    [Lessard, Recht & Packard 2016, prop. 1]: errors shrink by 1 - 2 / c a step in the long run. The commoner eta =
    1 / high with beta = (sqrt(k) - 1) / (sqrt(k) + 1), k = high / low, is for all convex functions of that curvature
    and slower on quadratics.

    Args:
        low: smallest eigenvalue.
        high: largest eigenvalue, >= low.
    """
    for name, value in (("low", low), ("high", high)):
        _checks.instance(name, value, int, float, np.number, np.ndarray, Tensor)
    _interval(low, high)
    share = low / high
    root = (share / (3 + share)) ** 0.5  # 1 / c
    return 4 / (3 + share) / high, (1 - 2 * root) / (1 + 2 * root)


@validated
def chebyshev(low: Annotated[_Setting, Gt(0)], high: Annotated[_Setting, Gt(0)]) -> Solver:
    """Chebyshev's semi-iteration: momentum with optimal eta and beta at every step [Golub & Varga 1961].

        v <- beta_k v - eta_k (H w - b);    w <- w + v    with the coefficients of :func:`chebyshev_scalars`

    After k steps w - w* = p(H) (w_0 - w*) with p the polynomial of degree k, p(0) = 1, whose size on [low, high]
    peaks least: p(z) = T_k((c - z) / h) / T_k(c / h) for Chebyshev's T_k, the middle c and half the width h.

    Args:
        low: lower bound of H's eigenvalues.
        high: upper bound of them, >= low. An eigenvalue above it may make the iterates grow.

    >>> import torch
    >>> from icl.solvers import chebyshev, gradient_descent, run_solver
    >>> H = torch.diag(torch.linspace(1, 9, 5, dtype=torch.float64))[None]
    >>> b = H.sum(-1)  # solution (1, .., 1)
    >>> for solver in (gradient_descent(0.2), chebyshev(1, 9)):
    ...     print(f"{float((run_solver(solver, H, b, steps=10)[0, -1] - 1).abs().max()):.4f}")
    0.1074
    0.0020
    """
    least, most = _interval(low, high)

    def init(H: Tensor, b: Tensor, w_0: Tensor) -> SemiIteration:
        _fits(H, low=least, high=most)
        rows = (least.numbers + most.numbers).numel()
        return SemiIteration(w_0, torch.zeros_like(w_0), torch.zeros(rows, 1, dtype=torch.float64, device=H.device))

    def step(state: SemiIteration, H: Tensor, b: Tensor) -> SemiIteration:
        eta, beta, ratio = _chebyshev_step(state.ratio, least.to(state.ratio), most.to(state.ratio))
        v = beta.to(H) * state.v - eta.to(H) * (_times(H, state.w) - b)
        return SemiIteration(state.w + v, v, ratio)

    return Solver(init, step)


def _chebyshev_step(ratio: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(eta, beta, ratio) of the next step; the ratio is 0 before the first.

    With rho_k = T_(k-1)(c/h) / T_k(c/h) the three-term recurrence of Chebyshev's polynomials is
    rho_(k+1) = 1 / (2 c/h - rho_k); the ratio, rho_k / h in units of 1 / high, stays finite where low = high, which is
    gradient descent.
    """
    least = low / high
    double, square = 1 + least, ((1 - least) / 2) ** 2
    after = torch.where(ratio == 0, 2 / double, 1 / (double - square * ratio))
    return torch.where(ratio == 0, after, 2 * after) / high, square * after * ratio, after


@validated
def chebyshev_scalars(
    low: Positive, high: Positive, steps: Natural
) -> tuple[Float[Tensor, " steps"], Float[Tensor, " steps"]]:
    """(eta, beta) of every step of :func:`chebyshev`, float64; beta[0] = 0; limits as in :func:`tuned_momentum`.

    Args:
        low: smallest eigenvalue.
        high: largest eigenvalue, >= low.
        steps: how many.
    """
    least, most = (end.numbers for end in _interval(_checks.number("low", low), _checks.number("high", high)))
    eta, beta, ratio = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.float64), 0 * least
    for k in range(steps):
        eta[k], beta[k], ratio = _chebyshev_step(ratio, least, most)
    return eta, beta


def _preconditioner(M: Any) -> DeviceCache | None:
    """Validate a preconditioner M, (d, d) or (batch, d, d): symmetric and positive definite."""
    if M is None:
        return None
    _checks.unmasked("M", M)
    values = M.detach().cpu().numpy() if isinstance(M, Tensor) else np.asarray(M)
    _checks.real("M", values)
    if values.ndim not in (2, 3) or values.shape[-1] != values.shape[-2] or not values.size:
        raise ValueError(f"M must have shape (d, d) or (batch, d, d), got {values.shape}")
    matrix = torch.as_tensor(M)
    matrix = matrix if matrix.is_floating_point() else matrix.double()
    _symmetric("M", matrix)
    if torch.linalg.cholesky_ex(matrix).info.any():
        raise ValueError(f"M must be positive definite, got {values}")
    return DeviceCache(matrix)


def _symmetric(name: str, matrix: Tensor) -> None:
    """Refuse matrices whose asymmetry exceeds rounding."""
    off = (matrix - matrix.mT).abs().amax((-2, -1))
    wrong = off > torch.finfo(matrix.dtype).eps ** 0.5 * matrix.abs().amax((-2, -1))
    if wrong.any():
        raise ValueError(f"{name} must be symmetric, got entries that differ by {off[wrong].max().item():.3g}")


def conjugate_gradients(M: Any = None) -> Solver:
    """Conjugate gradients [Hestenes & Stiefel 1952], with exact line search, preconditioned if M is given.

        s <- -g + gamma s,    gamma = g'g / (that of the g before);        w <- w + alpha s,    alpha = -g's / s'H s

    with g = H w - b the gradient and Fletcher and Reeves' gamma [Dutta & Sra 2025, (2.13)], 0 at the first step. After
    k steps w minimises f over w_0 + the Krylov space of k gradients, so that no method of this module is ever nearer to
    the minimum in the norm of H; after d steps it has converged. With M, g becomes M g and g'g becomes g'M g: the same
    on problems stretched by M^(1/2) [Shewchuk 1994, sec. 12].

    The residual -g is updated recursively, not computed anew. Every problem stops by itself, and from then on its
    iterate does not change by a bit: when g'M g is at rounding of its initial value, or of b'M b, or when the curvature
    along s is below rounding, as on a singular H. 0/0 is never formed. For a semi-definite H, (H s)'(H s) is at most
    its norm times s'H s; an s with more, and not by rounding, proves that f has no minimum: the run is refused.

    Args:
        M: preconditioner, the better the nearer M H is to a multiple of the identity: (d, d), or (batch, d, d) with one
            for each problem; symmetric, positive definite. None is the identity.

    >>> import torch
    >>> from icl.solvers import conjugate_gradients, run_solver
    >>> H = torch.diag(torch.tensor([1.0, 9.0], dtype=torch.float64))[None]
    >>> w = run_solver(conjugate_gradients(), H, H.sum(-1), steps=2)  # solution (1, 1), after d = 2 steps
    >>> w[0].round(decimals=3).tolist()
    [[0.0, 0.0], [0.112, 1.011], [1.0, 1.0]]
    """
    matrix = _preconditioner(M)

    def precondition(r: Tensor) -> Tensor:
        return r if matrix is None else _times(matrix.to(r), r)

    def init(H: Tensor, b: Tensor, w_0: Tensor) -> Conjugate:
        if matrix is not None:
            sizes = (H.shape[-1],) * 2 if len(matrix.shape) == 2 else tuple(H.shape)
            _checks.shape("M", matrix.numbers, sizes, "to match H")
        r = b - _times(H, w_0)
        unit = torch.maximum(r.abs(), b.abs()).amax(-1, keepdim=True)
        unit = torch.where(unit > 0, unit, 1.0)
        r = r / unit
        rho, rho_b = (_dot(v, precondition(v)) for v in (r, b / unit))
        none = torch.zeros_like(rho)
        before = torch.full_like(rho, torch.inf)  # so that the first gamma is 0
        size, entry = torch.maximum(rho, rho_b), H.abs().amax((-2, -1))[:, None]
        entry = torch.where(entry > 0, entry, 1.0)
        return Conjugate(w_0, unit, r, torch.zeros_like(r), rho, before, size, none, none, none, entry, before)

    def step(state: Conjugate, H: Tensor, b: Tensor) -> Conjugate:
        gamma = state.rho / state.before
        p = state.r + gamma * state.p
        s = precondition(p)
        Hs = _times(H, s)
        length, curvature = _dot(p, s), _dot(s, Hs)
        rounding = _SLACK * H.shape[-1] * torch.finfo(H.dtype).eps
        # Negated comparisons let NaN pass, for `run_solver` to report.
        unsolved = ~(state.rho <= rounding**2 * state.size)
        goes = unsolved & ~(curvature <= rounding * state.peak * length)
        # In units of H's largest entry: the norm of H is then at most d.
        u = Hs / state.entry
        indefinite = unsolved & (
            _dot(u, u) > H.shape[-1] * (_dot(s, u) + rounding * s.abs().sum(-1, keepdim=True) ** 2)
        )
        alpha = torch.where(goes, state.rho / torch.where(goes, curvature, 1.0), 0.0)
        r = state.r - alpha * Hs
        # A stopped problem keeps all of its state, so that further steps leave it unchanged.
        return Conjugate(
            w=state.w + alpha * state.unit * s,
            unit=state.unit,
            r=r,
            p=torch.where(goes, p, state.p),
            rho=torch.where(goes, _dot(r, precondition(r)), state.rho),
            before=torch.where(goes, state.rho, state.before),
            size=state.size,
            peak=torch.where(goes, torch.maximum(state.peak, curvature / torch.where(goes, length, 1.0)), state.peak),
            alpha=alpha,
            gamma=torch.where(goes, gamma, 0.0),
            entry=state.entry,
            bend=torch.where(indefinite, torch.minimum(curvature / _dot(s, s), state.bend), state.bend),
        )

    return Solver(init, step)


def _dot(u: Tensor, v: Tensor) -> Tensor:
    return (u * v).sum(-1, keepdim=True)


def _semidefinite(state: Conjugate) -> None:
    """Refuse an H that the directions of conjugate gradients prove indefinite."""
    proved = state.bend[:, 0] < torch.inf
    if proved.any():
        one = int(proved.nonzero()[0])
        raise ValueError(
            f"H must be positive semi-definite, got s'Hs = {state.bend[one].item():.3g} s's along a direction s of "
            f"problem {one}, too little for its Hs: w'Hw / 2 - b'w has no minimum"
        )


def _start(H: Tensor, b: Tensor, steps: Natural, w_0: Tensor | None) -> Tensor:
    """Check a batch of quadratics and return the initial iterates, (batch, d)."""
    if not H.numel():
        raise ValueError(f"H must have shape (batch, d, d) with none of them 0, got {tuple(H.shape)}")
    w_0 = torch.zeros_like(b) if w_0 is None else w_0
    for name, array in (("H", H), ("b", b), ("w_0", w_0)):
        if not torch.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got {array[~torch.isfinite(array)][0].item()}")
    _symmetric("H", H)
    return w_0.expand(b.shape)


@validated
def run_solver(
    solver: Solver,
    H: Float[Tensor, "batch d d"],
    b: Float[Tensor, "batch d"],
    steps: Natural,
    w_0: Float[Tensor, " d"] | Float[Tensor, "batch d"] | None = None,
) -> Float[Tensor, "batch after d"]:
    """Iterates w_0 .. w_steps of a method: (batch, steps + 1, d), in the dtype of H.

    Args:
        solver: such as `conjugate_gradients()`.
        H: symmetric, positive semi-definite matrices; semi-definiteness is not checked, except by conjugate gradients,
            which refuse an H that their own directions prove indefinite.
        b: the right-hand sides, in the range of H.
        steps: gradients to take.
        w_0: initial iterates, (d,) or one a problem; default 0.

    Raises:
        ValueError: if H, b and w_0 do not fit together or the solver, or are not finite, or H is not symmetric; or if
            conjugate gradients prove H indefinite.
        FloatingPointError: if the method diverges, with the step whose iterate stopped being finite.

    >>> from icl.profile import make_generator
    >>> from icl.solvers import momentum, run_solver, tuned_momentum
    >>> from icl.tasks import StationaryRegression
    >>> from icl.tasks.quadratics import hessians
    >>> prompt = StationaryRegression(d=4, n=40).sample(3, generator=make_generator("example"))
    >>> H = hessians(prompt)
    >>> w = run_solver(momentum(*tuned_momentum(0.3, 2.5)), H, H.sum(-1), steps=60)
    >>> w.shape, bool((w[:, -1] - 1).abs().max() < 1e-3)
    (torch.Size([3, 61, 4]), True)
    """
    w_0 = _start(H, b, steps, w_0)
    state = solver.init(H, b, w_0)
    iterates = [state.w]
    for _ in range(steps):
        state = solver.step(state, H, b)
        iterates.append(state.w)
    w = torch.stack(iterates, 1)
    if isinstance(state, Conjugate):
        _semidefinite(state)
    if not torch.isfinite(w).all():
        first = int((~torch.isfinite(w)).any(-1).any(0).nonzero()[0])
        raise FloatingPointError(f"the solver diverged: its iterate after step {first} is not finite")
    return w


@validated
def conjugate_scalars(
    H: Float[Tensor, "batch d d"],
    b: Float[Tensor, "batch d"],
    steps: Natural,
    M: Any = None,
) -> tuple[Float[Tensor, "batch steps"], Float[Tensor, "batch steps"]]:
    """alpha and gamma of every step of `conjugate_gradients(M)` from w_0 = 0, for every problem.

    With them (3.1) and (3.2) of [Dutta & Sra 2025] are conjugate gradients; they differ between problems, so that no
    prompt-independent coefficients do the same. gamma[:, 0] = 0; both are 0 once the problem has stopped.

    Args:
        H: symmetric, positive semi-definite matrices.
        b: the right-hand sides, in the range of H.
        steps: how many.
        M: preconditioner, as of :func:`conjugate_gradients`.

    Raises:
        ValueError: as :func:`run_solver` does.
        FloatingPointError: if products of H and M overflow.
    """
    w_0 = _start(H, b, steps, None)
    solver = conjugate_gradients(M)
    state = solver.init(H, b, w_0)
    scalars = H.new_empty(2, len(H), steps)
    for k in range(steps):
        state = solver.step(state, H, b)
        scalars[0, :, k], scalars[1, :, k] = state.alpha[:, 0], state.gamma[:, 0]
    _semidefinite(state)
    if not torch.isfinite(scalars).all():
        raise FloatingPointError("conjugate gradients overflowed: products of H and M must be finite")
    return scalars[0], scalars[1]
