"""Any filter or model as the same thing: a causal predictor of every label of a prompt, one step ahead.

A filter reads on, and a causal model answers everywhere in one pass; a model that answers a query only is asked anew at
every position, with the examples before it as its prompt. What comes out can be compared position by position.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks, filters
from icl.models.causal import Causal
from icl.tasks import Prompt

Predictor = filters.Filter | Callable[[Prompt], Tensor]
"""A filter; or a model or function from prompts to predictions of their queries' labels, the batch's axis last."""


def one_step_ahead(predictor: Predictor, prompt: Prompt) -> Float[Tensor, "*settings batch time"]:
    """Prediction of each label from the examples before it; the first, which has none, is 0.

    A filter and a `models.causal.Causal` read the prompt once. Any other model reads n prompts of 1 to n examples:
    exact for any model, and n / 2 times the work of one that keeps a state; such a model is better written as a filter
    (as `icl.filters.gla` is).

    Args:
        predictor: a `filters.Filter`, which may try several settings, or a model that maps a prompt to predictions of
            its query's label.
        prompt: a batch of prompts; the last label is read by no one (in a `Causal`, it enters by rounding).

    Raises:
        ValueError: if a model's predictions do not fit the prompt or are not finite.
        FloatingPointError: if a filter diverges.
    """
    _checks.instance("prompt", prompt, Prompt)
    if isinstance(predictor, type) or not (isinstance(predictor, filters.Filter) or callable(predictor)):
        raise ValueError(f"predictor must be a Filter or a model of prompts, got {predictor!r}")
    if isinstance(predictor, filters.Filter):
        return filters.run(predictor, prompt.x, prompt.y)
    if isinstance(predictor, Causal):
        with torch.no_grad():
            y_hat = predictor.predictions(prompt)
        # A model that reads its own token may have an answer to no example at all.
        y_hat[:, 0] = 0
        if not bool(torch.isfinite(y_hat).all()):
            raise ValueError("predictor must return finite numbers, got some that are not")
        return y_hat
    answers = []
    with torch.no_grad():
        for i in range(1, prompt.n + 1):
            seen = slice(0, i + 1)
            answers.append(predictor(Prompt(prompt.x[:, seen], prompt.y[:, seen], prompt.w[:, seen])))
            if answers[-1].shape[-1:] != (prompt.batch,) or answers[-1].shape != answers[0].shape:
                raise ValueError(
                    f"predictor must return (*settings, {prompt.batch}) for {prompt.batch} prompts, "
                    f"got {tuple(answers[-1].shape)} with {i} example(s)"
                )
            if not bool(torch.isfinite(answers[-1]).all()):
                raise ValueError(f"predictor must return finite numbers, got some that are not with {i} example(s)")
    return torch.stack([torch.zeros_like(answers[0]), *answers], dim=-1)
