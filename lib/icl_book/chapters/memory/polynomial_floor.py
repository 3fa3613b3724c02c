"""Models whose coefficients all prompts share, next to their floor: trainings, orders of steps, limits (*The polynomial
floor*).

The floor and the registers that attain it are :mod:`icl.theory.lfom.polynomial_floor`'s. Risks are mean squared errors,
dimensionless; they begin at d, since inputs and weights have inverse covariances.
"""

import time
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from torch import Tensor

from icl import solvers
from icl.experiments.training_variants import minimise
from icl.models import memformer
from icl.models.memformer import FixedBlocks, Full, FullTable, Memformer, NoMemory, OneRegister, ScaledBlocks
from icl.profile import make_generator
from icl.tasks.quadratics import SECTION_3_3, SQUARED, covariance, regression, sample_hessians
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor
from icl_book.charts import Explorable, explorable, slider

Depths = Float64[np.ndarray, " depths"]
Steps = Float64[np.ndarray, " steps"]
Spectra = Float64[Tensor, "prompts d"]

#: Dimension and examples of the paper's section 3.3.
d, n = 5, 20
#: Both readings of its D: variances, or standard deviations.
CONVENTIONS = {"D": SECTION_3_3, "D²": SQUARED}
#: Layers of the figures' models at d = 5 and at d = 10.
SHALLOW, DEEP = 4, 7
TRAINING = {"seeds": 5, "prompts": 20_000, "fresh prompts": 40_000, "d": d, "n": n}


# Trained models


def train_memformer(layers: int, seed: int, prompts: int = 20_000, fresh: int = 40_000) -> dict[str, float]:
    """Train all of A and Gamma on the exact last-layer risk of some prompts; compare with the floor on fresh ones.

    In white coordinates, by L-BFGS.

    Args:
        layers: L.
        seed: of the prompts and of the start.
        prompts, fresh: for training and for the test.

    Returns:
        A row of the record: the risk on either set, the mean gap to the best polynomial on the same fresh prompts, and
        the gap's standard error.
    """
    H = sample_hessians(np.eye(d), n, prompts, generator=make_generator(f"LFOM {layers}", seed=seed))
    model = Memformer(Full(d, layers), FullTable(layers))
    start = make_generator(f"LFOM {layers}, A", seed=seed)
    memformer.init_normal_(model, 0.3, generator=start, names=["matrices"])
    eye = torch.eye(d, dtype=torch.float64)

    def last_risks(H: Tensor) -> Tensor:
        A, Gamma, _ = model.blocks()
        M, written = eye.expand_as(H), list[Tensor]()
        for layer in range(layers):
            # M' is carried, so that A multiplies from the right, all prompts at once.
            written.append(((M @ H).reshape(-1, d) @ A[layer]).view(-1, d, d))
            M = M - sum((Gamma[layer, j] * R for j, R in enumerate(written)), torch.zeros_like(M))
        return M.square().sum((1, 2))

    end = minimise(model, lambda: last_risks(H).mean(), iterations=300, tolerance=1e-6)
    test = sample_hessians(np.eye(d), n, fresh, generator=make_generator(f"LFOM {layers}, fresh", seed=seed))
    with torch.no_grad():
        risk = last_risks(test)
        A, Gamma, _ = model.blocks()
        literal = memformer.error_matrices(test[:8], A, Gamma)[:, -1].square().sum((1, 2))
        if not torch.allclose(literal, risk[:8], rtol=1e-8):
            raise ValueError("the short form must be the library's model")
    gap = risk.numpy() - best_polynomial_errors(torch.linalg.eigvalsh(test), layers)[:, -1]
    return {
        "layers": layers,
        "seed": seed,
        "trained": end.losses[-1],
        "fresh": risk.mean().item(),
        "gap": gap.mean().item(),
        "se": gap.std(ddof=1) / len(gap) ** 0.5,
    }


def train_all(depths: Iterable[int] = range(1, SHALLOW + 1), **sizes: int) -> tuple[pd.DataFrame, float]:
    """Trainings of the record, five seeds per depth, and the seconds they took."""
    began = time.monotonic()
    rows = [train_memformer(layers, seed, **sizes) for layers in depths for seed in range(TRAINING["seeds"])]
    return pd.DataFrame(rows), time.monotonic() - began


def by_depth(trainings: pd.DataFrame) -> pd.DataFrame:
    """Means of the trainings by depth, next to the floor, with standard errors over seeds."""
    groups = trainings.groupby("layers")
    table = groups[["trained", "fresh", "gap"]].mean()
    table.insert(2, "floor", polynomial_floor.optimal_risks(d, n, int(table.index.max()))[table.index])
    table["gap's s.e. over seeds"] = groups["gap"].sem()
    table["least gap in its own s.e."] = (trainings["gap"] / trainings["se"]).groupby(trainings["layers"]).min()
    table["above the floor, %"] = 100 * table["gap"] / table["floor"]
    return table


def best_polynomial_errors(t: Spectra, layers: int) -> Float64[np.ndarray, "prompts layers"]:
    """Squared errors of the floor's polynomials of degree 1 .. layers on prompts with these eigenvalues."""
    size = t.shape[-1]
    best = [polynomial_floor.optimal_polynomial(size, n, degree) for degree in range(1, layers + 1)]
    return np.stack([(np.polynomial.polynomial.polyval(t.numpy(), p) ** 2).sum(-1) for p in best], 1)


def best_equal_steps(depth: int) -> float:
    """Least risk of that many equal steps of gradient descent with 1/Sigma."""

    def risk(eta: float) -> float:
        return float(lfom.table_risks(lfom.gradient_descent_table(eta, depth), d, n)[-1])

    return float(minimize_scalar(risk, bounds=(0.1, 1.0), method="bounded").fun) if depth else float(d)


# With memory and without


def best_subsets(steps: Steps, risk: Callable[[Steps], float], none: float) -> Depths:
    """Least risk that 0, 1, .. of these plain steps leave; without memory only their set matters, not their order.

    Args:
        steps: all of them.
        risk: what some steps leave.
        none: what no step leaves.
    """
    sizes = range(1, len(steps) + 1)
    return np.array(
        [none, *(min(risk(steps[list(some)]) for some in combinations(range(len(steps)), k)) for k in sizes)]
    )


def trained_for_the_last_layer(depth: int = DEEP, starts: int = 5) -> dict[str, Float64[np.ndarray, "starts depths"]]:
    """Exact risks after 0 .. depth layers of models trained on the last layer's exact risk alone, and of rivals.

    Returns:
        By model, one row per start: one register, plain steps, the best sets of the best plain steps, the floor.
    """
    seven = polynomial_floor.optimal_steps(d, n, depth)
    # Gauss's rule for t dm: the expected loss of so many layers is a sum over as many eigenvalues.
    nodes = 1 / seven
    powers = polynomial_floor.wishart_moments(d, n, depth)[1:]
    weights = torch.tensor(np.linalg.solve(np.vander(nodes, increasing=True).T, powers) / nodes)
    at_nodes = torch.tensor(nodes).reshape(-1, 1, 1)

    def train(model: Memformer, seed: int) -> Depths:
        stream = make_generator("last layer", seed=seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=stream, dtype=torch.float64))

        def loss() -> Tensor:
            A, Gamma, _ = model.blocks()
            M = memformer.error_matrices(at_nodes, A, Gamma)[:, -1, 0, 0]
            return weights @ M.square()

        minimise(model, loss, iterations=2_000, tolerance=1e-12)
        A, Gamma, _ = model.blocks()
        return lfom.table_risks(Gamma.detach().numpy(), d, n, A[:, 0, 0].detach().numpy())

    one = torch.ones(1, 1, dtype=torch.float64)
    makes: dict[str, Callable[[], Memformer]] = {
        "one register": lambda: Memformer(FixedBlocks(one.repeat(depth, 1, 1)), OneRegister(depth)),
        "plain steps": lambda: Memformer(ScaledBlocks(one, depth), NoMemory(depth)),
    }
    risks = {name: np.stack([train(make(), seed) for seed in range(starts)]) for name, make in makes.items()}
    sets = best_subsets(seven, lambda a: float(lfom.table_risks(np.eye(len(a)), d, n, a)[-1]), d)
    return risks | {
        "best sets of plain steps": sets[None],
        "polynomial floor": polynomial_floor.optimal_risks(d, n, depth)[None],
    }


def leja(a: Steps) -> Steps:
    """Steps in an order in which every next root, 1 / a, is far from all before (Leja)."""
    left, taken = list(1 / a), list[float]()
    while left:
        taken.append(max(left, key=lambda t: float(np.prod([abs(t - s) for s in taken] or [t]))))
        left.remove(taken[-1])
    return 1 / np.array(taken)


def orders_of_steps(layers: int = 5) -> dict[str, Depths]:
    """Exact risks after 0 .. layers layers: the best plain steps in three orders, one register, and the floor."""
    steps = polynomial_floor.optimal_steps(d, n, layers)
    plain = lfom.gradient_descent_table(1.0, layers)
    orders = {"short steps first": steps, "long steps first": steps[::-1], "spread order": leja(steps)}
    return {name: lfom.table_risks(plain, d, n, a=order) for name, order in orders.items()} | {
        "one register": lfom.table_risks(lfom.registers(*polynomial_floor.optimal_registers(d, n, layers)), d, n),
        "polynomial floor": polynomial_floor.optimal_risks(d, n, layers),
    }


def in_low_precision(depth: int = 16, size: int = 50, examples: int = 200, prompts: int = 50) -> pd.DataFrame:
    """Mean squared errors of one polynomial run in four ways: the largest on the way, and the last in three precisions.

    In exact arithmetic the four end alike.
    """
    ratio, ones, none = size / examples, np.ones(depth), np.zeros(depth)
    steps = polynomial_floor.limit_steps(ratio, depth)
    plans = {
        "short steps first": (steps, ones, none),
        "long steps first": (steps[::-1], ones, none),
        "spread order": (leja(steps), ones, none),
        "one register": (ones, *polynomial_floor.limit_registers(ratio, depth)),
    }
    H = sample_hessians(np.eye(size), examples, prompts, generator=make_generator("short numbers"))

    def errors(plan: tuple[Steps, Steps, Steps], H: Tensor) -> list[float]:
        """Mean errors of s <- -a H e + gamma s, e <- e + alpha s."""
        N = torch.eye(size, dtype=H.dtype).expand_as(H)
        s, seen = torch.zeros_like(N), list[float]()
        for a, alpha, gamma in zip(*(part.tolist() for part in plan), strict=True):
            s = gamma * s - a * (H @ N)
            N = N + alpha * s
            seen.append(N.double().square().sum((1, 2)).mean().item())
        return seen

    rows = {}
    for name, plan in plans.items():
        exact = errors(plan, H)
        rows[name] = {
            "largest on the way": max(exact),
            "end, 53 bits": exact[-1],
            "24 bits": errors(plan, H.float())[-1],
            "8 bits": errors(plan, H.bfloat16())[-1],
        }
    return pd.DataFrame(rows).T


def train_register(layers: int = 5, prompts: int = 2_000) -> pd.DataFrame:
    """One register trained on the logarithms of the exact risks of all layers, summed, next to the closed form.

    Returns:
        One row per layer; the last column is the exact risk over the floor.
    """
    eye = np.eye(d)
    memory = OneRegister(layers)
    model = Memformer(FixedBlocks(torch.from_numpy(eye).repeat(layers, 1, 1)), memory)
    few = regression(eye, n).sample(prompts, generator=make_generator("trained register"), dtype=torch.float64)
    X = few.x[:, :-1]
    minimise(model, lambda: model.risks(X, eye).mean(0)[1:].log().sum(), iterations=60)
    alpha, gamma = polynomial_floor.optimal_registers(d, n, layers)
    learnt = lfom.table_risks(memory.Gamma().detach().numpy(), d, n)
    columns = {
        "α, trained": memory.alpha.detach().numpy(),
        "α, closed form": alpha,
        "γ, trained": np.append(0, memory.gamma.detach().numpy()),
        "γ, closed form": gamma,
        "risk, trained / floor": learnt[1:] / polynomial_floor.optimal_risks(d, n, layers)[1:],
    }
    return pd.DataFrame(columns, index=pd.Index(range(1, layers + 1), name="layer"))


# High dimension


def limit_subsets(ratio: float, depth: int) -> Depths:
    """Least share of the error that 0 .. depth of the best plain steps for that depth leave, in high dimension.

    Args:
        ratio: examples per dimension, n/d.
        depth: layers that the steps are best for.
    """
    steps = polynomial_floor.limit_steps(1 / ratio, depth)
    return best_subsets(steps, lambda a: float(lfom.limit_table_risks(np.eye(len(a)), 1 / ratio, a)[-1]), 1.0)


def early_stop(ratio: float, depth: int = 8) -> float:
    """Least that plain steps for `depth` layers leave one layer early, over the floor of that layer."""
    return float((limit_subsets(ratio, depth) / polynomial_floor.limit_risks(1 / ratio, depth))[-2])


def floor_sliders(ratio: float = 4.0, layers: int = 4, deepest: int = 8) -> Explorable:
    """Sliders of the floor in high dimension: examples per dimension, layers, and a switch for the register."""
    return explorable(
        "polynomialFloor",
        slider("ratio", 0.5, 4, value=ratio, step=0.1, words="n/d, examples per dimension"),
        slider("layers", 1, deepest, value=layers, words="layers of the model"),
        {"name": "register", "label": "register", "value": False},
        question="Guess before you move: a model of eight layers, tuned to be best after the eighth, is stopped after "
        "the seventh. How much does it lose without a register, and how much with one? "
        "What if there are fewer examples?",
        answer=f"Without a register, with {ratio:g} examples per dimension, it leaves {early_stop(ratio):.2f} times "
        "what the best model of seven layers leaves. With a register it leaves no more than that model: its curve is "
        f"on the dashed floor. With one example per dimension plain steps leave {early_stop(1):.2f} times as much; "
        f"with one example for every two dimensions, {early_stop(0.5):.2f} times, because there nearly all that is "
        "left is what no example shows.",
        deepest=deepest,
    )


def conjugate_gradient_limit(c: float, layers: int) -> Depths:
    """Error of preconditioned conjugate gradients over the floor after 0 .. layers layers, at d/n = c as d grows.

    They are the means of the floor's polynomials with weights U_k(x_0)^2.
    """
    k = np.arange(layers + 1)
    u, r = c ** -k.astype(float) * ((1 - c ** (k + 1)) / (1 - c)) ** 2, polynomial_floor.limit_risks(c, layers)
    ratios = []
    for j in k:
        pair = r[np.maximum.outer(k[: j + 1], k[: j + 1])]
        ratios.append(u[: j + 1] @ pair @ u[: j + 1] / u[: j + 1].sum() ** 2 / r[j])
    return np.array(ratios)


def registers_by_dimension(sizes: Iterable[int] = (5, 20, 80), layers: int = 5) -> pd.DataFrame:
    """Register on the floor at n = 4 d, its limit, and Polyak's numbers for the limit's interval."""
    rows = {}
    for size in sizes:
        alpha, gamma = polynomial_floor.optimal_registers(size, 4 * size, layers)
        rows[f"d = {size}"] = [*alpha, *gamma[1:]]
    alpha, gamma = polynomial_floor.limit_registers(1 / 4, layers)
    rows["limit"] = [*alpha, *gamma[1:]]
    eta, beta = solvers.tuned_momentum((1 - 0.5) ** 2, (1 + 0.5) ** 2)
    rows["Polyak"] = [eta] * layers + [beta] * (layers - 1)
    names = [f"α{j}" for j in range(layers)] + [f"γ{j}" for j in range(1, layers)]
    return pd.DataFrame(rows, index=names).T


# Coefficients of the prompt


def prompt_polynomials(t: Spectra, weight: Spectra, layers: int) -> Float64[Tensor, "prompts depths d"]:
    """Values p_0 .. p_L at a prompt's eigenvalues, where p_l has the least sum of weight p^2: one polynomial a prompt.

    By conjugate gradients' recursion, which stops when it has nothing left to remove.
    """
    e, s = torch.ones_like(t), torch.zeros_like(t)
    polynomials, before = [e], torch.full_like(t[:, :1], torch.inf)
    total = (weight * t).sum(-1, keepdim=True)
    for _ in range(layers):
        energy = (weight * t * e * e).sum(-1, keepdim=True)
        s = energy / before * s - t * e
        size = (weight * s * s).sum(-1, keepdim=True)
        going = energy > 1e-26 * total
        e = torch.where(going, e + energy / torch.where(going, size, 1.0) * s, e)
        before = torch.where(going, energy, torch.inf)
        polynomials.append(e)
    return torch.stack(polynomials, 1)


def from_floor_to_cg(size: int, examples: int, layers: int, prompts: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean errors after 0 .. layers layers, and standard errors, of polynomials that know more and more of the prompt.

    Columns: the floor; the prompt's own spectrum; spectrum and answer, an oracle; preconditioned conjugate gradients.
    """
    H = sample_hessians(np.eye(size), examples, prompts, generator=make_generator(f"ladder {size} {examples}"))
    t = torch.linalg.eigvalsh(H).clamp(min=0)
    stream = make_generator(f"ladder, w {size} {examples}")
    square = torch.randn(t.shape, generator=stream, dtype=t.dtype).square()
    weights = {"own spectrum": torch.ones_like(t), "own answer": square, "preconditioned CG": square * t}
    means = {"polynomial floor": polynomial_floor.optimal_risks(size, examples, layers)}
    errors = {}
    for name, weight in weights.items():
        error = (square[:, None] * prompt_polynomials(t, weight, layers) ** 2).sum(-1)
        means[name] = error.mean(0).numpy()
        errors[name] = (error.std(0) / prompts**0.5).numpy()
    return pd.DataFrame(means), pd.DataFrame(errors)


def solver_residue(steps: int = 4, prompts: int = 4_000) -> float:
    """Largest difference between error norms of the solver's conjugate gradients and :func:`prompt_polynomials`'."""
    H = sample_hessians(np.eye(d), n, prompts, generator=make_generator("ladder, solver"))
    w = torch.randn(prompts, d, generator=make_generator("ladder, solver w"), dtype=torch.float64)
    walk = solvers.run_solver(solvers.conjugate_gradients(), H, torch.einsum("bij,bj->bi", H, w), steps)
    t, V = torch.linalg.eigh(H)
    inside = torch.einsum("bij,bi->bj", V, w)
    spectral = inside[:, None] * prompt_polynomials(t, inside**2 * t, steps)
    return float(((walk - w[:, None]).norm(dim=-1) - spectral.norm(dim=-1)).abs().max())


def conjugate_gradients(D: Float64[np.ndarray, " d"], steps: int, prompts: int, name: str) -> Depths:
    """Mean error at the query of conjugate gradients without 1/Sigma after 0 .. steps steps.

    Args:
        D: variances of the inputs.
        name: of the random stream.
    """
    prompt = regression(covariance(D), n).sample(prompts, generator=make_generator(name), dtype=torch.float64)
    X, w = prompt.x[:, :-1], prompt.w[:, 0]
    H = X.mT @ X / n
    walk = solvers.run_solver(solvers.conjugate_gradients(), H, torch.einsum("bij,bj->bi", H, w), steps)
    return ((walk - w[:, None]) ** 2 * torch.from_numpy(D)).sum(-1).mean(0).numpy()


class Rival(NamedTuple):
    """A method of the paper's figures, and its risk in multiples of the floor: as printed, and tuned."""

    method: str
    convention: str
    printed: float
    tuned: float


def rivals(steps: int = SHALLOW, prompts: int = 20_000) -> list[Rival]:
    """Nesterov's method and momentum with the paper's step sizes and with the best, under both readings of D."""
    tables: dict[str, tuple[Callable[..., Any], float, float]] = {
        "Nesterov": (lfom.nesterov_table, 0.03, 0.9),
        "momentum": (lfom.momentum_table, 0.005, 0.9),
    }
    floor, methods = polynomial_floor.optimal_risks(d, n, steps)[-1], []
    for convention, D in CONVENTIONS.items():
        # Means of products of the Hessian's powers for A = I: a polynomial's risk is a quadratic form in them.
        stream = make_generator(f"rivals {D.min():g}")
        K = torch.tensor(D)[:, None] * sample_hessians(np.eye(d), n, prompts, generator=stream)
        powers = [torch.eye(d, dtype=K.dtype).expand_as(K)]
        for _ in range(steps):
            powers.append(K @ powers[-1])
        flat = torch.stack(powers, 1).flatten(2)
        G = torch.einsum("bik,bjk->ij", flat, flat).numpy() / prompts

        def risk(table: Any, G: np.ndarray = G) -> float:
            c = lfom.polynomials(table)[-1]
            return float(c @ G[: len(c), : len(c)] @ c)

        for name, (table, eta, beta) in tables.items():

            def log_risk(at: np.ndarray, table: Callable[..., Any] = table, risk: Callable[..., float] = risk) -> float:
                return float(np.log(risk(table(np.exp(at[0]), expit(at[1]), steps))))

            starts = [(np.log(step), logit) for step in (0.3, 1.0) for logit in (-2.0, 1.0)]
            tuned = np.exp(min(minimize(log_risk, start, method="Nelder-Mead").fun for start in starts))
            methods.append(Rival(name, convention, risk(table(eta, beta, steps)) / floor, float(tuned) / floor))
    return methods


# Ten dimensions


def gauss(t: Float64[Tensor, " eigenvalues"], count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights that average polynomials of degree 2 count - 1 as all the t do."""
    basis, J = [torch.full_like(t, len(t) ** -0.5)], t.new_zeros(count, count)
    for k in range(count):
        v = t * basis[k]
        J[k, : k + 1] = torch.stack(basis) @ v  # its lower triangle is enough
        # Twice, so that rounding leaves no trace of the vectors before.
        for _ in range(2):
            v = v - torch.stack(basis).T @ (torch.stack(basis) @ v)
        basis.append(v / v.norm())
    nodes, vectors = torch.linalg.eigh(J)
    return nodes, vectors[0] ** 2


def train_on_eigenvalues(size: int = 10, layers: int = DEEP, prompts: int = 20_000) -> Depths:
    """Exact risks after 1 .. layers layers, A = 1/Sigma and Gamma trained on prompts' eigenvalues."""
    memory = FullTable(layers)
    with torch.no_grad():
        # Steps of one would diverge before training has begun.
        memory.weights.mul_(0.5)
    H = sample_hessians(np.eye(size), n, prompts, generator=make_generator(f"LFOM {size}"))
    # The errors have degree 2 L at most in the eigenvalues: L + 1 nodes stand for all of them.
    t, weights = gauss(torch.linalg.eigvalsh(H).flatten(), layers + 1)

    def loss() -> Tensor:
        Gamma, p, errors = memory.Gamma(), [torch.ones_like(t)], list[Tensor]()
        for layer in range(layers):
            p.append(p[-1] - sum((Gamma[layer, j] * t * q for j, q in enumerate(p)), torch.zeros_like(t)))
            errors.append(size * (weights * p[-1].square()).sum())
        return torch.stack(errors).log().sum()

    minimise(memory, loss, iterations=100)
    return np.asarray(lfom.table_risks(memory.Gamma().detach().numpy(), size, n)[1:])


def excess_by_prompts(counts: Iterable[int], size: int = 10, layers: int = DEEP) -> dict[int, Depths]:
    """Exact risk over the floor after 1 .. layers layers of the register that is best for so many stacked prompts."""
    floor, excess = polynomial_floor.optimal_risks(size, n, layers), {}
    for count in counts:
        H = sample_hessians(np.eye(size), n, count, generator=make_generator(f"LFOM {size}")).numpy()
        Gamma = lfom.registers(*polynomial_floor.fitted_registers(H, None, layers))
        excess[count] = (lfom.table_risks(Gamma, size, n) / floor)[1:]
    return excess
