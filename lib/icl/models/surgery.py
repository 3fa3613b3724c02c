"""Language models whose softmax attention is replaced by gated linear attention or the delta rule.

A causal model of the transformers library calls one attention function per layer, with queries, keys (after rotary
positions, where the model has them) and values. :func:`with_attention` copies a model and has it call another:

    softmax                 o_t = sum_{j <= t} softmax_j(scale k_j'q_t) v_j               [Vaswani et al. 2017]
    gated linear attention  o_t = S_t (scale q_t),      S_t = lam S_{t-1} + v_t k_t'      [Yang et al. 2023], (5)
    gated delta rule        o_t = S_{t-1} (scale q_t),  S_t = lam (S_{t-1} + beta (v_t - S_{t-1} k_t) k_t')

The last is that of [Yang et al. 2024]. Plain linear attention is gated with lam = 1, the delta rule takes keys of
length 1, and the trained weights stay as they were. All heads run through :mod:`icl.models.operators`. GPT-2 and models
of Llama's blocks are taken, with grouped heads too.

What a layer remembers is an nn.Module beside its weights (:class:`SoftmaxMemory`, :class:`FadingMemory`); text goes on
from the state of these modules (:func:`generate`): for the fading ones (heads, value, key) numbers a layer, however
long the text.

Sums are formed in float32 at least, whatever the model's dtype: bfloat16 has three digits, and would make of a gate of
.99 one of .988, and of .999 one of 1.

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
from icl.models.loading import _transformers

_Keys = Float[Tensor, "batch time heads key"]
_Values = Float[Tensor, "batch time heads value"]

#: What altered models are called among transformers' attention functions.
_NAME = "icl_memory"
#: `config.model_type` of the models that can be changed.
_KINDS = ("gpt2", "llama")


@dataclass(frozen=True, eq=False)
class TextState:
    """State of one fading memory.

    Attributes:
        S: what is written, a matrix a head.
        mass: sum of the weights lam^(t-j) of the tokens so far, by which a normalised read is divided.
    """

    S: Float[Tensor, "batch heads value key"]
    mass: Float[Tensor, " heads"]


@dataclass(frozen=True, eq=False)
class AllTokens:
    """State of softmax attention: keys and values of all tokens so far. It grows with the text."""

    k: Float[Tensor, "batch time heads key"]
    v: Float[Tensor, "batch time heads value"]


class SoftmaxMemory(nn.Module):
    """Softmax attention as transformers has it, in the place of a memory: nothing fades, and everything is kept."""

    def forward(self, q: _Keys, k: _Keys, v: _Values, *, dropout: float = 0.0) -> _Values:
        """All reads of a text at once; queries come with their scale. `dropout`: of the weights, in [0, 1]."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        read = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=1.0)
        return read.transpose(1, 2)

    def carry(self, q: _Keys, k: _Keys, v: _Values, state: AllTokens | None) -> tuple[Tensor, AllTokens]:
        """Reads of the tokens that follow on a state, which is None at the start; and the state after them."""
        if state is not None:
            k, v = torch.cat([state.k, k], dim=1), torch.cat([state.v, v], dim=1)
        scores = torch.einsum("bihd,bjhd->bhij", q, k)
        ahead = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(k.shape[1] - q.shape[1] + 1)
        weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v), AllTokens(k, v)


class FadingMemory(nn.Module):
    """Gated linear attention, or the gated delta rule, in the place of one layer's softmax.

    Args:
        lam: forgetting factor a token of each head, (heads,).
        beta: write strength of the delta rule of each head, (heads,); None writes values, not errors.
        learned: lam, and beta where there is one, are parameters, kept as log-odds; all have to be < 1 then.
        normalised: divide each read by the sum of the weights lam^(t-j); there is none for the delta rule.
        form: "recurrent", "parallel" or "chunked" of :mod:`icl.models.operators`; the delta rule has no parallel one.
        size: tokens in a block of the chunked form.
        dtype: of the parameters, torch.float32 or torch.float64.
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
        """lam or beta of each head, in the dtype and on the device of `like`."""
        if self.learned:
            return torch.sigmoid(getattr(self, f"{name}_log_odds").to(like))
        return self._settings[name].to(like)

    def forward(self, q: _Keys, k: _Keys, v: _Values, *, dropout: float = 0.0) -> _Values:
        """All reads of a text at once; queries come with their scale. `dropout` is not used: there are no weights."""
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
        """Reads of the tokens that follow on a state, which is None at the start; and the state after them."""
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
        """In float32 at least, with keys as the rule wants them: of length 1 for the delta rule."""
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
    """What an altered model calls in place of softmax: (batch, heads, time, .) in, (batch, time, heads, .) out.

    The masks of these models are None (`_unpadded`). With `states` it goes on from the layer's state, and replaces it.
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


def _unpadded(*, attention_mask: Tensor | None = None, allow_is_causal_skip: bool = True, **_: Any) -> None:
    """The mask of an altered model: none, since its memory is causal; padding and packed texts are refused.

    A padding token would be written into the memory as a word is.
    """
    # Read on a GPU too, where a mask is given at all: nothing else would show what padding writes into a memory.
    mask = attention_mask
    if mask is not None and _checks.is_readable(mask, waits=True) and not bool(mask.all()):
        raise ValueError(
            f"attention_mask must have no padding, got {int((~mask.bool()).sum())} padding tokens: "
            "give texts of equal length"
        )
    if not allow_is_causal_skip:
        raise ValueError("position_ids must rise by one a token: several texts in one row are one text to a memory")


def _attentions(model: Any) -> list[Any]:
    """The attention modules of a language model, first layer first; ValueError for models of another kind."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind not in _KINDS or getattr(model, "lm_head", None) is None:
        raise ValueError(
            f"model must be a causal language model of transformers of type {' or '.join(_KINDS)}, "
            f"got {type(model).__name__} of type {kind}"
        )
    found = [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")]
    if [module.layer_idx for module in found] != list(range(model.config.num_hidden_layers)):
        raise ValueError(f"model must have one attention a layer, got {len(found)} attentions")
    return found


def _altered(model: Any) -> list[Any]:
    """The memories of an altered model, first layer first."""
    memories = [getattr(module, "memory", None) for module in _attentions(model)]
    if None in memories:
        raise ValueError("model must be made by icl.models.surgery.with_attention, got one without memories")
    return memories


def _per_head(name: str, value: Any, layers: int, heads: int) -> np.ndarray:
    """A setting for all, of each layer, or of each layer and head, as (layers, heads)."""
    array = np.asarray(_checks.real(name, value, above=0, at_most=1), dtype=np.float64)
    if array.shape not in ((), (layers,), (layers, heads)):
        raise ValueError(
            f"{name} must be one number or have shape ({layers},), layers, or ({layers}, {heads}), layers and heads, "
            f"got shape {array.shape}"
        )
    return np.broadcast_to(array if array.ndim != 1 else array[:, None], (layers, heads))


def _save_refused(*_: Any, **__: Any) -> None:
    """Refuse `save_pretrained`: its files name no attention, so that they would be loaded as a softmax model."""
    raise ValueError(
        "save_pretrained must not be called on an altered model: loading its files would give softmax attention again. "
        "Save its state_dict(); to load it, call icl.models.surgery.with_attention on the original model with the same "
        "settings, then load_state_dict"
    )


def with_attention(
    model: nn.Module,
    *,
    lam: Any,
    beta: Any = None,
    learned: bool = False,
    normalised: bool = False,
    form: str = "chunked",
    size: int = 64,
) -> nn.Module:
    """A copy of a language model with another attention, all its trained weights kept; the model stays as it was.

    Dropout of attention weights, where a model trains with it, stays for softmax alone: the others have no weights.
    The altered model refuses `save_pretrained`, whose files would be loaded with softmax again. Save its `state_dict()`
    instead; to load it, call `with_attention` on the original model with the same settings, then `load_state_dict`.

    Args:
        model: causal model of transformers, GPT-2 or of Llama's blocks.
        lam: forgetting factor a token in (0, 1], 1 for linear attention: one number, (layers,) or (layers, heads);
            None keeps softmax, through the same function as the others.
        beta: write strength of the delta rule in (0, 1], as lam; None is (gated) linear attention.
        learned: lam and beta become parameters `..memory.lam_log_odds`, `..memory.beta_log_odds`, one a head; all have
            to be < 1 then. They want a larger rate than trained weights do, and no weight decay.
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
    _transformers().AttentionInterface.register(_NAME, _attend)
    _transformers().AttentionMaskInterface.register(_NAME, _unpadded)
    changed: Any = copy.deepcopy(model)
    changed.set_attn_implementation(_NAME)
    for module in changed.modules():
        module.__dict__.pop("save_pretrained", None)
        if lam is not None and hasattr(module, "save_pretrained"):
            module.save_pretrained = _save_refused
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
def forgetting(model: nn.Module) -> Float[Tensor, "layers heads"]:
    """lam of each layer and head of an altered model, learned ones as they are now, in float64."""
    memories = _altered(model)
    if not all(isinstance(memory, FadingMemory) for memory in memories):
        raise ValueError("model must forget to have a forgetting factor, got one with softmax attention")
    return torch.stack([memory.setting("lam", torch.zeros((), dtype=torch.float64)) for memory in memories])


def _tokens(model: Any, tokens: Any) -> None:
    """Refuse what is no (batch, time) of token numbers."""
    _checks.tensor("tokens", tokens, 2)
    if tokens.dtype != torch.int64 or tokens.numel() == 0:
        raise ValueError(f"tokens must be torch.int64, at least one, got {tokens.dtype} of shape {tuple(tokens.shape)}")
    words = model.config.vocab_size
    if _checks.is_readable(tokens):
        low, high = torch.aminmax(tokens)
        if low < 0 or high >= words:
            raise ValueError(f"tokens must lie in [0, {words}), got values from {low.item()} to {high.item()}")


def logits_at(
    model: nn.Module, tokens: Int[Tensor, "batch time"], at: Int[Tensor, "batch m"]
) -> Float[Tensor, "batch m words"]:
    """Logits after the tokens at some positions only: the head is the largest matrix, and is left out elsewhere.

    Args:
        model: causal model of transformers, GPT-2 or of Llama's blocks, altered or not.
        tokens: (batch, time) token numbers, without padding.
        at: (batch, m) positions in [0, time), of each row its own; position t says what follows token t.
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
    """The tokens and `new` more, from the state of an altered model: each token is read once.

    Fading memories keep as many numbers after a thousand tokens as after one; softmax keeps all keys and values.

    Args:
        model: from :func:`with_attention`, in its training or evaluation mode as it is.
        tokens: (batch, time) token numbers to go on from.
        new: how many tokens to add, at least 1; no token ends a text.
        generator: draws each token by its probability; None takes the most probable.

    Raises:
        ValueError: for a model without memories, and for more tokens than a model with learned positions has places.
    """
    _altered(model)
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
