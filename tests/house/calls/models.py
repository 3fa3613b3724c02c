"""Valid calls and refusals by hand: models."""

import re
from math import inf as INF
from math import nan as NAN

import numpy as np
import torch
from house.calls.base import ENTRIES, PLAIN, WIDE, entry, prompt_of, rows, s6
from house.calls.tasks import ALONG, FIXTURES, X, Y
from house.public import PUBLIC

from icl import profile
from icl.models import (
    causal,
    convolved,
    delta_layers,
    experts,
    fast_weights,
    first_order,
    memformer,
    one_layer,
    operators,
    paper_conventions,
    pointwise,
    scalar_heads,
    stacks,
    streaming_stacks,
    surgery,
    token_form,
)
from icl.models import s6 as mamba
from icl.tasks import core, objectives, quadratics

# --- models: one layer of gated attention, and recurrences
ONE_NUMBER = [({"lam": torch.tensor([0.5, 0.5])}, "lam must be one ")]
entry(one_layer.decay_weights, given={"like": X}, also=ONE_NUMBER)
entry(one_layer.gram, also=ONE_NUMBER)
entry(one_layer.predict, also=ONE_NUMBER)
entry(
    (one_layer.OneLayerGLA, "set_weights"),
    given={"W_V": np.eye(3), "W_KQ": np.eye(3)},
    also=[
        (({name: value}), rf"{name} must {says}")
        for name in ("W_V", "W_KQ")
        for value, says in (
            (np.eye(2), r"have shape \(3, 3\)"),
            (np.full((3, 3), NAN), "be finite"),
            ("text", "be real"),
            (None, "be real"),
        )
    ],
)
entry(
    (one_layer.OneLayerGLA, "forward"),
    also=[
        (
            {"prompt": PLAIN.sample(2, generator=profile.make_generator("x"), dtype=torch.float64)},
            "W_V must have dtype torch.float64 to match",
        ),
        ({"prompt": prompt_of(WIDE)}, r"W_V must have shape \(4, 4\) to match"),
    ],
)
Q, V, OPEN = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 6), torch.ones(1, 1, 1)
TOKENS = {"q": Q, "k": Q, "v": V, "decay": OPEN}
GATES = [
    ({"q": Q[:, :0], "k": Q[:, :0], "v": V[:, :0]}, "q must hold at least one position in time"),
    *(({"decay": OPEN * value}, r"decay must lie in \[0, 1\]") for value in (-0.1, 1.1, NAN)),
]
entry(*(operators.recurrent, operators.parallel, operators.chunked, stacks.read_strictly), given=TOKENS, also=[*GATES])
entry(
    *(operators.delta_recurrent, operators.delta_chunked),
    given=TOKENS | {"beta": OPEN},
    also=[*GATES, *(({"beta": OPEN * value}, r"beta must lie in \[0, ") for value in (-0.1, NAN, INF))],
)

# --- models: stacks
TWO_LAYERS = [({"lam": value}, "lam must be ") for value in ([0.5, 0.6, 0.7], [], [0.5, 1.0], [0.5, 0.0], [0.5, NAN])]
SPREAD = {"lam": "None"}  # the default spread of a `Stack`
entry(stacks.Stack, also=TWO_LAYERS)
entry(stacks.DeltaStack, also=TWO_LAYERS)
entry(stacks.GatedDeltaStack, also=TWO_LAYERS)
entry(paper_conventions.FullStack, also=TWO_LAYERS)
entry(convolved.Convolved, also=rows("sees", "must be 'keys' or 'tokens'", "labels"))
entry(
    stacks.GatedStack,
    also=[
        *TWO_LAYERS,
        *(({"channels": value}, "channels must be .*got " + repr(value)) for value in (3, "d", 1.0, None, True)),
    ],
)
entry(stacks.factors, given={"lam": 0.5})
entry(
    paper_conventions.Convention,
    given={"sign": 1},
    also=[*(({"sign": value}, f"sign must be .*got {value!r}") for value in (0, 2, "-"))],
)
MERGED = torch.zeros(2, 3, 3)
entry(
    paper_conventions.predictions,
    given={"W_V": MERGED, "W_KQ": MERGED, "lam": torch.full((2,), 0.5)},
    sizes={"tokens": 3},
    also=[
        (dict.fromkeys(("W_V", "W_KQ"), MERGED[:, 1:, 1:]), r"W_V must have shape \(any, 3, 3\) to match the tokens"),
        *(({"lam": torch.tensor([0.5, value])}, r"lam must lie in \[0, 1\]") for value in (1.1, -0.1, NAN)),
    ],
)
# What all that answer at every position are asked.
ERRORS = [
    ({"x": X.double(), "y": Y.double()}, "x must have dtype torch.float32 to match the model"),
    ({"x": X[:, :0], "y": Y[:, :0]}, "x must hold at least one position in time"),
]
FOREIGN = [
    ({"prompt": core.Prompt(X.double(), Y.double(), X.double())}, "x must"),
    ({"prompt": core.Prompt(X[..., 1:], Y, X[..., 1:])}, "x must have shape"),
]
COUNTED = {"also": [*FOREIGN, ({"since": 4}, "since must be at most n = 3")]}
ABSTRACT = (causal.Causal, fast_weights.FastWeights)
ANSWERING = [f for f, kind in PUBLIC.values() if kind and issubclass(kind, causal.Causal) and kind not in ABSTRACT]
for function in ANSWERING:
    if function.__name__ in ("errors", "forward", "predictions", "loss") and function not in ENTRIES:
        entry(function, **{"errors": {"also": ERRORS}, "loss": COUNTED}.get(function.__name__, {"also": FOREIGN}))


# --- models: fast weights
def gates(*names):
    """Gates for inputs of another size."""
    return [
        ({name: fast_weights.LengthGate(3)}, f"{name} must be for inputs of dimension 2.*got one for 3")
        for name in names
    ]


def lists(*names):
    """What is neither one number nor one a channel."""
    return [row for name in names for row in rows(name, "must be one number", [0.5] * 3, [[0.5, 0.6]], [])]


entry(fast_weights.GLA, delta_layers.DeltaRule, also=lists("lam", "mu"))
entry(fast_weights.Mamba2, given={"A": 1.0}, also=gates("gate"))
entry(delta_layers.GatedDelta, also=gates("forget", "write"))
entry(fast_weights.RetNet, given={"lam": [0.9, 0.8]}, also=rows("lam", "must ", 0.9, [], [0.9, 1.0], [0.9, 0.0]))
entry(delta_layers.LFOM, given={"c": [0.5, -0.1]}, also=rows("c", "must ", 0.5, [], [0.5, NAN], None))
DEEP, DEEP_DELTA, OF_GATES = stacks.Stack(2, 2), stacks.DeltaStack(2, 2), stacks.GatedStack(2, 2)
GLA_LAYER = fast_weights.GLA(2, lam=0.9, mu=0.1)
entry(
    streaming_stacks.LayeredGLA,
    also=[
        *(
            ({"model": causal.Normalised(value)}, "model must be a Stack or a Normalised one")
            for value in (DEEP_DELTA, causal.Normalised(DEEP), OF_GATES)
        )
    ],
)
SEVERAL_RATES, STATIC = {"A": -torch.ones(4)}, {name: mamba.Static(4, dtype=torch.float32) for name in "BC"}
entry(
    streaming_stacks.Selected,
    also=[
        *(({"layer": s6(**{name: STATIC[name]})}, "layer must have Selective B and C") for name in "BC"),
        ({"layer": s6(**SEVERAL_RATES)}, "layer must have one rate.*got 4"),
    ],
)
KIND = "state must be a (Weights|MesaState|LFOMState|Memories|S6State|Heads|KalmanState), as start and step return it"


def states(call):
    """States that are another layer's, or of other prompts."""
    layer = call.function.__self__
    alien = delta_layers.LFOM(2, c=[0.5]) if not isinstance(layer, delta_layers.LFOM) else GLA_LAYER
    yield {"state": alien.start(2)} if type(alien.start(2)) is not type(layer.start(2)) else {"state": None}, KIND
    yield {"state": layer.start(1)}, r"state\.\w+ must have shape .* to match the layer and x"
    if isinstance(layer, streaming_stacks.LayeredGLA | streaming_stacks.LayeredDelta):
        deeper = streaming_stacks.LayeredGLA(stacks.Stack(2, 4)).start(2)
        yield {"state": deeper}, r"state.labels must have shape \(2, 2, 2\) to match"


for function in {thing for thing, kind in PUBLIC.values() if kind and issubclass(kind, fast_weights.FastWeights)}:
    if function.__name__ in ("step", "read") and function not in ENTRIES:
        entry(function, also=states)

# --- models: memformers
RESIDUAL = objectives.Square(2, 3).slope
NARROW = [
    (
        {"Z": torch.zeros(2, 4, 2)} | dict.fromkeys("PQ", torch.eye(2)),
        "Z must hold inputs, a label and a prediction, at least 3 numbers, got 2",
    )
]
entry(pointwise.mapped_attention, given={"psi": RESIDUAL}, also=NARROW)
# A table for each prompt has an axis more.
TABLES = {"given": {"psi": RESIDUAL, "Gamma": torch.eye(2)}}
MORE_TABLES = {"Gamma": torch.zeros(3, 2, 2)}
MORE_AXES = ({"Gamma": torch.zeros(2, 2, 2, 2)}, "Gamma must have shape")
PSI_SHAPE = [({"psi": lambda y, s: s[:, 0]}, r"psi\(y, s\) must have shape \(2, 3\) to match s, got \(2,\)")]
entry(pointwise.mapped_registers, **TABLES, also=[*PSI_SHAPE])
entry(
    pointwise.mapped_iterates,
    **TABLES,
    also=[
        *PSI_SHAPE,
        (MORE_TABLES, "Gamma must have 2 or 1 tables to match prompt, got 3"),
        ({"Gamma": torch.eye(2).double()}, r"Gamma must have dtype torch\.float32 to match prompt"),
    ],
)
entry(
    pointwise.Mapped,
    given={"psi": RESIDUAL},
    also=[({"memory": memformer.TokenWise(2, 3)}, "memory must have a weight for each pair of layers, got")],
)
entry(
    *(first_order.diagonal_errors, first_order.diagonal_jacobian),
    given={"Lambda": torch.eye(2)[..., None].repeat(1, 1, 2)},
    also=[({"Lambda": torch.ones(2, 2, 2)}, "Lambda must be 0 where i > k")],
)
entry(token_form.transformer, also=[({"Z": torch.zeros(2, 1, 3)}, "Z must hold at least one example and the query")])
SCALARS = torch.zeros(2)
entry(token_form.one_register, given={"alpha": SCALARS, "gamma": SCALARS})
TABLE = torch.zeros(2, 2)
entry(token_form.many_registers, given={"Gamma": torch.zeros(2, 2, 4, 3)})
entry(
    *(token_form.token_errors, token_form.token_iterates),
    given={"X": torch.zeros(2, 3, 2), "Gamma": torch.zeros(2, 2, 4)},
    also=[
        *(
            ({"Gamma": torch.zeros(shape)}, r"Gamma must have shape \(2, 2, 4\) or \(2 or 1, 2, 2, 4 or 1, 3 or 1\)")
            for shape in ((2, 2), (2, 2, 1), (2, 2, 3), (2, 2, 2, 4), (3, 2, 2, 4, 1), (1, 2, 2, 3, 1), (1, 2, 2, 4, 2))
        )
    ],
)
entry(
    surgery.FadingMemory,
    given={"lam": [0.9, 0.5]},
    also=[
        *rows("lam", r"must have shape \(any\)", 0.9),
        ({"beta": 0.5}, r"beta must have shape \(2\) to match lam"),
        ({"beta": [0.5, 0.5], "normalised": True}, "normalised must be False with the delta rule"),
        ({"beta": [0.5, 0.5], "form": "parallel"}, "form must be 'recurrent' or 'chunked' with the delta rule"),
        ({"lam": [0.5, 1.0], "learned": True}, "lam must be < 1 to be learned"),
    ],
)
BLOCKS = torch.zeros(1, 2, 3, 3)
entry(
    token_form.many_heads,
    given={"Gamma": torch.zeros(1, 2, 2, 4, 3)},
    also=[
        (dict.fromkeys("PQ", BLOCKS[:0]) | {"Gamma": torch.zeros(0, 2, 2, 1, 1), "gates": None}, "P must have at least")
    ],
)
SHAPES = ((2,), (2, 3), (3, 3), (2, 2, 2), (2, 2, 4), (3, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 2, 1))
entry(
    *(memformer.error_matrices, memformer.iterates),
    given={"Gamma": TABLE},
    also=[*(({"Gamma": torch.zeros(shape)}, r"Gamma must have shape \(2, 2\), \(2, 2, 1 or 3\)") for shape in SHAPES)],
)
LOPSIDED = [
    ({"Sigma": np.diag([1.0, 0.0])}, "Sigma must be pos"),
    ({"Sigma": torch.diag(torch.tensor([1.0, 1e-13]))}, "Sigma must be pos"),
    ({"Sigma": [[1.0, 0.5], [0.4, 1.0]]}, "Sigma must be symmetric, its largest asymmetry is 0.1"),
    ({"Sigma": [[1.0, 2.0], [2.0, 1.0]]}, "Sigma must be positive semi-definite, its smallest eigenvalue is -1"),
    ({"Sigma": np.eye(3)}, r"Sigma must have shape \(2, 2\)"),
    ({"Sigma": np.ones(2)}, r"Sigma must have shape \(2, 2\)"),
    *(({"Sigma": np.diag([1.0, value])}, "Sigma must be finite, got") for value in (NAN, INF)),
    *rows("Sigma", "must be real", np.eye(2) * 1j, "identity"),
]
entry(memformer.risks, given={"Sigma": np.eye(2)}, also=[*LOPSIDED])
entry((memformer.Memformer, "risks"), given={"Sigma": np.eye(2)}, also=LOPSIDED)
entry(
    memformer.FixedBlocks,
    also=[
        ({"A": torch.zeros(0, 2, 2)}, "A must hold at least one matrix"),
        ({"A": torch.zeros(2, 2, 2).half()}, "dtype must be torch.float32 or torch.float64"),
    ],
)
entry(memformer.ScaledBlocks, also=[({"matrix": torch.eye(2).half()}, "dtype must be torch.float32 or")])
FULL = memformer.Full(2, 2, dtype=torch.float32)
entry(
    memformer.Memformer,
    given={"preconditioner": FULL, "memory": memformer.NoMemory(2)},
    also=[
        ({"memory": memformer.NoMemory(3)}, "preconditioner must have 3 layers to match memory"),
        ({"curvature": memformer.Full(2, 3)}, "curvature must have 2 layers to match memory"),
        (
            {"curvature": memformer.Full(3, 2, dtype=torch.float32)},
            r"curvature must have shape \(2, 2, 2\) to match pre",
        ),
        ({"curvature": memformer.Full(2, 2)}, "curvature must have dtype torch.float32 to match preconditioner"),
    ],
)
entry(
    memformer.init_normal_,
    given={"model": memformer.Full(2, 1)},
    also=[
        ({"model": memformer.Full(2, 1).half()}, "dtype must be torch.float32 or torch.float64"),
        *(
            ({"names": value}, "names must be a sequence of parts of matrices.*got " + re.escape(repr(value)))
            for value in ("matrices", ("alpha",), ("matrices", "alpha"))
        ),
    ],
)

HEAD = memformer.Memformer(FULL, memformer.NoMemory(2))
WIDER = memformer.Memformer(memformer.Full(3, 2, dtype=torch.float32), memformer.NoMemory(2))
ONE_BY_ONE = memformer.Memformer(FULL, memformer.TokenWise(2, 3, dtype=torch.float32))
FIXTURES |= {
    experts.MultiHead: lambda: experts.MultiHead([HEAD]),
    experts.OutputMixture: lambda: experts.OutputMixture([HEAD]),
    experts.PromptGate: lambda: experts.PromptGate(torch.ones(1), torch.ones(1), quadratics.mean_curvature),
}
UNLIKE_HEADS = [
    *rows("heads", "must be at least one icl.models.memformer", [], [memformer.Memformer], [HEAD, None]),
    ({"heads": [HEAD, WIDER]}, "heads must have one number of layers, one d and one dtype"),
]
MIXED = [
    ({"gate": experts.FreeGate(2)}, "gate must have 1 heads to match heads, got 2"),
    ({"gate": experts.FreeGate(1)}, "gate must have dtype torch.float32 to match heads"),
    *UNLIKE_HEADS,
]
entry(
    experts.PromptGate,
    given={"scale": quadratics.mean_curvature},
    also=[
        ({"u": torch.ones(0), "v": torch.ones(0)}, "u must have at least one head"),
        (dict.fromkeys("uv", torch.ones(1).half()), "dtype must be torch.float32 or torch.float64"),
    ],
)
entry(
    (experts.PromptGate, "forward"), also=[({"H": -torch.ones(1, 2, 2)}, "scale must be > 0 for each prompt, got -1")]
)
entry(experts.OutputMixture, given={"heads": [HEAD]}, also=MIXED)
entry(
    experts.MultiHead,
    given={"heads": [HEAD]},
    also=[
        *MIXED,
        (
            {"heads": [ONE_BY_ONE, memformer.Memformer(FULL, memformer.TokenWise(2, 4))]},
            r"heads must have TokenWise memories for one number of examples, got \[3, 4\]",
        ),
    ],
)
for kind in (experts.MultiHead, experts.OutputMixture):
    entry((kind, "risks"), given={"Sigma": np.eye(2)}, also=LOPSIDED)
entry(
    experts.merge,
    given={"heads": [HEAD]},
    also=[
        *UNLIKE_HEADS,
        ({"heads": [ONE_BY_ONE]}, "heads must not have a TokenWise memory"),
        ({"alpha": torch.ones(3)}, "alpha must have shape"),
    ],
)

SCALARS, WEIGHED = torch.ones(2, 3), torch.ones(2, 4)
FIXTURES |= {scalar_heads.ScalarHeads: lambda: scalar_heads.ScalarHeads(1, 2, 3, tokens=1, dtype=torch.float32)}
entry(scalar_heads.ScalarHeads, given={"tokens": 1}, also=[({"tokens": 2}, "tokens must be 0, 1 or n . 1 = 4, got 2")])
entry(
    (scalar_heads.ScalarHeads, "forward"),
    given={"prompt": ALONG.sample(2, generator=profile.make_generator("x"))},
    also=[({"prompt": prompt_of(PLAIN)}, r"x must have shape \(any, 4, 1\) to match the model")],
)
entry((scalar_heads.ScalarHeads, "errors"), given={"X": torch.ones(2, 3, 1)})
entry(
    scalar_heads.scalar_weights,
    given={"X": SCALARS, "y": SCALARS, "c": WEIGHED},
    also=[
        (dict.fromkeys("Xy", SCALARS[:, :0]), r"X must have shape \(..., batch, n\) with n >= 1"),
        ({"c": WEIGHED[:, :3]}, r"c must have shape \(..., layers, 1 or 4\) to match X"),
    ],
)

# --- models: S6
U, STATES, STEPS = torch.ones(2, 5, 3), torch.ones(2, 5, 4), torch.ones(1, 5)
SCAN = [
    (
        {"u": U[:, :0], "B": STATES[:, :0], "C": STATES[:, :0], "Delta": STEPS[:, :0]},
        "u must hold at least one position in time",
    ),
    ({"A": -torch.ones(3)}, r"(A must have shape \(1\)|B must have shape \(2, 5, 3\) to match u and A)"),
    *(({"A": torch.full((1,), value)}, "A must be finite and < 0") for value in (0.0, NAN, -INF)),
    ({"Delta": torch.ones(3, 5)}, r"Delta must have shape \(2 or 1, 5\) to match u"),
    *(({"Delta": value * STEPS}, "Delta must be finite and >= 0") for value in (-1, NAN, INF)),
]
SCANNED = {"u": U, "A": -torch.ones(1), "B": STATES, "C": STATES, "Delta": STEPS}
entry(mamba.scan, mamba.scan_chunked, given=SCANNED, also=SCAN)
entry(mamba.dual, given=SCANNED, also=[*SCAN])
PARTS = {name: mamba.Selective(3, 4) for name in "BC"} | {"step": mamba.FixedStep(0.1), "A": -torch.ones(1).double()}
entry(
    mamba.S6,
    given=PARTS,
    also=[
        ({"C": mamba.Selective(3, 5)}, "C must have states of size 4 to match B"),
        ({"C": mamba.Selective(2, 4)}, "B, C and step must be for tokens of one width"),
        ({"step": mamba.Step(2, 0.1)}, "B, C and step must be for tokens of one width"),
        ({"A": -torch.ones(3)}, r"A must be finite and < 0 and have shape \(1,\) or \(4,\)"),
        *rows("A", "must be finite and < 0", torch.zeros(4)),
        *rows("A", "must be a torch.Tensor", None),
    ],
)
ONE_RATE = [
    *(
        ({"layer": s6(**change)}, "layer must have a FixedStep and one rate")
        for change in ({"step": mamba.Step(3, 0.1, dtype=torch.float32)}, SEVERAL_RATES)
    ),
    ({"layer": None}, r"layer must be an [\w.]*S6"),
]
UNSELECTIVE = [({"layer": s6(**{name: STATIC[name]})}, "layer must have Selective B") for name in "BC"]
entry(mamba.weights, mamba.statistics, mamba.s6_features, also=ONE_RATE)
entry(mamba.read_out, also=ONE_RATE + UNSELECTIVE)
entry(mamba.collapsed, given={"u": U, "states": mamba.s6_features(U, s6())}, also=ONE_RATE + UNSELECTIVE)
entry(
    mamba.S6Stack,
    given={"layers": [s6()], "dtype": torch.float32},
    also=[
        *rows("layers", "must be S6 layers", [], [torch.nn.Linear(3, 3)]),
        ({"networks": [torch.nn.Identity()] * 2}, "networks must be none or 1, one a layer"),
    ],
)
