"""Accuracy against time of learned optimisers and of classical methods, in one run. Part of `make bench`.

python benchmarks/pareto.py              print the tables; some minutes
python benchmarks/pareto.py --record     also write book/results/memformer-pareto{,-errors,-fit}.json

Every method gets the examples X, y of fresh prompts (n noiseless examples, inputs of covariance Sigma with eigenvalues
spaced geometrically from 1/condition to 1) and returns weights. Errors are computed in float64; times are of lean
float32 forms, which are first held against the library's in float64. A form either makes H = X'X/n once ("H formed") or
goes through the examples at every step ("through examples"). The first gradient is -b at w = 0 and needs neither.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from run import median_ms
from scipy.optimize import minimize
from torch import Tensor, nn

from icl import solvers
from icl.experiments import training_variants
from icl.models import memformer, token_form
from icl.profile import make_generator
from icl.tasks import quadratics
from icl.theory import lfom
from icl.theory.lfom import _recursion, polynomial_floor
from icl_book import records

SIZES, RATIOS, CONDITIONS = (5, 10, 20, 50), (2, 4), (1, 10, 100)
DEPTHS, CURVED, BATCHES = (1, 2, 3, 4, 6, 8), (1, 2, 3, 4), (1, 1_000)
MOST = max(DEPTHS)
TESTS = {5: 20_000, 10: 10_000, 20: 4_000, 50: 1_500}
# GD++ trains on the first few thousand.
TRAINING, CURVED_TRAINING = {5: 8_000, 10: 6_000, 20: 2_500, 50: 800}, 3_000
TUNED = ("gradient descent", "momentum", "Nesterov")
FIRST_ORDER = (*TUNED, "conjugate gradients", "preconditioned CG", "LFOM")
# Times are of this condition; no method's number of operations depends on it.
TIMED, ROUNDS, SLICE = 10, (4, 15), 2e-3


def spread(d: int, condition: float) -> np.ndarray:
    """Eigenvalues of Sigma. Its eigenvectors are the axes: no method here prefers a basis."""
    return np.geomspace(1 / condition, 1, d)


# Errors


@dataclass(frozen=True)
class Spectra:
    """Prompts as a polynomial in H sees them: the risk of p is p(t)' G p(t), p at the eigenvalues t (prompts, d)."""

    t: np.ndarray
    G: np.ndarray

    @classmethod
    def of(cls, H: np.ndarray, D: np.ndarray) -> "Spectra":
        """||Sigma^(1/2) p(H) Sigma^(-1/2)||^2 in the eigenbasis V of H: G = (V' Sigma V) * (V' Sigma^-1 V)."""
        t, V = np.linalg.eigh(H)
        return cls(t, (V.swapaxes(1, 2) * D @ V) * (V.swapaxes(1, 2) / D @ V))

    def risk(self, p: np.ndarray) -> np.ndarray:
        """Share of the zero predictor's error that is left, prompt by prompt."""
        return ((self.G @ p[..., None])[..., 0] * p).sum(1) / p.shape[1]


def tuned_polynomial(name: str, t: np.ndarray, eta: float, beta: float, depth: int) -> np.ndarray:
    """p at t after so many steps of one of `TUNED`."""
    before = now = np.ones_like(t)
    for _ in range(depth):
        ahead = now + beta * (now - before) if name == "Nesterov" else now
        kick = beta * (now - before) if name == "momentum" else 0.0
        before, now = now, ahead - eta * t * ahead + kick
    return now


def tune(name: str, spectra: Spectra, depth: int, known: list[tuple[float, float]]) -> tuple[float, float]:
    """The (eta, beta) of least mean error after `depth` steps on these prompts, searched for from `known` too."""
    low, top = float(spectra.t.min(1).mean()), float(spectra.t.max(1).mean())
    theory = {"momentum": solvers.tuned_momentum, "Nesterov": solvers.tuned_nesterov}

    def settings(z: np.ndarray) -> tuple[float, float]:
        return float(np.exp(z[0])) / top, 0.0 if name == "gradient descent" else float(1 / (1 + np.exp(-z[1])))

    def loss(z: np.ndarray) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = spectra.risk(tuned_polynomial(name, spectra.t, *settings(z), depth)).mean()
        return float(np.log(value)) if np.isfinite(value) else 1e3

    eta, beta = theory[name](low, top) if name in theory else (1 / top, 0.5)
    known = [*known, (float(eta), float(beta))]
    starts = [np.array([np.log(eta * top), np.log(beta / (1 - beta))]) for eta, beta in known if 0 < beta < 1]
    # A simplex of its own: the default one has no size where a start is 0.
    ends = [
        minimize(
            loss,
            z,
            method="Nelder-Mead",
            options={"initial_simplex": z + 0.4 * np.eye(3, 2, -1), "maxiter": 80, "fatol": 1e-5, "xatol": 1e-3},
        )
        for z in starts
    ]
    return settings(min(ends, key=lambda end: end.fun).x)


def at_floor(t: np.ndarray, d: int, n: int) -> Iterator[np.ndarray]:
    """Errors after 1 .. steps of the polynomial floor's register, at whitened eigenvalues t, prompt by prompt."""
    p, s = np.ones_like(t), np.zeros_like(t)
    for alpha, gamma in zip(*polynomial_floor.optimal_registers(d, n, MOST), strict=True):
        s = gamma * s - t * p
        p = p + alpha * s
        yield (p**2).mean(1)


def curved_polynomial(t: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """p_L of GD++ with scalars a and b at whitened eigenvalues t."""
    p, tau = torch.ones_like(t), torch.ones_like(t)
    for step, bend in zip(a, b, strict=True):
        h = tau.square() * t
        p, tau = p * (1 - step * h), tau * (1 - bend * step * h)
    return p


def train_curved(t: Tensor, depth: int, name: str, tries: int = 4) -> tuple[Tensor, Tensor]:
    """The best of some trainings of GD++'s scalars on whitened eigenvalues, as in the chapter *Many registers*."""
    best: tuple[float, Tensor, Tensor] | None = None
    for attempt in range(tries):
        u = torch.rand(2, depth, generator=make_generator(name, seed=attempt), dtype=torch.float64)
        first = 0.35 + 0.45 * u[0, :1]
        a = nn.Parameter(torch.cat([first, 1.5 + 6 * u[0, 1:] * torch.arange(1, depth)]))
        b = nn.Parameter(torch.cat([0.3 + 0.65 * u[1, :1], 0.3 + 0.2 * u[1, 1:]]))

        def loss(a: Tensor = a, b: Tensor = b) -> Tensor:
            return curved_polynomial(t, a, b).square().sum(1).mean().log()

        try:
            end = training_variants.minimise(nn.ParameterList([a, b]), loss, iterations=100).losses[-1]
        except FloatingPointError:
            continue  # a start from which the line search ran away
        if best is None or end < best[0]:
            best = end, a.detach(), b.detach()
    if best is None:
        raise RuntimeError(f"no start of GD++ with {depth} layers led anywhere")
    return best[1:]


def shares(error: np.ndarray) -> dict[str, float]:
    """Mean and standard error of a column of risks."""
    return {"error": float(error.mean()), "se": float(error.std(ddof=1) / len(error) ** 0.5)}


def conjugate(H: Tensor, D: np.ndarray, name: str, depths: tuple[int, ...]) -> Iterator[tuple[int, np.ndarray]]:
    """Depth and errors of conjugate gradients, w* drawn once a prompt."""
    d = len(D)
    z = torch.randn(len(H), d, generator=make_generator(name), dtype=torch.float64)
    w = z / torch.from_numpy(D).sqrt()
    walk = solvers.run_solver(solvers.conjugate_gradients(), H, (H @ w[..., None])[..., 0], max(depths))
    risks = ((walk - w[:, None]).square() * torch.from_numpy(D)).sum(-1).numpy() / d
    yield from ((depth, risks[:, depth]) for depth in depths)


@dataclass(frozen=True)
class Settings:
    """What was tuned and trained for one d, n and condition; GD++ for all conditions."""

    tuned: dict[tuple[str, int], tuple[float, float]]
    curved: dict[int, tuple[Tensor, Tensor]]


def errors() -> tuple[pd.DataFrame, dict[tuple[int, int], Settings]]:
    """Shares of the zero predictor's error by method and depth, and the settings of the timed condition."""
    rows: list[dict[str, object]] = []
    kept: dict[tuple[int, int], Settings] = {}
    for d in SIZES:
        for n in (ratio * d for ratio in RATIOS):
            white = quadratics.sample_hessians(
                np.eye(d), n, TRAINING[d], generator=make_generator(f"pareto, training {d} {n}")
            )
            fresh = quadratics.sample_hessians(
                np.eye(d), n, TESTS[d], generator=make_generator(f"pareto, fresh {d} {n}")
            )
            t, seen = torch.linalg.eigvalsh(fresh), torch.linalg.eigvalsh(white[:CURVED_TRAINING])
            law = [
                ("LFOM", depth, shares(risk))
                for depth, risk in enumerate(at_floor(t.numpy(), d, n), start=1)
                if depth in DEPTHS
            ]
            for depth, risk in conjugate(fresh, np.ones(d), f"pareto, w {d} {n}", DEPTHS):
                law.append(("preconditioned CG", depth, shares(risk)))
            curved = {}
            for depth in CURVED:
                curved[depth] = train_curved(seen, depth, f"pareto, GD++ {d} {n} {depth}")
                risk = curved_polynomial(t, *curved[depth]).square().mean(1).numpy()
                law.append(("GD++", depth, shares(risk)))
            for condition in CONDITIONS:
                where = {"d": d, "n": n, "condition": condition}
                rows += [where | {"method": name, "depth": depth} | value for name, depth, value in law]
                D = spread(d, condition)
                root = torch.from_numpy(np.sqrt(D))
                train, test = (root[:, None] * H * root for H in (white, fresh))
                for depth, risk in conjugate(test, D, f"pareto, w {d} {n}", DEPTHS):
                    rows.append(where | {"method": "conjugate gradients", "depth": depth} | shares(risk))
                learnt, judged = Spectra.of(train.numpy(), D), Spectra.of(test.numpy(), D)
                tuned: dict[tuple[str, int], tuple[float, float]] = {}
                for name in TUNED:
                    for depth in DEPTHS:
                        # One step has no past.
                        same_method = [pair for (other, _), pair in tuned.items() if other == name]
                        pair = tune(name if depth > 1 else "gradient descent", learnt, depth, same_method[-1:])
                        tuned[name, depth] = pair
                        risk = judged.risk(tuned_polynomial(name, judged.t, *pair, depth))
                        rows.append(where | {"method": name, "depth": depth} | shares(risk))
                if condition == TIMED:
                    kept[d, n] = Settings(tuned, curved)
                print(f"  errors, d = {d}, n = {n}, condition {condition}", flush=True)
    return pd.DataFrame(rows), kept


# Times


@dataclass(frozen=True)
class Problem:
    """Examples of a batch of prompts, the law's inverse covariance, and tokens with the query's last."""

    X: Tensor
    y: Tensor
    inverse: Tensor
    tokens: Tensor


Operator = Callable[[Tensor], Tensor]


def formed(X: Tensor) -> Operator:
    """w -> H w, H made at the first call, so that a method of one gradient never pays for it."""
    n, made = X.shape[1], list[Tensor]()

    def apply(w: Tensor) -> Tensor:
        if not made:
            made.append(X.mT @ X / n)
        return torch.bmm(made[0], w.unsqueeze(-1)).squeeze(-1)

    return apply


def through(X: Tensor) -> Operator:
    """w -> X'(X w)/n."""
    n = X.shape[1]

    def apply(w: Tensor) -> Tensor:
        return torch.bmm(X.mT, torch.bmm(X, w.unsqueeze(-1))).squeeze(-1) / n

    return apply


FORMS = {"H formed": formed, "through examples": through}


def right(X: Tensor, y: Tensor) -> Tensor:
    """b = X'y/n."""
    return torch.bmm(X.mT, y.unsqueeze(-1)).squeeze(-1) / X.shape[1]


def descend(
    problem: Problem, form: Callable[[Tensor], Operator], name: str, eta: float, beta: float, depth: int
) -> Tensor:
    """One of `TUNED`."""
    H, b = form(problem.X), right(problem.X, problem.y)
    w = eta * b
    before = torch.zeros_like(w)
    for _ in range(depth - 1):
        if name == "gradient descent":
            w = torch.add(w, b - H(w), alpha=eta)
        elif name == "momentum":
            step = torch.add(beta * (w - before), b - H(w), alpha=eta)
            before, w = w, w + step
        else:
            ahead = torch.add(w, w - before, alpha=beta)
            before, w = w, torch.add(ahead, b - H(ahead), alpha=eta)
    return w


def conjugates(problem: Problem, form: Callable[[Tensor], Operator], depth: int, told: bool) -> Tensor:
    """Conjugate gradients; with the law's inverse covariance for preconditioner if told."""
    H, r = form(problem.X), right(problem.X, problem.y)
    tiny = torch.finfo(r.dtype).tiny
    w = torch.zeros_like(r)
    p = z = r @ problem.inverse if told else r
    rho = (r * z).sum(-1, keepdim=True)
    for k in range(depth):
        Hp = H(p)
        step = rho / (p * Hp).sum(-1, keepdim=True).clamp_min(tiny)
        w = torch.addcmul(w, step, p)
        if k == depth - 1:
            break
        r = torch.addcmul(r, step, Hp, value=-1)
        z = r @ problem.inverse if told else r
        before, rho = rho, (r * z).sum(-1, keepdim=True)
        p = torch.addcmul(z, rho / before.clamp_min(tiny), p)
    return w


def register(problem: Problem, form: Callable[[Tensor], Operator], alpha: list[float], gamma: list[float]) -> Tensor:
    """The LFOM of the polynomial floor, one register."""
    H, b = form(problem.X), right(problem.X, problem.y)
    s = b @ problem.inverse
    w = alpha[0] * s
    for step, keep in zip(alpha[1:], gamma[1:], strict=True):
        s = torch.addmm(s, b - H(w), problem.inverse, beta=keep)
        w = torch.add(w, s, alpha=step)
    return w


def register_tokens(problem: Problem, P: Tensor, Q: Tensor, alpha: list[float], gamma: list[float]) -> Tensor:
    """The same numbers as a Memformer runs them: (3.1), (3.2) on all tokens. Returns predictions."""
    Z = problem.tokens
    n, R = Z.shape[1] - 1, torch.zeros_like(problem.tokens)
    for step, keep in zip(alpha, gamma, strict=True):
        examples = Z[:, :-1]
        R = torch.baddbmm(R, Z, Q.T @ (examples.mT @ examples) @ P.T, beta=keep)
        Z = torch.add(Z, R, alpha=step / n)
    return -Z[:, -1, -1]


def curved(problem: Problem, root: Tensor, a: list[float], b: list[float]) -> Tensor:
    """GD++ with scalars, on inputs whitened by root = Sigma^(-1/2): T is then a polynomial in H, and symmetric."""
    X = problem.X @ root
    H, right_hand = X.mT @ X / X.shape[1], right(X, problem.y)
    w = a[0] * right_hand
    C, T = H, torch.eye(X.shape[-1], dtype=X.dtype)
    for k in range(1, len(a)):
        # T <- T - a b (T H T) T; the layer's gradient is T'T (H w - b).
        T = T - a[k - 1] * b[k - 1] * (C if k == 1 else C @ T @ T)
        g = (right_hand - torch.bmm(H, w.unsqueeze(-1)).squeeze(-1)).unsqueeze(-1)
        w = torch.add(w, torch.bmm(T, torch.bmm(T, g)).squeeze(-1), alpha=a[k])
        if k < len(a) - 1:
            C = T @ H
    return w @ root


def cholesky(problem: Problem) -> Tensor:
    """The normal equations, symmetric."""
    X, n = problem.X, problem.X.shape[1]
    factor, _ = torch.linalg.cholesky_ex(X.mT @ X / n)
    return torch.cholesky_solve(right(X, problem.y).unsqueeze(-1), factor).squeeze(-1)


def elimination(problem: Problem) -> Tensor:
    """The normal equations by LU."""
    X, n = problem.X, problem.X.shape[1]
    return torch.linalg.solve(X.mT @ X / n, right(X, problem.y))


def orthogonal(problem: Problem) -> Tensor:
    """Least squares on the examples by QR."""
    return torch.linalg.lstsq(problem.X, problem.y.unsqueeze(-1)).solution.squeeze(-1)


DIRECT = {"Cholesky": cholesky, "LU": elimination, "QR": orthogonal}


def problem(d: int, n: int, batch: int, dtype: torch.dtype) -> tuple[Problem, Tensor, Tensor]:
    """Prompts of the timed condition, their weights and queries."""
    Sigma = quadratics.covariance(spread(d, TIMED))
    prompt = quadratics.regression(Sigma, n).sample(
        batch, generator=make_generator(f"pareto, timed {d} {n}"), dtype=dtype
    )
    tokens = prompt.tokens()
    X, y = prompt.x[:, :-1].contiguous(), prompt.y[:, :-1].contiguous()
    return Problem(X, y, torch.linalg.inv(torch.from_numpy(Sigma)).to(dtype), tokens), prompt.w[:, 0], prompt.x[:, -1]


def ways(given: Problem, settings: Settings, n: int) -> Iterator[tuple[str, str, int, Callable[[], Tensor]]]:
    """Method, form, depth and a call that runs it."""
    d, dtype = given.X.shape[-1], given.X.dtype
    root = torch.from_numpy(np.diag(spread(d, TIMED) ** -0.5)).to(dtype)
    P, Q = token_form.parameters(given.inverse[None])
    alpha, gamma = (values.tolist() for values in polynomial_floor.optimal_registers(d, n, MOST))
    for depth in DEPTHS:
        for form, make in FORMS.items():
            for name in TUNED:
                pair = settings.tuned[name, depth]
                yield name, form, depth, lambda a=(given, make, name, *pair, depth): descend(*a)
            yield "conjugate gradients", form, depth, lambda a=(given, make, depth, False): conjugates(*a)
            yield "preconditioned CG", form, depth, lambda a=(given, make, depth, True): conjugates(*a)
            yield "LFOM", form, depth, lambda a=(given, make, alpha[:depth], gamma[:depth]): register(*a)
        yield "LFOM", "tokens", depth, lambda a=(given, P[0], Q[0], alpha[:depth], gamma[:depth]): register_tokens(*a)
        if depth in CURVED:
            scalars = [values.tolist() for values in settings.curved[depth]]
            yield "GD++", "H formed", depth, lambda a=(given, root, *scalars): curved(*a)
    for name, solve in DIRECT.items():
        yield name, "direct", 0, lambda solve=solve: solve(given)


def reference(given: Problem, settings: Settings, n: int, w_star: Tensor, name: str, depth: int) -> Tensor:
    """What the library makes of the same problem."""
    X, d = given.X, given.X.shape[-1]
    H, b = X.mT @ X / n, (given.y.unsqueeze(1) @ X).squeeze(1) / n
    if name in DIRECT:
        return w_star
    if name in TUNED:
        eta, beta = settings.tuned[name, depth]
        solver = {
            "gradient descent": lambda: solvers.gradient_descent(eta),
            "momentum": lambda: solvers.momentum(eta, beta),
            "Nesterov": lambda: solvers.nesterov(eta, beta),
        }[name]()
        return solvers.run_solver(solver, H, b, depth)[:, -1]
    if name.endswith(("gradients", "CG")):
        solver = solvers.conjugate_gradients(given.inverse if name == "preconditioned CG" else None)
        return solvers.run_solver(solver, H, b, depth)[:, -1]
    A = given.inverse.expand(depth, d, d)
    if name == "LFOM":
        Gamma = torch.from_numpy(lfom.registers(*polynomial_floor.optimal_registers(d, n, depth)))
        return memformer.iterates(H, b, A, Gamma)[:, -1]
    a, bend = settings.curved[depth]
    B = bend[:, None, None] * torch.eye(d, dtype=torch.float64)
    Gamma = torch.eye(depth, dtype=torch.float64)
    return memformer.iterates(H, b, a[:, None, None] * A, Gamma, B)[:, -1]


def hold(d: int, n: int, settings: Settings) -> None:
    """Refuse to time a form that does not compute what the library does."""
    given, w_star, queries = problem(d, n, 32, torch.float64)
    for name, form, depth, call in ways(given, settings, n):
        # Conjugate gradients are at rounding after d steps.
        if name.endswith(("gradients", "CG")) and depth >= d:
            continue
        expected, got = reference(given, settings, n, w_star, name, depth), call()
        if form == "tokens":
            expected = (expected * queries).sum(-1)
        off = float((got - expected).norm() / expected.norm())
        if not off < 1e-6:
            raise ValueError(f"{name}, {form}, {depth} steps, d = {d}, n = {n}: {off:.1e} from the library's")


def times(settings: dict[tuple[int, int], Settings]) -> pd.DataFrame:
    """Microseconds a prompt: the least of interleaved rounds, which other work on the machine can only add to."""
    rows: list[dict[str, object]] = []
    for (d, n), own in settings.items():
        hold(d, n, own)
        for batch in BATCHES:
            given, _, _ = problem(d, n, batch, torch.float32)
            calls = list(ways(given, own, n))
            repeats = []
            for *_, call in calls:
                call()
                start = time.perf_counter()
                call()
                repeats.append(max(1, int(SLICE / (time.perf_counter() - start))))
            rounds: list[list[float]] = []
            began, (few, many) = time.perf_counter(), ROUNDS
            while len(rounds) < few or (len(rounds) < many and time.perf_counter() - began < 12):
                rounds.append([])
                for (*_, call), times_over in zip(calls, repeats, strict=True):
                    start = time.perf_counter()
                    for _ in range(times_over):
                        call()
                    rounds[-1].append((time.perf_counter() - start) / times_over)
            least, middle = 1e6 / batch * np.min(rounds, axis=0), 1e6 / batch * np.median(rounds, axis=0)
            for i, (name, form, depth, _) in enumerate(calls):
                where = {"d": d, "n": n, "batch": batch, "method": name, "form": form, "depth": depth}
                rows.append(where | {"us": least[i], "median": middle[i]})
            print(f"  times, d = {d}, n = {n}, batch {batch}: {len(calls)} ways", flush=True)
    return pd.DataFrame(rows)


# What learning costs


def fits(depth: int = 4, count: int = 1_000) -> pd.DataFrame:
    """Seconds until an LFOM of four layers has its numbers, and its fresh error over the floor; n = 4 d."""
    rows: list[dict[str, object]] = []
    for d in SIZES:
        n, D = 4 * d, spread(d, TIMED)
        Sigma = quadratics.covariance(D)
        floor = float(polynomial_floor.optimal_risks(d, n, depth)[-1])
        fresh = quadratics.sample_hessians(Sigma, n, TESTS[d], generator=make_generator(f"pareto, judged {d}"))
        H = quadratics.sample_hessians(Sigma, n, count, generator=make_generator(f"pareto, learnt {d}"))

        def from_law(d: int = d, n: int = n, Sigma: np.ndarray = Sigma) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            _recursion.mean_traces.cache_clear()
            _recursion.wishart_recursion.cache_clear()
            return *polynomial_floor.optimal_registers(d, n, depth), np.linalg.inv(Sigma)

        def from_sample(H: Tensor = H) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            mean = H.numpy().mean(0)
            return *polynomial_floor.fitted_registers(H.numpy(), mean, depth), np.linalg.inv(mean)

        fitted: list[tuple[str, float, Tensor, Tensor]] = []
        for name, way in (("closed form, the law", from_law), ("closed form, 1,000 prompts", from_sample)):
            alpha, gamma, A = way()
            Gamma = torch.from_numpy(lfom.registers(alpha, gamma))
            fitted.append((name, median_ms(way, seconds=0.5) / 1e3, torch.from_numpy(A).expand(depth, d, d), Gamma))
        full, memory = memformer.Full(d, depth), memformer.OneRegister(depth)

        def loss(
            full: memformer.Full = full, memory: memformer.Memory = memory, H: Tensor = H, Sigma: np.ndarray = Sigma
        ) -> Tensor:
            M = memformer.error_matrices(H, full.A(), memory.Gamma())[:, -1]
            return memformer.risks(M, Sigma).mean().log()

        seconds = training_variants.minimise(nn.ModuleList([full, memory]), loss, iterations=25).seconds
        fitted.append(("L-BFGS, 1,000 prompts", seconds, full.A().detach(), memory.Gamma().detach()))
        best = torch.from_numpy(lfom.registers(*polynomial_floor.optimal_registers(d, n, depth)))
        exact = torch.linalg.inv(torch.from_numpy(Sigma)).expand(depth, d, d)
        at_floor = memformer.risks(memformer.error_matrices(fresh, exact, best)[:, -1], Sigma)
        for name, seconds, matrices, Gamma in fitted:
            # Paired with the floor's own numbers on the same prompts.
            gap = (memformer.risks(memformer.error_matrices(fresh, matrices, Gamma)[:, -1], Sigma) - at_floor) / floor
            row = {"d": d, "way": name, "seconds": seconds, "over_floor": gap.mean().item()}
            rows.append(row | {"se": gap.std().item() / len(gap) ** 0.5})
            print(f"  d = {d}, {name}: {seconds:.3g} s, {rows[-1]['over_floor']:+.1%} over the floor", flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/memformer-pareto{,-errors,-fit}.json")
    record = parser.parse_args().record
    command = "python benchmarks/pareto.py --record"
    torch.set_num_threads(1)
    shared = {"d": list(SIZES), "n/d": list(RATIOS), "depths": list(DEPTHS), "threads": 1}

    def keep(name: str, table: pd.DataFrame, config: dict[str, object], start: float) -> None:
        if record:
            records.record(name, table, config=config, seconds=time.monotonic() - start, command=command)
        else:
            print(f"\n{name}\n{table.to_string(index=False)}")

    start = time.monotonic()
    table, settings = errors()
    keep("memformer-pareto-errors", table.round(9), shared | {"tests": list(TESTS.values())}, start)
    start = time.monotonic()
    with torch.inference_mode():
        table = times(settings)
    config = shared | {"batches": list(BATCHES), "dtype": "float32", "condition": TIMED, "rounds": list(ROUNDS)}
    keep("memformer-pareto", table.round(4), config, start)
    start = time.monotonic()
    keep("memformer-pareto-fit", fits(), {"n/d": 4, "layers": 4, "threads": 1}, start)


if __name__ == "__main__":
    main()
