"""In-context learning as filtering and optimisation: the library behind *Learning to Adapt*.

- `tasks`: what is asked
- `filters`, `solvers`: adaptive filters and first-order methods, each an (init, step) pair
- `self_tuning`: filters that learn from their own errors how fast the weights move
- `convex`: nonlinear conjugate gradients and Newton's method, for losses that need not be squares
- `models`: the recurrences, and modules with trainable parameters
- `theory`: closed forms, strangers to the models and filters they judge
- `runs`: training, judging, comparing
- `profile`: quick or paper, the device, named random streams

On top of it stand `icl_bench`, the benchmark tool, and `icl_book`, what pages show.
"""

__version__ = "0.1.0"
