"""Initialisation of a language model before training: truncation, scale matching, faster gates."""

import copy
import functools
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from icl._bounds import Count, Positive, validated
from icl.models import surgery


@validated
def first_layers(model: nn.Module, layers: Count) -> nn.Module:
    """Truncated copy of a Llama model: its first layers, at least 1, with the same head."""
    cut: Any = copy.deepcopy(model)
    blocks = surgery._attentions(cut)
    if layers > len(blocks) or cut.config.model_type != "llama":
        raise ValueError(f"layers must be at most {len(blocks)}, of a llama, got {layers} of {cut.config.model_type}")
    cut.model.layers = cut.model.layers[:layers]
    cut.config.num_hidden_layers = layers
    return cut


@torch.no_grad()
@validated
def match_scale(
    model: nn.Module, changed: nn.Module, tokens: Int[Tensor, "batch time"]
) -> Float[Tensor, "layers heads"]:
    """Match the scale of a changed model's attention outputs, in place, to softmax's on the same queries and keys.

    A plain sum of products grows with the text and is tens of times larger than an average: a model whose attention is
    replaced drowns in it, and learns its scale before anything else. What multiplies a head's read is a column of the
    layer's output projection, which is scaled; so nothing but weights changes, and training goes on from there.

    Args:
        model: with softmax, from whose queries, keys and values both reads are formed, layer by layer.
        changed: the same model with another attention (:func:`~icl.models.surgery.with_attention`).
        tokens: (batch, time) some texts.

    Returns:
        What each head's columns were multiplied by: root mean square of softmax's reads, over that of the others.

    Raises:
        FloatingPointError: if a head of the changed model reads nothing but 0, or numbers that are not finite.
    """
    softmax = surgery.with_attention(model, lam=None)
    factors: dict[int, Tensor] = {}

    def compare(other: nn.Module, layer: int, read: tuple[Tensor, ...], mine: Tensor) -> None:
        theirs = other(*read)
        factors[layer] = (mine.square().mean((0, 1, 3)) / theirs.square().mean((0, 1, 3))).sqrt()

    pairs = list(zip(surgery._attentions(softmax), surgery._attentions(changed), strict=True))
    for layer, (mine, theirs) in enumerate(pairs):
        hook = functools.partial(compare, theirs.memory, layer)
        mine.memory.register_forward_hook(lambda _, read, out, hook=hook: hook(read, out))
    surgery.logits_at(softmax, tokens, torch.zeros(len(tokens), 1, dtype=torch.int64, device=tokens.device))
    scale = torch.stack([factors[layer] for layer in range(len(pairs))])
    if not bool(scale.isfinite().all()):
        raise FloatingPointError("reads must be finite and not all 0 to be scaled, got a head whose reads are")
    for layer, (_, theirs) in enumerate(pairs):
        # GPT-2 stores its projection transposed.
        weight = theirs.o_proj.weight.T if hasattr(theirs, "o_proj") else theirs.c_proj.weight
        weight.mul_(scale[layer].repeat_interleave(len(weight) // len(scale[layer]))[:, None])
    return scale


class _Multiple(nn.Module):
    """Parametrisation of a parameter as a fixed multiple of the trained one."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, trained: Tensor) -> Tensor:
        return self.factor * trained

    def right_inverse(self, value: Tensor) -> Tensor:
        return value / self.factor


@validated
def shorten_gate_memory(changed: nn.Module, speed: Positive) -> None:
    """Multiply the learning rate of a model's learned gates by `speed`, in place; their values are unchanged.

    What is trained is the log-odds over `speed`. AdamW's step has one size, whatever the gradient's; so each step moves
    the log-odds by up to `speed` rates, without an optimiser of their own. Weight decay stays what it is for weights:
    towards log-odds of 0, lam = .5, by the rate times the decay a step.

    Args:
        changed: from :func:`~icl.models.surgery.with_attention`, with learned gates, not quick yet.
        speed: > 0; 1 changes nothing.
    """
    memories = surgery._memories(changed)
    if not all(getattr(memory, "learned", False) for memory in memories):
        raise ValueError("changed must have learned gates to make quick, got a model without")
    if any(parametrize.is_parametrized(memory) for memory in memories):
        raise ValueError("changed must have gates that are not quick yet, got quick ones")
    for memory in memories:
        for name in [name for name, _ in memory.named_parameters(recurse=False)]:
            parametrize.register_parametrization(memory, name, _Multiple(speed))
