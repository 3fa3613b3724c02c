"""What is done to a language model before its training, on tiny random ones: cut, matched, gates made quick."""

import pytest
import torch
from shared import marked_texts as texts
from shared import tiny_llama as tiny

pytest.importorskip("transformers", reason="the language extra is not installed")

from icl.experiments.training import AdamW, Config
from icl.models import surgery, untrained, with_attention
from icl.profile import make_generator
from icl_book.chapters import lm_init
from icl_book.chapters.text_finetuning import fine_tune


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_matched_reads_have_the_size_of_softmaxs(kind):
    """On the queries, keys and values of the model itself, head by head, what the output projection is given counts as
    large as softmax's: the projection of reads of one head, before and after. Other weights stay.
    """
    model = untrained(
        kind, generator=make_generator("tiny"), layers=2, width=16, heads=2, words=64, places=64, spread=0.3
    )
    changed = with_attention(model, lam=0.9)
    tokens = torch.randint(64, (3, 30), generator=make_generator("scale"))
    factors = lm_init.match_scale(model, changed, tokens)
    assert factors.shape == (2, 2)
    before, after = model.state_dict(), changed.state_dict()
    moved = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert len(moved) == 2
    assert all("attn" in name for name in moved)
    # The first layer is given the same in both: sizes of each head's part of what its projection gives.
    seen = {}

    def listen(name):
        return lambda module, given, out: seen.update({name: out.detach()})

    for name, each in (("softmax", with_attention(model, lam=None)), ("gated", changed)):
        attention = surgery._attentions(each)[0]
        attention.memory.register_forward_hook(listen(name))
        with torch.no_grad():
            each(tokens, use_cache=False)
    sizes = {name: read.square().mean((0, 1, 3)).sqrt() for name, read in seen.items()}
    torch.testing.assert_close(factors[0], sizes["softmax"] / sizes["gated"])
    for name in moved[:1]:
        ratio = after[name] / before[name]
        ratio = ratio if kind == "gpt2" else ratio.T
        torch.testing.assert_close(ratio, factors[0].repeat_interleave(8)[:, None].expand_as(ratio))


def test_reads_of_nothing_have_no_size_to_match():
    """The delta rule reads 0 at the first token: with one token there is no factor, and weights stay as they were."""
    model = untrained(
        "llama", generator=make_generator("tiny"), layers=2, width=16, heads=2, words=64, places=64, spread=0.3
    )
    changed = with_attention(model, lam=0.9, beta=0.5)
    with pytest.raises(FloatingPointError, match="reads must be finite and not all 0"):
        lm_init.match_scale(model, changed, torch.ones(3, 1, dtype=torch.int64))
    assert all(torch.equal(weight, changed.state_dict()[name]) for name, weight in model.state_dict().items())


def test_the_first_layers_of_a_model_are_its_first_layers():
    """A model cut to one of two layers gives what the first layer alone gives, under the same norm and head."""
    model = tiny()
    cut = lm_init.first_layers(model, 1)
    tokens = torch.randint(64, (2, 12), generator=make_generator("cut"))
    with torch.no_grad():
        hidden = model.model(tokens, output_hidden_states=True, use_cache=False).hidden_states[1]
        torch.testing.assert_close(cut(tokens).logits, model.lm_head(model.model.norm(hidden)))
    assert len(model.model.layers) == 2
    with pytest.raises(ValueError, match="layers must be at most 2, of a llama, got 3"):
        lm_init.first_layers(model, 3)


def test_a_quick_gate_moves_by_speed_times_the_rate():
    """A step of AdamW moves every number by its rate at first, so log-odds by speed times that; weights do not notice.

    Quick gates start where they were to rounding; the gradient of the numbers trained is speed times the log-odds'.
    """
    changed = with_attention(tiny(), lam=0.9, learned=True)
    before = surgery.forgetting(changed)
    parts, weights = texts(), {name: each.clone() for name, each in changed.named_parameters() if "odds" not in name}
    lm_init.shorten_gate_memory(changed, 50.0)
    torch.testing.assert_close(surgery.forgetting(changed), before, rtol=1e-6, atol=0)
    fine_tune(changed, parts, Config(1, 4, AdamW(lr=2e-3, weight_decay=0.0)), generator=make_generator("a step"))
    moved = torch.logit(surgery.forgetting(changed)) - torch.logit(before)
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 50 * 2e-3), rtol=1e-3, atol=0)
    after = dict(changed.named_parameters())
    assert max((after[name] - each).abs().max() for name, each in weights.items()) < 2.1e-3


def test_gates_are_quickened_once_and_only_where_there_are_some():
    """A second time would multiply speeds; without learned gates, or memories, there is nothing to make quick."""
    changed = with_attention(tiny(), lam=0.9, beta=0.5, learned=True)
    lm_init.shorten_gate_memory(changed, 10.0)
    with pytest.raises(ValueError, match="changed must have gates that are not quick yet"):
        lm_init.shorten_gate_memory(changed, 10.0)
    for model in (with_attention(tiny(), lam=0.9), with_attention(tiny(), lam=None)):
        with pytest.raises(ValueError, match="changed must have learned gates to make quick"):
            lm_init.shorten_gate_memory(model, 10.0)
    with pytest.raises(ValueError, match="model must be made by"):
        lm_init.shorten_gate_memory(tiny(), 10.0)
    with pytest.raises(ValueError, match="speed must be"):
        lm_init.shorten_gate_memory(with_attention(tiny(), lam=0.9, learned=True), 0.0)
