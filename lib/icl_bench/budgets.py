"""Compute budgets: sizes, prompts, steps and learning-rate sweep, equal for every contestant."""

import itertools
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge

from icl import _checks
from icl._bounds import Count, Positive, validate_fields, validated
from icl.experiments.training import AdamW, Config
from icl_bench.entries import Shape


@dataclass(frozen=True)
class Budget:
    """Compute budget of every contestant in a run.

    Attributes:
        name: "small", "medium", "large", or a user's own.
        d: dimension of the inputs.
        n: labelled examples a prompt; tests of the variant "longer" have twice as many.
        width: of a layer, numbers a token.
        depth: blocks of one layer each.
        steps: optimiser steps of a training.
        batch: prompts a step, rounded up to a multiple of the number of tasks trained on.
        rates: learning rates swept at the first seed, ascending.
        seeds: trainings at the best rate, the first included, each with its own initialisation and prompts.
        prompts: test prompts a task and variant, shared by all contestants.
        choosing: validation prompts for the choice of the rate.
        last: number of final positions over which the error is averaged.
    """

    name: str
    d: Count
    n: Count
    width: Count
    depth: Count
    steps: Count
    batch: Count
    rates: tuple[float, ...]
    seeds: Count
    prompts: Annotated[int, Ge(2)]
    choosing: Count
    last: Count

    def __post_init__(self) -> None:
        """Check sizes; errors name the field."""
        validate_fields(self)
        _checks.text("name", self.name)
        if self.last > self.n + 1:
            raise ValueError(f"last must be at most the {self.n + 1} positions of a prompt, got {self.last}")
        _checks.instance("rates", self.rates, tuple, list)
        rates = tuple(float(_checks.number("rates", rate, above=0)) for rate in self.rates)
        if not rates or any(b <= a for a, b in itertools.pairwise(rates)):
            raise ValueError(f"rates must be at least one learning rate, rising, got {self.rates!r}")
        object.__setattr__(self, "rates", rates)

    @property
    def shape(self) -> Shape:
        """Sizes to build contestants for, maximum sequence length included."""
        return Shape(self.d, self.n, self.width, self.depth, 2 * (2 * self.n) + 1)

    @validated
    def config(self, rate: Positive, tasks: Count) -> Config:
        """Training configuration at this learning rate, for a mixture of `tasks` tasks.

        Adam with a low beta_2, linear warm-up, cosine decay to a twentieth, gradient clipping.
        """
        return Config(
            self.steps,
            -(-self.batch // tasks) * tasks,
            AdamW(lr=rate, weight_decay=0.0, beta2=0.99),
            warm_up=self.steps // 12,
            anneal_to=0.05,
            clip=1.0,
        )

    @validated
    def with_seeds(self, seeds: Count) -> "Budget":
        """Copy with another number of seeds."""
        return replace(self, seeds=seeds)

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable fields."""
        return asdict(self) | {"rates": list(self.rates)}


_RATES = (2e-3, 8e-3, 3.2e-2)

#: The three budgets; for each contestant small takes minutes on two cores, medium about an hour, large needs a GPU.
BUDGETS: dict[str, Budget] = {
    "small": Budget("small", 5, 64, 32, 2, 400, 32, _RATES, 3, 400, 256, 16),
    "medium": Budget("medium", 8, 100, 64, 4, 2_000, 64, _RATES, 3, 1_000, 512, 25),
    "large": Budget("large", 16, 256, 128, 8, 20_000, 256, (5e-4, *_RATES), 5, 4_000, 2_048, 64),
}
