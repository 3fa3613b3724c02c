"""What a predictor's error is, measured: means over fresh prompts, with their standard errors."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl.tasks import Prompt, Task, blocks


def squared_error(
    predict: Callable[[Prompt], Float[Tensor, "*predictors batch"]],
    task: Task,
    total: int,
    *,
    generator: torch.Generator,
    size: int = 20_000,
    dtype: torch.dtype = torch.float64,
) -> tuple[Float[np.ndarray, "*predictors"] | np.float64, Float[np.ndarray, "*predictors"] | np.float64]:
    """Mean squared error at the query over `total` fresh prompts, and its standard error.

    Args:
        predict: from prompts to predictions of the query's label. Leading axes hold several predictors, which are then
            compared on the same prompts.
        task: where prompts come from.
        total: number of prompts, at least 2.
        generator: random stream.
        size: prompts held in memory at once.
        dtype: of prompts and predictions.

    Raises:
        ValueError: if total is less than 2 or a prediction does not fit the prompts or is not finite.
    """
    if not callable(predict):
        raise ValueError(f"predict must be a function of prompts, got {predict!r}")
    _checks.integer("total", total, at_least=2)
    first, second = np.zeros(()), np.zeros(())
    for prompt in blocks(task, total, generator=generator, size=size, dtype=dtype):
        with torch.no_grad():
            y_hat = predict(prompt)
        if y_hat.shape[-1:] != (prompt.batch,):
            raise ValueError(f"predict must return (..., {prompt.batch}) for {prompt.batch} prompts, got {y_hat.shape}")
        squares = (y_hat - prompt.y[:, -1]).square()
        if not bool(torch.isfinite(squares).all()):
            raise ValueError("predict must return finite numbers, got some that are not")
        first = first + squares.sum(-1).numpy(force=True)
        second = second + squares.square().sum(-1).numpy(force=True)
    mean = first / total
    # The same error in every prompt has variance 0, and rounding may put the difference below it.
    return mean, np.sqrt(np.maximum(second / total - mean**2, 0) / (total - 1))
