"""Models of transformers and mambapy as contestants. Both take seconds to import: no other file of the room does."""

import pytest
import torch
from torch import nn

from icl_bench import adapters
from icl_bench.catalogue import CONTESTANTS
from icl_bench.costs import measure_cost
from icl_bench.entries import Shape, resolve
from icl_bench.validation import validate

pytestmark = pytest.mark.usefixtures("as_installed")

SHAPE = Shape(d=3, n=6, width=16, depth=2, longest=25)


@pytest.mark.parametrize("name", [name for name, known in CONTESTANTS.items() if known.needs])
def test_every_name_is_built_examined_and_weighed(name):
    for package in CONTESTANTS[name].needs:
        pytest.importorskip(package)
    contestant = resolve(name)
    assert contestant.kind in ("transformers", "model")
    assert contestant.depth_inside
    assert validate(contestant, SHAPE) == ()
    weight = measure_cost(contestant, SHAPE, batch=2)
    assert weight.notes == ()
    assert weight.state_bytes > 0
    assert weight.state_grows == (name in ("gpt2", "llama"))


MODELS = """
from transformers import BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig

words = dict(vocab_size=4, bos_token_id=0, eos_token_id=0)
def config(): return GPT2Config(n_embd=24, n_layer=1, n_head=2, n_positions=60, **words)
def told(width, depth, longest):
    return LlamaConfig(hidden_size=width, num_hidden_layers=depth, num_attention_heads=2, intermediate_size=16,
                       max_position_embeddings=longest, **words)
def short(): return GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=24, **words)
def made(): return GPT2LMHeadModel(config())
ready = config()
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with a file of models, from which the tool is called."""
    pytest.importorskip("transformers")
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "width", "depth"),
    [
        ("models.py:config", 24, 1),
        ("models.py:ready", 24, 1),
        ("models.py:made", 24, 1),
        ("models.py:told", 16, 2),
        ("transformers:GPT2LMHeadModel", 16, 2),
        ("transformers:GPT2Config", 16, 2),
    ],
)
def test_of_a_model_of_transformers_the_body_is_used(models, name, width, depth):
    contestant = resolve(name)
    assert (contestant.kind, contestant.depth_inside) == ("transformers", True)
    model = contestant.build(SHAPE)
    assert model.width == width
    assert model.body.config.num_hidden_layers == depth
    # Neither words nor a head to predict them: all that is trained gets a gradient.
    assert validate(contestant, SHAPE) == ()
    assert measure_cost(contestant, SHAPE).state_bytes == depth * 2 * width * 13 * 4
    assert measure_cost(contestant, SHAPE).state_grows is True


def test_the_body_of_gpt2_answers_as_the_model_does_on_the_same_vectors(models):
    import transformers

    config = adapters.build_config(transformers.GPT2Config, width=16, depth=2, longest=9)
    torch.manual_seed(0)
    whole = transformers.GPT2Model(config).eval()
    torch.manual_seed(0)
    body, h = adapters.body_of(config, longest=9).eval(), torch.randn(2, 9, 16)
    with torch.no_grad():
        assert torch.equal(body(h), whole(inputs_embeds=h).last_hidden_state)


def test_a_configuration_is_told_what_it_has_parameters_for(models):
    """One with the three sizes of Mamba-2 and no more: inner width twice the width, in heads of sixteen."""
    import transformers

    class Sizes(transformers.PretrainedConfig):
        def __init__(self, expand=1, num_heads=1, head_dim=1):
            super().__init__()
            self.expand, self.num_heads, self.head_dim = expand, num_heads, head_dim

    config = adapters.build_config(Sizes, width=32, depth=2, longest=9)
    assert (config.expand, config.num_heads * config.head_dim) == (2, 64)


def test_a_model_that_is_no_decoder_is_refused(models):
    contestant = resolve("models.py:BertModel")
    with pytest.raises(ValueError, match=r"BertModel looks ahead: .*of transformers, a model that is no decoder"):
        validate(contestant, SHAPE)


def test_too_few_places_are_refused_with_what_to_set(models):
    with pytest.raises(ValueError, match="has places for 24 tokens, and prompts have up to 25: set n_positions to 25"):
        resolve("models.py:short").build(SHAPE)


def test_mambapys_own_class_is_told_width_and_depth_by_its_settings():
    mamba = pytest.importorskip("mambapy.mamba")
    contestant = resolve("mambapy.mamba:Mamba")
    assert contestant.kind == "model"
    body = contestant.build(SHAPE).body
    assert isinstance(body, mamba.Mamba)
    assert (body.config.d_model, body.config.n_layers) == (16, 2)
    caches = [(None, torch.zeros(1, 32, 3)) for _ in range(2)]
    _, caches = body.step(torch.zeros(1, 16), caches)
    carried = sum(part.numel() for cache in caches for part in cache)
    assert adapters.MambaPy(16, 2).state_numel(9) == carried


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: adapters.build_config(nn.Linear, width=8, depth=1, longest=9), "kind must be a class of"),
        (lambda: adapters.body_of(3, longest=9), "what must be a configuration or a model of transformers, got 3"),
        (lambda: adapters.Body(nn.Linear(1, 1)), "model must be a PreTrainedModel of transformers, got Linear"),
    ],
)
def test_bad_input_is_refused_by_name(made, message):
    with pytest.raises(ValueError, match=message):
        made()
