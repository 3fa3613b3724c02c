"""Adapters for models of other packages: transformers' causal models, mambapy.

Of a transformers model only the body is used: it reads `inputs_embeds`, keeps no cache, and its word embedding is
removed. Both packages are imported lazily, by the functions that need them.
"""

import dataclasses
import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Count, validated
from icl_bench.sequence import HEAD, heads_for

_Sequence = Float[Tensor, "batch tokens width"]
_CONFIG = ("PreTrainedConfig", "PretrainedConfig")
_MODEL = ("PreTrainedModel",)


@validated
def is_installed(package: str) -> bool:
    """Return True if a package is installed.

    Args:
        package: its import name.
    """
    _checks.text("package", package, "a name")
    return importlib.util.find_spec(package) is not None


def _descends(kind: Any, names: tuple[str, ...]) -> bool:
    # By class name, so that transformers is imported only if the user already did.
    return isinstance(kind, type) and any(
        each.__name__ in names and each.__module__.partition(".")[0] == "transformers" for each in kind.__mro__
    )


def is_config(what: Any) -> bool:
    """Return True for an instance of a transformers configuration."""
    return _descends(type(what), _CONFIG)


def is_config_class(what: Any) -> bool:
    """Return True for a transformers configuration class."""
    return _descends(what, _CONFIG)


def is_model(what: Any) -> bool:
    """Return True for an instance of a transformers model."""
    return _descends(type(what), _MODEL)


def is_model_class(what: Any) -> bool:
    """Return True for a transformers model class."""
    return _descends(what, _MODEL)


@validated
def build_config(kind: type, *, width: Count, depth: Count, longest: Count) -> Any:
    """Transformers configuration at the tool's sizes: heads of dimension 16, MLPs of twice the width, no dropout.

    Args:
        kind: configuration class.
        width: numbers a token.
        depth: blocks.
        longest: maximum sequence length, in tokens.
    """
    if not is_config_class(kind):
        raise ValueError(f"kind must be a class of transformers' configurations, got {kind!r}")
    heads = heads_for(width)
    wanted: dict[str, float] = {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": 2 * width,
        "n_inner": 2 * width,
        "max_position_embeddings": max(longest, 2),
        # The model reads vectors, not words.
        "vocab_size": 2,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    accepted = set(inspect.signature(kind).parameters)
    names = getattr(kind, "attribute_map", {})
    fields = {names.get(name, name): value for name, value in wanted.items()}
    fields |= {name: 0.0 for name in accepted if "drop" in name and not name.startswith("summary")}
    if {"expand", "num_heads", "head_dim"} <= accepted:
        fields |= {"expand": 2, "num_heads": 2 * width // HEAD or 1, "head_dim": min(HEAD, 2 * width)}
        fields |= {"state_size": HEAD, "n_groups": 1, "chunk_size": 64}
    return kind(**{name: value for name, value in fields.items() if name in accepted})


class Body(nn.Module):
    """Body of a transformers causal model, from input embeddings to the last hidden state.

    Args:
        model: with or without a language-model head, which is dropped.
    """

    def __init__(self, model: nn.Module) -> None:
        """Keep the body without its word embedding."""
        super().__init__()
        if not is_model(model):
            raise ValueError(f"model must be a PreTrainedModel of transformers, got {type(model).__name__}")
        full: Any = model
        self.model = full.base_model
        self.model.set_input_embeddings(nn.Identity())
        self.config = full.config
        self.width = int(self.config.hidden_size)

    def forward(self, h: _Sequence) -> _Sequence:
        """Last hidden state, after the final norm."""
        with _quiet():
            out: Tensor = self.model(inputs_embeds=h, use_cache=False)[0]
        return out

    @validated
    def state_numel(self, time: Count) -> int:
        """Size of the model's own cache after `time` tokens of one sequence, measured by a forward pass."""
        like = next(self.model.parameters())
        with torch.no_grad(), _quiet():
            out = self.model(inputs_embeds=like.new_zeros(1, time, self.width), use_cache=True)
        tensors = {
            id(part): part for name, part in out.items() if name != "last_hidden_state" for part in _tensors(part)
        }
        return sum(part.numel() for part in tensors.values())


def _tensors(what: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Floating-point tensors in a cache of any structure."""
    seen = set() if seen is None else seen
    if id(what) in seen:
        return
    seen.add(id(what))
    if isinstance(what, Tensor):
        if what.is_floating_point():
            yield what
    elif isinstance(what, dict):
        for each in what.values():
            yield from _tensors(each, seen)
    elif isinstance(what, list | tuple):
        for each in what:
            yield from _tensors(each, seen)
    elif hasattr(what, "__dict__") and not isinstance(what, type | nn.Module):
        yield from _tensors(vars(what), seen)


@validated
def body_of(what: Any, *, longest: Count) -> Body:
    """Body of a newly initialised model: built from a configuration, or given.

    Args:
        what: the configuration or the model.
        longest: maximum sequence length, in tokens.

    Raises:
        ValueError: if it has fewer positions than that, or is neither.
    """
    if not is_config(what) and not is_model(what):
        raise ValueError(f"what must be a configuration or a model of transformers, got {what!r}")
    config = what if is_config(what) else what.config
    places = getattr(config, "max_position_embeddings", None)
    if isinstance(places, int) and places < longest:
        field = getattr(type(config), "attribute_map", {}).get("max_position_embeddings", "max_position_embeddings")
        raise ValueError(
            f"{type(config).__name__} has places for {places} tokens, and prompts have up to {longest}: set {field} to "
            f"{longest}, or write a function of longest that returns the configuration"
        )
    if is_model(what):
        return Body(what)
    import transformers

    with _quiet():
        return Body(transformers.AutoModel.from_config(config))


class _quiet:
    """Context manager that silences transformers' advice on GPU kernels."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self.before = logging.get_verbosity()
        logging.set_verbosity_error()

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self.before)


@validated
def hugging_face(name: str, **settings: Any) -> Any:
    """Factory, from width, depth and longest, of a configuration of the named transformers class.

    Args:
        name: class name, such as "GPT2Config".
        settings: fields other than sizes.
    """
    _checks.text("name", name, "that of a class of transformers")

    def build(width: int, depth: int, longest: int) -> Any:
        import transformers

        config = build_config(getattr(transformers, name), width=width, depth=depth, longest=longest)
        for setting, value in settings.items():
            setattr(config, setting, value)
        return config

    return build


class MambaPy(nn.Module):
    """mambapy's Mamba: its own blocks, with their norms and residual connections.

    Args:
        width: numbers a token.
        depth: blocks.
    """

    @validated
    def __init__(self, width: Count, depth: Count) -> None:
        """Build the model with mambapy's defaults, parallel scan included."""
        super().__init__()
        from mambapy import mamba

        self.model = mamba.Mamba(mamba.MambaConfig(d_model=width, n_layers=depth))

    @validated
    def state_numel(self, time: Count) -> int:
        """State size: the scans' states and the convolutions' windows."""
        config = self.model.config
        return int(config.n_layers * config.d_inner * (config.d_state + config.d_conv - 1))

    def forward(self, h: _Sequence) -> _Sequence:
        """Output of the last block."""
        out: Tensor = self.model(h)
        return out


_WIDTHS = ("width", "d_model", "n_embd", "hidden_size", "dim")
_DEPTHS = ("depth", "n_layers", "n_layer", "num_layers", "num_hidden_layers")


def dataclass_config(kind: Any) -> tuple[str, str, str, type] | None:
    """Find the width and depth fields of a model configured by a single dataclass (as mambapy's are).

    Returns:
        the parameter's name, the fields' names for width and depth ("" if it has none), and the dataclass; None for
        all other models.
    """
    if not isinstance(kind, type):
        return None
    needed = [
        each
        for each in inspect.signature(kind).parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) != 1:
        return None
    settings = needed[0].annotation
    if not isinstance(settings, type) or not dataclasses.is_dataclass(settings):
        return None
    fields = [each.name for each in dataclasses.fields(settings)]
    width = next((name for name in _WIDTHS if name in fields), None)
    depth = next((name for name in _DEPTHS if name in fields), "")
    return None if width is None else (needed[0].name, width, depth, settings)
