"""Valid calls and refusals by hand: filters and solvers."""

import re
from math import inf as INF
from math import nan as NAN

import numpy as np
import torch
from house.calls.base import DARK, FLAT, PLAIN, SKEWED, entry, rows
from house.calls.tasks import X, Y

from icl import filters, solvers
from icl.tasks import core

# --- filters and solvers
A_TRIAL = lambda name: [  # noqa: E731
    ({name: torch.full(shape, 0.5)}, rf"{name} must be one number or have shape \(\*settings, 1\)")
    for shape in ((2,), (3, 2), (1, 2))
]
entry(filters.lms, also=A_TRIAL("mu"))
entry(filters.nlms, filters.apa, also=A_TRIAL("mu"))
entry(
    filters.delta_rule,
    filters.normalised_delta_rule,
    also=[
        *(A_TRIAL("mu") + A_TRIAL("lam")),
        ({"mu": torch.ones(3, 1), "lam": torch.ones(2, 1)}, r"lam and mu must broadcast .* got \(2, 1\) and \(3, 1\)"),
    ],
)
entry(filters.rls, also=A_TRIAL("lam"))
entry(filters.faded_ridge, also=A_TRIAL("lam") + A_TRIAL("eps"))
UNLIKE = [({"task": SKEWED}, r"task must be an? [\w.]*DriftingRegression")]
entry(
    filters.kalman,
    also=[
        ({"P_0": np.eye(3)}, r"P_0 must have shape \(2, 2\)"),
        ({"P_0": [[1.0, 0.5], [0.4, 1.0]]}, "P_0 must be symmetric, its largest asymmetry is 0.1"),
        ({"P_0": [[1.0, 2.0], [2.0, 1.0]]}, "P_0 must be positive semi-definite, its smallest eigenvalue is -1"),
        ({"P_0": [[NAN, 0.0], [0.0, 1.0]]}, "P_0 must be finite, got"),
        ({"P_0": np.eye(2) * 1j}, "P_0 must be real"),
        ({"P_0": "identity"}, "P_0 must be real"),
    ],
)
entry(
    filters.steady_kalman,
    also=[
        *(
            (
                {"task": core.DriftingRegression(**{"d": 2, "n": 3, "gamma": 0.9} | changed)},
                "gamma must be < 1 and sigma_e > 0",
            )
            for changed in ({"gamma": 1.0}, {"gamma": 1.1}, {"sigma_e": 0.0})
        ),
        *(({"task": given}, "Lambda must be positive definite for a steady state") for given in (FLAT, DARK)),
    ],
)
entry(
    filters.gla,
    given={"A": np.eye(2)},
    also=[
        *(
            ({"A": np.ones(shape)}, r"A must have shape \((3, 3|1, 1|2, 2)\)")
            for shape in ((3, 2), (3,), (), (2, 2, 2))
        ),
        *rows("A", "must be finite", np.full((2, 2), NAN)),
        *rows("A", "must be real", np.eye(2) * 1j),
    ],
)
X64, Y64 = X.double(), Y.double()
AXES = r"x must have shape \(\*trials, time, d\)"
RUN = [
    ({"y": Y64[None]}, r"y must have shape \(2, 4\) to match x"),
    ({"y": Y64[:1]}, r"y must have shape \(2, 4\) to match x"),
    ({"x": X64 + 0j, "y": Y64 + 0j}, "x must have a floating dtype, got torch.complex128"),
    ({"x": X64[0, 0], "y": Y64[0, 0]}, AXES),
    ({"x": X64[:, :0], "y": Y64[:, :0]}, AXES),
    ({"x": X64[:0], "y": Y64[:0]}, AXES),
    ({"x": X64[..., :0], "w_0": None}, AXES),
    ({"x": X64 + NAN}, "x must be finite, got nan"),
    ({"x": X64 + INF}, "x must be finite, got inf"),
    ({"y": Y64 - INF}, "y must be finite, got -inf"),
    ({"y": Y64 + NAN}, "y must be finite, got nan"),
    *(
        ({"w_0": torch.zeros(shape).double()}, r"w_0 must have shape \(\*trials, 2\) with trials that broadcast to")
        for shape in ((1,), (), (2, 4, 2), (5, 2))
    ),
    ({"w_0": torch.full((2,), NAN).double()}, "w_0 must be finite, got nan"),
    ({"w_0": torch.full((2,), -INF).double()}, "w_0 must be finite, got -inf"),
]
RUN = [
    (changes | {"filter": made}, says)
    for changes, says in RUN
    for made in (filters.rls(0.9, eps=0.01), filters.window(2, eps=0.01), filters.lms(0.1))
]
RUN += [
    ({"filter": made, "x": torch.zeros(2, 4, 3), "y": Y, "w_0": None}, r"x must have shape \(2, any\) as")
    for made in (filters.kalman(PLAIN), filters.steady_kalman(PLAIN), filters.gla(np.eye(2), lam=0.9))
]
THREE = filters.lms(torch.tensor([[0.1], [0.2], [0.3]]))
RUN += [
    (
        {"filter": THREE, "x": torch.zeros(shape), "y": torch.zeros(shape[:-1]), "w_0": None},
        r"x must broadcast against the filter's settings \(3,\), got " + re.escape(str(shape)),
    )
    for shape in ((2, 2, 4, 3), (4, 2, 2, 4, 3))
]
RUN += [
    ({"mask": torch.ones(2, 4)}, "mask must have dtype torch.bool"),
    ({"mask": torch.ones(2, 3, dtype=torch.bool)}, "mask must broadcast"),
]
entry(
    filters.run_filter,
    filters.track,
    given={"x": X64, "y": Y64, "w_0": torch.zeros(2).double(), "mask": None},
    also=RUN,
)
SEVERAL = [
    ({"high": torch.tensor([3.0, 3.0, 3.0]), "low": torch.tensor([1.0, 2.0])}, "low and high must be for the same")
]
AROUND = [({"low": 2.0, "high": 1.0}, "low must be at most high")]
COLUMN = ({"eta": torch.ones(2, 1)}, "eta must be one number or have")
entry(solvers.gradient_descent, solvers.momentum, solvers.nesterov, also=[COLUMN])
entry(solvers.chebyshev, also=AROUND + SEVERAL)
entry(solvers.tuned_momentum, solvers.tuned_nesterov, also=AROUND)
entry(solvers.chebyshev_scalars, also=[*AROUND])
M_OF = [
    *(({"M": np.ones(shape)}, r"M must have shape \(d, d\) or") for shape in ((1, 1, 2, 2), (2,), (2, 3), (0, 0))),
    ({"M": torch.tensor([[1.0, 0.5], [0.4, 1.0]])}, "M must be symmetric, got entries that differ by 0.1"),
    *rows("M", "must be positive definite", [[1.0, 2.0], [2.0, 1.0]], [[1, 0], [0, 0]]),
    ({"M": np.full((2, 2), NAN)}, "M must be finite"),
    *rows("M", "must be real", np.eye(2) * 1j, "identity"),
]
entry(solvers.conjugate_gradients, also=M_OF)
H, B = torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2)
BOWL = [
    *(({name: np.ones((3, 2))}, f"{name} must be a torch.Tensor") for name in ("H", "b")),
    ({"H": torch.ones(3, 2, 1)}, r"H must have shape \(batch, d, d\)"),
    ({"H": torch.ones(0, 2, 2), "b": torch.ones(0, 2)}, r"H must have shape \(batch, d, d\)"),
    ({"H": torch.ones(3, 2, 2, dtype=torch.int64)}, "H must have a floating dtype"),
    ({"H": torch.full((3, 2, 2), NAN)}, "H must be finite"),
    ({"H": H / torch.tensor([[1.0, INF], [INF, 0.0]])}, "H must be finite"),
    ({"H": torch.tensor([[1.0, 0.5], [0.0, 1.0]]).repeat(3, 1, 1)}, "H must be symmetric"),
    ({"b": torch.ones(2, 2)}, r"b must have shape \(3, 2\) to match H"),
    ({"b": torch.full((3, 2), INF)}, "b must be finite"),
]
TWO = torch.tensor([0.1, 0.2])
entry(
    solvers.run_solver,
    given={"H": H, "b": B, "w_0": torch.zeros(2)},
    also=[
        *BOWL,
        ({"w_0": torch.full((2,), NAN)}, "w_0 must be finite"),
        *(
            ({"solver": made}, rf"{name} must have one number for each of 3 problems")
            for name, made in (
                ("eta", solvers.gradient_descent(TWO)),
                ("eta", solvers.momentum(TWO, 0.5)),
                ("beta", solvers.momentum(0.1, TWO)),
                ("beta", solvers.nesterov(0.1, TWO)),
                ("low", solvers.chebyshev(TWO, 1.0)),
                ("high", solvers.chebyshev(0.05, TWO)),
            )
        ),
        ({"solver": solvers.conjugate_gradients(np.eye(3))}, r"M must have shape \(2, 2\) to match H"),
    ],
)
entry(solvers.conjugate_scalars, given={"H": H, "b": B}, also=BOWL + M_OF)
