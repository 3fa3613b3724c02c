"""Symbol table: meaning of every letter in the papers, the code and the text; source of the notation page."""

import re
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """Symbol of the notation.

    Attributes:
        code: its name in the library.
        latex: its form in the text.
        shape: 'scalar' or its axes.
        unit: in terms of x and y; '1' for pure numbers.
        meaning: its meaning.
        defined: paper and equation, or the package of the library.
    """

    code: str
    latex: str
    shape: str
    unit: str
    meaning: str
    defined: str


SYMBOLS = (
    Symbol("d", r"d", "scalar", "1", "dimension of the inputs", "§2"),
    Symbol("n", r"n", "scalar", "1", "number of labelled examples in a prompt", "§2"),
    Symbol("batch", r"B", "scalar", "1", "number of prompts; bold, a matrix of GD++ or of S6", "(11)"),
    Symbol("x", r"\mathbf x_i", "(batch, n+1, d)", "x", "inputs; the last is the query", "(2)"),
    Symbol("y", r"y_i", "(batch, n+1)", "y", "labels ⟨w_i, x_i⟩; the last is to be predicted", "(2)"),
    Symbol("w", r"\mathbf w_i", "(batch, n+1, d)", "y/x", "regression weights at position i", "(2)"),
    Symbol("y_hat", r"\hat y_{n+1}", "(batch,)", "y", "the prediction", "(9)"),
    Symbol(
        "Z", r"\mathbf Z", "(batch, n+1, d+1)", "x, y", "tokens (x_i, y_i), rows in time; the query's label is 0", "(4)"
    ),
    Symbol(
        "gamma",
        r"\gamma",
        "scalar",
        "1",
        "autoregressive coefficient of the drift; in Part II what a register keeps",
        "(3); II (3.1)",
    ),
    Symbol("sigma_w", r"\sigma_w", "scalar", "y/x", "standard deviation of each coordinate of w_0", "§2"),
    Symbol(
        "sigma_e", r"\sigma_e", "scalar", "y/x", "standard deviation of each coordinate of the innovations e_i", "§2"
    ),
    Symbol(
        "sigma_y", r"\sigma_y", "scalar", "y", "standard deviation of noise in the labels; 0 in the paper", "filters"
    ),
    Symbol("Sigma_w", r"\mathbf\Sigma_w", "(d, d)", "y²/x²", "covariance of stationary weights", "tasks"),
    Symbol("Lambda", r"\mathbf\Lambda", "(d, d)", "x²", "covariance of the inputs", "§2"),
    Symbol("Lambda_bar", r"\bar{\mathbf\Lambda}", "(d, d)", "x²", "covariance of the inputs at test time", "(17)"),
    Symbol("lam", r"\lambda", "scalar", "1", "forgetting factor of the attention layer", "(5)"),
    Symbol("q", r"\mathbf q_i", "(batch, time, heads, key)", "", "queries", "(5)"),
    Symbol("k", r"\mathbf k_i", "(batch, time, heads, key)", "", "keys", "(5)"),
    Symbol("v", r"\mathbf v_i", "(batch, time, heads, value)", "", "values", "(5)"),
    Symbol(
        "decay",
        r"g_i",
        "broadcasts to (batch, time, heads)",
        "1",
        "decay of the state at a token; λ for all here",
        "(5)",
    ),
    Symbol(
        "beta",
        r"\beta_t",
        "broadcasts to (batch, time, heads)",
        "1/k²; 1",
        "write strength of the delta rule at a token; in Part II what momentum keeps",
        "models.operators; II App. B",
    ),
    Symbol("eta", r"\eta", "scalar", "1/x²", "step size of a first-order method", "solvers"),
    Symbol("W_V", r"\mathbf W_V", "(d+1, d+1)", "", "value weights; only the last row matters", "(8)"),
    Symbol(
        "W_KQ",
        r"\mathbf W_{KQ}",
        "(d+1, d+1)",
        "",
        "merged key and query weights; only the first d columns matter",
        "(8)",
    ),
    Symbol(
        "A",
        r"\mathbf A",
        "(d, d)",
        "1/x²",
        "what the prediction sees of both, D₁ Λ̃⁻¹ at the optimum; in Part II a layer's preconditioner, transposed",
        "(15); II (2.8)",
    ),
    Symbol(
        "theta",
        r"\boldsymbol\theta",
        "(d+1, d+1)",
        "",
        "what matters of both: first d columns of W_KQ, last row of W_V as last column",
        "(11)",
    ),
    Symbol("Theta", r"\boldsymbol\Theta", "(d, d)", "1", "shape of the starts of Assumption 1", "(13)"),
    Symbol("sigma", r"\sigma", "scalar", "1", "scale of the starts of Assumption 1", "(13)"),
    Symbol("G", r"\mathbf G", "(batch, d+1, d+1)", "x², xy, y²", "weighted Gram matrix of the tokens", "(9)"),
    Symbol("kernel", r"k_{ij}", "(n+1, n+1)", "y²/x²", "covariance of w_i and w_j in each coordinate", "Thm 1"),
    Symbol(
        "D1", r"D_1", "scalar", "y²/x²", "Σ λ^(n+1−i) k_(i,n+1): what the past says about the query's weight", "Thm 1"
    ),
    Symbol("D2", r"D_2", "scalar", "y²/x²", "Σ λ^(2(n+1−i)) k_ii: crosstalk of single examples", "Thm 1"),
    Symbol("D3", r"D_3", "scalar", "y²/x²", "Σ_(i≠j) λ^(2n+2−i−j) k_ij: agreement of the past with itself", "Thm 1"),
    Symbol("D4", r"D_4", "scalar", "y²/x²", "k_(n+1,n+1): variance of the query's weight", "Thm 2"),
    Symbol(
        "Lambda_tilde",
        r"\tilde{\mathbf\Lambda}",
        "(d, d)",
        "y²",
        "effective covariance D₂(2Λ + tr(Λ) I) + D₃Λ",
        "Thm 1",
    ),
    Symbol("xi", r"\xi", "scalar", "y²/x²", "D₁²/D₂, the blog's large-d score of a forgetting factor", "blog"),
    Symbol(
        "mu",
        r"\mu",
        "scalar",
        "1/x² or 1",
        "step size of LMS and the delta rule (1/x²), of their normalised forms and affine projection (1)",
        "filters",
    ),
    Symbol(
        "P",
        r"\mathbf P",
        "(d, d)",
        "y²/x²",
        "Kalman's predictive covariance of the weights; in RLS the inverse of the discounted sum of x x'",
        "filters",
    ),
    Symbol("rho", r"\rho", "scalar", "1", "radius of the poles of a second-order drift", "drifts"),
    Symbol("omega", r"\omega", "scalar", "1", "angle that poles or weights turn in a step, in radians", "drifts"),
    Symbol("nu", r"\nu", "scalar", "1", "degrees of freedom of heavy-tailed innovations", "drifts"),
    Symbol("delta", r"\delta", "scalar", "y/x", "longest step |w_i − w_(i−1)| of an adversary", "adversary"),
    Symbol(
        "Sigma",
        r"\mathbf\Sigma",
        "(d, d)",
        "x²",
        "covariance of the inputs in Part II; weights have its inverse",
        "II §3.3",
    ),
    Symbol(
        "H", r"\mathbf H", "(batch, d, d)", "x²", "X'X / n of a prompt's examples, the Hessian of the loss", "II (2.11)"
    ),
    Symbol(
        "b", r"\mathbf b", "(batch, d)", "xy", "X'y / n of a prompt's examples; the gradient is H w − b", "II (2.11)"
    ),
    Symbol(
        "B",
        r"\mathbf B_\ell",
        "(L, d, d)",
        "1/x²",
        "blocks that change the inputs from layer to layer: GD++; in Part III what S6 writes, W_B = (B b)",
        "II (2.8); III (3)",
    ),
    Symbol("Q", r"\mathbf Q_\ell", "(L, d+1, d+1)", "", "merged key and query weights of a layer", "II (2.4)"),
    Symbol("R", r"\mathbf R_\ell", "(batch, n+1, d+1)", "", "memory register of a layer", "II (3.1), (3.3)"),
    Symbol(
        "M",
        r"\mathbf M_\ell",
        "(batch, d, d)",
        "1",
        "what is left of w* after ℓ layers: w_ℓ − w* = −M_ℓ w*",
        "models.memformer",
    ),
    Symbol(
        "T",
        r"\mathbf T_\ell",
        "(batch, d, d)",
        "1",
        "what GD++ has made of the inputs after ℓ layers",
        "models.memformer",
    ),
    Symbol(
        "alpha",
        r"\alpha_\ell",
        "(L,) or (batch, L)",
        "1/x²",
        "step along a register; α_h the gate of a head; in Part III α is what S6 keeps at a token, exp(−Δ)",
        "II (3.2); III (11)",
    ),
    Symbol(
        "Gamma", r"\boldsymbol\Gamma_j^\ell", "(L, L)", "1/x²", "weight of layer j's register at layer ℓ", "II (3.4)"
    ),
    Symbol(
        "psi",
        r"\psi(y, s)",
        "as y",
        "",
        "value of a token: dφ/ds of a loss φ(y, s), s its prediction",
        "models.pointwise",
    ),
    Symbol("Delta", r"\Delta_\ell", "(batch, time)", "1", "how long S6 holds a token", "III (5)"),
    Symbol("W_B", r"\mathbf W_B", "(d_h, d+1)", "", "selection of what S6 writes; b_B its bias", "III (3)"),
    Symbol("W_C", r"\mathbf W_C", "(d_h, d+1)", "", "selection of what S6 reads; b_C its bias", "III (4)"),
    Symbol("N", r"N", "scalar", "1", "number of examples in a prompt in Part III", "III §3"),
    Symbol("d_e", r"d_e", "scalar", "1", "channels of a token, d + 1", "III §3"),
    Symbol("d_h", r"d_h", "scalar", "1", "size of the state of a channel", "III (1)"),
    Symbol(
        "kappa",
        r"\kappa",
        "scalar",
        "1",
        "sum of ω_l², ω_l = (1−α) α^(N+1−l) with α = exp(−Δ); elsewhere a condition number (Part II), a kurtosis "
        "(Part I), the largest share of the signal in a direction, a likeness of inputs, or what "
        "Longhorn adds to x'x (Part IV)",
        "theory.s6",
    ),
    Symbol("beta3", r"\beta_3", "scalar", "1", "sum of ω_l: E g w' = β₃ I", "III Table 1"),
    Symbol("beta1", r"\beta_1", "scalar", "1", "E g g' = β₁ I, β₃² + (d+1) κ", "III Table 1"),
    Symbol("beta2", r"\beta_2", "scalar", "1", "E q², (d² + 2d)(β₃² + 2κ); misprinted in the paper", "III Table 1"),
    Symbol("k0", r"k", "scalar", "y²/x²", "steady variance of a coordinate of the weights", "theory.steady"),
    Symbol("p", r"p", "scalar", "y²/x²", "what a layer misses of it, E (w − ŵ)²", "theory.steady"),
    Symbol(
        "s",
        r"s",
        "scalar",
        "1",
        "dimensions over memory, d (1 − γ²); in Part I the share of the unknown that an example removes, and s_x, s_y "
        "what a layer of a stack takes away; in Part II a variance of the inputs; in Part III the faded sum of labels",
        "theory.large_d",
    ),
    Symbol("zeta", r"\zeta", "scalar", "1", "−z where two roots of the resolvent touch", "theory.large_d"),
)

_LOWERED = dict(zip("0123456789ejlnt", "₀₁₂₃₄₅₆₇₈₉ₑⱼₗₙₜ", strict=True))


def letter(symbol: Symbol) -> str:
    """Symbol in Unicode, for the label of a slider or an axis: σₑ, λ, D₁.

    >>> [letter(one) for one in SYMBOLS if one.code in ("sigma_w", "sigma_e", "D1", "lam")]
    ['σ_w', 'σₑ', 'λ', 'D₁']
    """
    bare = (
        re.sub(r"\\(?:mathbf|boldsymbol|bar|tilde|hat)(?![a-z])\s*", "", symbol.latex).replace("{", "").replace("}", "")
    )
    return re.sub(r"_(\w)$", lambda low: _LOWERED.get(low[1], low[0]), re.sub(r"\\([A-Za-z]+)", _greek, bare))


def _greek(name: re.Match[str]) -> str:
    size = "CAPITAL" if name[1][0].isupper() else "SMALL"
    spelt = name[1].upper().replace("LAMBDA", "LAMDA")
    return "ℓ" if name[1] == "ell" else unicodedata.lookup(f"GREEK {size} LETTER {spelt}")
