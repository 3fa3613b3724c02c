"""Error of the Mamba paper, as an executable formula, and a statement of it that does not hold."""

from types import MappingProxyType
from typing import Annotated

from annotated_types import Ge, Lt

from icl._bounds import Count, validated
from icl.theory.errata.erratum import Erratum, Statement
from icl.theory.s6 import Coefficients

#: Errata by number.
SELECTION = MappingProxyType(
    {
        1: Erratum(
            "error",
            r"App. A, Table 1 and Lemma A.3, $\beta_2$; $\kappa = \sum_l \omega_l^2$",
            r"d^2\beta_3^2 + (2d^2 + 6d)\,\kappa",
            r"(d^2 + 2d)(\beta_3^2 + 2\kappa)",
        ),
    }
)
#: Statements that do not hold.
SELECTION_STATEMENTS = (
    Statement(
        "sec. 5.1",
        r"$\mathbf C^\top\mathbf B = \mathrm{Diag}(a_1, \dots, a_d)$ with $a_i \in \{0, \beta_3/\beta_1\}$ and "
        r"$\mathbf C^\top\mathbf b = 0$ are the fixed points of training",
        r"where $a_i = 0$ the columns $\mathbf b_i$, $\mathbf c_i$ themselves have to vanish, not only their product; "
        "the remark in App. B has it so",
        "mamba.nonconvex-saddle",
    ),
)


@validated
def printed_beta2(d: Count, N: Count, alpha: Annotated[float, Ge(1e-100), Lt(1)]) -> float:
    """beta2 as printed, d^2 beta3^2 + (2 d^2 + 6 d) kappa: as if y_i and y_j, i != j, were independent.

    It enters the speed at which v = C'b vanishes, not where anything ends.
    """
    coefficients = Coefficients(d, N, alpha)
    return d**2 * coefficients.beta3**2 + (2 * d**2 + 6 * d) * coefficients.kappa
