"""Every random number in the library comes from a generator that the caller named."""

import ast
import sys
from pathlib import Path

import pytest

import icl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import chapters

SOURCES = sorted(Path(icl.__file__).parents[1].rglob("*.py"))

DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial"}
DRAWS |= {f"{name}_" for name in ("normal", "uniform", "bernoulli", "random", "exponential", "cauchy", "geometric")}
DRAWS |= {"log_normal_"}
# These take no generator at all.
GLOBAL = {"rand_like", "randn_like", "randint_like", "dropout", "seed"}
HEAD = """
import numpy as np
import scipy.stats
import torch
from numpy.random import default_rng
from torch import nn, randn
"""
NUMPY = {"Generator", "SeedSequence", "PCG64", "Philox"}


def imported(nodes):
    """Local name -> what it stands for, in full, for every import among parts of a module."""
    names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node, names):
    """'torch.nn.init.normal_' for the expression that names it; '?.normal_' for a method of anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, "?") if isinstance(node, ast.Name) else "?"


def given(call, *keywords):
    """Whether a call has one of these keywords with a value other than None."""
    return any(
        k.arg in keywords and not (isinstance(k.value, ast.Constant) and k.value.value is None) for k in call.keywords
    )


def unseeded(source, *, cells=False):
    """Lines of a module that draw random numbers, or seed them, other than from a generator handed in.

    In cells a method of something else may be numpy's, whose generators are made from a seed, and `**` may hand one in.
    """
    nodes = list(ast.walk(ast.parse(source)))
    names = imported(nodes)
    found = set()
    if "random" in names.values() or any(name.startswith("random.") for name in names.values()):
        found.add(0)
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = dotted(call.func, names)
        last = name.rsplit(".", 1)[-1]
        if name.startswith("numpy.random."):
            seeded = bool(call.args) and not (isinstance(call.args[0], ast.Constant) and call.args[0].value is None)
            wrong = last not in NUMPY | {"default_rng"} or not (seeded or given(call, "seed"))
        elif last == "rvs":
            wrong = not given(call, "random_state")
        elif last in ("manual_seed", "manual_seed_all"):
            # Of a generator it is how streams begin; of torch it is everybody's.
            wrong = name.startswith("torch.") and not name.startswith("torch.Generator")
        elif name.startswith("torch.nn.init."):
            wrong = last not in ("zeros_", "ones_", "constant_", "eye_") and not given(call, "generator")
        else:
            ours = name.startswith("torch.") or (name.startswith("?.") and not cells)
            ours = ours and not (cells and any(keyword.arg is None for keyword in call.keywords))
            wrong = ours and (last in GLOBAL or (last in DRAWS and not given(call, "generator")))
        if wrong:
            found.add(call.lineno)
    return found


#: Modules that somebody brings along draw from torch's global stream, which is set for them here, and then put back.
SET_FOR_OTHERS = {"training_jobs.py": 1, "entries.py": 2}


def test_the_library_draws_from_generators_alone():
    """No file of the library draws from a global generator: every draw names the generator it uses. None seeds one but
    for somebody else's modules, within a fork.
    """
    assert len(SOURCES) > 10
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        lines = [source.splitlines()[line - 1].strip() for line in unseeded(source)]
        others = SET_FOR_OTHERS.get(path.name, 0) if path.parent.name == "icl_bench" else 0
        assert len(lines) == others, path
        assert all(line.startswith(("torch.manual_seed(", "torch.default_generator.manual_seed(")) for line in lines)
        assert source.count("torch.random.fork_rng(") >= bool(others)


#: The chapter that shows somebody else's layer, which draws as torch's layers do: it seeds torch's stream first.
SEEDED = {"book/synthesis/bring-your-own-layer": 3}


@pytest.mark.parametrize("page", chapters.with_cells())
def test_chapters_draw_from_generators_alone(page):
    """No cell draws from a global generator: what it shows would be another thing at the next build."""
    source = "\n".join(chapters.code_cells(chapters.source(page)))
    assert len(unseeded(source, cells=True)) == SEEDED.get(page, 0)
    assert ("torch.manual_seed(" in source) == (page in SEEDED)


@pytest.mark.parametrize("line", ["x = torch.randn(3)", "np.random.normal()", "g = np.random.default_rng()"])
def test_a_draw_planted_in_a_cell_is_found(line):
    """What draws from nobody's generator, printed or not; a method of a generator that was seeded is none."""
    assert unseeded(f"{HEAD}{line}\n", cells=True)
    assert not unseeded(f"{HEAD}rng = np.random.default_rng(3)\nrng.normal(size=3)\n", cells=True)


@pytest.mark.parametrize(
    "line",
    [
        "torch.manual_seed(0)",
        "torch.cuda.manual_seed_all(0)",
        "torch.seed()",
        "torch.randn(3)",
        "torch.rand(3, generator=None)",
        "torch.randint(0, 2, (3,))",
        "torch.randperm(3)",
        "torch.normal(0.0, 1.0, (3,))",
        "torch.randn_like(x)",
        "x.normal_()",
        "f(x)[0].uniform_(0, 1)",
        "nn.init.xavier_normal_(x)",
        "randn(3)",
        "np.random.seed(0)",
        "np.random.normal(size=3)",
        "np.random.RandomState(0)",
        "np.random.default_rng()",
        "np.random.default_rng(None)",
        "default_rng()",
        "scipy.stats.norm.rvs(size=3)",
        "import random",
        "from random import gauss",
    ],
)
def test_a_planted_draw_is_found(line):
    """Each of these lines, planted in a module, is found."""
    assert unseeded(f"{HEAD}\ndef f(x):\n    {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "torch.randn(3, generator=g)",
        "x.normal_(generator=g)",
        "torch.Generator('cpu').manual_seed(3)",
        "np.random.default_rng(3)",
        "default_rng(seed=seed)",
        "scipy.stats.norm.rvs(size=3, random_state=rng)",
        "nn.init.zeros_(x)",
        "torch.linalg.norm(x)",
    ],
)
def test_a_seeded_draw_is_let_be(line):
    """Draws from a generator that is handed in, and numbers that are not random, are not complained of."""
    assert not unseeded(f"{HEAD}\ndef f(x, g, seed, rng):\n    {line}\n")


def test_importing_the_library_calls_nothing_of_torch():
    """At a module's top level nothing of torch or of numpy's random numbers is called: no draw, no
    device, no setting.
    """
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = (node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef))
        nodes = [inner for node in top for inner in ast.walk(node)]
        names = imported(nodes)
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            assert not dotted(call.func, names).startswith(("torch.", "numpy.random.")), f"{path.name}:{call.lineno}"
