"""Training by sampled gradients, as the paper's experiments do it: fresh prompts each step, AdamW.

One layer needs of a prompt only its weighted Gram matrix (`icl.models.gla.gram`), so models with different forgetting
factors and starts are trained side by side on the same prompts, at little more than the cost of one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl.models import gla
from icl.tasks import Task


@dataclass(frozen=True)
class AdamW:
    """The paper's optimiser and its settings (sec. 4): weight decay acts on all parameters.

    Attributes:
        lr: step size.
        weight_decay: decoupled from the gradient: each step shrinks the parameters by lr * weight_decay.
        momentum: beta_1, the paper's "momentum parameter".
        beta2: memory of the squared gradient; the paper names none, PyTorch's default.
    """

    lr: float = 1e-2
    weight_decay: float = 0.05
    momentum: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        """Refuse settings that AdamW does not have."""
        _checks.number("lr", self.lr, above=0)
        _checks.number("weight_decay", self.weight_decay, at_least=0)
        for name, value in (("momentum", self.momentum), ("beta2", self.beta2)):
            if not _checks.number(name, value, at_least=0) < 1:
                raise ValueError(f"{name} must be < 1, got {value!r}")


def one_layer(
    task: Task,
    theta: Float[Tensor, "models tokens tokens"],
    *,
    lam: Float[np.ndarray, " models"],
    steps: int,
    batch: int,
    optimiser: AdamW,
    generator: torch.Generator,
    watch: Callable[[int, Float[Tensor, "models tokens tokens"]], None] | None = None,
) -> Float[Tensor, "models tokens tokens"]:
    """Train one-layer models side by side on the same fresh prompts; return where they end.

    Each has its own forgetting factor and start; AdamW acts on every entry for itself, so no model feels the others.

    Args:
        task: where prompts come from.
        theta: starts [W | r]: first d columns of W_KQ, last row of W_V as last column (`icl.theory.population`). Its
            dtype and device are those of the training.
        lam: forgetting factor of each model, > 0.
        steps: number of steps, >= 1.
        batch: prompts a step.
        optimiser: settings of AdamW.
        generator: where prompts come from.
        watch: called with the number of steps done and the parameters, before the first step and after each.

    Raises:
        ValueError: if arguments do not fit together.
        RuntimeError: if a loss is not finite, with the step and the last finite losses.
    """
    _checks.shape("theta", theta, (None, task.d + 1, task.d + 1), "to match the task")
    _checks.drawing(generator, theta.dtype)
    if not len(theta) or not bool(torch.isfinite(theta).all()):
        raise ValueError(f"theta must hold at least one model, every entry finite, got {theta}")
    _checks.integer("steps", steps, at_least=1)
    _checks.integer("batch", batch, at_least=1)
    factors = np.asarray(_checks.real("lam", lam, above=0), dtype=np.float64)
    _checks.shape("lam", factors, (len(theta),), "to match theta")
    # One Gram matrix serves all models of a forgetting factor; `order` puts their losses back in the models' order.
    groups = [(float(factor), torch.as_tensor(np.flatnonzero(factors == factor))) for factor in np.unique(factors)]
    order = torch.cat([members for _, members in groups]).argsort()
    theta = theta.detach().clone().requires_grad_()
    rule = torch.optim.AdamW(
        [theta],
        lr=optimiser.lr,
        weight_decay=optimiser.weight_decay,
        betas=(optimiser.momentum, optimiser.beta2),
    )
    last: list[float] = []
    if watch:
        watch(0, theta.detach().clone())
    for step in range(1, steps + 1):
        prompt = task.sample(batch, generator=generator, dtype=theta.dtype, device=theta.device)
        Z = prompt.tokens()
        parts = []
        for factor, members in groups:
            G, mine = gla.gram(Z, factor), theta[members]
            left = torch.einsum("bij,mj->mbi", G, mine[..., -1])
            right = torch.einsum("mij,bj->mbi", mine[..., :-1], prompt.x[:, -1])
            parts.append(((left * right).sum(-1) - prompt.y[:, -1]).square().mean(1) / 2)
        losses = torch.cat(parts)[order]
        if not bool(torch.isfinite(losses).all()):
            raise RuntimeError(f"training diverged at step {step}: losses {losses.tolist()}, before it {last}")
        last = losses.tolist()
        rule.zero_grad(set_to_none=True)
        losses.sum().backward()
        rule.step()
        if watch:
            watch(step, theta.detach().clone())
    return theta.detach()
