"""How much is spent on a contestant: the same sizes, tokens, steps and sweep of learning rates for each of them."""

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
    """What every contestant of a run gets.

    Attributes:
        name: "small", "medium", "large", or one's own.
        d: dimension of the inputs.
        n: labelled examples a prompt; tests of the variant "longer" have twice as many.
        width: of a layer, numbers a token.
        depth: blocks of one layer each.
        steps: of a training.
        batch: prompts a step, at least; as many more as make equal parts of the tasks trained on.
        rates: learning rates that are tried at the first seed, rising.
        seeds: trainings at the best of them, the first included, each from its own start on its own prompts.
        prompts: test prompts a task and variant, the same for everybody.
        choosing: prompts that the rate is chosen on.
        last: how many positions, counted from the end, an error is averaged over.
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
        """Refuse impossible sizes, by name."""
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
        """Sizes that contestants are built for, and the most tokens that they will read at once."""
        return Shape(self.d, self.n, self.width, self.depth, 2 * (2 * self.n) + 1)

    @validated
    def config(self, rate: Positive, tasks: Count) -> Config:
        """How one training goes, at this learning rate on so many tasks at once.

        Adam with a short memory of squared gradients, a warm-up, a cosine to a twentieth, clipped gradients.
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
        """The same with another number of seeds."""
        return replace(self, seeds=seeds)

    def described(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        return asdict(self) | {"rates": list(self.rates)}


_RATES = (2e-3, 8e-3, 3.2e-2)

#: Small takes minutes a contestant on two cores, medium about an hour, large a GPU.
BUDGETS: dict[str, Budget] = {
    "small": Budget("small", 5, 64, 32, 2, 400, 32, _RATES, 3, 400, 256, 16),
    "medium": Budget("medium", 8, 100, 64, 4, 2_000, 64, _RATES, 3, 1_000, 512, 25),
    "large": Budget("large", 16, 256, 128, 8, 20_000, 256, (5e-4, *_RATES), 5, 4_000, 2_048, 64),
}
