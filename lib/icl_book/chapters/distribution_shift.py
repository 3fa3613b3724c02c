"""Test-time adaptation of a trained model: some parameters on k labelled prompts, or a gate on inputs alone.

[Dutta & Sra 2025, sec. 4.2] freezes a model's heads and trains the gates, and then the memory's Gamma too, on prompts
of the law that it meets. :func:`adapt` does that to a copy, for any model whose forward takes a prompt and returns its
predictions: by AdamW, a number of steps, or by L-BFGS, to the minimum. Either draws nothing, so that the same prompts
give the same copy. :func:`rescale` is not in the paper: it reads the variance of the inputs, and needs no label.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Positive, validated
from icl.experiments.training import Config, fit
from icl.experiments.training_variants import minimise
from icl.models.experts import FreeGate, MultiHead
from icl.tasks import Prompt, Task


class Given:
    """Task with a fixed batch of prompts.

    Args:
        prompt: the batch.
    """

    @validated
    def __init__(self, prompt: Prompt) -> None:
        """Store the prompts."""
        self.prompt = prompt

    @validated
    def sample(
        self,
        batch: Count,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Prompt:
        """Return the prompts, without using the generator.

        Raises:
            ValueError: if another batch or dtype, or another device, is asked for than they have.
        """
        here = self.prompt.x
        if (batch, dtype) != (len(here), here.dtype):
            raise ValueError(f"batch must be {len(here)} in {here.dtype}, the prompts given, got {batch} in {dtype}")
        if device is not None and torch.empty(0, device=device).device != here.device:
            raise ValueError(f"device must be {here.device}, that of the prompts given, got {device}")
        return self.prompt


@validated
def query_loss(model: nn.Module, prompt: Prompt) -> Float[Tensor, ""]:
    """Mean squared error of a model's predictions at the query, in units of y^2."""
    predictions = model(prompt)
    _checks.shape("model", predictions, (prompt.batch,), "to predict a label for each prompt")
    return (predictions - prompt.y[:, -1]).square().mean()


@dataclass(frozen=True, eq=False)
class Adapted:
    """Result of test-time training.

    Attributes:
        model: the adapted copy; what was adapted is what requires a gradient in it.
        losses: float64, mean squared errors on the prompts of the adaptation on the way, the first before it.
        numbers: how many parameters were adapted.
    """

    model: Any
    losses: np.ndarray
    numbers: int


@validated
def adapt(
    model: nn.Module,
    prompt: Prompt,
    names: Sequence[str] = (),
    *,
    config: Config | None = None,
    iterations: Count = 200,
) -> Adapted:
    """Train some parameters of a copy of the model on the query labels of these prompts; the others stay frozen.

    Args:
        model: whose forward maps a prompt to predictions, (batch,); it is left as it is.
        prompt: the k labelled prompts, in the model's dtype.
        names: parts of parameters' names, such as ("gates",) or ("gate", "memory"); empty for all parameters.
        config: steps of AdamW, all of them on all prompts (its batch does not count); None is L-BFGS with a line
            search (:func:`~icl.experiments.training_variants.minimise`).
        iterations: of L-BFGS, at most.

    Raises:
        ValueError: if one of the names is part of no parameter's, or arguments do not fit together.
        icl.experiments.training.Diverged: if AdamW's loss is not finite.
        FloatingPointError: if that of L-BFGS is not, at its start or end.
    """
    all_names = [name for name, _ in model.named_parameters()]
    if (
        isinstance(names, str)
        or not all_names
        or not all(any(str(part) in name for name in all_names) for part in names)
    ):
        raise ValueError(f"names must be a sequence of parts of {', '.join(all_names) or 'no name'}, got {names!r}")
    if config is not None and not isinstance(config, Config):
        raise ValueError(f"config must be an icl.experiments.training.Config or None, got {config!r}")
    mine = copy.deepcopy(model)
    numbers = 0
    for name, parameter in mine.named_parameters():
        parameter.requires_grad_(not names or any(part in name for part in names))
        numbers += parameter.numel() * parameter.requires_grad
    if config is None:
        losses = minimise(mine, lambda: query_loss(mine, prompt), iterations=iterations).losses
    else:
        full_batch = replace(config, batch=prompt.batch)
        losses = fit(mine, query_loss, cast(Task, Given(prompt)), full_batch, generator=torch.Generator()).losses
    return Adapted(mine, losses, numbers)


@validated
def rescale(model: MultiHead, X: Float[Tensor, "batch n d"], *, made_for: Positive) -> MultiHead:
    """Copy with gates rescaled by made_for / s, s = tr H / d over all k prompts' inputs; labels are not used.

    Where B = 0, gates that are g times as large make p(g t) of the error polynomial p(t) of inputs about 0: a model
    made for one variance is then made for that of these inputs, up to what k n d numbers say of a variance. A gate
    that reads each prompt's own trace is :class:`~icl.models.experts.PromptGate`.

    Args:
        model: with a :class:`~icl.models.experts.FreeGate`, and without B; it is left as it is.
        X: inputs of the k prompts' examples.
        made_for: variance that the model is good at, in x^2.
    """
    if not isinstance(model.gate, FreeGate) or any(head.curvature is not None for head in model._members()):
        raise ValueError(f"model must have a FreeGate and heads without curvature, got {type(model.gate).__name__}")
    _checks.shape("X", X, (None, None, model.d), "to match the model")
    _checks.dtype("X", X, model.gate.alpha.dtype, "to match the model")
    if not len(X) or not bool(X.isfinite().all()) or not bool(X.any()):
        raise ValueError(f"X must hold inputs of at least one prompt, finite and not all 0, got shape {tuple(X.shape)}")
    mine = copy.deepcopy(model)
    with torch.no_grad():
        cast(FreeGate, mine.gate).alpha.mul_(made_for / X.square().mean())
    return mine
