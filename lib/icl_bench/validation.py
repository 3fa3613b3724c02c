"""Checks before training: causality, batch independence, statelessness, finite outputs.

:func:`validate` builds a contestant and runs it on random prompts, at its initialisation and again with a little noise
on every parameter, because a last matrix initialised at 0 hides errors behind it. It is run in training and in
evaluation mode. A violation raises :exc:`InvalidModel`, whose message says which contestant, what, where, how much, and
the usual cause; lesser problems are returned as warnings.

Two predictions are equal if they differ by at most 1,000 units of round-off, relative to the larger of 1 (the scale of
labels) and the largest prediction so far: 1.2e-4 in single precision. Loops and matrix products of one shape agree
bitwise; blocked scans, Fourier transforms and other batch sizes differ by tens of units. A leak below the tolerance can
gain at most its square, 1e-8 of the labels' variance; real leaks are as large as the predictions.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl import _checks
from icl._bounds import validated
from icl.experiments.evaluation import Predictor, one_step_ahead
from icl.experiments.tuning import Tunable
from icl.filters import Filter
from icl.models.causal import Causal
from icl.tasks import Prompt
from icl_bench.entries import Contestant, Shape, in_the_middle, torch_seeded

_Answers = Float[Tensor, "batch time"]

_ROUNDINGS = 1_000
_NOISE = 0.03
_PROMPTS = 6
_AHEAD = (
    "usually attention without its mask (of transformers, a model that is no decoder), a convolution padded on both "
    "sides, or a norm, mean, sort or roll over time"
)
_MIXED = "usually a batch norm, a mean over the batch, or a reshape that runs batch and time together"
_KEPT = "usually a buffer that forward writes to and the next call reads: let every call start anew"
_INFINITE = "usually a division by 0, a logarithm or root of what can be 0 or negative, or a state that grows"


class InvalidModel(ValueError):
    """Contestant that failed validation; the message says which, what, where, and the usual cause."""


@dataclass(frozen=True, eq=False)
class _Subject:
    """Predictor under validation.

    Attributes:
        name: of the contestant.
        answer: from prompts to predictions at every position.
        when: "at its start", or after noise.
        model: module whose mode is set; None for filters.
        device: device of the prompts.
    """

    name: str
    answer: Callable[[Prompt], Tensor]
    when: str
    model: Causal | None
    device: str = "cpu"

    def __call__(self, prompt: Prompt, *, seed: int = 0) -> _Answers:
        """Predict, with torch's global stream at this seed."""
        with torch_seeded(seed, device=self.device), torch.no_grad():
            return _predict_checked(self, prompt, self.answer).cpu()

    def refuse(self, what: str) -> InvalidModel:
        """Error with this message."""
        mode = " in training mode" if self.model is not None and self.model.training else ""
        return InvalidModel(f"{self.name} {what} [{self.when}{mode}]")


@validated
def validate(contestant: Contestant, shape: Shape, *, device: str = "cpu") -> tuple[str, ...]:
    """Validate a contestant, built for this shape.

    Args:
        contestant: the contestant.
        shape: sizes; prompts have its n examples, and then as many as fit in `longest` tokens.
        device: device of the training.

    Returns:
        warnings, none of which makes a comparison unfair: parameters without a gradient, a model that ignores the
        examples.

    Raises:
        InvalidModel: if it is not causal, mixes prompts, keeps state between calls, is random in evaluation mode,
            raises an error, or its output has another shape or dtype or is not finite.
        ValueError: if it cannot be built.

    >>> from icl_bench.entries import Shape, resolve
    >>> validate(resolve("softmax"), Shape(d=2, n=8, width=16, depth=1, longest=33))
    ()
    """
    with torch_seeded(device=device):
        model = contestant.build(shape)
    return validate_model(model.to(device) if isinstance(model, Causal) else model, contestant.name, shape)


@validated
def validate_model(model: Causal | Filter | Tunable, name: str, shape: Shape) -> tuple[str, ...]:
    """Validate a built or trained predictor on its own device; a model's parameters and mode are restored.

    Args:
        model: a model, a filter or a tunable.
        name: its name in messages.
        shape: sizes.

    Raises:
        InvalidModel: as :func:`validate`.
    """
    _checks.text("name", name)
    if not isinstance(model, Causal):
        predictor = model if isinstance(model, Filter) else _middle(model, name, shape)
        subject = _Subject(name, lambda prompt: one_step_ahead(predictor, prompt), "its answers", None)
        _same_answers(subject, shape, torch.float64)
        return ()
    mode, tensors = model.training, [*model.parameters(), *model.buffers()]
    before = [each.detach().clone() for each in tensors]
    first = next(model.parameters(), None)
    dtype, device = (torch.float32, "cpu") if first is None else (first.dtype, str(first.device))
    try:
        warnings: tuple[str, ...] = ()
        for when in ("at its start", f"with noise of {_NOISE} on its parameters"):
            if "noise" in when:
                _shake(model)
            subject = _Subject(name, model.predictions, when, model, device)
            model.train()
            idle = _gradients(subject, model, shape, dtype)
            for training in (True, False):
                model.train(training)
                _same_answers(subject, shape, dtype)
            warnings = _collect_warnings(idle, subject, shape, dtype)
        return warnings
    finally:
        with torch.no_grad():
            for each, value in zip(tensors, before, strict=True):
                each.copy_(value)
        model.zero_grad(set_to_none=True)
        model.train(mode)


def _middle(tunable: Tunable, name: str, shape: Shape) -> Predictor:
    try:
        return in_the_middle(tunable, shape)
    except Exception as error:
        raise InvalidModel(
            f"{name} cannot be made for d = {shape.d} at middle settings: {_error_text(error)}"
        ) from error


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error) or 'without a message'}"


def _shake(model: Causal) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise.to(parameter), alpha=_NOISE)


def _prompts(shape: Shape, dtype: torch.dtype, *, time: int, seed: int = 0) -> Prompt:
    """Draw random prompts: inputs and labels of variance 1, separate weights for each prompt."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(_PROMPTS, time, shape.d, generator=generator, dtype=torch.float64)
    w = torch.randn(_PROMPTS, 1, shape.d, generator=generator, dtype=torch.float64) / math.sqrt(shape.d)
    return Prompt(*(part.to(dtype) for part in (x, (x * w).sum(-1), w.expand_as(x))))


def _predict_checked(subject: _Subject, prompt: Prompt, answer: Callable[[Prompt], Any]) -> _Answers:
    """Predict, and check shape, dtype and finiteness."""
    batch, time = prompt.y.shape
    size = f"a batch of {batch}, {time} positions ({2 * time - 1} tokens)"
    try:
        answers = answer(Prompt(*(each.to(subject.device) for each in (prompt.x, prompt.y, prompt.w))))
    except Exception as error:
        raise subject.refuse(f"fails on {size}: {_error_text(error)}") from error
    if not isinstance(answers, Tensor) or answers.shape != (batch, time):
        got = tuple(answers.shape) if isinstance(answers, Tensor) else type(answers).__name__
        raise subject.refuse(f"must answer (batch, time) = {(batch, time)}, got {got}")
    if answers.dtype != prompt.y.dtype:
        raise subject.refuse(f"must answer in {prompt.y.dtype} as it is asked, got {answers.dtype}")
    wrong = ~torch.isfinite(answers)
    if wrong.any():
        at, position = wrong.nonzero()[0].tolist()
        raise subject.refuse(
            f"answers {answers[at, position].item()} at position {position} of {time} of prompt {at}: {_INFINITE}"
        )
    return answers


def _differ(one: _Answers, other: _Answers) -> Tensor:
    """Difference of predictions where it exceeds the tolerance, else 0."""
    size = one.abs().amax(0).cummax(0).values.clamp(min=1)
    gap = (one - other).abs()
    return torch.where(gap > _ROUNDINGS * torch.finfo(one.dtype).eps * size, gap, 0.0)


def _worst(gap: Tensor) -> tuple[int, int, float]:
    """Largest difference: prompt, position, size."""
    at, position = divmod(int(gap.argmax()), gap.shape[1])
    return at, position, gap[at, position].item()


def _same_answers(subject: _Subject, shape: Shape, dtype: torch.dtype) -> None:
    """Check statelessness, batch independence and causality."""
    prompt, others = (_prompts(shape, dtype, time=shape.n + 1, seed=seed) for seed in (2, 3))
    answers = subject(prompt)
    still = subject.model is None or not subject.model.training
    for problem in _problems(subject, prompt, others, answers, still):
        raise subject.refuse(problem)
    if still:
        most = (shape.longest - 1) // 2 + 1
        subject(_prompts(shape, dtype, time=most, seed=4))


def _problems(subject: _Subject, prompt: Prompt, others: Prompt, answers: Tensor, still: bool) -> Iterator[str]:
    """Violations found; a check that would invalidate later ones comes first."""
    subject(others)
    gap = _differ(answers, subject(prompt))
    if gap.any():
        _, position, size = _worst(gap)
        yield (
            f"answers the same prompts differently after other prompts, by {size:.2g} at position {position}: it keeps "
            f"state from call to call; {_KEPT}"
        )
    if still:
        gap = _differ(answers, subject(prompt, seed=1))
        if gap.any():
            yield (
                f"answers the same prompts differently each time, by up to {gap.max().item():.2g}, in evaluation: "
                "usually dropout by torch.nn.functional.dropout without training=self.training, or noise that eval() "
                "leaves on"
            )
    yield from _mixing(subject, prompt, others, answers, still)
    yield from _looking_ahead(subject, prompt, others, answers, still)


def _mixing(subject: _Subject, prompt: Prompt, others: Prompt, answers: Tensor, still: bool) -> Iterator[str]:
    mine = torch.arange(prompt.batch) < 2
    # The others three times as large: a batch mean over draws of one law would hardly change.
    mixed = Prompt(
        torch.where(mine[:, None, None], prompt.x, 3 * others.x),
        torch.where(mine[:, None], prompt.y, 3 * others.y),
        torch.where(mine[:, None, None], prompt.w, others.w),
    )
    gap = _differ(answers[mine], subject(mixed)[mine])
    if gap.any():
        at, position, size = _worst(gap)
        yield (
            f"answers prompt {at} differently, by {size:.2g} at position {position}, when other prompts of its batch "
            f"change: prompts mix; {_MIXED}"
        )
    if still:
        alone = subject(Prompt(prompt.x[:1], prompt.y[:1], prompt.w[:1]))
        gap = _differ(answers[:1], alone)
        if gap.any():
            _, position, size = _worst(gap)
            yield (
                f"answers a prompt alone differently than in a batch of {prompt.batch}, by {size:.2g} at position "
                f"{position}: usually a squeeze or reshape that takes a batch of one for no batch; or {_MIXED[8:]}"
            )


def _looking_ahead(subject: _Subject, prompt: Prompt, others: Prompt, answers: Tensor, still: bool) -> Iterator[str]:
    batch, time = prompt.y.shape
    place = torch.arange(time)
    # Every prompt is cut at another position, within blocks and at their ends. The label at the cut counts as future
    # too: it is the one to be predicted.
    cuts = torch.linspace(0, time - 2, batch).round().long().unsqueeze(-1)
    cuts[1::2] |= 1
    cuts = cuts.clamp(max=time - 2)
    x = torch.where((place > cuts).unsqueeze(-1), 3 * others.x, prompt.x)
    y = torch.where(place >= cuts, 3 * others.y, prompt.y)
    gap = torch.where(place <= cuts, _differ(answers, subject(Prompt(x, y, prompt.w))), 0.0)
    if gap.any():
        at, position, size = _worst(gap)
        yield (
            f"looks ahead: it answers position {position} of {time} differently, by {size:.2g}, when nothing changes "
            f"but the label of position {int(cuts[at, 0])} and what comes after it; {_AHEAD}"
        )
    if still:
        for part in sorted({time // 2 + 1, max(time - 1, 2)}):
            gap = _differ(
                answers[:, :part], subject(Prompt(*(each[:, :part] for each in (prompt.x, prompt.y, prompt.w))))
            )
            if gap.any():
                _, position, size = _worst(gap)
                yield (
                    f"looks ahead: it answers position {position} differently, by {size:.2g}, in a prompt of {part} "
                    f"positions than in the same one continued to {time}: usually the length of the whole sequence "
                    "enters, as in a mean over time or places counted from the end"
                )


def _gradients(subject: _Subject, model: Causal, shape: Shape, dtype: torch.dtype) -> list[str]:
    """Names of parameters without a gradient; InvalidModel if one is not finite or cannot be computed twice."""
    prompt = _prompts(shape, dtype, time=shape.n + 1, seed=5)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        with torch_seeded(device=subject.device):
            answers = _predict_checked(subject, prompt, model.predictions)
            loss = (answers - prompt.y.to(answers)).square().mean()
            try:
                loss.backward()
            except RuntimeError as error:
                raise subject.refuse(
                    f"has no gradient: {_error_text(error)}; usually an operation in place, or state kept from an "
                    "earlier call"
                ) from error
    moved = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None or not bool(parameter.grad.any()):
            moved.append(name)
        elif not bool(torch.isfinite(parameter.grad).all()):
            raise subject.refuse(f"has a gradient that is not finite, in {name}: {_INFINITE}")
    return moved


def _collect_warnings(idle: list[str], subject: _Subject, shape: Shape, dtype: torch.dtype) -> tuple[str, ...]:
    """Warnings: parameters without a gradient, labels without an effect on later predictions."""
    warnings = []
    if idle:
        shown = ", ".join(idle[:4]) + (f" and {len(idle) - 4} more" if idle[4:] else "")
        warnings.append(f"no gradient reaches {shown}: no training will move it")
    prompt, others = (_prompts(shape, dtype, time=shape.n + 1, seed=seed) for seed in (2, 3))
    gap = _differ(subject(prompt), subject(Prompt(prompt.x, others.y, prompt.w)))
    if not gap.any():
        warnings.append("its answers do not depend on any label before them: it cannot learn in context")
    return tuple(warnings)
