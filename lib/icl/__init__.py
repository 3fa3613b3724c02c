"""In-context learning as filtering and optimisation: the library behind *Learning to Adapt*.

- `tasks`: prompts and the distributions that draw them
- `filters`, `solvers`: adaptive filters and first-order methods, each an (init, step) pair
- `self_tuning`: filters that estimate the drift's speed from their own errors
- `kalman_updates`: the update that Kalman filters, layers and floors share
- `convex`: nonlinear conjugate gradients and Newton's method, for losses that need not be squares
- `models`: the recurrences, and modules with trainable parameters
- `tvp`: `TVPRegression`, regression with time-varying coefficients for a table of one's own
- `theory`: closed forms, independent of the models and filters that they are compared with
- `experiments`: training and evaluation
- `profile`: quick or paper, the device, named random generators

On top of it stand `icl_bench`, the benchmark tool, and `icl_book`, what pages show.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from icl.tvp import TVPRegression as TVPRegression


def __getattr__(name: str) -> Any:
    """`TVPRegression`, imported when it is asked for: pandas takes a while."""
    if name == "TVPRegression":
        from icl.tvp import TVPRegression

        return TVPRegression
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
