"""Time to train a Memformer to the same fresh loss: the published recipe, L-BFGS, closed form. Part of `make bench`.

python benchmarks/memformer.py              print the tables; a minute
python benchmarks/memformer.py --record     also write book/results/mem-{step,training,depth}-speed.json
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from run import median_ms
from torch import Tensor, nn

from icl.experiments import training_variants
from icl.models import memformer, token_form
from icl.models.memformer import FixedBlocks, Full, Memformer, OneRegister
from icl.profile import make_generator
from icl.tasks import Prompt, quadratics
from icl.theory.lfom import _recursion, polynomial_floor
from icl_book import records

N = 20


class Literal(nn.Module):
    """A Memformer's prediction from the paper's equations on all tokens."""

    def __init__(self, model: Memformer) -> None:
        """Keep the model, whose parameters are trained."""
        super().__init__()
        self.model = model

    def forward(self, prompt: Prompt) -> Tensor:
        """Predict the query's label (2.6)."""
        return -self.model.states(prompt)[:, -1, -1, -1]


def squared(model: nn.Module, prompt: Prompt) -> Tensor:
    """The loss of the paper on sampled labels."""
    return (model(prompt) - prompt.y[:, -1]).square().mean()


def fresh_loss(model: Memformer, Sigma: np.ndarray) -> float:
    """Expected squared error over 20,000 fresh sets of inputs, exact over queries and weights."""
    A, Gamma, _ = (part if part is None else part.detach().double() for part in model.blocks())
    H = quadratics.sample_hessians(Sigma, N, 20_000, generator=make_generator("benchmark, fresh"))
    assert A is not None
    assert Gamma is not None
    return float(memformer.risks(memformer.error_matrices(H, A, Gamma)[:, -1], Sigma).mean())


def by_state() -> pd.DataFrame:
    """Milliseconds of one step, forward and backward, by what is carried through the layers; d = 5, four layers."""
    d, layers, batch = 5, 4, 1_000
    prompt = quadratics.regression(np.eye(d), N).sample(batch, generator=make_generator("benchmark, states"))
    tokens, x, y = prompt.tokens(), prompt.x[:, :-1], prompt.y[:, :-1]
    leaf = (0.3 * torch.eye(d)).repeat(layers, 1, 1).requires_grad_()
    memory = torch.eye(layers)

    def reduced() -> tuple[Tensor, Tensor]:
        return x.mT @ x / N, (y.unsqueeze(1) @ x).squeeze(1) / N

    def by_tokens() -> Tensor:
        states = token_form.transformer(tokens, *token_form.parameters(leaf))
        return (-states[:, -1, -1, -1] - prompt.y[:, -1]).square().mean()

    def by_vectors(H: Tensor, b: Tensor) -> Tensor:
        w = memformer.iterates(H, b, leaf, memory)[:, -1]
        return ((w * prompt.x[:, -1]).sum(-1) - prompt.y[:, -1]).square().mean()

    H, b = reduced()

    def by_matrices() -> Tensor:
        return memformer.risks(memformer.error_matrices(H, leaf, memory)[:, -1], np.eye(d)).mean()

    ways: dict[str, tuple[Callable[[], Tensor], int]] = {
        "tokens": (by_tokens, (N + 1) * (d + 1)),
        "one vector, H and b made anew": (lambda: by_vectors(*reduced()), d),
        "one vector, H and b kept": (lambda: by_vectors(H, b), d),
        "one matrix, H kept (exact risk)": (by_matrices, d * d),
    }
    rows = []
    for name, (loss, size) in ways.items():

        def step(loss: Callable[[], Tensor] = loss) -> None:
            torch.autograd.grad(loss(), leaf)

        row = {"state": name, "numbers a prompt": size, "milliseconds": median_ms(step), "loss": loss().item()}
        if name.startswith("one vector") and abs(row["loss"] / rows[0]["loss"] - 1) > 1e-4:
            raise ValueError(f"{name} does not compute the loss of the tokens: {row['loss']:g}, {rows[0]['loss']:g}")
        rows.append(row)
        print("  " + ", ".join(f"{k} {v if isinstance(v, str) else f'{v:.3g}'}" for k, v in row.items()), flush=True)
    table = pd.DataFrame(rows)
    return table.assign(times=table.milliseconds[0] / table.milliseconds)


def published(d: int, layers: int, *, literal: bool, Sigma: np.ndarray, batch: int) -> tuple[float, Memformer]:
    """Seconds of the published recipe, in the token or in the reduced form, and the model; float32."""
    model = Memformer(Full(d, layers, dtype=torch.float32), OneRegister(layers, dtype=torch.float32))
    memformer.init_normal_(model, 1e-4, generator=make_generator("benchmark, start"))
    task = quadratics.regression(Sigma, N)
    start = time.perf_counter()
    trained: nn.Module = Literal(model) if literal else model
    training_variants.memformer_recipe(
        trained, squared, task, batch=batch, generator=make_generator("benchmark, prompts")
    )
    return time.perf_counter() - start, model


def by_search(d: int, layers: int, *, Sigma: np.ndarray, batch: int, target: float) -> tuple[float, Memformer]:
    """Seconds of L-BFGS on exact expected losses of `batch` prompts until the fresh loss is at most `target`."""
    X = (
        quadratics.regression(Sigma, N)
        .sample(batch, generator=make_generator("benchmark, prompts"), dtype=torch.float64)
        .x
    )
    for iterations in range(5, 200, 5):
        model = Memformer(Full(d, layers), OneRegister(layers))

        def loss(model: Memformer = model) -> Tensor:
            return model.risks(X[:, :-1], Sigma)[:, -1].mean()

        seconds = training_variants.minimise(model, loss, iterations=iterations).seconds
        if fresh_loss(model, Sigma) <= target:
            return seconds, model
    raise RuntimeError(f"200 iterations of L-BFGS do not reach a loss of {target:.4g}")


def coefficients(d: int, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """The optimal register computed from nothing: what earlier calls remembered is dropped."""
    _recursion.mean_traces.cache_clear()
    _recursion.wishart_recursion.cache_clear()
    return polynomial_floor.optimal_registers(d, N, layers)


def from_coefficients(alpha: np.ndarray, gamma: np.ndarray, A: np.ndarray) -> Memformer:
    """The Memformer with these coefficients and one matrix in all layers."""
    memory = OneRegister(len(alpha))
    with torch.no_grad():
        memory.alpha.copy_(torch.as_tensor(alpha))
        memory.gamma.copy_(torch.as_tensor(gamma[1:]))
    return Memformer(FixedBlocks(torch.as_tensor(A).expand(len(alpha), -1, -1)), memory)


def training() -> pd.DataFrame:
    """Seconds to a fresh loss that is at least as low as the published recipe's; d = 5, four layers, one thread."""
    d, layers, batch = 5, 4, 1_000
    Sigma = quadratics.covariance(quadratics.SECTION_3_3)
    rows: list[dict[str, float | str]] = []

    def add(name: str, seconds: float, model: Memformer) -> float:
        loss = fresh_loss(model, Sigma)
        rows.append({"way": name, "seconds": seconds, "ln fresh loss": float(np.log(loss))})
        print(f"  {name}: {seconds:.4g} s, ln of the fresh loss {np.log(loss):.3f}", flush=True)
        return loss

    target = add("published recipe, tokens", *published(d, layers, literal=True, Sigma=Sigma, batch=batch))
    add("published recipe, reduced form", *published(d, layers, literal=False, Sigma=Sigma, batch=batch))
    add("L-BFGS, exact expected loss", *by_search(d, layers, Sigma=Sigma, batch=batch, target=target))

    x = (
        quadratics.regression(Sigma, N)
        .sample(batch, generator=make_generator("benchmark, prompts"), dtype=torch.float64)
        .x
    )
    X = x[:, :-1].numpy()

    def from_sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        H = X.swapaxes(1, 2) @ X / N
        estimate = H.mean(0)
        return *polynomial_floor.fitted_registers(H, estimate, layers), np.linalg.inv(estimate)

    def from_law() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return *coefficients(d, layers), np.linalg.inv(Sigma)

    ways: dict[str, Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]]]
    ways = {"closed form, 1,000 prompts": from_sample, "closed form, the law": from_law}
    for name, way in ways.items():
        add(name, median_ms(way) / 1e3, from_coefficients(*way()))
    table = pd.DataFrame(rows)
    return table.assign(times=table.seconds[0] / table.seconds)


def by_depth() -> pd.DataFrame:
    """Milliseconds of the closed form for 7 to 12 layers at d = 10, and of a step of the published recipe."""
    rows = []
    prompt = quadratics.regression(np.eye(10), N).sample(1_000, generator=make_generator("benchmark"))
    for layers in range(7, 13):
        model = Memformer(Full(10, layers, dtype=torch.float32), OneRegister(layers, dtype=torch.float32))
        literal = Literal(model)
        optimiser = torch.optim.Adam(literal.parameters(), lr=0.0)

        def step(literal: Literal = literal, optimiser: torch.optim.Adam = optimiser) -> None:
            optimiser.zero_grad()
            squared(literal, prompt).backward()
            optimiser.step()

        def solve(layers: int = layers) -> None:
            coefficients(10, layers)

        row = {"layers": layers, "closed_form_ms": median_ms(solve), "recipe_step_ms": median_ms(step)}
        rows.append(row)
        print("  " + ", ".join(f"{k} {v:.3g}" for k, v in row.items()), flush=True)
    return pd.DataFrame(rows).round(3)


def main() -> None:
    """Measure, print, and record on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write book/results/mem-{step,training,depth}-speed.json")
    record = parser.parse_args().record
    command = "python benchmarks/memformer.py --record"
    torch.set_num_threads(1)
    for name, measure, config in (
        ("mem-step-speed", by_state, {"d": 5, "n": N, "layers": 4, "batch": 1_000, "threads": 1}),
        ("mem-training-speed", training, {"d": 5, "n": N, "layers": 4, "batch": 1_000, "threads": 1}),
        ("mem-depth-speed", by_depth, {"d": 10, "n": N, "batch": 1_000, "threads": 1}),
    ):
        start = time.monotonic()
        print(f"{name}, {config}:")
        table = measure()
        if record:
            records.record(name, table, config=config, seconds=time.monotonic() - start, command=command)


if __name__ == "__main__":
    main()
