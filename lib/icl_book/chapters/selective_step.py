"""One S6 layer with a selective step: its exact risk for gates that see the inputs, and the best of them.

The ablation of *Why selection matters*. Prompts are those of :mod:`icl.theory.s6` (w, x_i, x_q ~ N(0, I_d), y = w'x
without noise), A = -I, and the step is Delta_l = softplus(w_Delta'x_l + b_Delta) with w_Delta = slope along a unit
vector n. With z = n'x the decay is a = exp(-Delta) = 1 / (1 + exp(slope z + b)), and the state gains 1 - a. The
prediction is

    y_hat = a(x_q) (x_q, 1)' K Psi,    Psi = sum_j prod_{k > j} a_k (1 - a_j) y_j (x_j, 1).

Averages over the signs of what is orthogonal to n leave K = one 2 x 2 block for (z, 1) and a multiple of I for the
other d - 1 directions. In each the risk is quadratic in K, with a target of rank one, so the least risk at a gate is

    R = 1/2 (d - r'F^-1 r  s'M^-1 s - (d - 1) (E a)^2 / E a^2  S^2 / V),

    r = E a z (z, 1),  F = E a^2 (z, 1)(z, 1)',  s = E n'w Psi_n,  M = E Psi_n Psi_n',  S, V the same off n.

A static C cannot weigh the query's input: r and F keep the entry of 1 alone; a static B cannot weigh an example's: so
do s and M. Either way the second product is gone. All entries are integrals over one Gaussian variable and recursions
over the examples.

A static C, moreover, leaves y_hat = f(x_q) times one number from the examples, with f = a(x_q) > 0. As
(E f z)^2 <= E f^2 E max(z, 0)^2 = E f^2 / 2 for every direction, its risk is at least (d - 1/2) / 2; the same holds
for gates that see labels. With a static B alone, f may change its sign, and the bound is (d - 1) / 2.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from scipy.optimize import minimize
from scipy.special import expit

from icl._bounds import Count, Real, validate_fields, validated
from icl.models.s6 import S6, Selective, Static, Step
from icl.tasks import StationaryRegression, batches

# Gauss-Hermite rule for z; doubling it changes no risk of the search by more than 1e-9.
_Z, _WEIGHTS = np.polynomial.hermite_e.hermegauss(161)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Largest slope and bias of the search: beyond it the step is a switch.
_FARTHEST = 40.0
#: Slopes and b from which the search starts; b gives a memory from thousands of tokens to less than one.
STARTS = tuple((slope, b) for slope in (0.3, 1.5, 5.0) for b in (-6.0, -3.0, -1.0, 1.0, 3.0))


@dataclass(frozen=True)
class StepGate:
    """Selective step softplus(slope z + b) of a layer, which knows d and N and which of its halves select.

    Attributes:
        d: dimension of the inputs.
        N: examples in a prompt.
        selects_B: whether B depends on the token.
        selects_C: whether C does.
        slope: length of w_Delta; 0 is a fixed step.
        b: bias b_Delta.
    """

    d: Count
    N: Count
    selects_B: bool
    selects_C: bool
    slope: Real
    b: Real

    def __post_init__(self) -> None:
        """Validate sizes and numbers."""
        validate_fields(self)

    def _moments(self) -> tuple[np.ndarray, ...]:
        """(r, F, s, M) along n, each with the entries of (z, 1), and (E a, E a^2, S, V) off n."""
        u = self.slope * _Z + self.b
        a, gain = expit(-u), expit(u)  # not 1 - a: it would round to 0 for small steps
        phi = np.stack([_Z, np.ones_like(_Z)])

        def mean(*factors: np.ndarray) -> np.ndarray:
            return np.asarray(np.prod(np.broadcast_arrays(*factors), axis=0) @ _WEIGHTS)

        outer = phi[:, None] * phi[None]
        r, F = mean(a, _Z, phi), mean(a, a, outer)
        # Given w, one token adds gain y (z, 1) in the mean; E w leaves (n'w)^2 = 1 and y^2 = z^2 + d - 1.
        adds, crosses = mean(gain, _Z, phi), mean(a, gain, _Z, phi)
        squares = mean(gain, gain, _Z**2 + self.d - 1, outer)
        off_adds, off_crosses = mean(gain), mean(a, gain)
        off_squares = mean(gain, gain, _Z**2 + self.d + 1)  # x^2 (z^2 + x^2 + d - 2), E x^4 = 3
        s, M, S, V = np.zeros(2), np.zeros((2, 2)), np.zeros(()), np.zeros(())
        decay, decay2 = mean(a), mean(a, a)
        for _ in range(self.N):
            mixed = np.outer(crosses, s)
            M, V = decay2 * M + mixed + mixed.T + squares, decay2 * V + 2 * off_crosses * S + off_squares
            s, S = decay * s + adds, decay * S + off_adds
        return r, F, s, M, np.array([decay, decay2, S, V])

    def _optimum(self) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Weights of (z, 1) that read and that write, the multiple of I off n, and the gain of all of them."""
        r, F, s, M, (decay, decay2, S, V) = self._moments()
        read, write = np.zeros(2), np.zeros(2)
        seen = slice(None) if self.selects_C else slice(1, 2)
        read[seen] = np.linalg.solve(F[seen, seen], r[seen])
        seen = slice(None) if self.selects_B else slice(1, 2)
        write[seen] = np.linalg.solve(M[seen, seen], s[seen])
        off = decay * S / (decay2 * V) if self.selects_B and self.selects_C else 0.0
        gain = (r @ read) * (s @ write) + (self.d - 1) * decay * S * off
        return read, write, float(off), float(gain) / 2

    @property
    def gain(self) -> float:
        """d/2, the risk of the zero predictor, less the least risk at this step, in units of y^2."""
        return self._optimum()[3]

    @property
    def risk(self) -> float:
        """Least risk 1/2 E (y_hat - y)^2 at this step over all B and C that do not see labels, in units of y^2."""
        return self.d / 2 - self.gain

    def layer(self) -> S6:
        """Layer of that risk, float64: n is the first axis; the state has d numbers, or 1 where a half is static."""
        read, write, off, _ = self._optimum()
        d_h = self.d if self.selects_B and self.selects_C else 1
        B = _half(self.d, d_h, self.selects_B, write, 1.0)
        C = _half(self.d, d_h, self.selects_C, read, off)
        step = Step(self.d + 1, 1.0)
        with torch.no_grad():
            step.w[0] = self.slope
            step.b.fill_(self.b)
        return S6(B, C, step, -torch.ones(1, dtype=torch.float64))


def _half(d: int, d_h: int, selects: bool, first: np.ndarray, rest: float) -> Selective | Static:
    """B or C: entry 1 of the state sees first'(x_1, 1), entry i > 1 rest x_i."""
    part = Selective(d + 1, d_h) if selects else Static(d_h)
    with torch.no_grad():
        part.b[0] = float(first[1])
        if isinstance(part, Selective):
            part.W[0, 0] = float(first[0])
            for i in range(1, d_h):
                part.W[i, i] = rest
    return part


@validated
def lower_bound(d: Count, *, selects_C: bool) -> float:
    """Risk below which no layer with one static half gets, whatever its step sees, in units of y^2.

    (d - 1/2) / 2 if C is static, (d - 1) / 2 if only B is.

    >>> lower_bound(4, selects_C=False), lower_bound(4, selects_C=True)
    (1.75, 1.5)
    """
    return (d - (1.0 if selects_C else 0.5)) / 2


@validated
def best_gate(d: Count, N: Count, *, selects_B: bool, selects_C: bool) -> StepGate:
    """Step of least risk, its slope not negative, by a search from every one of :data:`STARTS`.

    Raises:
        RuntimeError: if no search converges.
    """

    def gate(at: np.ndarray) -> StepGate:
        slope, b = np.clip(at, -_FARTHEST, _FARTHEST)
        # z and -z are alike: without a sign the search would end at either, by the processor's rounding.
        return StepGate(d, N, selects_B, selects_C, abs(float(slope)), float(b))

    def risk(at: np.ndarray) -> float:
        return gate(at).risk

    searches = [
        minimize(risk, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-13, "maxiter": 4_000})
        for start in STARTS
    ]
    arrived = [each for each in searches if each.success]
    if not arrived:
        raise RuntimeError(f"no search for the step converged: {searches[0].message}")
    return gate(min(arrived, key=lambda each: float(each.fun)).x)


@validated
def paired_gain(
    layer: S6, prompts: Annotated[int, Ge(2)], *, d: Count, N: Count, generator: torch.Generator
) -> tuple[float, float]:
    """Mean of y^2/2 - (y_hat - y)^2/2 over fresh prompts, and its standard error.

    What a layer gains on the zero predictor, compared prompt by prompt: the labels' own noise, y^2/2, drops out.

    Args:
        layer: the layer, for tokens of d + 1 channels.
        prompts: number of prompts.
        d: dimension of the inputs.
        N: examples in a prompt.
        generator: the stream of prompts.
    """
    gains, b = [], layer.B.b
    with torch.no_grad():
        for prompt in batches(
            StationaryRegression(d, N), prompts, generator=generator, size=10_000, dtype=b.dtype, device=b.device
        ):
            y, y_hat = prompt.y[:, -1], layer.predictions(prompt)
            gains.append(y_hat * y - y_hat.square() / 2)
    each = torch.cat(gains)
    return float(each.mean()), float(each.std()) / math.sqrt(prompts)
