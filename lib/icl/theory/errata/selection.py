"""One S6 layer with a fixed step on regression prompts, exactly: loss, gradient, descent, optimum, bounds.

The layer is `icl.models.s6` with A = -I and Delta fixed [Jiang et al. 2025, Assumption 4.1], alpha = exp(-Delta).
Prompts are w, x_i, x_q ~ N(0, I_d), y = w'x without noise. With W_B = (B b), W_C = (C c), the query's token (x_q, 0)
and

    omega_l = (1 - alpha) alpha^(N+1-l),   g = sum omega_l y_l x_l,   q = sum omega_l y_l^2,   s = sum omega_l y_l,

the prediction is bilinear in K = (C b_C)'(B b b_B), (d+1, d+2), and does not see c at all:

    y_hat = (x_q, 1)' K (g, q, s).

Averaging over x_q and over the signs of w and of the inputs leaves no mixed terms: g is odd in w and even in the
inputs, q even in both, s odd in both. What remains are the moments E g w' = beta3 I, E g g' = beta1 I, E q^2 = beta2
and E s^2 = d kappa, with beta3 = sum omega_l and kappa = sum omega_l^2; from E (w'x)^2 x x' = ||w||^2 I + 2 w w'
comes beta1 = beta3^2 + (d + 1) kappa, from E (w'x)^4 = 3 ||w||^4 and E ||w||^4 = d^2 + 2 d comes beta2. So

    L = 1/2 E (y_hat - y)^2 = L* + 1/2 sum_ij m_j (K - K*)_ij^2,    m = (beta1, .., beta1, beta2, d kappa),

with K* = beta I in the first d rows and columns and 0 elsewhere, beta = beta3 / beta1, L* = d/2 (1 - beta3^2 / beta1):
the population loss for all parameters, biases included, and with it everything below. In blocks of K it reads

    2 L = beta1 ||P||^2 - 2 beta3 tr P + d + beta2 ||v||^2 + d kappa ||p||^2 + beta1 ||r||^2 + beta2 u^2 + d kappa t^2,
    P = C'B, v = C'b, p = C'b_B, r = B'b_C, u = b_C'b, t = b_C'b_B,

all norms those of Frobenius. Biases that are 0, as the paper's are at the start, stay 0 and leave the first four terms.
"""

from types import MappingProxyType

from icl.theory.s6 import Coefficients

#: Misprints by number; each is (where, printed, corrected), the last two in LaTeX.
SELECTION = MappingProxyType(
    {
        1: (
            r"App. A, Table 1 and Lemma A.3, $\beta_2$; $\kappa = \sum_l \omega_l^2$",
            r"d^2\beta_3^2 + (2d^2 + 6d)\,\kappa",
            r"(d^2 + 2d)(\beta_3^2 + 2\kappa)",
        ),
    }
)


def printed_beta2(d: int, N: int, alpha: float) -> float:
    """The paper's beta2, d^2 beta3^2 + (2 d^2 + 6 d) kappa: as if y_i and y_j, i != j, were independent.

    It enters the speed at which v = C'b vanishes, not where anything ends.
    """
    known = Coefficients(d, N, alpha)
    return d**2 * known.beta3**2 + (2 * d**2 + 6 * d) * known.kappa
