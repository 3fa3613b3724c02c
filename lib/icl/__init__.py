"""In-context learning as filtering and optimisation: the library behind *Learning to Adapt*.

- `tasks`: what is asked
- `filters`, `solvers`: adaptive filters and first-order methods, each an (init, step) pair
- `self_tuning`: filters that learn from their own errors how fast the weights move
- `convex`: nonlinear conjugate gradients and Newton's method, for losses that need not be squares
- `models`: the recurrences, and modules with trainable parameters
- `theory`: closed forms, strangers to the models and filters they judge
- `runs`: training, judging, comparing
- `bench`: any sequence layer on drifting tasks, against the best possible error (`icl-bench`)
- `page`: what a chapter shows; it imports none of the others
- `profile`: quick or paper, the device, named random streams
"""

__version__ = "0.1.0"
