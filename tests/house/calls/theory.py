"""Valid calls and refusals by hand: theory."""

from math import inf as INF
from math import nan as NAN

import numpy as np
from house.calls.base import (
    DARK,
    FLAT,
    PLAIN,
    SKEWED,
    SMOOTH,
    STILL,
    SWINGING,
    TILTED,
    WALK,
    WIDE,
    entry,
    rows,
)
from house.calls.bench import FIXTURES
from house.calls.filters import UNLIKE
from house.calls.tasks import ALONG, FLAT_TASKS, PARTED

from icl.tasks import components, core, drifts, sentences
from icl.theory import floors, lfom, moments
from icl.theory import s6 as closed
from icl.theory.errata import adaptation, memory
from icl.theory.floors import gaussian_mixtures, joint
from icl.theory.gates import finite_key_gates, key_gates
from icl.theory.lfom import gated_floor, learnability, polynomial_floor
from icl.theory.one_layer import adversary, population, separate_qk, sign_flips
from icl.theory.one_layer import closed_forms as theory_one_layer
from icl.theory.steady import cheap_covariance, large_d, linear_layers, mesa, spectra
from icl.theory.steady import fast_weights as fast
from icl.theory.steady import lms_family as exact

# --- theory: labels as one vector, linear layers
SAME = core.StationaryRegression(d=1, n=3)
KNOWN = ({"task": SAME, "x": np.ones((2, 4, 1))}, "labels must not follow from those before them")
entry(
    joint.label_errors, also=[({"task": SKEWED}, "Sigma_w must be the"), ({"task": SAME}, "x must have shape"), KNOWN]
)
entry(
    joint.misspecified_errors,
    given={"tasks": FLAT_TASKS, "kernel": np.eye(4), "noise": 0.1},
    also=[
        ({"last": 5}, "last must be at most the 4 positions of the tasks, got 5"),
        ({"tasks": []}, "tasks must be at least one, got none"),
        ({"tasks": [PLAIN, 3]}, r"task must be an [\w.]*Task, got 3"),
        ({"kernel": np.ones((4, 4)), "noise": 0.0}, "labels must not follow from those before them"),
    ],
)
STEADY = fast.DriftLaw(3, 0.9, 0.1)
FIXTURES |= {linear_layers.LinearLayer: lambda: linear_layers.heavy_ball(0.9, 0.1)}
entry(
    linear_layers.settled_error,
    given={"F": np.array([[0.9]])},
    also=[
        ({"unit": True}, "unit must be False for noisy labels and below d = 3"),
        ({"unit": True, "d": 10, "sigma_y": 0.1}, "unit must be False for noisy labels"),
    ],
)
GATED = key_gates.per_coordinate(np.array([[0.9]]), q=0.2, d=2, sigma_y=0.1)
FIXTURES |= {key_gates.MovingWeights: lambda: GATED}
WALKING = {"F": np.eye(2), "H": np.eye(2)[:1], "Q": np.eye(2), "Lambda": np.eye(1)}
UNSEEN = ({"H": np.zeros((0, 2)), "Lambda": np.eye(0)}, "H must have a row")
entry(key_gates.MovingWeights, given=WALKING, also=[UNSEEN])
entry(key_gates.key_gated_bound, also=[({"drift": key_gates.MovingWeights(**WALKING)}, "drift must settle")])
entry(key_gates.from_drift_law, given={"spectrum": np.ones(3)})
for checked in (
    *((key_gates.MovingWeights, "error"), key_gates.averaged_step, key_gates.data_free_step),
    key_gates.best_layer_answers,
):
    entry(checked, given={"P": np.eye(2)}, sizes={"d": 2})
entry(key_gates.per_coordinate, given={"F": np.array([[0.9]]), "spectrum": np.ones(3), "d": 3})
entry(key_gates.windowed_errors, given={"prior": np.eye(2)}, sizes={"d": 2})
TABLES = {"n": 3, "N": 2, "d": 2}
entry(finite_key_gates.finite_bound, sizes=TABLES, also=rows("keys", "must be at least one", np.ones((0, 2))))
entry(finite_key_gates.finite_ladder, sizes=TABLES, also=rows("window", "must leave", 13))
HELD = np.stack([0.3 * np.eye(2)] * 3)
STATELESS = ({"A": HELD[:, :0, :0], "b": np.ones((3, 0))}, "b must have at least one state")
entry(
    finite_key_gates.gated_error,
    given={"A": HELD},
    sizes=TABLES,
    also=[({"A": 9 * HELD}, "A must let the layer settle"), STATELESS],
)
entry(finite_key_gates.search_gates, given={"start_A": HELD}, sizes=TABLES)
entry(
    fast.channel_gates_error,
    also=[
        ({"law": law}, "law must have d > 1 and labels")
        for law in (fast.DriftLaw(1, 0.9, 0.1), fast.DriftLaw(3, 0.9, 0.1, 0.2))
    ],
)
entry(
    moments.from_kernel,
    given={"weights": np.ones(3)},
    also=[({"weights": np.ones(4)}, "weights must have 3 entries on their last")],
)
CORRELATED = ({"task": SKEWED}, "Sigma_w must be the")
entry(moments.task_moments, also=[CORRELATED])
SINGULAR = [({"task": given}, "Lambda~ is singular for this task") for given in (STILL, DARK)]
entry(theory_one_layer.optimum, also=[CORRELATED, *SINGULAR])
entry(theory_one_layer.identity_error, also=[CORRELATED, ({"task": TILTED}, "Lambda must be the")])
entry(
    *(theory_one_layer.training_error, theory_one_layer.lambda_tilde, theory_one_layer.xi),
    *(theory_one_layer.zero_predictor, theory_one_layer.optimal_forgetting, theory_one_layer.forgetting_by_direction),
    also=[CORRELATED],
)
entry(
    theory_one_layer.testing_error,
    also=[
        ({"test": WIDE}, "test must have the d of train, 2.*got 3"),
        ({"train": STILL}, "Lambda~ is"),
        *(({name: SKEWED}, "Sigma_w must be the") for name in ("train", "test")),
    ],
)
DIRECTION = ({"task": FLAT}, "Lambda must be positive definite here, its smallest eigenvalue is 0")
entry(theory_one_layer.crosstalk, also=[DIRECTION, CORRELATED])
SIGNED = core.StationaryRegression(d=1, n=3, inputs=core.RADEMACHER)
entry(
    theory_one_layer.position_weights,
    theory_one_layer.position_error,
    also=[
        DIRECTION,
        CORRELATED,
        *(({"task": given}, r"K \+ c diag K is singular for this task") for given in (STILL, SIGNED)),
    ],
)
SIGNED_TABLE = sentences.LabelledRows(np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.0]]), np.array([1.0, -1.0, 1.0]))
FIXTURES |= {
    sentences.LabelledRows: lambda: SIGNED_TABLE,
    sentences.Demonstrations: lambda: sentences.Demonstrations(SIGNED_TABLE, 3),
}
entry(
    sentences.LabelledRows,
    given={"features": SIGNED_TABLE.features, "labels": SIGNED_TABLE.labels, "topics": np.array([0, 1, 0])},
    also=[
        *rows("labels", "must be 1 or -1", np.zeros(3)),
        *rows("features", "must have independent columns", np.ones((3, 2))),
        *rows("topics", "must be integers from 0, each in use", np.array([0, 2, 0]), np.array([0, -1, 0])),
    ],
)
entry(
    sentences.Demonstrations,
    given={"rows": SIGNED_TABLE, "n": 3, "queries": SIGNED_TABLE},
    also=[({"turn": 0.5}, "rows must have topics where these last")],
)
entry(
    sentences.unpacked, given={"text": sentences.packed(SIGNED_TABLE.features)}, also=rows("text", "must", "no", "AAAA")
)
LASTING = sentences.LabelledRows(SIGNED_TABLE.features, SIGNED_TABLE.labels, np.array([0, 1, 0]))
entry(
    sign_flips.sign_layer_error,
    given={"A": np.eye(2)},
    also=[
        ({"A": np.eye(3)}, r"A must have shape \(2, 2\) to match the task"),
        (
            {"task": sentences.Demonstrations(LASTING, 3, turn=0.5)},
            r"task must have independent rows, turn = 1, got 0\.5",
        ),
    ],
)
SIGNED_ROWS = {"flip": 0.1, "n": 3, "explained": 0.4}
for signed in (sign_flips.memory_right, sign_flips.sign_accuracy):
    entry(signed, given=SIGNED_ROWS, also=rows("explained", "must be .*< 1", 1.0))
entry(sign_flips.reordered, also=rows("kernel", "must hold at least one demonstration", np.eye(1)))
entry(
    theory_one_layer.steady_identity_error,
    also=[({"task": TILTED}, "Lambda must be the"), ({"task": WALK}, "gamma must be < 1.*got 1.0")],
)
NO_POLE = [({"lam": 0.5, "gamma": 2.0}, r"lam \* gamma must differ from 1"), ({"gamma": 1.0}, "gamma must .*1.0")]
MEND = ({"mend": {9}}, "mend must be one of 1, 2, 3, 4, 5, 6, 7, got 9")
entry(adaptation.D1, given={"lam": 0.5}, also=NO_POLE)
entry(adaptation.D2, adaptation.D3, given={"lam": 0.5}, also=[*NO_POLE, MEND])
entry(adaptation.D4, also=NO_POLE[1:])

# --- theory: the population loss
entry(
    population.layer_loss,
    also=[
        CORRELATED,
        *(
            (
                {"task": core.DriftingRegression(d=2, n=3, gamma=0.9, inputs=law)},
                f"inputs must be Gaussian.*got {law.name}",
            )
            for law in (core.UNIFORM, core.RADEMACHER, core.LAPLACE)
        ),
    ],
)
entry(population.global_minimum, population.rank_one_trap, also=[CORRELATED, *SINGULAR])
entry(
    population.trap_curvature,
    also=[
        CORRELATED,
        ({"task": core.DriftingRegression(d=1, n=3, gamma=0.9)}, "d must be 2 or more"),
        ({"task": TILTED}, "Lambda must be the identity"),
    ],
)


SMALL = np.ones((1, 1))
entry(population.pack, also=[({"W_V": SMALL, "W_KQ": SMALL}, r"W_V must be square, \(2, 2\) or larger")])
entry(population.gradient_flow, given={"start": np.eye(3), "until": 0.1})
entry(theory_one_layer.layer_risk, given={"A": np.eye(2)}, also=[CORRELATED])
entry(population.unpack, also=rows("theta", r"must be square, \(2, 2\) or larger", SMALL))
for checked, name in ((population.sigma_bound, "matrix"), (population.assumption_1, "Theta")):
    none, zero = np.ones((0, 0)), np.zeros((3, 3))
    entry(checked, also=rows(name, r"must be square, \(1, 1\) or", none) + rows(name, "must not be 0", zero))
entry(
    population.linear_rate,
    given={"minimum": population.global_minimum(PLAIN, lam=0.9)},
    also=[
        ({"minimum": np.zeros((2, 2))}, r"minimum must have shape \(3, 3\)"),
        ({"minimum": np.zeros((3, 3))}, "minimum must have a positive semi-definite Hessian"),
    ],
)
RANK = ({"rank": 3}, "rank must be at most d = 2, got 3")
NORMAL = ({"task": core.DriftingRegression(d=2, n=3, gamma=0.9, inputs=core.UNIFORM)}, "inputs must be Gaussian")
entry(separate_qk.separate_loss, also=[CORRELATED, NORMAL])
entry(separate_qk.separate_flow, given={"start": np.full(14, 0.5), "until": 0.01})
for method in ("split", "theta", "value", "gradient", "hessian"):
    entry(getattr(separate_qk.SeparateLoss, method), given={"z": np.full(14, 0.5)}, sizes={"weights": 14})
entry(
    separate_qk.SeparateLoss.join,
    given={"row": np.zeros(3), "keys": np.zeros((2, 3)), "queries": np.zeros((2, 2))},
    also=[({"keys": np.zeros((2, 2))}, r"keys must have shape \(2, 3\)")],
)
entry(separate_qk.gate_at_rank, also=[CORRELATED, RANK])
NARROWER = ({"rank": 2, "width": 1}, "rank must be at most the width, 1, got 2")
entry(separate_qk.plateau, given={"rank": 1, "width": 2}, also=[CORRELATED, RANK, NARROWER, *SINGULAR])
entry(separate_qk.escape_rates, given={"rank": 1}, also=[CORRELATED, RANK, *SINGULAR])
entry(separate_qk.separate_trap, given={"width": 2}, also=[CORRELATED, *SINGULAR])
entry(separate_qk.trap_form, also=[CORRELATED, *SINGULAR])
UNEQUAL = ({"task": TILTED}, "Lambda must be the identity")
entry(separate_qk.head_curvature, given={"width": 2}, also=[CORRELATED, UNEQUAL, *SINGULAR[:1]])

# --- theory: Kalman, floors, filters
XS = np.zeros((2, 4, 2))
entry(floors.kalman_risk, also=[({"x": XS[:1]}, "x must hold at least two sequences.*got 1")])
SHORT = ({"x": XS[:, 1:]}, r"x must have shape \(any, 4, 2\)")
entry(floors.query_errors, also=[SHORT, CORRELATED])
entry(
    floors.best_linear_errors,
    also=[SHORT, CORRELATED, *rows("task", "must have a kernel of first order.*got one that is not", SMOOTH, SWINGING)],
)
TOLD = np.ones((2, 4))
entry(floors.genie_errors, given={"restart": TOLD > 2})
CERTAIN = {
    name: drifts.RegimeSwitching(**{"d": 2, "n": 3, "gamma": 0.9} | {name: 0.0}) for name in ("sigma_w", "sigma_e")
}
entry(
    floors.switching_predictions,
    also=[({"task": given}, f"{name} must be > 0 for labels that have a density") for name, given in CERTAIN.items()],
)
FADE = [
    *(({"task": given, "normalised": True}, "Lambda must be a multiple of the identity") for given in (TILTED, DARK)),
    ({"mu": np.ones(2), "lam": np.ones(3)}, r"mu and lam must broadcast .* got \(2,\), \(3,\)"),
    *UNLIKE,
]
GROWING = [({"task": core.DriftingRegression(2, 3, gamma)}, f"gamma must be < 1.*{gamma}") for gamma in (1.0, 1.1)]
entry(exact.errors, also=FADE)
entry(exact.steady_error, also=FADE + GROWING)
SCALED = core.DriftingRegression(d=2, n=3, gamma=0.9, Lambda=2 * np.eye(2))
entry(exact.best_steady, also=[*GROWING, *(({"task": given}, "Lambda must be the id") for given in (TILTED, SCALED))])

# --- theory: an adversary's paths
PATH = adversary.great_circle(3, 2, R=1.0, delta=0.1)
OF_PATHS = (adversary.path_error, adversary.upper_bound, adversary.sphere_bound, adversary.best_layer)
for checked, name in (*((each, "w") for each in OF_PATHS), (adversary.worst_path, "start")):
    entry(checked, given={name: PATH}, also=rows(name, r"must have shape \(..., n \+ 1, d\)", PATH[:1], PATH[:, :0]))
entry(adversary.great_circle, also=rows("turn", "must be finite and >= 0", -0.1))

# --- theory: displays of the Memformer's paper
EXAMPLE = {"X": np.eye(2, 3), "x": np.ones(2), "w": np.ones(2), "A": np.zeros((1, 2, 2)), "Gamma": np.eye(1)}
FIXTURES |= {memory.Problem: lambda: memory.Problem(**EXAMPLE)}
entry(
    memory.Problem,
    given=EXAMPLE,
    also=[
        ({"X": np.ones((2, 2))}, r"X must have shape \(d, n\) with 0 < d < n"),
        *(
            ({"A": np.zeros((layers, 2, 2)), "Gamma": np.eye(layers)}, f"A must have from 1 to n = 3 layers.*{layers}")
            for layers in (0, 4)
        ),
    ],
)
SHOWN = {name: np.random.default_rng(0).standard_normal((2, 3, 4)) for name in ("plain", "labelled", "registers")}
entry(
    memory.deviation,
    given={"number": 2, "tokens": memory.Tokens(**SHOWN), "mended": True},
    also=lambda call: [
        *rows("number", "must be one of 1, 2", 0, 99, True, "1", None),
        ({"tokens": memory.Tokens(*3 * (np.zeros((2, 3, 4)),))}, "tokens must show the squared error at the query"),
        *(
            ({"tokens": memory.Tokens(**SHOWN | {name: value})}, f"{name} must {says}")
            for name in SHOWN
            for value, says in (
                (SHOWN["plain"] * NAN, "be finite"),
                (SHOWN["plain"][:1], r"have shape \(2, 3, 4\) to match problem"),
            )
        ),
    ],
)
HS = np.eye(2)[None].repeat(3, axis=0)
HESSIANS = [
    *rows("H", "must hold at least", HS[:0]),
    ({"H": HS + np.array([[0, 0.1], [0, 0]])}, "H must be symmetric, its largest asymmetry is 0.1"),
    ({"Sigma": np.diag([1.0, 0.0])}, "Sigma must be positive definite, its smallest eigenvalue is 0"),
    ({"Sigma": np.array([[1.0, 0.5], [0.4, 1.0]])}, "Sigma must be symmetric, its largest asymmetry is 0.1"),
    (
        {"Sigma": np.array([[1.0, 2.0], [2.0, 1.0]])},
        "Sigma must be positive semi-definite, its smallest eigenvalue is -1",
    ),
]
entry(polynomial_floor.floor, given={"H": HS}, also=[*HESSIANS, ({"H": HS[:1]}, "H must hold at least 2 matrices")])
entry(
    polynomial_floor.fitted_registers,
    given={"H": HS},
    also=[*HESSIANS, ({"H": -HS}, "H must be positive semi-definite, its smallest whitened eigenvalue is -1")],
)
LOWER = [
    ({"Gamma": np.ones((0, 0))}, "Gamma must be square, with at least one layer"),
    ({"Gamma": np.ones((2, 2))}, r"Gamma must be lower triangular .*, got 1\.0 above the diagonal"),
]
NO_LAYER = dict.fromkeys(("alpha", "gamma"), np.ones(0))
entry(lfom.registers, given={"alpha": np.ones(2)}, also=[(NO_LAYER, "alpha must have at least one layer")])
entry(lfom.cumulative, given={"Gamma": np.eye(2)}, also=LOWER)
STEPS = LOWER + rows("a", r"must have shape \(2\) to have one number a layer", np.ones(3), np.ones((2, 1)))
entry(lfom.polynomials, lfom.table_risks, given={"Gamma": np.eye(2)}, also=STEPS)
entry(lfom.limit_table_risks, given={"Gamma": np.eye(2), "c": 0.25}, also=STEPS)

SEVERAL_NUMBERS = (1.0, [], [[1.0]], [1.0, 0.0], [1.0, -1.0], [NAN], ["1"], [INF], None)
entry(
    *(gated_floor.simplex_gate, gated_floor.output_gate),
    given={"variance": 0.5, "trained": [1.0, 2.0]},
    also=rows("trained", "must", *SEVERAL_NUMBERS),
)
entry(
    gated_floor.least_over_variances,
    given={"variances": [1.0, 2.0], "weights": np.ones(2)},
    also=[
        *rows("variances", "must", *SEVERAL_NUMBERS),
        ({"weights": np.ones(3)}, r"weights must have shape \(2,\) to match variances"),
        ({"weights": np.array([1.0, 0.0])}, "weights must be finite and > 0, got"),
    ],
)
FOUR = np.eye(2)[None].repeat(4, axis=0)
CURVED = rows("H", "must be symmetric, its largest asymmetry is 0.1", FOUR + np.array([[0, 0.1], [0, 0]]))
LAWS_OF = [
    ({"S_x": np.diag([1.0, 0.0])}, "S_x must be positive definite, its smallest eigenvalue is 0"),
    ({"S_w": np.diag([1.0, -1.0])}, "S_w must be positive semi-definite, its smallest eigenvalue is -1"),
    ({"scale": np.array([1.0, 1.0, 1.0, 0.0])}, "scale must be finite and > 0, got"),
]
for name in ("S_x", "S_w"):
    LAWS_OF += rows(name, r"must have shape \(2, 2\) or \(4, 2, 2\) to match H", np.eye(3), FOUR[:3])
    LAWS_OF += rows(name, "must be symmetric", np.array([[1.0, 0.5], [0.4, 1.0]]))
entry(
    gated_floor.least_by_sample,
    given={"H": FOUR, "scale": np.ones(4), "S_x": np.eye(2), "S_w": FOUR},
    also=[*CURVED, *LAWS_OF, ({"H": FOUR[:1], "scale": None}, "H must hold at least")],
)
entry(gated_floor.least_by_spectrum, given={"H": FOUR}, also=[*CURVED, ({"H": FOUR[:1]}, "H must hold at least")])
FLOORS = (gaussian_mixtures.curvature_moments, gaussian_mixtures.least_over_components)
WIDE_TASK = ({"task": PARTED}, "task must have d = 1 here, got d = 2")
entry(*FLOORS, gaussian_mixtures.least_shared_over_components, given={"task": ALONG}, also=[WIDE_TASK])
BY_TOKEN = components.GaussianComponents(1, 3, [1.0, -1.0], [0.5, 2.0], per_token=True)
entry(
    gaussian_mixtures.input_nodes,
    given={"task": ALONG},
    also=[
        WIDE_TASK,
        ({"task": BY_TOKEN}, "task must have a component a prompt and n >= 2"),
        ({"nodes": 171}, "nodes must be at most 170"),
    ],
)
entry(
    gaussian_mixtures.component_posterior,
    given={"task": ALONG, "nodes": gaussian_mixtures.input_nodes(ALONG, 3)},
    also=[WIDE_TASK],
)
COVER = {"parameters": 2, "radius": 1.0, "largest": 1.0, "slope": 1.0, "delta": 0.1}
entry(learnability.worst_losses, given={"features": np.ones((2, 3))}, also=rows("features", "must", np.ones((2, 1))))

# --- theory: one S6 layer
NARROW = dict.fromkeys(("W_B", "W_C"), np.ones((4, 1)))
entry(closed.S6Weights, also=[(NARROW, r"W_B must have shape \(d_h, d \+ 1\)")])
OTHER_D = ({"coefficients": closed.Coefficients(3, 3, 0.9)}, "weights must have 4 columns to match coefficients")
entry(closed.population_loss, closed.gradient, closed.descend, also=[OTHER_D])
TIMES = ([], [0.0], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0])
entry(closed.flow, given={"time": np.ones(1)}, also=[OTHER_D, *(({"time": value}, "time must be") for value in TIMES)])
EYE = closed.S6Weights(np.eye(3, 3), np.eye(3, 3), np.zeros(3), np.zeros(3))
entry(closed.rate, given={"eta": 1e-3}, also=[OTHER_D, ({"weights": EYE, "eta": 100.0}, "eta must be < ")])

# --- theory: every fast weight in steady state
LAW = fast.DriftLaw(3, 0.9, 0.1)
LAWS_BELOW_FIVE = [({"law": LAW}, "law must have d >= 5 for this fit, got d = 3")]
entry(large_d.kalman_floor, mesa.mesa_for, given={"law": fast.DriftLaw(5, 0.9, 0.1)}, also=LAWS_BELOW_FIVE)
FIXTURES |= {fast.DriftLaw: lambda: LAW}
entry(
    fast.best_normalised_gla,
    also=[
        ({"law": fast.DriftLaw(d, 0.9, 0.1, noise_of)}, f"d must be > 1, and > 2 for noisy labels.*{d}")
        for d, noise_of in ((1, 0.0), (2, 0.1))
    ],
)
entry(fast.gla_error, also=[({"lam": 1.0}, "updates must settle.*got ")])
SPECTRUM = np.array([0.5, 1.0, 2.0])
entry(*(fast.gla_per_channel, fast.gla_shared, fast.delta_shared, fast.delta_diagonal), given={"spectrum": SPECTRUM})
BROADCAST = ({"s": np.ones(2), "v": np.ones(3)}, r"s and v must broadcast .* got \(2,\), \(3,\)")
entry(
    large_d.eps_gla,
    large_d.eps_delta,
    large_d.touching_point,
    large_d.smoother_large_d,
    large_d.kalman_large_d,
    also=[BROADCAST],
)
HEARD = {"f": np.linspace(0.1, 2.0, 8)}
entry(
    spectra.pole_spectrum,
    given={"poles": [0.5], "n": 64},
    also=[
        *rows("poles", "must be a list of finite numbers", ["a"], [[0.5]]),
        *rows("poles", "must be inside the unit circle", [1.0], [0.5, -1.5]),
        *rows("poles", "must be real or in conjugate pairs", [0.5j]),
        ({"poles": [0.999]}, "n must be larger for a pole of size 0.999, got 64"),
    ],
)
entry(
    spectra.layer_error,
    given=HEARD | {"layer": "gla"},
    also=rows("layer", "must be (one of gla, delta, key-gated|a str)", "mesa"),
)
NOTHING = ({"f": np.zeros(8)}, "f must be one spectrum")
OF_SPECTRA = (spectra.smoother_error, spectra.filter_error, spectra.key_gated_large_d, spectra.gla_large_d)
entry(*OF_SPECTRA, spectra.log_det_bias, given=HEARD | {"spectrum": SPECTRUM}, also=[NOTHING])
entry(
    spectra.corrected_floor,
    given={"spectrum": SPECTRUM, "n": 512},
    also=[({"n": 16}, "n must be larger for a pole of size 0.9, got 16")],
)
MOVES = {"F": 0.5 * np.eye(2), "Q": np.eye(2), "h": np.ones(2)}
entry(
    spectra.state_space_errors,
    given=MOVES,
    sizes={"r": 2},
    also=[
        ({"F": np.eye(2)}, "F must have a spectral radius below 1"),
        ({"x": np.ones((0, 4, 2))}, "x must hold at least one sequence"),
    ],
)
entry(
    mesa.mesa_large_d,
    given={"ridge": 0.1},
    also=[({"s": np.ones(2), "v": np.ones(3)}, "s and v and theta and ridge must broadcast")],
)
entry(cheap_covariance.Frozen, given={"variances": (1.0,)}, also=rows("variances", "must be finite and > 0", (0.0,)))
for checked in (cheap_covariance.errors_with_gains, cheap_covariance.summary_errors):
    entry(checked, given={"Lambda": np.eye(3)}, sizes={"d": 3})
ONE = np.eye(2)
UPDATE = {"keep": 0.5 * ONE, "look": 0 * ONE, "noise": ONE}
STEP = fast.Update(**UPDATE)
entry(
    fast.second_moments,
    given={"updates": [STEP]},
    also=[
        *rows("updates", "must be a non-empty sequence", [], [ONE]),
        ({"updates": [fast.Update(**UPDATE | {"keep": ONE})]}, "updates must settle"),
        ({"updates": [STEP, fast.Update(np.eye(1) / 2, np.zeros((1, 1)), np.eye(1))]}, "updates must have shape"),
    ],
)
entry(fast.readout_errors, given={"moments": ONE[None]}, also=[({"hidden": 2}, "hidden must leave a state")])
