"""What a name, a file or a module stands for, and what is said where it stands for nothing that can take part."""

import sys
import traceback

import pytest
import torch

from icl.tasks import DriftingRegression
from icl_bench import adapters
from icl_bench.entries import Shape, resolve, torch_seeded
from icl_bench.sequence import InContext, Projected, heads_for

pytestmark = pytest.mark.usefixtures("as_installed")

SHAPE = Shape(d=3, n=6, width=16, depth=2, longest=25)

OWN = '''
"""Layers of one's own."""
from dataclasses import dataclass
import torch
from torch import nn
from icl import filters
from icl.models.fast_weights import GLA
from icl.experiments.tuning import LAYERS

class MyLayer(nn.Module):
    """A mean of what was seen."""
    def __init__(self, width):
        super().__init__()
        self.v = nn.Linear(width, width)
    def forward(self, h):
        return self.v(h).cumsum(1) / torch.arange(1, h.shape[1] + 1)[:, None]
    def state_numel(self, time):
        return self.v.out_features + 1

class ByAnotherName(MyLayer):
    def __init__(self, dim, bias=True):
        super().__init__(dim)

class Asking(MyLayer):
    told = []
    def __init__(self, width, *, heads, longest):
        super().__init__(width)
        self.told.append((width, heads, longest))

class Whole(nn.Sequential):
    def __init__(self, depth, width=7):
        super().__init__(*[MyLayer(width) for _ in range(depth)])

class TwoMore(MyLayer):
    def __init__(self, width, kernel, *, groups):
        super().__init__(width)

class NoWidth(nn.Module):
    def __init__(self):
        super().__init__()

class Breaks(nn.Module):
    def __init__(self, width):
        raise RuntimeError("out of luck")

class Plain:
    pass

@dataclass
class Settings:
    d_model: int
    n_layers: int = 1

class BySettings(Whole):
    def __init__(self, settings: Settings):
        super().__init__(settings.n_layers, settings.d_model)

def factory(size): return MyLayer(size)
def whole(width, depth): return Whole(depth, width)
def operator(q, k, v, g): return v * g.unsqueeze(-1)
def in_logs(q, k, v, log_g): return v
def three(width): return 3
def layer_of(d): return GLA(d, lam=0.9, mu=0.05)
def wrong_d(): return GLA(2, lam=0.9, mu=0.05)
def forgetting(d, n): return filters.rls(1 - 1 / n, eps=0.01)
def several(): return filters.lms(torch.tensor([[0.1], [0.2]]))
def tuned(d): return LAYERS["RLS"]
lms = filters.lms
ready, mine, made, number = filters.zero(), LAYERS["GLA"], MyLayer(3), 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """An empty folder with a file of one's own, from which the tool is called."""
    (tmp_path / "my_layer.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("MyLayer", "layer", "A mean of what was seen."),
        ("ByAnotherName", "layer", "my_layer.py:ByAnotherName, as layer"),
        ("Asking", "layer", ""),
        ("factory", "layer", ""),
        ("Whole", "model", ""),
        ("whole", "model", ""),
        ("BySettings", "model", ""),
        ("operator", "operator", ""),
        ("layer_of", "causal", ""),
        ("forgetting", "filter", ""),
        ("ready", "filter", ""),
        ("mine", "tunable", ""),
        ("tuned", "tunable", ""),
    ],
)
def test_what_is_brought_along_is_told_apart(own, name, kind, told):
    contestant = resolve(f"my_layer.py:{name}")
    assert (contestant.name, contestant.kind) == (name, kind)
    assert contestant.about.startswith(told)
    assert contestant.path == str(own)
    made = contestant.build(SHAPE)
    if kind in ("layer", "model", "operator"):
        assert isinstance(made, InContext)
        prompt = DriftingRegression(3, 6, 0.9, sigma_w=1, sigma_e=0.1).sample(2, generator=torch.Generator())
        assert made.predictions(prompt).shape == (2, 7)
        assert len(made.body) == SHAPE.depth
        assert contestant.depth_inside == (kind == "model")
    assert contestant.trained == (kind not in ("filter", "tunable"))


def test_a_layer_is_told_what_it_asks_for(own):
    contestant = resolve("my_layer.py:Asking")
    del sys.modules[type(contestant.build(SHAPE).body[0].mixer).__module__].Asking.told[:]
    mixers = [block.mixer for block in contestant.build(SHAPE).body]
    assert mixers[0].told == 2 * [(16, heads_for(16), 25)]


def test_a_kind_can_be_forced(own):
    contestant = resolve("my_layer.py:factory", kind="model")
    assert contestant.kind == "model"
    assert type(contestant.build(SHAPE).body).__name__ == "MyLayer"
    known = resolve("gla", kind="operator")
    assert known.kind == "operator"
    assert [type(block.mixer) for block in known.build(SHAPE).body] == SHAPE.depth * [Projected]


def test_what_is_called_otherwise_is_the_same(own):
    plain, called = resolve("my_layer.py:MyLayer"), resolve("ours-2=my_layer.py:MyLayer")
    assert (called.name, called.spec, called.source) == ("ours-2", "ours-2=my_layer.py:MyLayer", plain.source)
    assert resolve("mine=gla").source == resolve("gla").source


def test_source_is_of_the_name_and_of_the_file(own):
    first = {name: resolve(f"my_layer.py:{name}").source for name in ("MyLayer", "Asking")}
    assert first["MyLayer"] != first["Asking"]
    (own / "my_layer.py").write_text(OWN.replace("self.v(h)", "2 * self.v(h)"))
    assert resolve("my_layer.py:MyLayer").source != first["MyLayer"]
    (own / "my_layer.py").write_text(OWN)
    assert resolve("my_layer.py:MyLayer").source == first["MyLayer"]


@pytest.mark.parametrize("spec", ["sub/layers.py:MyLayer", "package.inside:MyLayer", "my_layer:MyLayer"])
def test_another_process_finds_the_same_by_its_path(own, spec, monkeypatch):
    for folder in ("sub", "package"):
        (own / folder).mkdir()
    (own / "sub" / "layers.py").write_text(OWN)
    (own / "package" / "__init__.py").write_text("")
    (own / "package" / "inside.py").write_text("from my_layer import MyLayer\n")
    contestant = resolve(spec)
    # As another process: started elsewhere, with nothing of these imported, and told the path.
    for name in [name for name in sys.modules if name.partition(".")[0] in ("package", "my_layer")]:
        monkeypatch.delitem(sys.modules, name)
    elsewhere = [folder for folder in sys.path if not folder.startswith(str(own))]
    monkeypatch.setattr(sys, "path", [contestant.path, *elsewhere])
    monkeypatch.chdir("/")
    there = resolve(spec)
    assert (there.source, there.kind) == (contestant.source, contestant.kind)


REFUSED = {
    "": "spec must be a name, file.py:Name or package.module:Name, got ''",
    "glaa": "got 'glaa'; did you mean gla",
    "nothing-like-it": "the names are softmax, softmax-alibi",
    "my_layer.py": "say what in the file is meant, as my_layer.py:MyLayer",
    "package.layers": "say what in the module is meant, as package.layers:MyLayer",
    "a b=gla": "letters, digits, dots and dashes before its =, got 'a b'",
    "../a=gla": "before its =",
    "my_layr.py:MyLayer": "no .*my_layr.py; did you mean my_layer.py",
    "my_layer.py:MyLayr": "got 'MyLayr'; did you mean MyLayer",
    "no_such.module:Name": "no no_such",
    "my_layer.py:TwoMore": r"TwoMore needs kernel, groups, which the tool does not tell it .*write a function of width",
    "my_layer.py:NoWidth": r"NoWidth must take the width, .* got NoWidth\(\): write a function of width",
    "my_layer.py:Plain": "a class that is no nn.Module",
    "my_layer.py:in_logs": "in_logs cannot be an operator: .* it needs log_g: give a default, or write a function",
    "my_layer.py:three": "a function that returned int 3",
    "my_layer.py:made": "a MyLayer that is made already, and every seed needs a new one: name its class",
    "my_layer.py:number": "must be a class of nn.Module .* got int 3",
    "my_layer.py:lms": "lms needs mu, which the tool does not tell it",
    "torch.nn:Linear": "Linear needs out_features",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_is_wrong_is_said_with_what_to_change(own, spec):
    with pytest.raises(ValueError, match=REFUSED[spec]):
        resolve(spec)


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("my_layer.py:Breaks", None, r"Breaks could not be made: Breaks\(width=16\) raised RuntimeError: out of luck"),
        ("my_layer.py:wrong_d", None, "wrong_d must be for inputs of dimension 3, got one for 2"),
        ("my_layer.py:several", None, r"several must try one setting, got \(2,\) at once"),
        ("my_layer.py:three", "layer", "three must return a torch.nn.Module, got int"),
        ("my_layer.py:three", "model", "three must return a torch.nn.Module, got int"),
        ("my_layer.py:tuned", "causal", "tuned must return an icl.models.causal.Causal, got Tunable"),
        ("my_layer.py:tuned", "filter", "tuned must return an icl.filters.Filter, got Tunable"),
        ("my_layer.py:layer_of", "tunable", "layer_of must return an icl.experiments.tuning.Tunable, got GLA"),
        ("my_layer.py:three", "transformers", "three must return a configuration or a model of transformers, got int"),
    ],
)
def test_what_cannot_be_built_is_refused(own, spec, kind, message):
    contestant = resolve(spec, kind=kind)
    with pytest.raises(ValueError, match=message):
        contestant.build(SHAPE)


def test_an_error_of_ones_own_keeps_its_traceback(own):
    with pytest.raises(ValueError, match=r"my_layer.py, line \d+") as refused:
        resolve("my_layer.py:Breaks").build(SHAPE)
    lines = "".join(traceback.format_exception(refused.value.__cause__))
    assert 'raise RuntimeError("out of luck")' in lines


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("gla", "cell", "kind must be one of layer, model"),
        ("gla", "layer", "kind must be operator for gla, or left out, got 'layer'"),
        ("my_layer.py:MyLayer", "operator", "my_layer.py:MyLayer cannot be taken as operator"),
        ("my_layer.py:number", "layer", "cannot be taken as layer: it is int 3"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(own, spec, kind, message):
    with pytest.raises(ValueError, match=message):
        resolve(spec, kind=kind)


def test_a_package_that_is_missing_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(adapters, "is_installed", lambda package: False)
    with pytest.raises(ValueError, match="mambapy needs the package mambapy, which is not here: pip install mambapy"):
        resolve("mambapy")


def test_a_seed_of_the_global_stream_is_given_back():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    drawn = []
    for seed in (5, 5, 6):
        with torch_seeded(seed):
            drawn.append(torch.randn(3))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_longest_prompt_has_room_for_two_of_the_usual():
    """Twice the examples and the query, for every n: 3 for one example; one position less is refused."""
    for n, least in ((1, 3), (6, 13)):
        assert Shape(d=1, n=n, width=1, depth=1, longest=least).longest == least
        with pytest.raises(ValueError, match=rf"^longest must be an integer >= {least}, got {least - 1}"):
            Shape(d=1, n=n, width=1, depth=1, longest=least - 1)
