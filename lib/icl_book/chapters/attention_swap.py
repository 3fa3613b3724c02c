"""Ablation of a language model's attention: same weights, same training, different attention.

The comparison of the paper on gated linear attention, sec. 4, in units of one training (`swap_unit`): a unit is kept
when it is done, so that a killed run goes on with the next, and a later one with more seeds. A unit is named by its
description and by the library's files, so that what is kept is never taken for something else.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from icl import _files, _source
from icl._bounds import Count, Natural, Positive, validate_fields, validated
from icl.experiments.checkpoint import to_jsonable
from icl.experiments.training import AdamW, Config
from icl.models import surgery
from icl.profile import make_generator
from icl.tasks.text import InContextText
from icl_book.chapters.lm_init import first_layers, match_scale, shorten_gate_memory
from icl_book.chapters.text_finetuning import (
    LABEL_WORDS,
    PRINTED_COURSE,
    PRINTED_K,
    JudgedText,
    answered,
    commonest,
    fine_tune,
    judge_text,
    text_tasks,
)

#: Environment variable with the folder of finished units.
_FOLDER = "ICL_RUNS"
#: What an hour on one core allows, a tenth of the steps, each four times as large after a warm-up.
AN_HOUR = Config(100, 1, AdamW(lr=2e-4, weight_decay=0.05, momentum=0.9), warm_up=20)


@dataclass(frozen=True)
class SwapVariant:
    """Attention variant in the comparison.

    Attributes:
        name: its name in the record.
        lam: forgetting factor a token; None keeps softmax.
        normalised: reads are divided by the sum of their weights.
        matched: reads are scaled to the size of softmax's, a head at a time, before training (`match_scale`).
        learned: lam is trained, a head at a time, from the one given.
        trained: whether the model is fine-tuned at all.
    """

    name: str
    lam: float | None = None
    normalised: bool = False
    matched: bool = False
    learned: bool = False
    trained: bool = True

    @property
    def linear(self) -> "SwapVariant | None":
        """The same variant without forgetting, the baseline of a gate; None for softmax."""
        if self.lam is None:
            return None
        return SwapVariant(self.name.replace("gated", "linear"), 1.0, self.normalised, self.matched)


@dataclass(frozen=True)
class GateVariant(SwapVariant):
    """Variant with a learned gate and a separate learning-rate multiplier.

    Attributes:
        speed: steps of a weight that a gate's log-odds take in one (`shorten_gate_memory`), > 0. At a rate of 2e-4 they
            move by .02 a step with 100 and by .2 with 1000, if all slopes agree: five such steps lead from .9 to .77 or
            .96.
    """

    learned: bool = True
    speed: Positive = 100.0

    def __post_init__(self) -> None:
        """Require a learned gate, lam in (0, 1), and a positive speed."""
        validate_fields(self)
        if self.lam is None or self.learned is not True:
            raise ValueError(f"lam must be in (0, 1) and learned True, got {self.lam!r} and {self.learned!r}")

    @property
    def linear(self) -> SwapVariant:
        """The variant without forgetting, the same for every speed and start."""
        kind = "linear, matched" if self.matched else "linear, normalised" if self.normalised else "linear"
        return SwapVariant(kind, 1.0, self.normalised, self.matched)


#: The paper's two, softmax before and after, and what tells a gate from the scale it brings along.
SWAP_VARIANTS = (
    SwapVariant("softmax, untrained", trained=False),
    SwapVariant("softmax"),
    SwapVariant("linear", 1.0),
    SwapVariant("gated", 0.9),
    SwapVariant("linear, matched", 1.0, matched=True),
    SwapVariant("gated, matched", 0.9, matched=True),
    SwapVariant("linear, normalised", 1.0, normalised=True),
    GateVariant("learned gate, matched", 0.9, matched=True),
)
#: Gates that learn ten times as fast, from the gate of the paper and from one that is too slow to be of use here.
FAST_GATES = tuple(GateVariant("fast learned gate, matched", lam, matched=True, speed=1000.0) for lam in (0.9, 0.99))
#: Forgetting factors of the sweep; 1 and .9 are arms already.
SWEPT_GATES = tuple(SwapVariant("gated, matched", lam, matched=True) for lam in (0.5, 0.7, 0.8, 0.95, 0.99))


@validated
def swap_unit(
    model: nn.Module,
    tasks: Mapping[str, InContextText],
    arm: SwapVariant,
    *,
    config: Config,
    stream: str,
    seed: Natural,
    prompts: Count,
) -> dict[str, Any]:
    """Train and test one variant: losses, seconds, and answers by position, JSON-serialisable.

    Test prompts are the same for all arms and seeds, so that arms are compared prompt by prompt.
    """
    changed = surgery.with_attention(model, lam=arm.lam, learned=arm.learned, normalised=arm.normalised)
    if arm.matched:
        texts = tasks["train"].sample(
            4, generator=make_generator(f"{stream}/scale"), device=next(model.parameters()).device
        )
        match_scale(model, changed, texts.tokens)
    losses, seconds = [], 0.0
    if arm.trained:
        draw = make_generator(f"{stream}/train", seed=seed)
        run = fine_tune(changed, tasks["train"], config, generator=draw, checkpoint_every=config.steps)
        losses, seconds = run.losses.tolist(), run.seconds
    answers = judge_text(changed, tasks["validation"], prompts=prompts, generator=make_generator(f"{stream}/test"))
    return {
        "losses": losses,
        "seconds": seconds,
        "correct": answers.correct.astype(int).tolist(),
        "confidence": answers.confidence.astype(float).round(5).tolist(),
        "rows": answers.rows.tolist(),
        "chosen": answers.chosen.tolist(),
    }


@validated
def label_shares(encode: Callable[[str], Sequence[int]], corpus: str, *, prompts: Count = 96) -> pd.DataFrame:
    """Shares of the labels among the test prompts of all units: the accuracies of models that answer one label.

    Args:
        encode: tokens of a text, without tokens for its start or end.
        corpus: "sst2" or "mnli".
        prompts: tests of each unit, a multiple of 4.

    Returns:
        A row a label and K, where K is -1 for K = 1 .. n together: corpus, label, K, share.
    """
    task, draw = text_tasks(corpus, encode)["validation"], make_generator(f"swap/{corpus}/test")
    labels = torch.cat([task.sample(4, generator=draw).labels for _ in range(prompts // 4)]).numpy()
    places = {K: [K] for K in (0, *PRINTED_K[corpus])} | {-1: list(range(1, task.n + 1))}
    return pd.DataFrame(
        {"corpus": corpus, "label": word.strip(), "K": K, "share": float((labels[:, at] == c).mean())}
        for c, word in enumerate(LABEL_WORDS[corpus])
        for K, at in places.items()
    )


@validated
def gate_unit(
    model: nn.Module,
    tasks: Mapping[str, InContextText],
    arm: GateVariant,
    *,
    config: Config,
    stream: str,
    seed: Natural,
    prompts: Count,
) -> dict[str, Any]:
    """Train and test a gate variant, as `swap_unit`; "lam" holds the learned gates, (layers, heads)."""
    changed = surgery.with_attention(model, lam=arm.lam, learned=True, normalised=arm.normalised)
    if arm.matched:
        texts = tasks["train"].sample(
            4, generator=make_generator(f"{stream}/scale"), device=next(model.parameters()).device
        )
        match_scale(model, changed, texts.tokens)
    shorten_gate_memory(changed, arm.speed)
    draw = make_generator(f"{stream}/train", seed=seed)
    run = fine_tune(changed, tasks["train"], config, generator=draw, checkpoint_every=config.steps)
    answers = judge_text(changed, tasks["validation"], prompts=prompts, generator=make_generator(f"{stream}/test"))
    return {
        "losses": run.losses.tolist(),
        "seconds": run.seconds,
        "correct": answers.correct.astype(int).tolist(),
        "confidence": answers.confidence.astype(float).round(5).tolist(),
        "rows": answers.rows.tolist(),
        "chosen": answers.chosen.tolist(),
        "lam": surgery.forgetting(changed).numpy().round(5).tolist(),
    }


@validated
def swap(
    model: nn.Module,
    tasks: Mapping[str, Mapping[str, InContextText]],
    plan: Sequence[tuple[str, SwapVariant, int]],
    config: Config = PRINTED_COURSE,
    *,
    prompts: Count,
    folder: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Train and test variants, unit by unit in the order of the plan; units found in the folder are read, not rerun.

    A unit is one JSON file, written whole when it is done. Its name holds a hash of all that it depends on, the code
    that made it too, so that none of another model, task, size or library is taken for it.

    Args:
        model: a causal language model of transformers, which stays as it is.
        tasks: by corpus, for "train" and "validation" (`text_tasks`).
        plan: corpus, arm and seed of each unit.
        config: the training of all arms that are trained; the paper's unless told otherwise.
        prompts: tests of each unit, a multiple of 4.
        folder: where units are kept; None keeps nothing.
        say: told of each unit when it is done.

    Returns:
        Of each unit a row for K = 0 and each K of the paper, and one over K = 1 .. n, where K is -1: layers, corpus,
        arm, lam (NaN for softmax), seed, steps, lr, K, prompts; accuracy and confidence, with `_se`, their standard
        errors over prompts and texts, and `_more`, how much more than with lam = 1 at the same seed, answer by answer,
        with `_more_se`; commonest, the share of the label answered most often; loss (the mean of the last tenth of the
        steps; nats), seconds of the training, MiB (the most memory that the process had meanwhile, NaN where nobody
        looked), tokens a demonstration.
    """
    units = _units(model, tasks, plan, config, prompts=prompts, folder=folder, say=say)
    rows = []
    for (corpus, arm, seed), done in units.items():
        linear = [units[c, a, s] for c, a, s in units if (c, s) == (corpus, seed) and a != arm and a == arm.linear]
        rows += _rows(corpus, tasks[corpus]["train"].n, done, linear[0] if linear else None, arm, seed, config)
    table = pd.DataFrame(rows)
    sizes = {name: each["train"] for name, each in tasks.items()}
    table["tokens"] = [(sizes[c].time + 1 + len(sizes[c].end)) / (sizes[c].n + 1) for c in table.corpus]
    table.insert(0, "layers", len(surgery._attentions(model)))
    return table


def _units(
    model: nn.Module,
    tasks: Mapping[str, Mapping[str, InContextText]],
    plan: Sequence[tuple[str, SwapVariant, int]],
    config: Config,
    *,
    prompts: Count,
    folder: Path | None,
    say: Callable[[str], None] | None,
) -> dict[tuple[str, SwapVariant, int], dict[str, Any]]:
    """Results of every unit of a plan, trained or read from the folder (`swap`)."""
    weights = _digest(model)
    settings: dict[str, Any] = {"config": config, "prompts": prompts}
    designs = {name: _settings_hash(dict(parts)) for name, parts in tasks.items()}
    units: dict[tuple[str, SwapVariant, int], dict[str, Any]] = {}
    for corpus, arm, seed in plan:
        stream = f"swap/{corpus}"
        quick = isinstance(arm, GateVariant)
        key = _settings_hash([settings, designs[corpus], weights, arm, stream, seed, _source.digest("icl")])
        path = None if folder is None else folder / f"{corpus}, {arm.name}, {arm.lam}, {seed}.{key}.json"
        if path is not None and path.exists():
            done = json.loads(path.read_text(encoding="utf-8"))
        else:
            _reset_peak()
            unit: Callable[..., dict[str, Any]] = gate_unit if quick else swap_unit
            done = unit(model, tasks[corpus], arm, stream=stream, seed=seed, **settings)
            done |= {"memory": _peak(next(model.parameters()).device)}
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                _files.write(path, (json.dumps(done) + "\n").encode())
        units[corpus, arm, seed] = done
        if say is not None:
            share, error = answered(_parse_answers(done), "accuracy", range(1, tasks[corpus]["train"].n + 1))
            say(f"{corpus}, {arm.name}, {arm.lam}, seed {seed}: {share:.3f} +- {error:.3f}, {done['seconds']:.0f} s")
    return units


def _parse_answers(done: Mapping[str, Any]) -> JudgedText:
    correct, chosen = np.array(done["correct"], dtype=bool), np.array(done["chosen"])
    return JudgedText(correct, np.array(done["confidence"]), np.array(done["rows"]), chosen)


def _rows(
    corpus: str,
    n: int,
    done: Mapping[str, Any],
    linear: Mapping[str, Any] | None,
    arm: SwapVariant,
    seed: Natural,
    config: Config,
) -> list[dict[str, Any]]:
    """Table rows of one unit."""
    answers = _parse_answers(done)
    rows = []
    for K, places in [*((K, (K,)) for K in (0, *PRINTED_K[corpus]) if n >= K), (-1, tuple(range(1, n + 1)))]:
        last = done["losses"][-max(1, config.steps // 10) :]
        row = {
            "corpus": corpus,
            "arm": arm.name,
            "lam": float("nan") if arm.lam is None else arm.lam,
            "seed": seed,
            "steps": config.steps if arm.trained else 0,
            "lr": config.optimiser.lr if arm.trained else 0.0,
            "K": K,
            "prompts": len(answers.rows),
        }
        for what in ("accuracy", "confidence"):
            row[what], row[f"{what}_se"] = answered(answers, what, places)
        for what in ("accuracy", "confidence"):
            more = (float("nan"),) * 2
            if linear is not None:
                more = answered(answers, what, places, beside=_parse_answers(linear))
            row[f"{what}_more"], row[f"{what}_more_se"] = more
        row["commonest"] = commonest(answers, places)
        row["loss"] = float(np.mean(last)) if last else float("nan")
        row["seconds"] = round(done["seconds"], 1)
        row["MiB"] = round(done.get("memory", float("nan")), 0)
        rows.append(row)
    return rows


@dataclass(frozen=True)
class SwapStage:
    """Stage of a comparison: variants on one corpus, at one model size.

    Attributes:
        corpus: "sst2" or "mnli".
        arms: what is compared, of `SWAP_VARIANTS` and `SWEPT_GATES` or others.
        seeds: trainings of each arm, at least 1.
        layers: how many of the model's, from the first on; None is all.
        config: their training.
    """

    corpus: str
    arms: tuple[SwapVariant, ...]
    seeds: int = 1
    layers: int | None = None
    config: Config = AN_HOUR


def _variants(*names: str) -> tuple[SwapVariant, ...]:
    return tuple(arm for arm in SWAP_VARIANTS if arm.name in names)


#: Three times as many steps, to see who catches up.
LONGER_COURSE = Config(300, 1, AdamW(lr=2e-4, weight_decay=0.05, momentum=0.9), warm_up=20)
#: What an hour allows of the whole model, at the paper's rate.
WHOLE_MODEL = Config(40, 1, PRINTED_COURSE.optimiser, warm_up=20)
#: The same at twice the rate, which was tried first, with softmax.
TWICE_THE_RATE = Config(40, 1, AdamW(lr=1e-4, weight_decay=0.05, momentum=0.9), warm_up=20)
#: What the book's record holds; the whole model untrained, its first ten layers trained, on MNLI the whole model too.
RECORDED_STAGES = (
    SwapStage("sst2", _variants("softmax, untrained")),
    SwapStage("mnli", _variants("softmax, untrained")),
    SwapStage("sst2", _variants("softmax", "linear", "gated"), seeds=2, layers=10),
    SwapStage("sst2", _variants("linear, matched", "gated, matched"), seeds=3, layers=10),
    SwapStage("sst2", (*_variants("linear, matched"), *SWEPT_GATES), seeds=2, layers=10),
    SwapStage("sst2", _variants("linear, normalised"), layers=10),
    SwapStage("mnli", _variants("softmax", "linear, matched", "gated, matched"), seeds=2, layers=10),
    SwapStage("sst2", _variants("linear, matched", "gated, matched", "softmax"), layers=10, config=LONGER_COURSE),
    SwapStage("sst2", _variants("linear, matched", "learned gate, matched"), seeds=2, layers=10),
    SwapStage("sst2", (*_variants("linear, matched"), *FAST_GATES), layers=10),
    SwapStage("mnli", _variants("linear, matched", "learned gate, matched"), seeds=2, layers=10),
    SwapStage("mnli", _variants("softmax"), seeds=2, config=WHOLE_MODEL),
    SwapStage("mnli", _variants("linear, matched", "gated, matched"), config=WHOLE_MODEL),
    SwapStage("mnli", _variants("softmax"), config=TWICE_THE_RATE),
)
#: Memory is all taken by the second step, so this asks for each kind of attention how much that is.
MEMORY_STAGES = tuple(
    SwapStage(corpus, _variants(*names), layers=10, config=Config(2, 1, AN_HOUR.optimiser))
    for corpus, names in (
        ("sst2", ("softmax", "linear", "gated", "linear, normalised", "learned gate, matched")),
        ("mnli", ("softmax", "linear, matched", "gated, matched")),
    )
)


@validated
def compare_attentions(
    model: nn.Module,
    encode: Callable[[str], Sequence[int]],
    stages: Sequence[SwapStage],
    *,
    prompts: Count = 96,
    folder: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Run `swap` for every stage and concatenate the rows without duplicates; units found in the folder are read.

    Args:
        model: a causal language model of transformers, which stays as it is.
        encode: tokens of a text, without tokens for its start or end.
        stages: what is trained and tested, the first first.
        prompts: tests of each unit, a multiple of 4.
        folder: where units are kept (`units_folder`); None keeps nothing.
        say: told of each unit when it is done.
    """
    tables = [
        swap(cut, tasks, plan, config, prompts=prompts, folder=folder, say=say)
        for cut, tasks, plan, config in _stage_arguments(model, encode, stages)
    ]
    which = ["layers", "corpus", "arm", "lam", "seed", "steps", "lr", "K"]
    return pd.concat(tables).drop_duplicates(which, ignore_index=True)


@validated
def gates_learned(
    model: nn.Module,
    encode: Callable[[str], Sequence[int]],
    stages: Sequence[SwapStage],
    *,
    prompts: Count = 96,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Table of learned gates after training, of all stages with gates; arguments as for `compare_attentions`.

    Returns:
        A row a gate: layers, corpus, arm, start (lam before training), seed, steps, layer and head from 1, lam.
    """
    rows = []
    for cut, tasks, plan, config in _stage_arguments(model, encode, stages):
        plan = [each for each in plan if isinstance(each[1], GateVariant)]
        units = _units(cut, tasks, plan, config, prompts=prompts, folder=folder, say=None)
        for (corpus, arm, seed), done in units.items():
            about = {"layers": len(done["lam"]), "corpus": corpus, "arm": arm.name, "start": arm.lam, "seed": seed}
            rows += [
                about | {"steps": config.steps, "layer": layer, "head": head, "lam": lam}
                for layer, heads in enumerate(done["lam"], 1)
                for head, lam in enumerate(heads, 1)
            ]
    return pd.DataFrame(rows)


def _stage_arguments(
    model: nn.Module, encode: Callable[[str], Sequence[int]], stages: Sequence[SwapStage]
) -> Iterator[Any]:
    """Arguments of `swap` for every stage: model, tasks, plan, training."""
    for stage in stages:
        cut = model if stage.layers is None else first_layers(model, stage.layers)
        plan = [(stage.corpus, arm, seed) for seed in range(stage.seeds) for arm in stage.arms]
        yield cut, {stage.corpus: text_tasks(stage.corpus, encode)}, plan, stage.config


def units_folder() -> Path:
    """Folder of finished units: `ICL_RUNS`, or else one in the user's cache."""
    return Path(os.environ.get(_FOLDER) or Path.home() / ".cache" / "icl-book" / "language")


def _reset_peak() -> None:
    """Reset the peak-memory counter, where the operating system allows it; elsewhere it counts from process start."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak(device: torch.device) -> float:
    """Peak memory of this process since the reset, in MiB; GPU memory if it uses one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    match = (
        re.search(r"VmHWM:\s*(\d+) kB", (Path("/proc/self/status").read_text())) if sys.platform == "linux" else None
    )
    return int(match[1]) / 2**10 if match else float("nan")


def _settings_hash(value: Any) -> str:
    """Hash of settings."""
    return hashlib.sha256(json.dumps(to_jsonable(value), sort_keys=True).encode()).hexdigest()[:16]


def _digest(model: nn.Module) -> str:
    """Hash of a model's weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
