"""Tiny language models trained from scratch on a drifting label rule, one per attention variant (not in the papers).

The language is :mod:`icl.tasks.rules`, with rules that follow (3); the models are Llama's blocks, two layers of width
32, with the attention of an arm in place of softmax (:func:`~icl.models.surgery.with_attention`); all arms start at the
same numbers, read the same prompts, and are judged on the same prompts by the floor's own probabilities
(:mod:`icl.theory.floors.label_rule`), so that the toss of the label itself is not in the comparison.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, Natural, Positive, PositiveUnit, UnitInterval, validated
from icl.experiments.training import AdamW, Config, fit
from icl.models.loading import untrained
from icl.models.surgery import SoftmaxMemory, forgetting, logits_at, with_attention
from icl.profile import make_generator
from icl.tasks import DriftingRegression
from icl.tasks.rules import RuleLanguage, WordPrompt, word_vectors
from icl.theory.floors.label_rule import positive_probability

#: Attention of every variant, as arguments of `with_attention`.
RULE_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "softmax": {"lam": None},
    "linear attention": {"lam": 1.0, "normalised": True, "form": "parallel"},
    "GLA, λ = 0.9": {"lam": 0.9, "normalised": True, "form": "parallel"},
    "GLA, λ learned": {"lam": 0.9, "normalised": True, "learned": True, "form": "parallel"},
    "gated delta rule": {"lam": 0.9, "beta": 0.5, "learned": True},
}
#: The fixed gate in one layer alone.
GATE_IN_ONE_LAYER: Mapping[str, Mapping[str, Any]] = {
    "gate in layer 1 alone": {"lam": [0.9, 1.0], "normalised": True, "form": "parallel"},
    "gate in layer 2 alone": {"lam": [1.0, 0.9], "normalised": True, "form": "parallel"},
}
_MEMORIES = {**RULE_VARIANTS, **GATE_IN_ONE_LAYER}
#: Prompts a step.
_BATCH = 32


@validated
def rule_language(gamma: UnitInterval) -> RuleLanguage:
    """Twelve words in the plane, one a sentence, 20 labelled ones before the query; the rule follows (3), spread 1.

    Args:
        gamma: how much of the rule is kept from one sentence to the next; at 1 it stands still.
    """
    rule = DriftingRegression(d=2, n=20, gamma=gamma, sigma_w=1.0, sigma_e=(1 - gamma**2) ** 0.5)
    return RuleLanguage(rule, word_vectors(12, 2, generator=make_generator("rule words")), length=1, sigma_y=0.3)


@validated
def blank_model(language: RuleLanguage, memory: Mapping[str, Any], *, generator: torch.Generator) -> nn.Module:
    """Randomly initialised Llama model: matrices from N(0, 0.1^2), two layers of width 32, two heads.

    Input and output embeddings are untied: tied ones, usual in small models, learn less in 800 steps.

    Args:
        language: what it is to read.
        memory: arguments of :func:`~icl.models.surgery.with_attention`.
        generator: random stream; models from equal streams have equal matrices, whatever their memory.

    Raises:
        ModuleNotFoundError: without transformers; it says what to install.
    """
    _checks.check_generator(generator, torch.float32)
    words, places = language.words + 2, (language.n + 1) * (language.length + 1)
    model: Any = untrained(
        "llama", layers=2, width=32, heads=2, words=words, places=places, spread=0.1, generator=generator
    )
    head = nn.utils.skip_init(nn.Linear, 32, words, bias=False)
    nn.init.normal_(head.weight, std=0.1, generator=generator)
    model.set_output_embeddings(head)
    model.config.tie_word_embeddings = False
    return with_attention(model, **memory)


@validated
def rule_logits(model: nn.Module, prompt: WordPrompt) -> Float[Tensor, "batch time words"]:
    """Logits of all words at the positions before a label word."""
    return logits_at(model, prompt.text, prompt.ends.expand(len(prompt.text), -1))


@validated
def rule_loss(model: nn.Module, prompt: WordPrompt) -> Float[Tensor, ""]:
    """Mean log loss of the label words, in nats: the loss on label tokens alone."""
    logits = rule_logits(model, prompt)
    return nn.functional.cross_entropy(logits.flatten(0, 1), prompt.text[:, prompt.ends + 1].flatten())


@dataclass(frozen=True, eq=False)
class Trained:
    """Trained variant.

    Attributes:
        model: the trained model.
        seconds: wall time of its training, whenever that was.
    """

    model: nn.Module
    seconds: float


@validated
def train_variant(
    language: RuleLanguage,
    memory: Mapping[str, Any],
    *,
    lr: Positive,
    seed: Natural,
    steps: Count = 800,
    checkpoint: Path | None = None,
) -> Trained:
    """Train one variant from scratch: AdamW, linear warm-up, cosine decay to 0; 32 fresh prompts a step.

    Args:
        language: what it reads.
        memory: arguments of :func:`~icl.models.surgery.with_attention`.
        lr: step size, > 0.
        seed: of the first matrices and of the prompts, which all arms share; >= 0.
        steps: number of steps.
        checkpoint: file of the trained arm; one that is there is read and not trained again.
    """
    model = blank_model(language, memory, generator=make_generator("rule arms, start", seed=seed))
    config = Config(
        steps,
        _BATCH,
        AdamW(lr=lr, weight_decay=0.0, beta2=0.99),
        warm_up=min(50, steps),
        anneal_to=0.0,
        clip=1.0,
    )
    prompts = make_generator("rule arms, prompts", seed=seed)
    run = fit(
        model,
        rule_loss,
        language,
        config,
        generator=prompts,
        checkpoint=checkpoint,
        checkpoint_every=steps,
        snapshot_every=steps,
    )
    return Trained(model, run.seconds)


@validated
def exact_answers(
    language: RuleLanguage, prompt: WordPrompt, *, spacing: Annotated[float, Gt(0), Le(2)] = 1.0
) -> Float[np.ndarray, "batch time"]:
    """Bayes-optimal predictions for a rule drifting by (3): P(label word is positive | everything before it).

    Args:
        language: whose rule is :class:`~icl.tasks.core.DriftingRegression`.
        prompt: its prompts, in float64.
        spacing: of the floor's grid.
    """
    _checks.precision("dtype", prompt.x.dtype)
    rule: Any = language.rule
    x, positive = prompt.x.numpy(force=True), prompt.positive.numpy(force=True)
    return positive_probability(x, positive, rule, sigma_y=language.sigma_y, spacing=spacing)


@validated
def one_layer_scores(prompt: WordPrompt, lam: PositiveUnit) -> Float[np.ndarray, "batch time"]:
    """Scores of one gated linear layer on the true embeddings: sum_{i<t} lam^(t-i) l_i <x_i, x_t>, l = 1 or -1.

    Args:
        prompt: prompts.
        lam: forgetting factor a sentence.
    """
    place = torch.arange(prompt.n + 1, device=prompt.x.device)
    age = place[:, None] - place
    fade = torch.where(age > 0, lam ** age.clamp(min=0).double(), 0.0)
    signs = torch.where(prompt.positive, 1.0, -1.0).double()
    x = prompt.x.double()
    return torch.einsum("btd,bid,ti,bi->bt", x, x, fade, signs).numpy(force=True)


@validated
def best_one_layer(prompt: WordPrompt, *, since: Count) -> float:
    """Optimal forgetting factor per sentence of one layer, for its scores against the labels' signs.

    At each position scores count times the number that brings them nearest to the signs in mean square.

    Args:
        prompt: prompts to choose by.
        since: the first position that counts.
    """
    if since > prompt.n:
        raise ValueError(f"since must be at most n = {prompt.n}, got {since}")
    signs = np.where(prompt.positive.numpy(force=True), 1.0, -1.0)[:, since:]

    def apart(lam: float) -> float:
        s = one_layer_scores(prompt, lam)[:, since:]
        return float(-((signs * s).mean(0) ** 2 / (s**2).mean(0)).mean())

    optimum = minimize_scalar(apart, bounds=(0.05, 1.0), method="bounded", options={"xatol": 1e-4})
    # The bounded search does not come upon the end itself.
    return 1.0 if apart(1.0) <= optimum.fun else float(optimum.x)


@validated
def judge_answers(
    answers: Float[np.ndarray, "batch time"], exact: Float[np.ndarray, "batch time"], *, late: Natural
) -> pd.DataFrame:
    """Error rate and excess log loss over the floor, by the number of preceding labelled sentences.

    Both are expectations over the label given all before it, whose probability the floor knows.

    Args:
        answers: P(positive) by whom it is about, in (0, 1) ([0, 1] if only errors are asked for).
        exact: the floor's, in (0, 1).
        late: the first of the numbers of labelled sentences that are also judged together.

    Returns: demonstrations ("0", "1", .., and e.g. "11 to 20"), error and excess (nats), with standard errors over
        prompts error_se, excess_se.
    """
    for name, given in (("answers", answers), ("exact", exact)):
        _checks.real(name, given, at_least=0, at_most=1)
    last = exact.shape[1] - 1
    if late > last:
        raise ValueError(f"late must be at most {last}, got {late}")
    # A tie counts as half an error.
    wrong = np.where(answers > 0.5, 1 - exact, np.where(answers < 0.5, exact, 0.5))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = exact * np.log(exact / answers) + (1 - exact) * np.log((1 - exact) / (1 - answers))
    parts = {str(k): slice(k, k + 1) for k in range(last + 1)} | {f"{late} to {last}": slice(late, None)}
    rows = []
    for name, part in parts.items():
        row: dict[str, Any] = {"demonstrations": name}
        for what, values in (("error", wrong), ("excess", excess)):
            each = values[:, part].mean(1)
            row[what], row[f"{what}_se"] = float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5)
        rows.append(row)
    return pd.DataFrame(rows)


@torch.no_grad()
@validated
def model_answers(model: nn.Module, language: RuleLanguage, prompt: WordPrompt) -> Float[np.ndarray, "batch time"]:
    """A model's P(positive) among the two label words, at every label."""
    logits = rule_logits(model, prompt)[..., language.words :]
    return logits.double().softmax(-1)[..., 1].numpy(force=True)


def _gates(model: Any) -> str:
    """Format forgetting factors per token, grouped by layer: "0.880 0.790 | 0.840 0.830"; empty for softmax."""
    if any(isinstance(module, SoftmaxMemory) for module in model.modules()):
        return ""
    return " | ".join(" ".join(f"{lam:.3f}" for lam in layer) for layer in forgetting(model).tolist())


@validated
def compare_variants(
    gammas: Sequence[float],
    *,
    rates: Sequence[float],
    seeds: Count,
    prompts: Annotated[int, Ge(2)],
    folder: Path | None,
    steps: Count = 800,
) -> pd.DataFrame:
    """Train all variants under all rules; compare them with the floor and with one layer on the true embeddings.

    Each of :data:`RULE_VARIANTS` has, under each rule, the step size of least log loss after training with seed 0, on
    prompts of their own; at that size seeds 0 .. seeds - 1 are trained and reported. :data:`GATE_IN_ONE_LAYER` have
    that of "GLA, λ = 0.9", and rules that drift alone.

    Args:
        gammas: the rules, each in [0, 1].
        rates: step sizes to choose from, each > 0.
        seeds: number of trainings that are reported.
        prompts: number of prompts to judge by, at least 2.
        folder: where trained arms are kept, and found again; it must exist, None keeps nothing.
        steps: of each training.

    Returns:
        The columns of :func:`judge_answers`, and: γ, arm, seed, lr, λ (a token, by layer and head), seconds of
        training. The floor is the arm "Bayes"; "one layer, λ*" and "one layer, λ = 1" know what words mean, and are not
        trained.
    """
    if not len(rates):
        raise ValueError(f"rates must be at least one step size, got {rates!r}")
    tables = []
    for gamma in gammas:
        language = rule_language(gamma)
        to_choose, to_judge = (
            language.sample(prompts, generator=make_generator(f"rule arms, {use}"), dtype=torch.float64)
            for use in ("choose", "judge")
        )
        exact, late = exact_answers(language, to_judge, spacing=1.5), language.n // 2 + 1

        def trained(arm: str, lr: float, seed: int, language: RuleLanguage = language, gamma: float = gamma) -> Trained:
            checkpoint = folder and folder / f"{gamma:g} {arm} {lr:g} {seed} {steps}.safetensors"
            return train_variant(language, _MEMORIES[arm], lr=lr, seed=seed, steps=steps, checkpoint=checkpoint)

        entries: list[tuple[np.ndarray, dict[str, Any]]] = [(exact, {"arm": "Bayes"})]
        for arm, lam in (("one layer, λ*", best_one_layer(to_choose, since=late)), ("one layer, λ = 1", 1.0)):
            # Halfway to certain, on the side that the score is on: errors ask for the side alone.
            answers = 0.5 + 0.25 * np.sign(one_layer_scores(to_judge, lam))
            entries.append((answers, {"arm": arm, "λ": f"{lam:.4f}"}))
        chosen: dict[str, float] = {}
        for arm in [*RULE_VARIANTS, *(GATE_IN_ONE_LAYER if gamma < 1 else ())]:
            if arm in RULE_VARIANTS:
                tried = {lr: float(rule_loss(trained(arm, lr, 0).model, to_choose).detach()) for lr in rates}
                # NaN sorts last.
                chosen[arm] = min(tried, key=lambda lr, tried=tried: (math.isnan(tried[lr]), tried[lr]))  # type: ignore[misc]
            lr = chosen[arm if arm in RULE_VARIANTS else "GLA, λ = 0.9"]
            for seed in range(seeds):
                training = trained(arm, lr, seed)
                more = {"seed": seed, "lr": lr, "λ": _gates(training.model), "seconds": training.seconds}
                entries.append((model_answers(training.model, language, to_judge), {"arm": arm, **more}))
        blank: dict[str, Any] = {"γ": gamma, "arm": "", "seed": 0, "lr": 0.0, "λ": "", "seconds": 0.0}
        tables += [judge_answers(answers, exact, late=late).assign(**blank | more) for answers, more in entries]
    return pd.concat(tables, ignore_index=True)
