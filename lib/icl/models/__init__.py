"""Models: recurrences as pure functions, and thin modules with their trainable parameters.

- `causal`: the interface of every model that reads a stream of examples
- `convolved`: gated layers behind a short causal convolution
- `delta_layers`: error-correcting layers: delta rule, Longhorn, Mesa, Kalman
- `experts`: multi-head Memformers, mixtures of experts and their gates
- `fast_weights`: Hebbian layers: their interface, states and gates
- `first_order`: linear first-order methods with diagonal coefficients
- `flops`: operations and state size per token, counted while a layer runs
- `loading`: language models, pretrained or with random weights
- `memformer`: Memformers in reduced form, with trainable memory
- `one_layer`: one layer of gated linear attention, and its features
- `operators`: gated linear attention and the delta rule over a sequence: recurrent, parallel, chunked
- `paper_conventions`: deep attention with full matrices, under either convention for stacking layers
- `pointwise`: Memformers with a pointwise nonlinearity, for losses other than squares
- `s6`: the S6 layer of Mamba: recurrent, dual, chunked, by sufficient statistics
- `scalar_heads`: gated heads on scalar inputs
- `stacks`: deep stacks of gated linear attention and of the delta rule
- `streaming_stacks`: any layer in a deep stack, one token at a time
- `surgery`: language models whose softmax attention is replaced
- `token_form`: Memformers by their token equations
"""

from icl.models.delta_layers import LFOM, DeltaRule, GatedDelta, Kalman, Longhorn, Mesa
from icl.models.fast_weights import GLA, LinearAttention, Mamba2
from icl.models.loading import untrained
from icl.models.memformer import Memformer
from icl.models.one_layer import OneLayerGLA
from icl.models.s6 import S6
from icl.models.stacks import Stack
from icl.models.surgery import with_attention

__all__ = [
    "GLA",
    "LFOM",
    "S6",
    "DeltaRule",
    "GatedDelta",
    "Kalman",
    "LinearAttention",
    "Longhorn",
    "Mamba2",
    "Memformer",
    "Mesa",
    "OneLayerGLA",
    "Stack",
    "untrained",
    "with_attention",
]
