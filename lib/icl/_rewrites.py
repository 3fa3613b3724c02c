"""Definitions that were rewritten and do what they did, to the bit: they keep the identity that records know.

A row is proved whenever the tests run (`tests/house/test_rewrites.py`): the library as it was at `commit` is taken from
the repository's history, `cases` are computed in both, and every byte has to agree. A row whose definition changes
again stops counting by itself, because `now` is then the hash of nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rewrite:
    """One definition, before and after.

    Attributes:
        definition: its dotted name now.
        before: the identity it keeps.
        now: the hash of what it does now, with all that it uses.
        commit: one with the older form.
        cases: statements that leave in `results` what the definition computes: arrays, numbers, texts, nested freely.
    """

    definition: str
    before: str
    now: str
    commit: str
    cases: str


#: A commit of the library in its rooms, before any of these rewrites.
_ROOMS = "70d0f59657a8fc5ccc3d09d43d35f06085d823b4"

#: A commit where token-wise weights were the same for all prompts, in one head and without B.
_ONE_WEIGHT_A_TOKEN = "50079f108b88cf59065ab555c239ba7d10c8a03d"

#: A commit where the error of unit keys was a quadrature and nothing else.
_QUADRATURE = "c21a46978b375aa7a512154038f16212c1af180a"

#: A commit where a list ended where it ends, and no list was larger than 0.
_SAID_TWICE = "a6757ad287441d2e2c1f266af5a2887c74e6cef6"

#: A commit where all who wrote a file shared its draft.
_ONE_DRAFT = "1715b72dd1577c576f826403bf93c3a369dfadeb"

#: A commit where traces were sums over all partitions, and integrals of products sums of fractions.
_IN_FRACTIONS = "7cf7b74d248f697c2e588ad6c53e990096ecd577"

_WRITE = """
import tempfile
from pathlib import Path
from icl import _files
results = []
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "a")
    for content in (b"first", b"", bytes(range(256)) * 1000, b"last"):
        _files.write(path, content)
        results.append([path.read_bytes().hex(), sorted(each.name for each in Path(folder).iterdir())])
    path.with_name("a.part").write_bytes(b"left by a process that was killed")
    _files.write(path, b"over it")
    results.append([path.read_bytes().hex(), sorted(each.name for each in Path(folder).iterdir())])
    try:
        _files.write(path / "b", b"in no folder")
    except OSError as error:
        results.append([error.errno, error.strerror, Path(error.filename).name])
"""

#: A commit where filters asked torch for the shape of what they try at once.
_BY_TORCH = "e059f0ef1aba3d64882a1faf1e21bd631d3dcd6b"

#: A commit where filters and solvers copied their settings to the device of their data at every step.
_AT_EVERY_STEP = "1715b72dd1577c576f826403bf93c3a369dfadeb"

# Nearer to gamma = 1 the quadrature's last digits are the processor's, and with them which of the two forms is taken.
_UNIT_KEYS = """
from dataclasses import astuple
from icl.theory import steady
results = [
    astuple(steady.best_unit_delta(steady.Steady(d, gamma, sigma_e, sigma_y)))
    for d in (12, 20, 50)
    for gamma in (0.6, 0.9)
    for sigma_e in (0.1, 1.0)
    for sigma_y in (0.0, 1.0, 3.0)
]
"""

_LOOK = """
import itertools
import numpy as np
import torch
from icl.tasks import *
Lambda = np.diag([1.0, 2.0, 3.0])
results = []
def look(*tasks):
    for task, dtype, seed in itertools.product(tasks, (torch.float32, torch.float64), range(3)):
        draw = {"generator": torch.Generator().manual_seed(seed), "dtype": dtype}
        results.append((task.Lambda, task.inputs.name, task.weight_kernel(), vars(task.sample(50, **draw))))
        if hasattr(task, "reveal"):
            prompt, steps = task.reveal(50, **draw)
            results.append((vars(prompt), vars(steps)))
"""


_FILTERS = """
import numpy as np
import torch
from icl import filters
from icl.tasks import DriftingRegression
task = DriftingRegression(3, 12, 0.9)
prompt = task.sample(2000, generator=torch.Generator().manual_seed(1))
steps = torch.tensor([[0.01], [0.05], [0.1]], dtype=torch.float64)
every = [
    filters.lms(0.05), filters.lms(steps), filters.nlms(steps), filters.delta_rule(0.05, lam=0.9),
    filters.normalised_delta_rule(0.5, lam=1 - steps), filters.apa(0.5, K=4), filters.window(5), filters.rls(0.95),
    filters.rls(1 - steps), filters.ridge(0.1), filters.faded_ridge(0.9, eps=steps), filters.kalman(task),
    filters.steady_kalman(task), filters.gla(0.02 * np.eye(3), lam=0.9), filters.zero(),
]
results = []
for one in every:
    for x, y in ((prompt.x, prompt.y), (prompt.x.double(), prompt.y.double())):
        results.append(filters.run_filter(one, x, y))
        results.append(vars(filters.track(one, x[:7], y[:7], w_0=torch.ones(3, dtype=x.dtype))))
        results.append(vars(filters.track(one, x[0], y[0])))
        if not one.settings:
            results.append(filters.run_filter(one, x.reshape(20, 100, 13, 3), y.reshape(20, 100, 13)))
            if x.dtype is torch.float32:  # more trials than one block holds
                results.append(filters.run_filter(one, x[:100].repeat(400, 2, 1), y[:100].repeat(400, 2)))
"""


_GRID = """
from icl import filters
from icl.runs import Grid, run_grid
from icl.tasks import DriftingRegression, Noisy
tasks = {"slow": DriftingRegression(2, 12, 0.95), "noisy": Noisy(DriftingRegression(3, 12, 0.8), 0.3)}
makers = {
    "zero": lambda task: filters.zero(),
    "RLS": lambda task: filters.rls(0.9),
    "window": lambda task: filters.window(4),
}
found = run_grid(Grid(tasks, makers, 2, 40, 5, "zero", "rewrites"))
results = [[found.table[name].tolist() for name in found.table], str(found.pooled().to_dict())]
"""


_FLOORS = """
import numpy as np
from icl.theory import polynomial_floor as floors
rng, results = np.random.default_rng(1), []
for d, n in ((1, 1), (5, 20), (3, 2), (4, 200)):
    results.append([str(v) for v in floors._traces(d, n, 16)])
    for layers in (1, 4, 8):
        best = floors._exact(d, n, layers)
        parts = best.risks, best.alpha, best.gamma, best.norms, best.residual
        results.append([[str(v) for v in part] for part in parts])
    X = rng.normal(size=(41, d, n))
    H, A = X @ X.swapaxes(1, 2) / n, rng.normal(size=(d, d))
    results.append(floors._squares(A @ H, np.arange(41) < 20, 4))
    results.append(floors.floor(H, np.diag(1.0 + np.arange(d)), 5, A))
"""


_LEAST = """
from fractions import Fraction
from icl.theory import polynomial_floor as floors
results = []
for d, n in ((1, 1), (5, 20), (3, 2), (7, 7)):
    results.append([str(v) for v in floors._traces(d, n, 26)])
points = [Fraction(k * k + 1, 3 * k + 2) for k in range(6)]
for count, degree in ((1, 4), (3, 10), (6, 14)):
    moments = [sum(t**k / (i + 2) for i, t in enumerate(points[:count])) for k in range(degree + 1)]
    best = floors._least([Fraction(moment) for moment in moments])
    results.append([[str(v) for v in part] for part in (best.risks, best.alpha, best.gamma, best.norms, best.residual)])
"""


_TABLES = """
import numpy as np
from icl.theory import lfom
rng, results = np.random.default_rng(1), []
for d, n, layers in ((1, 1, 2), (5, 20, 4), (3, 2, 8), (4, 200, 12)):
    for _ in range(5):
        Gamma = np.tril(rng.normal(size=(layers, layers)))
        results.append(lfom.table_risks(Gamma, d, n))
        results.append(lfom.table_risks(Gamma, d, n, rng.normal(size=layers)))
"""

_MEMORIES = """
import torch
from icl.models.experts import ConvexGate, FreeGate, MultiHead, PromptGate
from icl.models.memformer import *
from icl.models.memformer import Fixed, Free, Full, OneRegister, Scaled, Shared, TokenWise, Without
from icl.models.token_form import token_errors
from icl.tasks import StationaryRegression
from icl.tasks.quadratics import mean_curvature
torch.manual_seed(1)
d, n, L, results = 3, 6, 4, []
task = StationaryRegression(d, n)
normal = lambda *shape: torch.randn(*shape, dtype=torch.float64) / 4
def memories():
    return [Without(L), OneRegister(L), Shared(L), Free(L), Free(L, rows=d + 1), TokenWise(L, n)]
def look(model, dtype, seed):
    prompt = task.sample(40, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    model = model.to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    M, states, predictions = model.errors(prompt.x[:, :-1]), model.states(prompt), model(prompt)
    results.append([M, states, predictions])
    for value in (M, states, predictions):
        model.zero_grad()
        if value.requires_grad:
            value.square().sum().backward()
            results.append([p.grad for p in model.parameters()])
"""


_TOKENS = """
for seed in range(3):
    for size in (1, n):
        X, A = normal(7, size, d).requires_grad_(), normal(L, d, d).requires_grad_()
        Gamma = normal(L, L, size + 1).requires_grad_()
        M = token_errors(X, A, Gamma)
        M.square().sum().backward()
        results.append([M, X.grad, A.grad, Gamma.grad])
"""


_ONE_HEAD = """
for seed, dtype in enumerate((torch.float32, torch.float64)):
    for k, kind in enumerate(memories()):
        for blocks in (lambda: Fixed(normal(L, d, d)), lambda: Scaled(normal(d, d), L), lambda: Full(d, L)):
            look(Memformer(blocks(), memories()[k]), dtype, seed)
            if not isinstance(kind, TokenWise):
                look(Memformer(blocks(), memories()[k], blocks()), dtype, seed)
"""


_SEVERAL_HEADS = """
for seed, dtype in enumerate((torch.float32, torch.float64)):
    for gate in (lambda: None, lambda: FreeGate(3), lambda: ConvexGate(3),
                 lambda: PromptGate(*normal(2, 3), mean_curvature)):
        for kinds in ([0, 0, 0], [1, 2, 3], [0, 3, 4]):
            for form in range(3):
                A = [Full(d, L), Fixed(normal(L, d, d)), Scaled(normal(d, d), L)]
                own = [memories()[k] for k in kinds] if form != 1 else [memories()[kinds[1]]] * 3
                B = (None, Full(d, L), Fixed(normal(L, d, d))) if form == 2 else (None,) * 3
                look(MultiHead([Memformer(*each) for each in zip(A, own, B, strict=True)], gate()), dtype, seed)
"""

_FIT = """
import tempfile
from pathlib import Path
import numpy as np
import torch
from icl.models import GLA, LinearAttention
from icl.runs.training import AdamW, Config, Diverged, fit
from icl.tasks import DriftingRegression
task, results = DriftingRegression(3, 9, 0.9), []
loss = lambda model, prompt: model.loss(prompt)
last = lambda model, prompt: (model(prompt) - prompt.y[:, -1]).square().mean()
side_by_side = lambda model, prompt: torch.stack([model.loss(prompt), last(model, prompt)])
def look(model, loss, config, dtype, **more):
    generator, seen = torch.Generator().manual_seed(1), []
    watch = lambda step, model: seen.append([step, *(p.detach().clone() for p in model.parameters())])
    try:
        run = fit(model, loss, task, config, generator=generator, watch=watch, **more)
        results.append([run.losses, run.resumed_from])
    except Diverged as fault:
        results.append(str(fault))
    results.append([seen, [p.detach() for p in model.parameters()], generator.get_state()])
plain, harsh = AdamW(lr=0.05), AdamW(lr=1e-3, weight_decay=0.0, momentum=0.5, beta2=0.9)
for dtype in (torch.float32, torch.float64):
    made = lambda: GLA(3, lam=0.8, mu=0.1, dtype=dtype)
    for each in (loss, side_by_side):
        look(made(), each, Config(7, 4, plain), dtype)
        look(made(), each, Config(9, 4, harsh, warm_up=3, anneal_to=0.0, clip=0.1), dtype, floor=0.1)
    look(LinearAttention(3, mu=0.2, dtype=dtype), loss, Config(5, 4, plain), dtype)
    wrong = lambda model, prompt: model.loss(prompt) / (prompt.x.abs().max() < 2.9)
    look(made(), wrong, Config(30, 4, plain), dtype)
    with tempfile.TemporaryDirectory() as folder:
        stop = 0
        def stopping(model, prompt):
            global stop
            stop += 1
            if stop == 6:
                raise KeyboardInterrupt
            return model.loss(prompt)
        for every in (2, 3):
            model, stop, file = made(), 0, Path(folder) / f"{every}.safetensors"
            try:
                fit(model, stopping, task, Config(9, 4, plain), generator=torch.Generator().manual_seed(1),
                    checkpoint=file, every=every)
            except KeyboardInterrupt:
                results.append(file.exists())
            look(made(), stopping, Config(9, 4, plain), dtype, checkpoint=file, every=every)
"""


_SELF_TUNING = """
import numpy as np
import torch
from icl import filters, self_tuning
from icl.tasks import UnknownDrift
task = UnknownDrift(3, 12, [0.99, 0.9, 0.5], [0.1, 0.4, 0.9], [0.3, 0.5, 0.0], [0.2, 0.5, 0.3])
prompt = task.sample(300, generator=torch.Generator().manual_seed(1))
p, lam = [0.1, 0.4, 2.0], [0.99, 0.9, 0.6]
every = [
    self_tuning.gauged_delta(p, lam, sigma_y=0.3, beta=0.1), self_tuning.gauged_delta(p, lam, sigma_y=0.3, beta=1.0,
    start=0.2), self_tuning.meta_delta(p, lam, sigma_y=0.3, theta=0.5), self_tuning.meta_delta(p, lam, sigma_y=0.0,
    theta=0.1, start=1.0), self_tuning.mixed_deltas(p, lam, sigma_y=0.3), self_tuning.mixed_deltas(p, lam, keep=0.9,
    sigma_y=[0.1, 0.2, 0.0]), self_tuning.bank(task),
]
results = []
for one in every:
    for x, y in ((prompt.x, prompt.y), (prompt.x.double(), prompt.y.double())):
        results.append(vars(filters.track(one, x, y)))
        results.append(filters.run_filter(one, x[0], y[0]))
"""


_SOLVERS = """
import torch
from icl import solvers
draw = torch.Generator().manual_seed(1)
results = [solvers.chebyshev_scalars(0.5, 3.0, 7), solvers.chebyshev_scalars(2.0, 2.0, 3)]
for dtype in (torch.float32, torch.float64):
    Q = torch.randn(4, 5, 5, generator=draw, dtype=torch.float64)
    H = (Q @ Q.mT / 5 + torch.eye(5)).to(dtype)
    H = (H + H.mT) / 2
    b, w_0 = torch.randn(2, 4, 5, generator=draw, dtype=dtype)
    M = torch.diag(torch.arange(1.0, 6.0)).to(dtype)
    each, low = torch.tensor([0.1, 0.2, 0.05, 0.15], dtype=torch.float64), torch.full((4,), 0.9, dtype=torch.float64)
    for solver in (
        solvers.gradient_descent(0.1), solvers.gradient_descent(each), solvers.momentum(0.1, 0.5),
        solvers.momentum(each, 5 * each), solvers.nesterov(0.1, 0.5), solvers.nesterov(each, 5 * each),
        solvers.momentum(*solvers.tuned_momentum(low, 5 + low)), solvers.nesterov(*solvers.tuned_nesterov(1.0, 6.0)),
        solvers.chebyshev(1.0, 6.0), solvers.chebyshev(low, 6.0), solvers.chebyshev(low, 5 + low),
        solvers.conjugate_gradients(), solvers.conjugate_gradients(M), solvers.conjugate_gradients(H),
    ):
        results += [solvers.run_solver(solver, H, b, 6), solvers.run_solver(solver, H, b, 3, w_0=w_0)]
"""


_DIAGONALS = """
import numpy as np
import torch
from icl.models.first_order import diagonal_errors, diagonal_jacobian
from icl.runs import fitted
from icl.tasks import StationaryRegression, quadratics
results = []
for d, L in ((3, 2), (2, 4)):
    task = StationaryRegression(d, 9)
    prompt = task.sample(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    H = quadratics.hessians(prompt)
    Lambda = torch.randn(L, L, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    Lambda = Lambda * torch.ones(L, L, dtype=torch.float64).tril()[..., None] / 5
    start = torch.eye(d, dtype=torch.float64).expand(40, d, d)
    results += [diagonal_errors(H, Lambda, start), diagonal_jacobian(H, Lambda, start, start)]
    for asked in (fitted.ask_labels(prompt), fitted.ask_values(prompt), fitted.ask_risks(H, np.eye(d))):
        results += [fitted.prompt_losses(asked, Lambda), fitted.fit_polynomial(asked, L)]
        results.append(vars(fitted.fit_diagonals(asked, Lambda, evaluations=5)))
"""


_MERGED = """
import torch
from icl.models.experts import merge
from icl.models.memformer import Fixed, Free, Full, Memformer, Scaled, Shared
d, L, results = 3, 3, []
draw = torch.Generator().manual_seed(1)
def stirred(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype) / 4
    return model
for dtype in (torch.float32, torch.float64):
    alike = [stirred(Memformer(Full(d, L, dtype=dtype), Shared(L, dtype=dtype))) for _ in range(3)]
    for head in alike[1:]:
        head.memory.load_state_dict(alike[0].memory.state_dict())
    block = stirred(Full(d, L, dtype=dtype))
    in_proportion = [Memformer(block, stirred(Free(L, dtype=dtype))) for _ in range(2)]
    curved = [
        Memformer(alike[0].preconditioner, alike[0].memory, stirred(Full(d, L, dtype=dtype))) for _ in range(1)
    ]
    for heads in (alike, in_proportion, curved):
        results.append(dict(merge(heads).state_dict()))
        results.append(dict(merge(heads, torch.arange(1.0, 1 + len(heads)).to(dtype)).state_dict()))
"""


_SIDE_BY_SIDE = """
import numpy as np
import torch
from icl.runs.recipes import train_side_by_side
from icl.runs.training import AdamW
from icl.tasks import DriftingRegression
results = []
for dtype in (torch.float32, torch.float64):
    theta = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(1), dtype=dtype) / 10
    results.append(
        train_side_by_side(
            DriftingRegression(3, 8, 0.9), theta, lam=np.array([0.9, 0.7, 0.9, 0.5]), steps=20, batch=16,
            optimiser=AdamW(), generator=torch.Generator().manual_seed(2),
        )
    )
"""


_KNOWN = """
import torch
from icl.runs.known import known_risks
results = [known_risks(2, n, 2, generator=torch.Generator().manual_seed(1), prompts=300) for n in (3, 12)]
"""


_POWERS = """
from fractions import Fraction
from icl.theory.mixture_floor import _powers
numbers = Fraction(0), Fraction(3, 2), Fraction(0.3)
results = [[str(each) for each in _powers(m, v, k)] for m in numbers for v in numbers[1:] for k in range(6)]
"""

_POLES = """
from icl.theory.spectra import pole_spectrum
results = [
    pole_spectrum(poles, k=k, n=n)
    for poles in (0.0, [0.9], [-0.5, 0.97], [0.8 + 0.5j, 0.8 - 0.5j, 0.1])
    for k, n in ((1.0, 4096), (2.5, 2048))
]
"""

_RULES = """
import torch
from icl.runs import rule_arms
results = []
for gamma in (0.9, 1.0):
    language = rule_arms.rule_language(gamma)
    for dtype in (torch.float32, torch.float64):
        prompt = language.sample(30, generator=torch.Generator().manual_seed(1), dtype=dtype)
        results += [rule_arms.one_layer_scores(prompt, lam) for lam in (0.3, 0.9, 1.0)]
        results.append(rule_arms.best_one_layer(prompt, since=5))
"""


_OVER_BOUND = """
import torch
from icl.runs import gating
from icl.theory.steady import Steady
results = []
for layer in gating.GATED_LAYERS:
    model = gating.gated_layer(layer, "own filter", 2, 3, generator=torch.Generator().manual_seed(1))
    for each in (model, model.double()):
        found = gating.over_bound(each, Steady(3, 0.95, 0.3), 25, generator=torch.Generator().manual_seed(2), size=10)
        results.append(list(found))
"""


def _drift(name: str, before: str, now: str, tasks: str) -> Rewrite:
    """One sampler for all drifts (`tasks.core.Regression`); each had its own."""
    return Rewrite(f"icl.tasks.{name}", before, now, _ROOMS, f"{_LOOK}look({tasks})")


REWRITES: tuple[Rewrite, ...] = (
    _drift(
        "core.StationaryRegression",
        "c52ea9b879062412",
        "ad4d33c11379c273",
        "StationaryRegression(3, 7), StationaryRegression(3, 20, Sigma_w=Lambda, Lambda=Lambda, inputs=UNIFORM)",
    ),
    _drift(
        "core.DriftingRegression",
        "7047ff6b1e3b0655",
        "aaa257248cd224fa",
        "DriftingRegression(3, 7, 0.9), DriftingRegression(3, 20, 1.1, 0.5, 0.2, Lambda=Lambda, inputs=LAPLACE), "
        "DriftingRegression(3, 7, 0.9, 0.5, 0.0), DriftingRegression(3, 7, 0.9, 0.0, 0.5)",
    ),
    _drift(
        "core.SmoothDrift",
        "022ce5217069b2bc",
        "b700295a5dce139d",
        "SmoothDrift(3, 7), SmoothDrift(3, 20, 0, 2.0, Lambda=Lambda, inputs=RADEMACHER)",
    ),
    _drift(
        "drifts.LinearDrift",
        "7bbe4569243cec7d",
        "1f729ccda15446f5",
        "ar2(3, 7, rho=0.9, omega=0.4), sinusoids(3, 20, omega=0.3, Lambda=Lambda), "
        "two_timescales(3, 7, gammas=(0.5, 1.0)), LinearDrift(3, 7, [[0.9]], [[0.1]], [1.0], [[0.0]])",
    ),
    _drift(
        "drifts.RegimeSwitching",
        "1d4724afc93e4095",
        "54d82515b1180e8f",
        "RegimeSwitching(3, 7, 0.9), RegimeSwitching(3, 20, 1.0, 0.5, 0.2, 0.3, Lambda=Lambda)",
    ),
    _drift(
        "drifts.HeavyTailedDrift",
        "639a0dc676f4c708",
        "bb30fb75c584d566",
        "HeavyTailedDrift(3, 7, 0.9), HeavyTailedDrift(3, 20, 1.0, 0.5, 0.2, 2.5, Lambda=Lambda)",
    ),
    # What is checked, how trials are cut into blocks, and the running of one block stand apart.
    Rewrite("icl.filters._scan", "89c74b71ad09bba6", "8f9be78ba4b4f66e", _ROOMS, _FILTERS),
    # How a fingerprint is made is no part of what is computed: `_identity` counts by name.
    Rewrite("icl.runs.grid.Grid", "aa8dab89e7ebf248", "44efc8d600bbada7", _ROOMS, _GRID),
    Rewrite("icl.runs.grid.run_grid", "422a1348f84ce760", "247f7cd3b6afaa10", _ROOMS, _GRID),
    # Products of traces, the recursion under any measure and another start than the identity stand apart; traces are
    # sums over few partitions, and integrals of products are taken in integers.
    Rewrite("icl.theory.polynomial_floor._traces", "ed3337b0b06ae203", "44bd0a54e2e340e6", _ROOMS, _FLOORS),
    Rewrite("icl.theory.polynomial_floor._least", "fe079c2030afe333", "1cca288ae7f0cfb1", _IN_FRACTIONS, _LEAST),
    Rewrite("icl.theory.polynomial_floor._exact", "3e00388645094eea", "d3230ce3dfc0e1ba", _ROOMS, _FLOORS),
    Rewrite("icl.theory.polynomial_floor._squares", "f33c6bd2af0b57a3", "4889373dfabdb3ed", _ROOMS, _FLOORS),
    # The squares above the floor serve the limit of many dimensions too.
    Rewrite("icl.theory.lfom.table_risks", "d9df505e95326047", "e5db09f654e84dee", _ROOMS, _TABLES),
    # Token-wise weights beside B, others a prompt, and in several heads that are summed.
    Rewrite(
        "icl.models.token_form.token_errors",
        "562898cd13c3e5df",
        "9b84d5285a30da9e",
        _ONE_WEIGHT_A_TOKEN,
        _MEMORIES + _TOKENS,
    ),
    Rewrite(
        "icl.models.memformer.Memformer",
        "df56da1387c06c15",
        "548f9f33d615d44c",
        _ONE_WEIGHT_A_TOKEN,
        _MEMORIES + _ONE_HEAD,
    ),
    Rewrite(
        "icl.models.experts.MultiHead",
        "2484e4460396656a",
        "e4fea9401bb23718",
        _ONE_WEIGHT_A_TOKEN,
        _MEMORIES + _SEVERAL_HEADS,
    ),
    # Right to rounding where the quadrature does not see lengths near 0.
    Rewrite(
        "icl.theory.steady.best_unit_delta",
        "b8d1cb9a08f79e6c",
        "1b219a2ea174c673",
        _QUADRATURE,
        _UNIT_KEYS,
    ),
    # Prompts of any kind, models so large that a copy of the state takes as long as a step, no bar beside another.
    Rewrite("icl.runs.training.fit", "57c4686f0e1e6cb2", "e53c4d062a9849f2", _ONE_WEIGHT_A_TOKEN, _FIT),
    # Each who writes has the draft to itself.
    Rewrite("icl._files.write", "8ef2c7adba3e135b", "843086257c3d4be1", _ONE_DRAFT, _WRITE),
    # Settings reach the device of the data once and not at every step; masks, prompts and results are on it.
    Rewrite("icl.filters._setting", "f1cf35dc315b632c", "1fe52f7263adde90", _AT_EVERY_STEP, _FILTERS),
    Rewrite("icl.filters._fixed_gain", "8b520ecfcc4b5c38", "f2b1df735b69d9ce", _AT_EVERY_STEP, _FILTERS),
    Rewrite("icl.solvers._setting", "2ff48bdc5a7e7d06", "abae453a8aa27b64", _AT_EVERY_STEP, _SOLVERS),
    Rewrite("icl.solvers.chebyshev", "88b35859038bd108", "c0f91af6179dbbda", _AT_EVERY_STEP, _SOLVERS),
    Rewrite("icl.solvers.chebyshev_scalars", "2f561421fb3c0529", "d3589e575a8e79ad", _AT_EVERY_STEP, _SOLVERS),
    Rewrite("icl.solvers._preconditioner", "c0f4bef022cd7b73", "aaa2680772a2101d", _AT_EVERY_STEP, _SOLVERS),
    Rewrite("icl.solvers.conjugate_gradients", "0da9eb6da6ee9bb1", "22ad7bdbd0c6c3fe", _AT_EVERY_STEP, _SOLVERS),
    Rewrite("icl.self_tuning.gauged_delta", "a5db7928ddc7156f", "7b0e6c301ec39479", _AT_EVERY_STEP, _SELF_TUNING),
    Rewrite("icl.self_tuning.meta_delta", "0d5323c33332ab5a", "5dcaa252ac534306", _AT_EVERY_STEP, _SELF_TUNING),
    Rewrite("icl.self_tuning.mixed_deltas", "9dde0aa75218503b", "767248052f94aa09", _AT_EVERY_STEP, _SELF_TUNING),
    Rewrite("icl.self_tuning.bank", "19fd0a595a55b64a", "75c0a18bb8bf18d0", _AT_EVERY_STEP, _SELF_TUNING),
    Rewrite("icl.models.first_order._triangle", "c01b292587cc2ca6", "4db6069360adcc88", _AT_EVERY_STEP, _DIAGONALS),
    Rewrite("icl.runs.fitted.fit_polynomial", "e1c9db4d9cfc8a80", "9b6dfe5e55f8284a", _AT_EVERY_STEP, _DIAGONALS),
    Rewrite("icl.runs.fitted.fit_diagonals", "a26fd85cedf551e7", "b002b2effecf9fe7", _AT_EVERY_STEP, _DIAGONALS),
    Rewrite("icl.runs.known.known_risks", "0cf6070b619ce953", "2f9bcc87664e6d62", _AT_EVERY_STEP, _KNOWN),
    Rewrite("icl.models.experts.merge", "dc70c8ac90ba88fc", "e3900e3fb8c53b08", _AT_EVERY_STEP, _MERGED),
    Rewrite(
        "icl.runs.recipes.train_side_by_side", "cab54ce893c34d8f", "91e129850edee76a", _AT_EVERY_STEP, _SIDE_BY_SIDE
    ),
    Rewrite("icl.runs.rule_arms.one_layer_scores", "2654d96592bb77cd", "697dfda01c929444", _AT_EVERY_STEP, _RULES),
    Rewrite("icl.runs.gating.over_bound", "e9f3762e97a9094f", "e9675ef3abb8bc9b", _AT_EVERY_STEP, _OVER_BOUND),
    # What held in any case is not said again.
    Rewrite("icl.theory.mixture_floor._powers", "27da08e3ebe407cb", "cd416e0dd999587c", _SAID_TWICE, _POWERS),
    Rewrite("icl.theory.spectra.pole_spectrum", "b563600f1c7b6421", "e5e7e415e7b07104", _SAID_TWICE, _POLES),
    # Torch's own answer loads a library for algebra first.
    Rewrite("icl.filters._axes", "a0a452409c456e5b", "5de7d89ca29f8091", _BY_TORCH, _FILTERS),
)
