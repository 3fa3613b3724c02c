"""One layer of gated linear attention: weights by age, its unused parameters, its errors on prompts (*Gated linear
attention*).
"""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from icl.experiments.evaluation import squared_error
from icl.models.one_layer import OneLayerGLA, predict
from icl.profile import make_generator
from icl.tasks import DriftingRegression, Prompt
from icl.theory import one_layer
from icl_book.chapters.adaptation.why_stationarity_fails import paper_task, relative_error, steady_task
from icl_book.charts import Explorable, explorable, slider


def best_weights(task: DriftingRegression) -> Float64[np.ndarray, " n"]:
    """Best weights on the examples, of any shape, from the newest to the oldest and relative to the newest."""
    weights = one_layer.position_weights(task)[0, ::-1]
    return np.asarray(weights / weights[0])


def trained_layer(task: DriftingRegression, lam: float) -> OneLayerGLA:
    """The layer at its optimum (14), in float64."""
    optimum = one_layer.optimum(task, lam=lam)
    layer = OneLayerGLA(task.d, lam=lam, scale=0.0, generator=make_generator("weights"), dtype=torch.float64)
    return layer.set_weights(optimum.W_V, optimum.W_KQ)


def unread_entries(layer: OneLayerGLA, prompts: Prompt) -> Tensor:
    """What the entries of W_V and W_KQ that (9) leaves out do to the predictions of the layer as written in (7).

    Returns the gradients of the mean squared prediction in these entries, and the changes of the predictions when they
    are set to zero, in one axis.
    """
    W_V, W_KQ = (W.detach().clone().requires_grad_() for W in (layer.W_V, layer.W_KQ))
    y_hat = predict(prompts.tokens(), W_V, W_KQ, layer.lam)
    by_V, by_KQ = torch.autograd.grad(y_hat.square().mean(), (W_V, W_KQ))
    erased_V, erased_KQ = torch.zeros_like(W_V), W_KQ.detach().clone()
    erased_V[-1], erased_KQ[:, -1] = W_V.detach()[-1], 0
    change = predict(prompts.tokens(), erased_V, erased_KQ, layer.lam) - y_hat.detach()
    return torch.cat([by_V[:-1].flatten(), by_KQ[:, -1], change])


def errors_by_length(lengths: Iterable[int], lam: float) -> Float64[np.ndarray, " lengths"]:
    """Exact relative errors in the steady state, of a layer trained for every length."""
    return np.array([relative_error(steady_task(int(n)), lam) for n in lengths])


def simulated_errors(
    lengths: Sequence[int], lam: float, prompts: int, name: str
) -> tuple[Float64[np.ndarray, " lengths"], Float64[np.ndarray, " lengths"]]:
    """The same errors on simulated prompts, and their standard errors.

    Args:
        lengths: numbers of examples.
        lam: forgetting factor.
        prompts: number for every length.
        name: of the random streams, followed by the length.
    """
    errors = []
    for n in lengths:
        task = steady_task(n)
        layer = trained_layer(task, lam).requires_grad_(False)
        errors.append(squared_error(layer, task, prompts, generator=make_generator(f"{name} {n}")))
    mean, se = np.array(errors, dtype=float).T / one_layer.zero_predictor(steady_task())
    return mean, se


def gate_sliders(lam: float, oldest: int) -> Explorable:
    """Sliders of the chapter's first figure: the gate, the persistence of the drift, the dimension.

    Args:
        lam: forgetting factor at first.
        oldest: greatest age that is drawn.
    """
    settings = product((0.8, 0.95, 0.99), (1, 10, 40))
    star = {(gamma, d): one_layer.optimal_forgetting(paper_task(gamma=gamma, d=d)) for gamma, d in settings}
    at_star, first, plain = (relative_error(paper_task(), each) for each in (star[0.95, 10], lam, 1.0))
    return explorable(
        "gate",
        slider("lam", 0.5, 1.0, value=lam, step=0.005, words="forgetting factor of the gate"),
        slider("gamma", 0.5, 1.0, value=0.95, step=0.005, words="persistence of the rule"),
        slider("d", 1, 40, value=10, words="dimensions"),
        question="Can ink that fades at a constant rate be the best ink? Move λ until the GLA curve lies on the dashed "
        "one. Which way must λ go after that if γ grows, and which way if d grows?",
        answer=f"It can: at γ = 0.95 and d = 10 the two meet near λ = {star[0.95, 10]:.3f}. There the error is "
        f"{at_star:.1%} of the zero predictor's; with λ = {lam:g} it is {first:.1%}, with λ = 1 {plain:.1%}. In both "
        f"cases λ must grow: slower drift wants a longer memory (γ = 0.8: λ = {star[0.8, 10]:.3f}, γ = 0.99: "
        f"{star[0.99, 10]:.3f}), and so do more dimensions (d = 1: {star[0.95, 1]:.3f}, d = 40: {star[0.95, 40]:.3f}), "
        "because there is more crosstalk to average out.",
        n=100,
        sigma_e=0.1,
        oldest=oldest,
    )
