"""Language models with another attention: the wiring, the rules, generation by state, and what is refused.

Models are small and random: two blocks of GPT-2, and two of Llama's kind, where two query heads share a key. Oracles
run in float64 with a tolerance of 1e-9 of the largest logit, above the rounding of two blocks of a few dozen tokens.

One import of transformers is several seconds: it stands in this file and in test_loading.py only.
"""

import copy

import chance
import numpy as np
import pytest
import torch
from shared import close

from icl import models
from icl.models.surgery import FadingMemory, SoftmaxMemory
from icl.profile import make_generator

transformers = pytest.importorskip("transformers", reason="pip install 'icl-book[language]'")

ROUNDING = 1e-9
KINDS = ("gpt2", "llama")
RULES = {
    "linear": {"lam": 1.0},
    "gated": {"lam": 0.9},
    "normalised": {"lam": [[0.9, 1.0, 0.5, 0.8]] * 2, "normalised": True},
    "learned": {"lam": [[0.9, 0.8, 0.7, 0.6], [0.1, 0.5, 0.99, 0.3]], "learned": True},
    "delta": {"lam": 1.0, "beta": 1.0},
    "gated delta": {"lam": 0.9, "beta": [[0.2, 0.4, 0.6, 0.8], [1.0, 0.5, 0.3, 0.1]]},
}
WORDS, TIME = 20, 24


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    """A model whose attention matters to its logits."""
    key_heads = 2 if request.param == "llama" else None
    made = models.untrained(
        request.param,
        generator=chance.fixed("surgery"),
        width=16,
        heads=4,
        key_heads=key_heads,
        words=WORDS,
        places=40,
        spread=0.5,
    )
    if request.param == "llama":
        # Its own norms round to float32, whatever the model's dtype.
        for name in [name for name, module in made.named_modules() if type(module).__name__ == "LlamaRMSNorm"]:
            made.set_submodule(name, torch.nn.RMSNorm(16, eps=1e-6))
    return made.double()


@pytest.fixture(scope="module")
def tokens():
    """Three texts of one length."""
    return torch.randint(WORDS, (3, TIME), generator=chance.fixed("texts"))


def logits(model, tokens, **how):
    """All logits, without a gradient."""
    with torch.no_grad():
        return model(tokens, **how).logits


# Oracles


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_softmax_kept_the_logits_are_the_models_own(model, tokens, dtype):
    """Heads, their groups, the scale and the order of time are wired as transformers wires them."""
    own = copy.deepcopy(model).to(dtype)
    kept = models.with_attention(own, lam=None)
    assert close(logits(kept, tokens), logits(own, tokens), 1e-5 if dtype == torch.float32 else ROUNDING)


def naive(rule):
    """An attention function of transformers that goes through the rule token by token, head by head, in numpy."""

    def attend(module, query, key, value, attention_mask, scaling, **_):
        q, k, v = (t.detach().numpy() for t in (query, key, value))
        read = np.zeros((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))
        lams, betas = (np.broadcast_to(rule.get(name, np.nan), (2, 4)) for name in ("lam", "beta"))
        for b, h in np.ndindex(q.shape[:2]):
            lam, beta = lams[module.layer_idx, h], betas[module.layer_idx, h]
            keys, values = k[b, h * k.shape[1] // q.shape[1]], v[b, h * k.shape[1] // q.shape[1]]
            S = np.zeros((v.shape[3], k.shape[3]))
            for t in range(q.shape[2]):
                if "beta" in rule:
                    unit = keys[t] / np.sqrt(keys[t] @ keys[t])
                    read[b, t, h] = S @ q[b, h, t] * scaling
                    S = lam * (S + beta * np.outer(values[t] - S @ unit, unit))
                    continue
                weights = lam ** np.arange(t, -1, -1.0)
                total = weights.sum() if rule.get("normalised") else 1.0
                read[b, t, h] = (weights * (keys[: t + 1] @ q[b, h, t])) @ values[: t + 1] * scaling / total
        return torch.from_numpy(read), None

    return attend


def test_softmax_drops_weights_as_transformers_has_it_do():
    """A first token has all its weight on itself: dropped it reads 0, kept it reads twice its value."""
    ones = torch.ones(20, 1, 3, 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # torch's dropout takes no generator
        read = SoftmaxMemory()(ones, ones, ones, dropout=0.5)
    assert set(read.flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("name", RULES)
def test_another_attention_is_its_definition(model, tokens, name):
    """Every rule is its sum, or its recurrence, written down anew and hung into the model beside ours."""
    short = tokens[:2, :10]
    transformers.AttentionInterface.register("naive", naive(RULES[name]))
    plain = copy.deepcopy(model)
    plain.set_attn_implementation("naive")
    changed = models.with_attention(model, **RULES[name])
    assert close(logits(changed, short), logits(plain, short), ROUNDING)
    assert not close(logits(changed, short), logits(model, short), 1e-3)


def memory(name, **how):
    """The first layer's memory of a rule."""
    rule = RULES[name] | how
    rows = {key: np.broadcast_to(rule[key], (2, 4))[0] for key in ("lam", "beta") if key in rule}
    return FadingMemory(**rule | rows, dtype=torch.float64)


@pytest.mark.parametrize("name", RULES)
def test_the_forms_agree(name):
    """Recurrent, parallel and chunked, in blocks that do and do not divide the text, give one result."""
    q, k, v = torch.randn(3, 2, TIME, 4, 3, generator=make_generator("forms"), dtype=torch.float64)
    forms = ["recurrent"] if "beta" in RULES[name] else ["recurrent", "parallel"]
    got = [memory(name, form=form)(q, k, v) for form in forms]
    got += [memory(name, size=size)(q, k, v) for size in (1, 5, 8, 64)]
    for other in got[1:]:
        assert close(other, got[0], ROUNDING)


@pytest.mark.parametrize("name", ["softmax", *RULES])
def test_a_text_goes_on_from_its_state(model, tokens, name):
    """Read in pieces, a text has the logits of all its tokens at once; and greedy generation is their argmax."""
    changed = models.with_attention(model, **RULES.get(name, {"lam": None}))
    states, read = {}, []
    for first, last in ((0, 9), (9, 10), (10, TIME)):
        places = torch.arange(first, last)[None]
        read.append(logits(changed, tokens[:, first:last], position_ids=places, states=states))
    assert close(torch.cat(read, dim=1), logits(changed, tokens), ROUNDING)
    longer = models.surgery.generate(changed, tokens[:, :5], new=6)
    assert longer.shape == (3, 11)
    assert torch.equal(longer[:, :5], tokens[:, :5])
    assert torch.equal(logits(changed, longer[:, :-1])[:, 4:].argmax(-1), longer[:, 5:])


def test_with_softmax_kept_text_goes_on_as_transformers_has_it_go_on(model, tokens):
    """Token for token what transformers generates, from a cache of its own."""
    own = model.generate(tokens[:, :5], max_new_tokens=12, do_sample=False)
    assert torch.equal(models.surgery.generate(models.with_attention(model, lam=None), tokens[:, :5], new=12), own)


def test_a_changed_model_generates_by_transformers_too(model, tokens):
    """Without a cache, which would hold keys: the same tokens."""
    changed = models.with_attention(model, lam=0.9)
    own = changed.generate(tokens[:, :5], max_new_tokens=4, do_sample=False)
    assert torch.equal(own, models.surgery.generate(changed, tokens[:, :5], new=4))


@pytest.mark.statistical
def test_drawn_tokens_have_the_models_probabilities(model, tokens):
    """2,000 draws of one token: how often each of 20 words comes is binomial.

    Greedy choices, or the logits of the token before, fail it.
    """
    changed = models.with_attention(model, lam=0.9)
    row = tokens[:1, :2]
    many = models.surgery.generate(changed, row.expand(2000, -1), new=1, generator=make_generator("draws"))[:, -1]
    expected = logits(changed, row)[0, -1].softmax(-1).numpy()
    chance.assert_counts(np.bincount(many.numpy(), minlength=WORDS), 2000, expected)
    again = models.surgery.generate(changed, row.expand(2000, -1), new=1, generator=make_generator("draws"))[:, -1]
    assert torch.equal(many, again)


def test_the_gradient_of_a_gate_is_the_difference_quotient(model, tokens):
    """Of each learned log-odds, of the gate and of the write strength; central differences of float64 to 1e-5."""
    changed = models.with_attention(model, lam=0.8, beta=0.5, learned=True)
    at = torch.tensor([[3, 17], [5, 9], [23, 0]])
    value = lambda: models.surgery.logits_at(changed, tokens, at).square().mean()  # noqa: E731
    value().backward()
    assert all(parameter.grad is not None for parameter in changed.parameters())
    gates = {name: p for name, p in changed.named_parameters() if "log_odds" in name}
    assert len(gates) == 4
    for name, gate in gates.items():
        assert gate.shape == (4,), name
        with torch.no_grad():
            gate[1] += 1e-5
            up = value()
            gate[1] -= 2e-5
            down = value()
            gate[1] += 1e-5
        assert abs((up - down) / 2e-5 - gate.grad[1]) < 1e-5 * max(1.0, gate.grad[1].abs()), name


# Properties


def test_the_model_itself_stays_as_it_was(model, tokens):
    """The copy has its weights, to the bit, and at most gates besides; the model has its attention and its cache."""
    before = logits(model, tokens)
    learned = models.with_attention(model, lam=0.9, learned=True)
    fixed = models.with_attention(model, lam=0.9)
    own = dict(model.named_parameters())
    assert dict(fixed.named_parameters()).keys() == own.keys()
    added = {name: p for name, p in learned.named_parameters() if name not in own}
    assert sorted(p.shape for p in added.values()) == [(4,), (4,)]
    for name, weight in own.items():
        kept = dict(learned.named_parameters())[name]
        assert torch.equal(kept, weight)
        assert kept is not weight
    assert torch.equal(logits(model, tokens), before)
    assert model.config.use_cache
    assert not hasattr(next(m for m in model.modules() if hasattr(m, "scaling")), "memory")


@pytest.mark.parametrize("name", ["softmax", *RULES])
def test_no_saved_model_is_loaded_as_another(model, tokens, name, tmp_path):
    """A folder of `save_pretrained` gives the altered logits to whoever loads it, or there is none: the altered model
    and what stands under its head refuse to write it, and say what to do. What they say to do gives the logits back.
    """
    settings = {"lam": None} if name == "softmax" else RULES[name]
    changed = models.with_attention(model, **settings)
    expected = logits(changed, tokens)
    if name == "softmax":
        changed.save_pretrained(tmp_path)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
        # Its norms are transformers' own again, which round to float32.
        assert close(logits(loaded, tokens), expected, 1e-5)
        return
    for altered in (changed, changed.base_model, copy.deepcopy(changed)):
        with pytest.raises(ValueError, match=r"^save_pretrained must not be .* state_dict.*with_attention"):
            altered.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    torch.save(changed.state_dict(), tmp_path / "weights.pt")
    again = models.with_attention(model, **settings)
    with torch.no_grad():
        for weight in again.parameters():
            weight.zero_()
    again.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(logits(again, tokens), expected)
    # With softmax put back it is a model that files can hold.
    models.with_attention(changed, lam=None).save_pretrained(tmp_path / "softmax")


@pytest.mark.parametrize("name", ["softmax", *RULES])
def test_the_future_never_changes_the_past(name):
    """Reads before a changed token are as they were, to rounding."""
    read = SoftmaxMemory() if name == "softmax" else memory(name, size=5)
    old = torch.randn(3, 2, TIME, 4, 3, generator=make_generator("past"), dtype=torch.float64)
    new = old.clone()
    new[:, :, 12:] += 1
    before, after = read(*old), read(*new)
    assert close(after[:, :12], before[:, :12], ROUNDING)
    assert not close(after[:, 12:], before[:, 12:], 1e-3)


def test_gates_of_a_layer_and_of_a_head(model):
    """One number is for all, a row for layers, a table for layers and heads; learned ones are what they were set to."""
    table = np.linspace(0.1, 0.9, 8).reshape(2, 4)
    for lam, expected in ((0.9, np.full((2, 4), 0.9)), ([0.9, 0.5], [[0.9] * 4, [0.5] * 4]), (table, table)):
        for learned in (False, True):
            got = models.surgery.forgetting(models.with_attention(model, lam=lam, learned=learned))
            assert got.dtype == torch.float64
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def sequence(time=300, dtype=torch.float64):
    """Keys and queries of ones, so that every read is the sum of the values' weights."""
    ones = torch.ones(1, time, 2, 1, dtype=dtype)
    return ones, ones, ones


def test_a_plain_sum_grows_and_a_normalised_one_does_not():
    """With ones everywhere, lam = 1 reads t, a gate less than 1/(1 - lam), and both read 1 when normalised."""
    lam = np.array([1.0, 0.9])
    read = FadingMemory(lam)(*sequence())[0, :, :, 0]
    t = np.arange(1, 301)
    assert close(read[:, 0], t, 1e-12)
    assert close(read[:, 1], (1 - 0.9**t) / 0.1, 1e-12)
    assert read[:, 1].max() < 1 / (1 - 0.9)
    assert close(FadingMemory(lam, normalised=True)(*sequence()), np.ones((1, 300, 2, 1)), 1e-12)


def test_a_state_has_as_many_numbers_after_many_tokens_as_after_one():
    """(heads, value, key) a layer; softmax keeps all keys and values."""
    generator = make_generator("state")
    q, k = torch.randn(2, 1, 50, 2, 3, generator=generator)
    v = torch.randn(1, 50, 2, 5, generator=generator)
    for time in (1, 50):
        _, state = FadingMemory([0.9, 1.0])(*(t[:, :time] for t in (q, k, v))), None
        _, state = FadingMemory([0.9, 1.0]).carry(*(t[:, :time] for t in (q, k, v)), state)
        assert state.S.shape == (1, 2, 5, 3)
        _, kept = SoftmaxMemory().carry(*(t[:, :time] for t in (q, k, v)), None)
        assert (kept.k.numel(), kept.v.numel()) == (time * 6, time * 10)


@pytest.mark.parametrize("learned", [False, True])
def test_half_precision_keeps_gates_and_sums(learned):
    """In bfloat16, and under autocast, 300 tokens at a gate of .999 sum to 259, not to the 300 of a gate of 1."""
    memory = FadingMemory([0.999, 0.999], learned=learned)
    if not learned:
        memory = memory.to(torch.bfloat16)
    expected = (1 - 0.999**300) / 0.001
    read = memory(*sequence(dtype=torch.bfloat16))
    assert read.dtype == torch.bfloat16
    assert abs(read[0, -1, 0, 0].item() - expected) < 0.01 * expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert abs(memory(*sequence(dtype=torch.float32))[0, -1, 0, 0].item() - expected) < 1e-3 * expected


def test_a_model_in_half_precision_runs_and_has_gradients(model, tokens):
    """bfloat16 logits near the float64 ones, relative to their size: 30%, for a model whose logits are of order 10."""
    changed = models.with_attention(copy.deepcopy(model).bfloat16(), lam=0.9, learned=True)
    got = models.surgery.logits_at(changed, tokens, torch.full((3, 1), TIME - 1))
    assert got.dtype == torch.bfloat16
    exact = logits(models.with_attention(model, lam=0.9), tokens)[:, -1:]
    assert (got - exact).norm() < 0.3 * exact.norm()
    got.float().square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for n, p in changed.named_parameters() if "log_odds" in n)


def test_logits_at_some_positions_are_those_of_all(model, tokens):
    """Of each row its own positions, of changed models and of unchanged ones."""
    at = torch.tensor([[0, 7], [23, 23], [4, 1]])
    for one in (model, models.with_attention(model, lam=0.9)):
        expected = logits(one, tokens)[torch.arange(3)[:, None], at]
        assert close(models.surgery.logits_at(one, tokens, at), expected, ROUNDING)


# Bad input


def test_padding_and_packed_texts_are_refused(model, tokens):
    """A padding token would be written into the memory; a mask of ones is none."""
    changed = models.with_attention(model, lam=0.9)
    ones = torch.ones_like(tokens)
    assert close(logits(changed, tokens, attention_mask=ones), logits(changed, tokens), ROUNDING)
    padded = ones.clone()
    padded[0, :3] = 0
    with pytest.raises(ValueError, match="attention_mask must have no padding, got 3 padding tokens"):
        changed(tokens, attention_mask=padded)
    with pytest.raises(ValueError, match="position_ids must rise by one a token"):
        changed(tokens, position_ids=torch.arange(TIME)[None] % 12)
    with pytest.raises(ValueError, match="use_cache must be False"):
        changed.generate(tokens[:, :5], max_new_tokens=3, use_cache=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lam": 0.0}, "lam must be finite and > 0 and <= 1, got .*0.0"),
        ({"lam": 1.1}, "lam must be .*got .*1.1"),
        ({"lam": float("nan")}, "lam must be .*got .*nan"),
        ({"lam": "0.9"}, "lam must be real, got '0.9'"),
        (
            {"lam": [0.9, 0.9, 0.9]},
            r"lam must be one number or have shape \(2,\), layers, or \(2, 4\), .*got shape \(3,\)",
        ),
        ({"lam": np.ones((4, 2))}, r"lam must be one number or have shape .*got shape \(4, 2\)"),
        ({"lam": 1.0, "learned": True}, "lam must be < 1 to be learned"),
        ({"beta": 0.0}, "beta must be .*> 0"),
        ({"beta": 1.0, "learned": True}, "beta must be < 1 to be learned"),
        ({"beta": 0.5, "normalised": True}, "normalised must be False with the delta rule"),
        (
            {"beta": 0.5, "form": "parallel"},
            "form must be 'recurrent' or 'chunked' with the delta rule, got 'parallel'",
        ),
        ({"form": "fast"}, "form must be 'recurrent' or 'parallel' or 'chunked', got 'fast'"),
        ({"lam": None, "beta": 0.5}, "lam must be in .* got None"),
        ({"lam": None, "learned": True}, "lam must be in .* got None"),
        ({"lam": None, "normalised": True}, "lam must be in .* got None"),
        ({"model": torch.nn.Linear(2, 2)}, "model must be a causal language model .* got Linear"),
    ],
)
def test_settings_are_refused_by_name(model, changes, message, as_installed):
    """Each with what it got."""
    with pytest.raises(ValueError, match=f"^{message}"):
        models.with_attention(**{"model": model, "lam": 0.9} | changes)


def test_models_of_other_kinds_are_refused(model, as_installed):
    """A kind whose attention has more to it, a model without a head, one with an attention that is missing."""
    other = copy.deepcopy(model)
    other.config.model_type = "gemma2"
    for wrong, got in ((other, ".* of type gemma2"), (model.base_model, ".*Model of type (gpt2|llama)")):
        with pytest.raises(ValueError, match=f"^model must be a causal language model .*got {got}"):
            models.with_attention(wrong, lam=0.9)
    short = copy.deepcopy(model)
    short.config.num_hidden_layers = 3
    with pytest.raises(ValueError, match=r"^model must have one attention a layer, got 2"):
        models.with_attention(short, lam=0.9)


def test_what_is_asked_of_a_changed_model_is_refused_by_name(model, tokens, as_installed):
    """Tokens, positions, lengths, and models that were not changed."""
    changed = models.with_attention(model, lam=0.9)
    softmax = models.with_attention(model, lam=None)
    at = torch.zeros(3, 1, dtype=torch.int64)
    for wrong, message in (
        (None, "tokens must be a torch.Tensor of 2 axes"),
        (tokens[0], "tokens must be a torch.Tensor of 2 axes"),
        (tokens.float(), "tokens must be torch.int64, at least one, got torch.float32"),
        (tokens[:, :0], r"tokens must be torch.int64, at least one, got torch.int64 of shape \(3, 0\)"),
        (tokens + WORDS, rf"tokens must lie in \[0, {WORDS}\), got values from"),
        (tokens - WORDS, rf"tokens must lie in \[0, {WORDS}\), got values from"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            models.surgery.generate(changed, wrong, new=1)
        with pytest.raises(ValueError, match=f"^{message}"):
            models.surgery.logits_at(changed, wrong, at)
    for wrong, message in (
        (at[:2], r"at must have shape \(3, any\) to match tokens"),
        (at.float(), r"at must be torch.int64 in \[0, 24\)"),
        (at - 1, r"at must be torch.int64 in \[0, 24\)"),
        (at + TIME, r"at must be torch.int64 in \[0, 24\)"),
        (None, "at must have shape"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            models.surgery.logits_at(changed, tokens, wrong)
    for wrong, message in (
        (model, "model must be made by icl.models.surgery.with_attention"),
        (torch.nn.Linear(1, 1), "model must be a causal"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            models.surgery.generate(wrong, tokens, new=1)
    for wrong, message in ((model, "model must be made by"), (softmax, "model must forget to have")):
        with pytest.raises(ValueError, match=f"^{message}"):
            models.surgery.forgetting(wrong)
    if model.config.model_type == "gpt2":
        assert models.surgery.generate(changed, tokens, new=17).shape == (3, 41)
        with pytest.raises(ValueError, match=r"^new must leave tokens within 40 positions, got 18 after 24"):
            models.surgery.generate(changed, tokens, new=18)
