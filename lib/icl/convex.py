"""Convex minimisation: nonlinear conjugate gradients and Newton's method, batched over prompts.

For the problems of :mod:`icl.tasks.objectives`, whose losses need not be squares; the methods of :mod:`icl.solvers` are
for squares. Both methods here choose their steps for each prompt by a line search to rounding. A step costs one
gradient and one more product with the inputs: along w + t p the n predictions are s + t u with u_i = <p, x_i>, so that
the search needs n numbers and no further product. Newton's method also solves a d by d system.

:func:`shared_minimiser` fits one vector of coefficients to many prompts at once, w = K theta with a basis K of every
prompt's own: the optimum of a linear family with prompt-independent coefficients.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import Natural, validated
from icl.tasks.core import Prompt
from icl.tasks.objectives import Objective

# Iteration limit of Newton's method; ten or so are usual.
_MOST = 200
# Relative tolerance on the gradient, entry by entry.
_LEFT = 1e-12


def _convex(objective: Objective) -> None:
    """Refuse an objective whose loss is not convex."""
    if not objective.convex:
        raise ValueError(f"objective must be convex, got a {type(objective).__name__}")


class _Problem:
    """mean_i phi(y_i, <w, a_i>) + ridge w'M w / 2 in batches: features a (batch, N, k), labels (batch, N)."""

    def __init__(self, objective: Objective, features: Tensor, y: Tensor, M: Tensor | None = None) -> None:
        self.objective, self.features, self.y, self.ridge = objective, features, y, objective.ridge
        self.M = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device) if M is None else M

    def gradient(self, w: Tensor, s: Tensor) -> Tensor:
        slopes = self.objective._slope(self.y, s)
        return (slopes[:, None] @ self.features)[:, 0] / s.shape[1] + self.ridge * _times(self.M, w)

    def hessian(self, s: Tensor) -> Tensor:
        bent = self.objective._bend(self.y, s)[..., None] * self.features
        return self.features.mT @ bent / s.shape[1] + self.ridge * self.M

    def length(self, w: Tensor, s: Tensor, p: Tensor) -> Tensor:
        """Exact line search: the t >= 0 that minimises along w + t p, to rounding; p is a descent direction or 0."""
        u = _times(self.features, p)
        Mp = _times(self.M, p)
        start, square = self.ridge * (w * Mp).sum(-1), self.ridge * (p * Mp).sum(-1)

        def derivatives(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            at = s + t[:, None] * u
            terms = self.objective._slope(self.y, at) * u
            second = (self.objective._bend(self.y, at) * u.square()).mean(-1) + square
            # The third: the rounding error of the first derivative.
            rounding = 4 * eps * (terms.abs().mean(-1) + start.abs() + t * square)
            return terms.mean(-1) + start + t * square, second, rounding

        eps = torch.finfo(s.dtype).eps
        low, high = torch.zeros_like(start), torch.ones_like(start)
        steepest, *_ = derivatives(low)
        for _ in range(_MOST):
            ahead = derivatives(high)[0] < 0
            if not bool(ahead.any()):
                break
            low, high = torch.where(ahead, high, low), torch.where(ahead, 2 * high, high)
        # Start from Newton's own step, 1.
        t = high
        for _ in range(_MOST):
            first, second, rounding = derivatives(t)
            low, high = torch.where(first < 0, t, low), torch.where(first < 0, high, t)
            done = (first.abs() <= rounding) | (high - low <= 4 * eps * high)
            if bool(done.all()):
                break
            after = t - first / second
            # Newton safeguarded by bisection: the step may leave the bracket where the curvature jumps.
            after = torch.where((after > low) & (after < high), after, (low + high) / 2)
            t = torch.where(done, t, after)
        return torch.where(steepest < 0, t, 0.0)

    def newton(self, w: Tensor, s: Tensor, g: Tensor) -> Tensor:
        """Newton's direction."""
        return -torch.linalg.solve(self.hessian(s), g)

    def solved(self) -> Tensor:
        """Minimiser, to rounding: Newton's method from 0."""
        w, s = torch.zeros_like(self.features[:, 0]), torch.zeros_like(self.y)
        g = self.gradient(w, s)
        first = g.abs().amax(-1, keepdim=True)
        for _ in range(_MOST):
            if bool((g.abs() <= _LEFT * first).all()):
                return w
            p = self.newton(w, s, g)
            w = w + self.length(w, s, p)[:, None] * p
            s = _times(self.features, w)
            g = self.gradient(w, s)
        raise FloatingPointError(
            f"{_MOST} steps of Newton's method leave {(g.abs() / first).max().item():.3g} of a first gradient"
        )


def _times(A: Tensor, v: Tensor) -> Tensor:
    return (A @ v[..., None])[..., 0]


def _problem(objective: Objective, prompt: Prompt) -> _Problem:
    """Batch of problems of the prompts; ValueError without a ridge, where a minimiser need not exist."""
    _convex(objective)
    if not objective.ridge > 0:
        raise ValueError(f"objective must have a ridge > 0 (else a minimum need not exist), got {objective.ridge!r}")
    return _Problem(objective, *objective.examples(prompt))


@validated
def minimiser(objective: Objective, prompt: Prompt) -> Float[Tensor, "batch d"]:
    """Minimiser w of f on each prompt, by Newton's method to 1e-12 of the first gradient.

    Args:
        objective: convex, with a ridge > 0.
        prompt: of its d, in float64: float32 does not reach that tolerance.

    Raises:
        ValueError: if the objective is not convex, or its ridge is 0, or the prompts are not of float64.
        FloatingPointError: if a prompt needs more than 200 steps.

    >>> import torch
    >>> from icl.convex import minimiser
    >>> from icl.profile import make_generator
    >>> from icl.tasks.objectives import Logistic
    >>> objective = Logistic(d=3, n=20)
    >>> prompt = objective.sample(2, generator=make_generator("example"), dtype=torch.float64)
    >>> w = minimiser(objective, prompt)
    >>> w.shape, bool(objective.gradient(prompt, w).abs().max() < 1e-12)
    (torch.Size([2, 3]), True)
    """
    problem = _problem(objective, prompt)
    _checks.dtype("prompt", prompt.x, torch.float64, "so that a gradient can be 0 to 1e-12")
    return problem.solved()


@validated
def newton(objective: Objective, prompt: Prompt, steps: Natural) -> Float[Tensor, "batch iterates d"]:
    """Iterates w_0 = 0 .. w_steps of Newton's method with exact line search.

        w <- w - t (Hessian of f)^-1 grad f

    Args:
        objective: convex, with a ridge > 0.
        prompt: of its d.
        steps: how many.

    Raises:
        ValueError: if the objective is not convex, or its ridge is 0, or the prompts are of another d.
    """
    problem = _problem(objective, prompt)
    _checks.precision("dtype", prompt.x.dtype)  # no system is solved in another
    walk = [torch.zeros_like(problem.features[:, 0])]
    for _ in range(steps):
        s = _times(problem.features, walk[-1])
        p = problem.newton(walk[-1], s, problem.gradient(walk[-1], s))
        walk.append(walk[-1] + problem.length(walk[-1], s, p)[:, None] * p)
    return torch.stack(walk, dim=1)


@validated
def nonlinear_conjugate_gradients(
    objective: Objective, prompt: Prompt, steps: Natural
) -> Float[Tensor, "batch iterates d"]:
    """Iterates w_0 = 0 .. w_steps of nonlinear conjugate gradients with exact line search [Polak & Ribiere 1969].

        p <- -g + beta p,    beta = max(0, g'(g - the g before) / (that one's square)), 0 at first;    w <- w + t p

    On squares, where that beta is Fletcher and Reeves', they are the conjugate gradients of :mod:`icl.solvers`.

    Args:
        objective: convex, with a ridge > 0.
        prompt: of its d.
        steps: how many.

    Raises:
        ValueError: if the objective is not convex, or its ridge is 0, or the prompts are of another d.
    """
    problem = _problem(objective, prompt)
    w = torch.zeros_like(problem.features[:, 0])
    walk, p, before = [w], torch.zeros_like(w), torch.zeros_like(w)
    for _ in range(steps):
        s = _times(problem.features, w)
        g = problem.gradient(w, s)
        size = before.square().sum(-1)
        share = (g * (g - before)).sum(-1).clamp(min=0) / torch.where(size > 0, size, 1.0)
        p = -g + torch.where(size > 0, share, 0.0)[:, None] * p
        # Restart from the gradient where rounding has left no descent direction.
        p = torch.where((p * g).sum(-1, keepdim=True) < 0, p, -g)
        w, before = w + problem.length(w, s, p)[:, None] * p, g
        walk.append(w)
    return torch.stack(walk, dim=1)


@validated
def shared_minimiser(objective: Objective, prompt: Prompt, basis: Float[Tensor, "batch d K"]) -> Float[Tensor, " K"]:
    """Prompt-independent coefficients theta that minimise the mean of f(basis theta) over the prompts.

    Args:
        objective: convex, with a ridge > 0.
        prompt: of its d, in float64.
        basis: each prompt's directions, as columns; stacked over the prompts, the columns are independent.

    Raises:
        ValueError: if the objective is not convex, or its ridge is 0, or shapes do not match.
        FloatingPointError: if it takes more than 200 steps.
    """
    one = _problem(objective, prompt)
    _checks.shape("basis", basis, (prompt.batch, prompt.d, None), "to match prompt")
    _checks.dtype("basis", basis, torch.float64, "so that a gradient can be 0 to 1e-12")
    _checks.dtype("prompt", prompt.x, torch.float64, "to match basis")
    _checks.real("basis", basis.detach().cpu().numpy())
    if not basis.shape[-1]:
        raise ValueError(f"basis must have at least one column, got shape {tuple(basis.shape)}")
    # One problem of all prompts' examples, in the coordinates of theta.
    M = (basis.mT @ basis).mean(0)
    values = torch.linalg.eigvalsh(M)
    if not values[0] > 8 * torch.finfo(M.dtype).eps * values[-1]:
        raise ValueError(f"basis must have independent columns over all prompts, their squares' eigenvalues: {values}")
    root = torch.linalg.cholesky(M)
    # Columns that are powers of a matrix are nearly dependent: orthonormalise them.
    features = (one.features @ torch.linalg.solve_triangular(root.T, basis, upper=True, left=False)).flatten(0, 1)
    theta = _Problem(objective, features[None], one.y.flatten()[None]).solved()[0]
    return torch.linalg.solve_triangular(root.T, theta[:, None], upper=True)[:, 0]
