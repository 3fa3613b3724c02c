"""Language models whose softmax attention is replaced by gated linear attention or the delta rule.

A causal model of the transformers library calls one attention function per layer, with queries, keys (after rotary
positions, where the model has them) and values. :func:`with_attention` copies a model and has it call another:

    softmax                 o_t = sum_{j <= t} softmax_j(scale k_j'q_t) v_j               [Vaswani et al. 2017]
    gated linear attention  o_t = S_t (scale q_t),      S_t = lam S_{t-1} + v_t k_t'      [Yang et al. 2023], (5)
    gated delta rule        o_t = S_{t-1} (scale q_t),  S_t = lam (S_{t-1} + beta (v_t - S_{t-1} k_t) k_t')

The last is that of [Yang et al. 2024]. Plain linear attention is gated with lam = 1, the delta rule takes keys of
length 1, and the trained weights stay as they were. All heads run through :mod:`icl.models.operators`. GPT-2 and models
of Llama's blocks are taken, with grouped heads too.

A layer's attention is an nn.Module beside its weights (:class:`SoftmaxMemory`, :class:`FadingMemory`); text is
generated from the states of these modules (:func:`generate`): for the recurrent ones (heads, value, key) numbers a
layer, however long the text.

Sums are formed in float32 at least, whatever the model's dtype: bfloat16 has three digits, and would round a gate of
.99 to .988, and one of .999 to 1.

transformers is not imported before a model is changed; the book's `language` extra installs it.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from icl import _checks
from icl._bounds import Count, PositiveUnits, validated
from icl.models import operators
from icl.models._transformers import import_transformers

_Keys = Float[Tensor, "batch time heads key"]
_Values = Float[Tensor, "batch time heads value"]

#: Name of this attention among transformers' attention functions.
_NAME = "icl_memory"
#: `config.model_type` of the supported models.
_KINDS = ("gpt2", "llama")


@dataclass(frozen=True, eq=False)
class TextState:
    """State of one recurrent attention layer.

    Attributes:
        S: the memory, a matrix a head.
        mass: sum of the weights lam^(t-j) of the tokens so far, the divisor of a normalised read.
    """

    S: Float[Tensor, "batch heads value key"]
    mass: Float[Tensor, " heads"]


@dataclass(frozen=True, eq=False)
class AllTokens:
    """State of softmax attention, a KV cache: keys and values of all tokens so far. It grows with the text."""

    k: Float[Tensor, "batch time heads key"]
    v: Float[Tensor, "batch time heads value"]


class SoftmaxMemory(nn.Module):
    """Softmax attention as in transformers, with the interface of :class:`FadingMemory`."""

    def forward(self, q: _Keys, k: _Keys, v: _Values, *, dropout: float = 0.0) -> _Values:
        """All reads of a text at once; queries are already scaled. `dropout`: of the weights, in [0, 1]."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        read = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=1.0)
        return read.transpose(1, 2)

    def carry(self, q: _Keys, k: _Keys, v: _Values, state: AllTokens | None) -> tuple[Tensor, AllTokens]:
        """Recurrent form: reads of the next tokens, given a state (None at the start), and the state after them."""
        if state is not None:
            k, v = torch.cat([state.k, k], dim=1), torch.cat([state.v, v], dim=1)
        scores = torch.einsum("bihd,bjhd->bhij", q, k)
        ahead = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(k.shape[1] - q.shape[1] + 1)
        weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v), AllTokens(k, v)


class FadingMemory(nn.Module):
    """Gated linear attention, or the gated delta rule, in place of one layer's softmax.

    Args:
        lam: forgetting factor a token of each head, (heads,).
        beta: write strength of the delta rule of each head, (heads,); None writes values, not errors.
        learned: lam, and beta where there is one, are parameters, kept as log-odds; all must then be < 1.
        normalised: divide each read by the sum of the weights lam^(t-j); there is none for the delta rule.
        form: "recurrent", "parallel" or "chunked" of :mod:`icl.models.operators`; the delta rule has no parallel one.
        size: tokens in a block of the chunked form.
        dtype: of the parameters, torch.float32 or torch.float64.

    >>> import torch
    >>> from icl.models.surgery import FadingMemory
    >>> memory = FadingMemory([0.5, 1.0])  # two heads
    >>> ones = torch.ones(1, 3, 2, 1)  # queries, keys and values: (batch, time, heads, width)
    >>> memory(ones, ones, ones)[0, :, :, 0]
    tensor([[1.0000, 1.0000],
            [1.5000, 2.0000],
            [1.7500, 3.0000]])
    """

    @validated
    def __init__(
        self,
        lam: PositiveUnits,
        beta: PositiveUnits | None = None,
        *,
        learned: bool = False,
        normalised: bool = False,
        form: str = "chunked",
        size: Count = 64,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Keep the settings."""
        super().__init__()
        self.learned, self.normalised = _checks.flag("learned", learned), _checks.flag("normalised", normalised)
        self.form, self.size = form, size
        forms = ("recurrent", "parallel", "chunked") if beta is None else ("recurrent", "chunked")
        if form not in forms:
            what = "" if beta is None else " with the delta rule"
            raise ValueError(f"form must be {' or '.join(map(repr, forms))}{what}, got {form!r}")
        if beta is not None and normalised:
            raise ValueError("normalised must be False with the delta rule, whose reads are no weighted sums, got True")
        self._settings: dict[str, Tensor] = {}
        heads: int | None = None
        for name, value in (("lam", lam), ("beta", beta)):
            if value is None and name == "beta":
                continue
            setting = torch.as_tensor(np.array(_checks.real(name, value, above=0, at_most=1), dtype=np.float64))
            _checks.shape(name, setting, (heads,), "to match lam" if heads else "")
            heads = len(setting)
            if not learned:
                # Not a buffer: a model in bfloat16 would round it.
                self._settings[name] = setting
            elif not bool((setting < 1).all()):
                raise ValueError(f"{name} must be < 1 to be learned, its log-odds are infinite, got {value!r}")
            else:
                self.register_parameter(f"{name}_log_odds", nn.Parameter(torch.logit(setting).to(dtype)))
        self.delta = beta is not None

    def setting(self, name: str, like: Tensor) -> Float[Tensor, " heads"]:
        """Value of lam or beta for each head, in the dtype and on the device of `like`."""
        if self.learned:
            return torch.sigmoid(getattr(self, f"{name}_log_odds").to(like))
        return self._settings[name].to(like)

    def forward(self, q: _Keys, k: _Keys, v: _Values, *, dropout: float = 0.0) -> _Values:
        """All reads of a text at once; queries are already scaled. `dropout` is unused: there are no weights."""
        dtype = v.dtype
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = self._precise(q, k, v)
            lam = self.setting("lam", q)
            extra = {"size": self.size} if self.form == "chunked" else {}
            if self.delta:
                operator = operators.delta_chunked if self.form == "chunked" else operators.delta_recurrent
                return operator(q, k, v, lam[None, None], self.setting("beta", q)[None, None], **extra).to(dtype)
            read = getattr(operators, self.form)(q, k, v, lam[None, None], **extra)
            if self.normalised:
                powers = lam ** torch.arange(q.shape[1], device=q.device)[:, None]
                read = read / powers.cumsum(0)[..., None]
            return read.to(dtype)

    def carry(self, q: _Keys, k: _Keys, v: _Values, state: TextState | None) -> tuple[Tensor, TextState]:
        """Recurrent form: reads of the next tokens, given a state (None at the start), and the state after them."""
        dtype = v.dtype
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = self._precise(q, k, v)
            lam = self.setting("lam", q)
            if state is None:
                S, mass = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], k.shape[3]), torch.zeros_like(lam)
            else:
                S, mass = state.S, state.mass
            g, reads = lam[:, None, None], []
            for qt, kt, vt in zip(*(t.unsqueeze(-1).unbind(1) for t in (q, k, v)), strict=True):
                if self.delta:
                    reads.append(S @ qt)
                    S = g * (S + self.setting("beta", q)[:, None, None] * (vt - S @ kt) @ kt.mT)
                else:
                    S, mass = g * S + vt @ kt.mT, lam * mass + 1
                    reads.append(S @ qt / mass[:, None, None] if self.normalised else S @ qt)
            return torch.stack(reads, dim=1).squeeze(-1).to(dtype), TextState(S, mass)

    def _precise(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convert to float32 at least, and normalise keys for the delta rule."""
        q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (q, k, v))
        return q, F.normalize(k, dim=-1) if self.delta else k, v


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    states: dict[int, Any] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention function of altered models: (batch, heads, time, .) in, (batch, time, heads, .) out.

    The masks of these models are None (`_no_mask`). With `states` it continues from the layer's state, and replaces it.
    """
    if attention_mask is not None or query.shape[2] != key.shape[2]:
        raise ValueError(
            "use_cache must be False and attention_mask None in an altered model: see icl.models.surgery.generate"
        )
    together = query.shape[1] // key.shape[1]  # grouped heads: this many queries share a key and a value
    key, value = (t.repeat_interleave(together, dim=1) for t in (key, value))
    q, k, v = (t.transpose(1, 2) for t in (scaling * query, key, value))
    if states is None:
        return module.memory(q, k, v, dropout=dropout), None
    read, states[module.layer_idx] = module.memory.carry(q, k, v, states.get(module.layer_idx))
    return read, None


def _no_mask(*, attention_mask: Tensor | None = None, allow_is_causal_skip: bool = True, **_: Any) -> None:
    """Mask function of altered models: None, since their attention is causal; refuses padding and packed texts.

    A padding token would be written into the memory like any other.
    """
    # Checked on a GPU too, where a mask is given: padding would silently be written into the memory.
    mask = attention_mask
    if mask is not None and _checks.is_readable(mask, waits=True) and not bool(mask.all()):
        raise ValueError(
            f"attention_mask must have no padding, got {int((~mask.bool()).sum())} padding tokens: "
            "give texts of equal length"
        )
    if not allow_is_causal_skip:
        raise ValueError("position_ids must rise by one a token: several texts in one row are one text to a memory")


def _attentions(model: Any) -> list[Any]:
    """Attention modules of a language model, first layer first; ValueError for models of another kind."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind not in _KINDS or getattr(model, "lm_head", None) is None:
        raise ValueError(
            f"model must be a causal language model of transformers of type {' or '.join(_KINDS)}, "
            f"got {type(model).__name__} of type {kind}"
        )
    attentions = [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")]
    if [module.layer_idx for module in attentions] != list(range(model.config.num_hidden_layers)):
        raise ValueError(f"model must have one attention a layer, got {len(attentions)} attentions")
    return attentions


def _memories(model: Any) -> list[Any]:
    """Memories of an altered model, first layer first; ValueError for other models."""
    memories = [getattr(module, "memory", None) for module in _attentions(model)]
    if None in memories:
        raise ValueError("model must be made by icl.models.surgery.with_attention, got one without memories")
    return memories


def _per_head(name: str, value: Any, layers: int, heads: int) -> np.ndarray:
    """Broadcast a setting, one number, (layers,) or (layers, heads), to (layers, heads)."""
    array = np.asarray(_checks.real(name, value, above=0, at_most=1), dtype=np.float64)
    if array.shape not in ((), (layers,), (layers, heads)):
        raise ValueError(
            f"{name} must be one number or have shape ({layers},), layers, or ({layers}, {heads}), layers and heads, "
            f"got shape {array.shape}"
        )
    return np.broadcast_to(array if array.ndim != 1 else array[:, None], (layers, heads))


def _refuse_save(*_: Any, **__: Any) -> None:
    """Refuse `save_pretrained`: its files do not record the attention, and would be loaded as a softmax model."""
    raise ValueError(
        "save_pretrained must not be called on an altered model: loading its files would give softmax attention again. "
        "Save its state_dict(); to load it, call icl.models.surgery.with_attention on the original model with the same "
        "settings, then load_state_dict"
    )


@validated
def with_attention(
    model: nn.Module,
    *,
    lam: Any,
    beta: Any = None,
    learned: bool = False,
    normalised: bool = False,
    form: str = "chunked",
    size: Count = 64,
) -> nn.Module:
    """Copy a language model, with its softmax attention replaced and all trained weights kept.

    Dropout of attention weights, where a model trains with it, applies to softmax only: the others have no weights.
    The altered model refuses `save_pretrained`, whose files would be loaded with softmax again. Save its `state_dict()`
    instead; to load it, call `with_attention` on the original model with the same settings, then `load_state_dict`.

    Args:
        model: causal model of transformers, GPT-2 or of Llama's blocks.
        lam: forgetting factor a token in (0, 1], 1 for linear attention: one number, (layers,) or (layers, heads);
            None keeps softmax, through the same function as the others.
        beta: write strength of the delta rule in (0, 1], as lam; None is (gated) linear attention.
        learned: lam and beta become parameters `..memory.lam_log_odds`, `..memory.beta_log_odds`, one a head; all must
            then be < 1. They need a larger learning rate than trained weights, and no weight decay.
        normalised: divide each read by the sum of the weights lam^(t-j). A plain sum grows with the text for lam = 1,
            and is bounded for lam < 1: two gates differ in scale too.
        form: "recurrent", "parallel" or "chunked" of :mod:`icl.models.operators`.
        size: tokens in a block of the chunked form.

    Raises:
        ValueError: for models of another kind, and settings out of range. The altered model itself refuses padding
            and `save_pretrained`.
    """
    attentions = _attentions(model)
    if lam is None and (beta is not None or learned is not False or normalised is not False):
        raise ValueError("lam must be in (0, 1] for a delta rule, learned gates or normalised reads, got None")
    transformers = import_transformers()
    transformers.AttentionInterface.register(_NAME, _attend)
    transformers.AttentionMaskInterface.register(_NAME, _no_mask)
    changed: Any = copy.deepcopy(model)
    changed.set_attn_implementation(_NAME)
    for module in changed.modules():
        module.__dict__.pop("save_pretrained", None)
        if lam is not None and hasattr(module, "save_pretrained"):
            module.save_pretrained = _refuse_save
    for settings in (changed.config, changed.generation_config):
        settings.use_cache = False  # transformers' cache is for keys and values
    rows: dict[str, Any] = {}
    for name, value in (("lam", lam), ("beta", beta)):
        if value is not None:
            rows[name] = _per_head(name, value, len(attentions), changed.config.num_attention_heads)
    weight = next(model.parameters())
    how: dict[str, Any] = {"learned": learned, "normalised": normalised, "form": form, "size": size}
    how["dtype"] = torch.promote_types(weight.dtype, torch.float32)
    for layer, attention in enumerate(_attentions(changed)):
        if lam is None:
            attention.memory = SoftmaxMemory()
        else:
            attention.memory = FadingMemory(*(row[layer] for row in rows.values()), **how).to(weight.device)
    return changed


@torch.no_grad()
@validated
def forgetting(model: nn.Module) -> Float[Tensor, "layers heads"]:
    """Forgetting factors lam of an altered model, by layer and head, in float64; learned ones at present values."""
    memories = _memories(model)
    if not all(isinstance(memory, FadingMemory) for memory in memories):
        raise ValueError("model must forget to have a forgetting factor, got one with softmax attention")
    return torch.stack([memory.setting("lam", torch.zeros((), dtype=torch.float64)) for memory in memories])


def _tokens(model: Any, tokens: Any) -> None:
    """Check token numbers, (batch, time)."""
    _checks.tensor("tokens", tokens, 2)
    if tokens.dtype != torch.int64 or tokens.numel() == 0:
        raise ValueError(f"tokens must be torch.int64, at least one, got {tokens.dtype} of shape {tuple(tokens.shape)}")
    words = model.config.vocab_size
    if _checks.is_readable(tokens):
        low, high = torch.aminmax(tokens)
        if low < 0 or high >= words:
            raise ValueError(f"tokens must lie in [0, {words}), got values from {low.item()} to {high.item()}")


@validated
def logits_at(
    model: nn.Module, tokens: Int[Tensor, "batch time"], at: Int[Tensor, "batch m"]
) -> Float[Tensor, "batch m words"]:
    """Logits at selected positions only: the output matrix is the largest, and is skipped elsewhere.

    Args:
        model: causal model of transformers, GPT-2 or of Llama's blocks, altered or not.
        tokens: (batch, time) token numbers, without padding.
        at: (batch, m) positions in [0, time), by row; logits at position t predict token t + 1.
    """
    _attentions(model)
    _tokens(model, tokens)
    _checks.shape("at", at, (len(tokens), None), "to match tokens")
    if at.dtype != torch.int64 or (_checks.is_readable(at) and not bool(((at >= 0) & (at < tokens.shape[1])).all())):
        raise ValueError(f"at must be torch.int64 in [0, {tokens.shape[1]}), got {at!r}")
    base: Any = model
    hidden = base.base_model(tokens, use_cache=False).last_hidden_state
    rows = torch.arange(len(tokens), device=tokens.device)[:, None]
    return base.get_output_embeddings()(hidden[rows, at])


@torch.no_grad()
@validated
def generate(
    model: nn.Module,
    tokens: Int[Tensor, "batch time"],
    *,
    new: Count,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch longer"]:
    """Generate: the tokens and `new` more, by the recurrent form of an altered model.

    Recurrent states have as many numbers after a thousand tokens as after one; softmax keeps all keys and values.

    Args:
        model: from :func:`with_attention`, in its training or evaluation mode as it is.
        tokens: (batch, time) token numbers of the prompt.
        new: number of tokens to add, at least 1; there is no end-of-text token.
        generator: samples each token; None takes the most probable (greedy).

    Raises:
        ValueError: for a model without memories, and for more tokens than a model with learned positions has places.
    """
    _memories(model)
    _tokens(model, tokens)
    if generator is not None:
        _checks.instance("generator", generator, torch.Generator)
    base: Any = model
    if base.config.model_type == "gpt2" and tokens.shape[1] + new - 1 > base.config.max_position_embeddings:
        raise ValueError(
            f"new must leave tokens within {base.config.max_position_embeddings} positions, "
            f"got {new} after {tokens.shape[1]}"
        )
    states: dict[int, Any] = {}
    text, seen = tokens, 0
    for _ in range(new):
        places = torch.arange(seen, text.shape[1], device=text.device)[None]
        out = base(text[:, seen:], position_ids=places, use_cache=False, states=states, logits_to_keep=1)
        logits, seen = out.logits[:, -1], text.shape[1]
        if generator is None:
            follows = logits.argmax(-1, keepdim=True)
        else:
            follows = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)
        text = torch.cat([text, follows], dim=1)
    return text
