"""Attentions of a language model compared, on tiny random ones: units on disk, differences, scales, cut models.

No data set, no weights: texts are random tokens.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch
from shared import marked_texts as texts
from shared import tiny_llama as tiny

pytest.importorskip("transformers", reason="the language extra is not installed")

from icl.models import untrained, with_attention
from icl.profile import streams
from icl.runs import language, swapping
from icl.runs.language import answered, fine_tune, judge_text
from icl.runs.swapping import SwapArm, swap
from icl.runs.training import AdamW, Config

FAST = AdamW(lr=1e-2)


def course(steps, batch=1):
    return Config(steps, batch, FAST)


def test_units_are_kept_and_none_is_taken_for_another(tmp_path, monkeypatch):
    """A second call reads what stands, row for row; of another size, task or model nothing is read. A unit is what
    training and testing by hand gives, and no text stands in its file.
    """
    monkeypatch.setitem(language.PRINTED_K, "toy", (1, 4))
    parts = {"train": texts(), "validation": texts(seed=1)}
    plan = [("toy", SwapArm("as it is", trained=False), 0), ("toy", SwapArm("gated", 0.9), 1)]
    sizes = {"config": course(3), "prompts": 8, "folder": tmp_path / "kept"}
    told = []
    first = swap(tiny(), {"toy": parts}, plan, **sizes, say=told.append)
    assert len(told) == 2
    assert first.K.tolist() == [0, 1, 4, -1] * 2
    assert first.steps.tolist() == [0] * 4 + [3] * 4

    by_hand = with_attention(tiny(), lam=0.9)
    run = fine_tune(by_hand, parts["train"], course(3), generator=streams("swap/toy/train", seed=1))
    judged = judge_text(by_hand, parts["validation"], prompts=8, generator=streams("swap/toy/test"))
    assert first.accuracy[7] == pytest.approx(judged.correct[:, 1:].mean(), rel=1e-12)
    assert first.confidence[6] == pytest.approx(answered(judged, "confidence", (4,))[0], abs=1e-4)
    assert first.loss[7] == run.losses[-1]
    files = sorted(sizes["folder"].iterdir())
    assert len(files) == 2
    assert set(json.loads(files[0].read_text())) == {"losses", "seconds", "correct", "confidence", "rows"}

    monkeypatch.setattr(swapping, "swap_unit", lambda *_, **__: pytest.fail("trained again"))
    again = swap(tiny(), {"toy": parts}, plan, **sizes)
    assert again.equals(first)
    others = [
        ({"config": course(4)}, parts, tiny()),
        ({}, parts | {"validation": dataclasses.replace(parts["validation"], flip=0.1)}, tiny()),
        ({}, parts, tiny(width=32)),
    ]
    for changes, tasks, model in others:
        with pytest.raises(pytest.fail.Exception, match="trained again"):
            swap(model, {"toy": tasks}, plan, **(sizes | changes))


def test_a_gate_is_compared_with_no_gate_prompt_by_prompt(tmp_path):
    """Differences are those of the table's accuracies; the arm without a gate has none."""
    parts = {"train": texts(), "validation": texts(seed=1)}
    plan = [("toy", SwapArm("gated", 0.5, matched=True), 0), ("toy", SwapArm("linear", 1.0, matched=True), 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(language.PRINTED_K, "toy", (4,))
        table = swap(tiny(), {"toy": parts}, plan, course(2), prompts=8, folder=tmp_path)
    gate, linear = table[table.arm == "gated"], table[table.arm == "linear"]
    assert linear.accuracy_more.isna().all()
    np.testing.assert_allclose(gate.accuracy_more, gate.accuracy.to_numpy() - linear.accuracy.to_numpy(), atol=1e-12)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_matched_reads_have_the_size_of_softmaxs(kind):
    """On the queries, keys and values of the model itself, head by head, what the output projection is given counts as
    large as softmax's: the projection of reads of one head, before and after. Other weights stay.
    """
    model = untrained(kind, generator=streams("tiny"), layers=2, width=16, heads=2, words=64, places=64, spread=0.3)
    changed = with_attention(model, lam=0.9)
    tokens = torch.randint(64, (3, 30), generator=streams("scale"))
    factors = swapping.match_scale(model, changed, tokens)
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
        attention = swapping.surgery._attentions(each)[0]
        attention.memory.register_forward_hook(listen(name))
        with torch.no_grad():
            each(tokens, use_cache=False)
    sizes = {name: read.square().mean((0, 1, 3)).sqrt() for name, read in seen.items()}
    torch.testing.assert_close(factors[0], sizes["softmax"] / sizes["gated"])
    for name in moved[:1]:
        ratio = after[name] / before[name]
        ratio = ratio if kind == "gpt2" else ratio.T
        torch.testing.assert_close(ratio, factors[0].repeat_interleave(8)[:, None].expand_as(ratio))


def test_the_first_layers_of_a_model_are_its_first_layers():
    """A model cut to one of two layers gives what the first layer alone gives, under the same norm and head."""
    model = tiny()
    cut = swapping.first_layers(model, 1)
    tokens = torch.randint(64, (2, 12), generator=streams("cut"))
    with torch.no_grad():
        hidden = model.model(tokens, output_hidden_states=True, use_cache=False).hidden_states[1]
        torch.testing.assert_close(cut(tokens).logits, model.lm_head(model.model.norm(hidden)))
    assert len(model.model.layers) == 2
    with pytest.raises(ValueError, match="layers must be at most 2, of a llama, got 3"):
        swapping.first_layers(model, 3)
