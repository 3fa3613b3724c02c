"""Gated layers trained on a drift, against the bound for gates that depend on the current key alone.

The experiment of *What gating can buy*. Three layers (:data:`GATED_LAYERS`), a convolution of width 1, 2 or 4 before
them, three ways for it to be used (:data:`GATED_FEEDS`): each is trained from several starts with :data:`GATED_RECIPE`
at the better of :data:`GATED_RATES`, and judged in steady state as a multiple of the bound. The judge reads the layer
and Longhorn at its best on the same prompts; as Longhorn's error is the bound exactly, only the difference of the two
has to be estimated.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Natural, Positive, validated
from icl.experiments.optimal_filters import steady_task
from icl.experiments.training import AdamW, Config, Diverged, Run, fit
from icl.models.convolved import Convolved
from icl.models.delta_layers import Longhorn
from icl.profile import make_generator
from icl.tasks import Prompt
from icl.theory import steady

#: The layers by name, with whether they correct errors or add labels, and whether their fade is a gate.
GATED_LAYERS: Mapping[str, Mapping[str, Any]] = {
    "Mamba-2": {"corrects": False, "fades": True},
    "delta rule": {"corrects": True, "fades": False},
    "gated delta": {"corrects": True, "fades": True},
}

#: Ways to use the convolution, one filter and scalar gates; a filter and gates made at every step from keys that may be
#: compared; the same from keys with labels.
GATED_FEEDS: Mapping[str, Mapping[str, Any]] = {
    "one filter": {"mixes": False, "compares": False},
    "own filter": {},
    "own filter, labels": {"sees": "tokens"},
}

#: Tokens under the convolution.
GATED_WIDTHS = (1, 2, 4)
#: Step sizes of which the better is taken.
GATED_RATES = (1e-2, 3e-2)
#: How each is trained, its step size apart.
GATED_RECIPE = Config(800, 64, AdamW(weight_decay=0.0, beta2=0.99), warm_up=20, anneal_to=0.02, clip=1.0)

#: Positions of a prompt.
GATED_POSITIONS = 64
#: How many of them, counted from the end, are judged.
GATED_LAST = 32
# Initial positions without a training loss.
_SINCE = 16


@validated
def gated_layer(layer: str, fed: str, width: Count, d: Count, *, generator: torch.Generator) -> Convolved:
    """Initialise a layer, float32.

    Args:
        layer: one of :data:`GATED_LAYERS`.
        fed: one of :data:`GATED_FEEDS`.
        width: tokens under its convolution.
        d: dimension of the inputs.
        generator: what its convolution is drawn from.
    """
    for name, value, allowed in (("layer", layer, GATED_LAYERS), ("fed", fed, GATED_FEEDS)):
        _checks.one_of(name, value, allowed)
    return Convolved(d, width=width, generator=generator, **GATED_LAYERS[layer], **GATED_FEEDS[fed])


@validated
def train_gated(
    model: Convolved, law: steady.DriftLaw, lr: Positive, *, generator: torch.Generator, recipe: Config = GATED_RECIPE
) -> Run:
    """Train in place on fresh prompts of a law in its steady state, every position from the 17th a query.

    Args:
        model: the model to train.
        law: drift and noise; its d has to be the model's.
        lr: step size.
        generator: the stream of prompts.
        recipe: training configuration, except the step size.
    """
    _fits(model, law)
    rule = AdamW(lr, recipe.optimiser.weight_decay, recipe.optimiser.momentum, recipe.optimiser.beta2)
    config = Config(recipe.steps, recipe.batch, rule, recipe.warm_up, recipe.anneal_to, recipe.clip)

    def loss(trained: nn.Module, prompt: Prompt) -> Tensor:
        assert isinstance(trained, Convolved)
        return trained.loss(prompt, since=_SINCE)

    # Rare snapshots: copies would take longer than the steps.
    return fit(model, loss, steady_task(law, GATED_POSITIONS - 1), config, generator=generator, snapshot_every=100)


@validated
def over_bound(
    model: Convolved,
    law: steady.DriftLaw,
    prompts: Annotated[int, Ge(2)],
    *,
    generator: torch.Generator,
    size: Count = 1_000,
) -> tuple[float, float]:
    """Ratio of the clean steady-state error to the bound for gates of the current key, and its standard error.

        1 + mean(error^2 - Longhorn's error^2) / bound

    over the last half of each prompt. Layers judged with equal generators read the same prompts.

    Args:
        model: the model to evaluate.
        law: drift, without noise on the labels: there Longhorn at its best attains the bound.
        prompts: how many.
        generator: the stream of prompts.
        size: prompts at a time.

    Raises:
        icl.experiments.training.Diverged: if an error of the model is not finite.
    """
    _fits(model, law)
    if law.sigma_y:
        raise ValueError(f"law must have labels without noise, got sigma_y = {law.sigma_y!r}")
    bound = steady.best_unit_delta(law)
    dtype, device = model.log_odds.dtype, model.log_odds.device
    # eps of 0 is not a Longhorn's; against x'x of the order of d this one is.
    best = Longhorn(law.d, lam=bound.lam, eps=1e-9, dtype=dtype).to(device)
    task, differences = steady_task(law, GATED_POSITIONS - 1), []
    with torch.no_grad():
        for first in range(0, prompts, size):
            prompt = task.sample(min(size, prompts - first), generator=generator, dtype=dtype, device=device)
            mine, its = (each.errors(prompt.x, prompt.y)[:, -GATED_LAST:].double().square() for each in (model, best))
            differences.append((mine - its).mean(1))
    excess = torch.cat(differences) / bound.error
    if not bool(excess.isfinite().all()):
        raise Diverged("training diverged: on the judge's prompts some of the model's errors are not finite")
    return 1 + float(excess.mean()), float(excess.std()) / prompts**0.5


@validated
def gated_run(
    law: steady.DriftLaw,
    layer: str,
    fed: str,
    width: Count,
    seed: Natural,
    lr: Positive,
    prompts: Annotated[int, Ge(2)],
    *,
    recipe: Config = GATED_RECIPE,
) -> dict[str, Any]:
    """Train and evaluate one layer from one seed: a row with `ratio`, its error over the bound, and `se`.

    Start and prompts of the training come from the seed; all layers and seeds are judged on the same prompts.

    Args:
        law: drift, without noise on the labels.
        layer: one of :data:`GATED_LAYERS`.
        fed: one of :data:`GATED_FEEDS`.
        width: tokens under the convolution.
        seed: number of the start.
        lr: step size.
        prompts: how many it is judged on.
        recipe: of the training.

    Raises:
        icl.experiments.training.Diverged: if the training, or an error of the trained layer, is not finite.
    """
    model = gated_layer(layer, fed, width, law.d, generator=make_generator("gating, start", seed=seed))
    train_gated(model, law, lr, generator=make_generator("gating, training", seed=seed), recipe=recipe)
    ratio, se = over_bound(model, law, prompts, generator=make_generator("gating, judging"))
    return {"layer": layer, "fed": fed, "width": width, "seed": seed, "lr": lr, "ratio": ratio, "se": se}


@validated
def compare_gated(
    law: steady.DriftLaw,
    *,
    seeds: Count,
    prompts: Annotated[int, Ge(20)],
    widths: Sequence[int] = GATED_WIDTHS,
    recipe: Config = GATED_RECIPE,
) -> pd.DataFrame:
    """Compare all layers, feeds and widths: a row for each seed (:func:`gated_run`).

    The step size of each is the better of :data:`GATED_RATES` in a training from a start of its own, seed 0, on a tenth
    of the prompts; the seeds reported are 1 .. seeds.

    Args:
        law: drift, without noise on the labels.
        seeds: starts that are reported.
        prompts: how many each is judged on.
        widths: of the convolution, each at least 1.
        recipe: of the trainings.
    """
    rows = []
    for layer in GATED_LAYERS:
        for fed in GATED_FEEDS:
            for width in widths:
                what = (law, layer, fed, width)
                tried = [gated_run(*what, 0, lr, prompts // 10, recipe=recipe)["ratio"] for lr in GATED_RATES]
                lr = GATED_RATES[int(np.argmin(tried))]
                rows += [gated_run(*what, seed, lr, prompts, recipe=recipe) for seed in range(1, seeds + 1)]
    return pd.DataFrame(rows)


def _fits(model: Any, law: Any) -> None:
    _checks.instance("model", model, Convolved)
    _checks.instance("law", law, steady.DriftLaw)
    if model.d != law.d:
        raise ValueError(f"model must have d = {law.d}, to match law, got {model.d}")
