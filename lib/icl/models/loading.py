"""Language models of the transformers library: pretrained, untrained, and their sizes.

Weights are read from a folder, from a GGUF file, or from the hub by name; this book ships none. transformers (and gguf
for GGUF files) are imported by the functions that need them; the book's `language` extra installs both.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icl._bounds import Count, Positive, validated
from icl.models._transformers import import_transformers


@dataclass(frozen=True)
class Sizes:
    """Size of a language model.

    Attributes:
        layers: number of blocks.
        width: of the residual stream.
        heads: attention heads a layer.
        parameters: number of parameters, tied embeddings counted once.
        untied: the same with an output matrix of its own.
    """

    layers: int
    width: int
    heads: int
    parameters: int
    untied: int


def _from_gguf(file: Path, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    """Load model and tokenizer from a GGUF file, dequantised."""
    transformers = import_transformers()
    try:
        import gguf  # noqa: F401  transformers reads with it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("gguf is missing: pip install 'icl-book[language]'", name=error.name) from error
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(config)
    # Not by from_pretrained(gguf_file=..), which does the same and needs one more package.
    weights = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=empty, torch_dtype=dtype)["tensors"]
    model = type(empty).from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
    return model, transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def pretrained(source: str | Path, *, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any]:
    """Load a trained causal language model, in evaluation mode, and its tokenizer.

    A GGUF file of a hundred million parameters takes half a minute to read. `model.save_pretrained(folder)` and
    `tokenizer.save_pretrained(folder)` make a folder of it, which takes a second. (Models of
    :func:`~icl.models.surgery.with_attention` are saved by their `state_dict()`.)

    Args:
        source: a folder as transformers saves models, a GGUF file, or a name on the hub such as "gpt2".
        dtype: of the weights, torch.float32, torch.float64 or torch.bfloat16.

    Raises:
        ModuleNotFoundError: without transformers, or gguf for a GGUF file; it says what to install.
        ValueError: for what is neither folder, file nor name, and for a name that could not be had from the hub.
    """
    given: Any = source
    if not isinstance(given, str | Path) or not str(given):
        raise ValueError(f"source must be a folder, a GGUF file or a name on the hub, got {source!r}")
    if dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise ValueError(f"dtype must be torch.float32, torch.float64 or torch.bfloat16, got {dtype}")
    path = Path(source).expanduser()
    local = path.exists()
    by_name = not local and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(source)) and path.suffix != ".gguf"
    if not (local or by_name) or (path.is_file() and path.suffix != ".gguf"):
        raise ValueError(f"source must be a folder, a GGUF file or a name on the hub, got {str(source)!r}")
    transformers = import_transformers()
    if path.is_file():
        model, tokenizer = _from_gguf(path, dtype)
        return model.eval(), tokenizer
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        if local:
            raise ValueError(f"source must hold a model as transformers saves it, got {str(source)!r}") from error
        raise ValueError(
            f"source must be a folder or a GGUF file here, or a name that the hub has, got {str(source)!r}: "
            "there is none here, and the hub did not answer or does not know it"
        ) from error
    return model.eval(), tokenizer


@validated
def untrained(
    kind: str,
    *,
    generator: torch.Generator,
    layers: Count = 2,
    width: Count = 32,
    heads: Count = 4,
    key_heads: Count | None = None,
    words: Count = 64,
    places: Count = 512,
    spread: Positive = 0.02,
) -> nn.Module:
    """A small language model with weights drawn at random, in evaluation mode and without dropout.

    Args:
        kind: "gpt2", with learned positions, or "llama", with rotary ones.
        generator: draws the weights.
        layers: blocks, at least 1.
        width: of the residual stream, a multiple of heads; the hidden layer has four times as many.
        heads: of attention; width / heads is even for rotary positions.
        key_heads: heads that share keys and values, a divisor of heads, for "llama"; None is one for each.
        words: size of the vocabulary.
        places: the longest text.
        spread: standard deviation of the weights, > 0; where 0.02 is usual, layers hardly change the logits of a narrow
            model.

    Raises:
        ModuleNotFoundError: without transformers; it says what to install.
        ValueError: for sizes that do not fit together.
    """
    if kind not in ("gpt2", "llama"):
        raise ValueError(f"kind must be 'gpt2' or 'llama', got {kind!r}")
    if width % heads or (kind == "llama" and (width // heads) % 2):
        even = ", with an even quotient for rotary positions" if kind == "llama" else ""
        raise ValueError(f"width must be a multiple of heads = {heads}{even}, got {width}")
    shared = heads if key_heads is None else key_heads
    if heads % shared or (kind == "gpt2" and shared != heads):
        allowed = "None for 'gpt2'" if kind == "gpt2" else f"a divisor of heads = {heads}"
        raise ValueError(f"key_heads must be {allowed}, got {key_heads}")
    transformers = import_transformers()
    common = {"vocab_size": words, "initializer_range": spread, "bos_token_id": None, "eos_token_id": None}
    if kind == "gpt2":
        sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": places}
        still = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
        config = transformers.GPT2Config(**sizes, **still, **common)
    else:
        sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
        sizes |= {"num_key_value_heads": shared, "intermediate_size": 4 * width, "max_position_embeddings": places}
        config = transformers.LlamaConfig(**sizes, **common, pad_token_id=None, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        # transformers draws from the global generator only: redraw the weights, and restore its state.
        model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, spread, generator=generator)
    return model.eval()


def sizes(config: Any = "gpt2") -> Sizes:
    """Size of a language model from its configuration, counted on the meta device: no weights, no network.

    Args:
        config: a configuration of transformers, or "gpt2" for GPT-2's smallest, which is transformers' default.

    Raises:
        ModuleNotFoundError: without transformers; it says what to install.
        ValueError: for what is no configuration.
    """
    if config != "gpt2" and not hasattr(config, "num_hidden_layers"):
        raise ValueError(f"config must be a configuration of transformers or 'gpt2', got {config!r}")
    transformers = import_transformers()
    configuration = transformers.GPT2Config() if config == "gpt2" else config
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(configuration)
    parameters = sum(weight.numel() for weight in model.parameters())
    shared = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight.numel() if shared else 0
    return Sizes(
        configuration.num_hidden_layers,
        configuration.hidden_size,
        configuration.num_attention_heads,
        parameters,
        parameters + head,
    )
