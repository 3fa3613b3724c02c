"""In-context learning as filtering and optimisation: the library behind *Learning to Adapt*.

Rooms, each importing only those before it: `notation` and `profile`; `tasks`; `theory`, `filters` and `models`
(strangers to each other: the first is the oracle of the others); `predictors`; `training`, `evaluation`, `comparison`
and `benchmark`; `charts`, `evidence` and `exercises`, which know none of the others.
"""

__version__ = "0.1.0"
