"""Attentions of a language model compared, on tiny random ones: units on disk, differences, learned gates, memory.

No data set, no weights: texts are random tokens.
"""

import dataclasses
import json
import mmap
import sys

import numpy as np
import pytest
import torch
from shared import marked_texts as texts
from shared import tiny_llama as tiny

pytest.importorskip("transformers", reason="the language extra is not installed")

from icl import _source
from icl.experiments.training import AdamW, Config
from icl.models import surgery, with_attention
from icl.profile import make_generator
from icl_book.chapters import attention_swap, lm_init, text_finetuning
from icl_book.chapters.attention_swap import GateVariant, SwapVariant, swap
from icl_book.chapters.text_finetuning import answered, fine_tune, judge_text

FAST = AdamW(lr=1e-2)


def course(steps, batch=1):
    return Config(steps, batch, FAST)


def test_units_are_kept_and_none_is_taken_for_another(tmp_path, monkeypatch):
    """A second call reads what stands, row for row; of another size, task, model or library nothing is read. A unit is
    what training and testing by hand gives, and no text stands in its file.
    """
    monkeypatch.setitem(text_finetuning.PRINTED_K, "toy", (1, 4))
    parts = {"train": texts(), "validation": texts(seed=1)}
    plan = [("toy", SwapVariant("as it is", trained=False), 0), ("toy", SwapVariant("gated", 0.9), 1)]
    sizes = {"config": course(3), "prompts": 8, "folder": tmp_path / "new" / "kept"}
    told = []
    first = swap(tiny(), {"toy": parts}, plan, **sizes, say=told.append)
    assert len(told) == 2
    assert first.K.tolist() == [0, 1, 4, -1] * 2
    assert first.steps.tolist() == [0] * 4 + [3] * 4

    by_hand = with_attention(tiny(), lam=0.9)
    run = fine_tune(by_hand, parts["train"], course(3), generator=make_generator("swap/toy/train", seed=1))
    judged = judge_text(by_hand, parts["validation"], prompts=8, generator=make_generator("swap/toy/test"))
    assert first.accuracy[7] == pytest.approx(judged.correct[:, 1:].mean(), rel=1e-12)
    assert first.confidence[6] == pytest.approx(answered(judged, "confidence", (4,))[0], abs=1e-4)
    assert first.loss[7] == run.losses[-1]
    files = sorted(sizes["folder"].iterdir())
    assert len(files) == 2
    assert set(json.loads(files[0].read_text())) == {
        *("losses", "seconds", "correct", "confidence", "rows", "chosen", "memory")
    }

    monkeypatch.setattr(attention_swap, "swap_unit", lambda *_, **__: pytest.fail("trained again"))
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
    monkeypatch.setattr(_source, "digest", lambda *packages: "another")
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        swap(tiny(), {"toy": parts}, plan, **sizes)


def test_a_gate_is_compared_with_no_gate_prompt_by_prompt(tmp_path):
    """Differences are those of the table's accuracies; the arm without a gate has none."""
    parts = {"train": texts(), "validation": texts(seed=1)}
    plan = [("toy", SwapVariant("gated", 0.5, matched=True), 0), ("toy", SwapVariant("linear", 1.0, matched=True), 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(text_finetuning.PRINTED_K, "toy", (4,))
        table = swap(tiny(), {"toy": parts}, plan, course(2), prompts=8, folder=tmp_path)
    gate, linear = table[table.arm == "gated"], table[table.arm == "linear"]
    assert linear.accuracy_more.isna().all()
    np.testing.assert_allclose(gate.accuracy_more, gate.accuracy.to_numpy() - linear.accuracy.to_numpy(), atol=1e-12)


@pytest.mark.parametrize("changes", [{"lam": None}, {"learned": False}, {"speed": 0.0}])
def test_an_arm_without_gates_to_learn_is_refused(changes):
    """By the field's name."""
    with pytest.raises(ValueError, match=r"lam must be in|speed must be"):
        GateVariant("learned gate", **({"lam": 0.9} | changes))


def test_learned_gates_are_a_unit_of_their_own(tmp_path):
    """Kept and read like others, with the gates of each layer and head; compared with the arm that forgets nothing."""
    parts = {"train": texts(), "validation": texts(seed=1)}
    arm, linear = (
        GateVariant("learned gate, matched", 0.9, matched=True),
        SwapVariant("linear, matched", 1.0, matched=True),
    )
    assert arm.linear == linear
    plan = [("toy", each, 0) for each in (arm, linear)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(text_finetuning.PRINTED_K, "toy", (4,))
        made = [swap(tiny(), {"toy": parts}, plan, course(3), prompts=8, folder=tmp_path) for _ in range(2)]
    assert made[0].equals(made[1])
    assert made[0].accuracy_more.notna().tolist() == [True] * 3 + [False] * 3
    (kept,) = (json.loads(path.read_text()) for path in tmp_path.iterdir() if "learned" in path.name)
    assert np.shape(kept["lam"]) == (2, 2)
    assert {type(each) for row in kept["correct"] for each in row} == {int}
    odds = np.log(0.9 / 0.1)
    assert np.abs(np.log(np.array(kept["lam"]) / (1 - np.array(kept["lam"]))) - odds).max() > 0.5


def test_gates_learned_are_those_of_a_training_by_hand(tmp_path, monkeypatch):
    """Layer by layer and head by head; stages without gates to learn add no rows, and trainings are not done again."""
    parts = {"train": texts(), "validation": texts(seed=1)}
    monkeypatch.setitem(text_finetuning.PRINTED_K, "toy", (4,))
    monkeypatch.setattr(attention_swap, "text_tasks", lambda corpus, encode: parts)
    arm = GateVariant("learned gate", (start := 0.8), speed=30.0)
    stages = [
        attention_swap.SwapStage("toy", (SwapVariant("linear", 1.0), arm), seeds=2, layers=1, config=course(2)),
        attention_swap.SwapStage("toy", (SwapVariant("linear", 1.0),), config=course(2)),
    ]
    sizes = {"prompts": 8, "folder": tmp_path}
    table = attention_swap.compare_attentions(tiny(), list, stages, **sizes)
    assert (table.MiB > 0).all() or not table.MiB.notna().any()
    monkeypatch.setattr(attention_swap, "gate_unit", lambda *_, **__: pytest.fail("trained again"))
    found = attention_swap.gates_learned(tiny(), list, stages, **sizes)
    assert found[["layers", "start", "seed", "steps", "layer", "head"]].to_numpy().tolist() == [
        [1, start, seed, 2, 1, head] for seed in range(2) for head in (1, 2)
    ]
    by_hand = with_attention(attention_swap.first_layers(tiny(), 1), lam=start, learned=True)
    lm_init.shorten_gate_memory(by_hand, 30.0)
    fine_tune(by_hand, parts["train"], course(2), generator=make_generator("swap/toy/train", seed=1))
    np.testing.assert_allclose(found.lam[2:], surgery.forgetting(by_hand)[0], atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program count its memory anew")
def test_the_peak_of_memory_is_that_of_what_ran_in_between():
    """128 MiB that came and went are counted, by a few pages, and counted no more when counting begins anew."""
    attention_swap._reset_peak()
    before = attention_swap._peak(torch.device("cpu"))
    # Of the system: what earlier tests have freed is still this process's, and a tensor may be laid there.
    with mmap.mmap(-1, 128 * 2**20) as fresh:
        for _ in range(128):
            fresh.write(bytes(2**20))
    assert attention_swap._peak(torch.device("cpu")) - before == pytest.approx(128, abs=20)
    attention_swap._reset_peak()
    assert attention_swap._peak(torch.device("cpu")) - before < 20


def test_label_shares_are_what_one_answer_is_right_about(monkeypatch):
    """For two labels, from a model's answers and where they are right: on the prompts that units are tested on."""
    parts = {"train": texts(), "validation": texts(seed=1)}
    monkeypatch.setattr(attention_swap, "text_tasks", lambda corpus, encode: parts)
    monkeypatch.setitem(attention_swap.LABEL_WORDS, "toy", (" no", " yes"))
    monkeypatch.setitem(text_finetuning.PRINTED_K, "toy", (1, 4))
    shares = attention_swap.label_shares(list, "toy", prompts=12).set_index(["label", "K"]).share
    judged = judge_text(tiny(), parts["validation"], prompts=12, generator=make_generator("swap/toy/test"))
    labels = np.where(judged.correct, judged.chosen, 1 - judged.chosen)
    for c, word in enumerate(("no", "yes")):
        for K in (0, 1, 4):
            assert shares[word, K] == pytest.approx((labels[:, K] == c).mean(), rel=1e-12)
        assert shares[word, -1] == pytest.approx((labels[:, 1:] == c).mean(), rel=1e-12)
    assert shares.groupby("K").sum().eq(1).all()
