"""Closed forms as the adaptation paper prints them, and with their misprints corrected.

:func:`~icl.theory.moments.recursion` is what the library computes with. This file exists so that the printed formulas
can be executed: each takes `mend`, the numbers of the errata to correct. `mend=()` is the page as printed (in our
scan); `mend=ADAPTATION` the corrected form, which the recursion confirms.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float

from icl import _checks
from icl._bounds import Count, NonNegative, Positive, validated
from icl.theory.errata.erratum import Erratum, Statement
from icl.theory.moments import Moments

#: Misprints by number.
ADAPTATION = MappingProxyType(
    {
        1: Erratum(
            "misprint",
            r"Theorem 1, $D_2$, case $\lambda=\gamma$, factor of $\sigma_e^2$",
            r"\frac{\lambda^{4}-\lambda^{2n+2}}{(1-\lambda^2)^2}",
            r"\frac{\lambda^{2}-\lambda^{2n+2}}{(1-\lambda^2)^2}",
        ),
        2: Erratum(
            "misprint",
            r"Theorem 1, $D_3$, case $\lambda\neq\gamma$, second fraction of $\sigma_w^2$",
            r"\frac{2\gamma^{n+2}\lambda^{n+2}-2\gamma^{2n+1}\lambda^3}{\lambda-\gamma}",
            r"\frac{2\gamma^{n+2}\lambda^{n+2}-2\gamma^{2n+1}\lambda^3}{(\lambda-\gamma)^2}",
        ),
        3: Erratum(
            "misprint",
            r"Theorem 1, $D_3$, case $\lambda\neq\gamma$, first fraction of $\sigma_e^2$",
            r"\frac{2\gamma^{-1}(\lambda^4-\lambda^{2n+2})}{(1-\gamma^2)(\lambda-\gamma)(1-\lambda^2)}",
            r"\frac{2\gamma(\lambda^4-\lambda^{2n+2})}{(1-\gamma^2)(\lambda-\gamma)(1-\lambda^2)}",
        ),
        4: Erratum(
            "misprint",
            r"Theorem 1, $D_3$, case $\lambda\neq\gamma$, second fraction of $\sigma_e^2$",
            r"\frac{2(\lambda^3-\lambda^{n+2}\gamma^{n-1})}{(1-\gamma^2)(\lambda-\gamma)(1-\lambda\gamma)}",
            r"\frac{2\gamma^2(\lambda^3-\lambda^{n+2}\gamma^{n-1})}{(1-\gamma^2)(\lambda-\gamma)(1-\lambda\gamma)}",
        ),
        5: Erratum(
            "misprint",
            r"Theorem 1, $D_3$, case $\lambda\neq\gamma$, fourth fraction of $\sigma_e^2$",
            r"\frac{2\gamma^{n+2}\lambda^{n+2}-2\gamma^{2n+1}\lambda^3}{(\lambda-\gamma)(1-\gamma^2)}",
            r"\frac{2\gamma^{n+2}\lambda^{n+2}-2\gamma^{2n+1}\lambda^3}{(\lambda-\gamma)^2(1-\gamma^2)}",
        ),
        6: Erratum(
            "misprint",
            r"special case $\mathbf\Lambda=\mathbf I$ after Theorem 2, last term of the numerator",
            r"-2aD_1^2",
            r"-2adD_1^2",
        ),
        7: Erratum(
            "misprint",
            r"Theorem 1, bound on $\sigma$",
            r"\sqrt{\frac{2D_1}{\sqrt d\,\lVert\mathbf\Lambda\rVert}}",
            r"\sqrt{\frac{2D_1}{\sqrt d\,\lVert\tilde{\mathbf\Lambda}\rVert}}",
        ),
    }
)
#: Statements that do not hold.
ADAPTATION_STATEMENTS = (
    Statement(
        "sec. 3, after (15)",
        r"both $\lambda$ and $\gamma$ jointly influence the degree of time variation in the underlying model",
        r"the model of the data has $\gamma$ and $\sigma_e$, and no $\lambda$, which is the layer's; "
        "both enter the layer's error",
    ),
    Statement(
        "sec. 3 after Theorem 1, and sec. 4",
        "starts that violate the assumption, Gaussian ones, consistently reach the global minimum",
        r"gates that forget fast have a local minimum of rank one, and some small Gaussian starts end in it",
        "gla.exp.random-gaussian-start",
    ),
)


def _not_one(gamma: float) -> None:
    if gamma == 1:
        raise ValueError("gamma must differ from 1 in the printed forms, got 1.0")


def _check_divisors(
    lam: Positive, gamma: Positive, n: Count, sigma_w: NonNegative, sigma_e: NonNegative, mend: Collection[int]
) -> None:
    """Check for zero divisors of the printed forms, which the recursion does not have."""
    _not_one(gamma)
    if lam * gamma == 1:
        raise ValueError(f"lam * gamma must differ from 1 in the printed forms, got lam = {lam!r}, gamma = {gamma!r}")
    _checks.instance("mend", mend, Set, Sequence, Mapping)
    for number in mend:
        _checks.one_of("mend", number, ADAPTATION)


@validated
def D1(*, lam: Positive, gamma: Positive, n: Count, sigma_w: NonNegative, sigma_e: NonNegative) -> float:
    """D1 of Theorem 1, all three cases; right as printed."""
    _check_divisors(lam, gamma, n, sigma_w, sigma_e, ())
    if lam == 1:
        w = (gamma ** (n + 2) - gamma ** (2 * n + 2)) / (1 - gamma)
        e = (gamma - gamma ** (n + 1) - gamma ** (n + 2) + gamma ** (2 * n + 2)) / ((1 - gamma) ** 2 * (1 + gamma))
    elif lam == gamma:
        w = lam ** (2 * n + 2) * n
        e = lam**2 * (1 - lam ** (2 * n)) / (1 - lam**2) ** 2 - lam ** (2 * n + 2) / (1 - lam**2) * n
    else:
        w = (lam ** (n + 1) * gamma ** (n + 2) - lam * gamma ** (2 * n + 2)) / (lam - gamma)
        e = lam * gamma * (1 - lam**n * gamma**n) / ((1 - gamma**2) * (1 - lam * gamma)) - w / (1 - gamma**2)
    return w * sigma_w**2 + e * sigma_e**2


@validated
def D2(
    *,
    lam: Positive,
    gamma: Positive,
    n: Count,
    sigma_w: NonNegative,
    sigma_e: NonNegative,
    mend: Collection[int] = frozenset(ADAPTATION),
) -> float:
    """D2 of Theorem 1, all three cases; erratum 1 concerns lam = gamma."""
    _check_divisors(lam, gamma, n, sigma_w, sigma_e, mend)
    if lam == 1:
        w = (gamma**2 - gamma ** (2 * n + 2)) / (1 - gamma**2)
        e = n / (1 - gamma**2) - (gamma**2 - gamma ** (2 * n + 2)) / (1 - gamma**2) ** 2
    elif lam == gamma:
        w = lam ** (2 * n + 2) * n
        power = 2 if 1 in mend else 4
        e = (lam**power - lam ** (2 * n + 2)) / (1 - lam**2) ** 2 - n * lam ** (2 * n + 2) / (1 - lam**2)
    else:
        w = (gamma**2 * lam ** (2 * n + 2) - lam**2 * gamma ** (2 * n + 2)) / (lam**2 - gamma**2)
        e = (lam**2 - lam ** (2 * n + 2)) / ((1 - gamma**2) * (1 - lam**2)) - w / (1 - gamma**2)
    return w * sigma_w**2 + e * sigma_e**2


@validated
def D3(
    *,
    lam: Positive,
    gamma: Positive,
    n: Count,
    sigma_w: NonNegative,
    sigma_e: NonNegative,
    mend: Collection[int] = frozenset(ADAPTATION),
) -> float:
    """D3 of Theorem 1, all three cases; errata 2 to 5 concern lam different from gamma."""
    _check_divisors(lam, gamma, n, sigma_w, sigma_e, mend)
    if lam == 1:
        long = (gamma**3 - gamma ** (2 * n + 1)) / ((1 - gamma) ** 2 * (1 + gamma))
        short = (gamma ** (n + 2) - gamma ** (2 * n + 1)) / (1 - gamma) ** 2
        w = 2 * long - 2 * short
        e = 2 / (gamma**2 - 1) * (long - short)
        e -= 2 * gamma / ((gamma**2 - 1) * (1 - gamma)) * (n - 1 - (gamma**n - gamma) / (gamma - 1))
    elif lam == gamma:
        w = lam ** (2 * n + 2) * n * (n - 1)
        e = 2 * n * (lam**4 - lam ** (2 * n + 2)) / (1 - lam**2) ** 2
        e -= 2 * (lam ** (2 * n + 4) - n * lam**6 + (n - 1) * lam**4) / (1 - lam**2) ** 3
        e -= lam ** (2 * n + 2) * n * (n - 1) / (1 - lam**2)
    else:
        gap = lam - gamma
        first = (2 * gamma**3 * lam ** (2 * n + 3) - 2 * lam**5 * gamma ** (2 * n + 1)) / (lam * gap**2 * (lam + gamma))
        second = 2 * gamma ** (n + 2) * lam ** (n + 2) - 2 * gamma ** (2 * n + 1) * lam**3
        w = first - second / (gap**2 if 2 in mend else gap)
        e = 2 * (gamma if 3 in mend else 1 / gamma) * (lam**4 - lam ** (2 * n + 2))
        e /= (1 - gamma**2) * gap * (1 - lam**2)
        fourth = 2 * (gamma**2 if 4 in mend else 1) * (lam**3 - lam ** (n + 2) * gamma ** (n - 1))
        e -= fourth / ((1 - gamma**2) * gap * (1 - lam * gamma))
        e -= first / (1 - gamma**2)
        e += second / ((gap**2 if 5 in mend else gap) * (1 - gamma**2))
    return w * sigma_w**2 + e * sigma_e**2


@validated
def D4(*, gamma: Positive, n: Count, sigma_w: NonNegative, sigma_e: NonNegative) -> float:
    """D4 of Theorem 2; right as printed."""
    _not_one(gamma)
    return gamma ** (2 * n + 2) * sigma_w**2 + (1 - gamma ** (2 * n + 2)) / (1 - gamma**2) * sigma_e**2


@validated
def printed_identity_error(moments: Moments, *, d: Count, mend: Collection[int] = frozenset(ADAPTATION)) -> Any:
    """Training error for Lambda = I as printed after Theorem 2, with a = (d + 2) D2 + D3; erratum 6."""
    a = (d + 2) * moments.D2 + moments.D3
    square = moments.D1**2
    last = 2 * a * square * (d if 6 in mend else 1)
    return (square * (d**2 * moments.D2 + 2 * d * moments.D2 + d * moments.D3) + d * moments.D4 * a**2 - last) / a**2


@validated
def printed_training_error(
    moments: Moments, Lambda: Float[np.ndarray, "d d"], Lambda_tilde: Float[np.ndarray, "d d"]
) -> Any:
    """Theorem 2, (16), as printed: (19) without a shift."""
    return printed_testing_error(moments, moments, Lambda_tilde, Lambda)


@validated
def printed_testing_error(
    train: Moments, test: Moments, Lambda_tilde: Float[np.ndarray, "d d"], Lambda_bar: Float[np.ndarray, "d d"]
) -> Any:
    """Theorem 3, (19), as printed, which is right: D1 and Lambda~ of the training task, all else of the test task.

    Args:
        train: moments of the training task; only its D1 enters.
        test: moments of the test task at the forgetting factor used there.
        Lambda_tilde: effective covariance of the training task, (d, d).
        Lambda_bar: covariance of the test's inputs, (d, d).
    """
    inverse = np.linalg.inv(Lambda_tilde)
    core = Lambda_bar @ inverse @ Lambda_bar @ inverse @ Lambda_bar
    spread = Lambda_bar * np.trace(inverse @ Lambda_bar @ inverse @ Lambda_bar)
    return (
        train.D1**2 * np.trace(test.D2 * (spread + 2 * core) + test.D3 * core)
        + test.D4 * np.trace(Lambda_bar)
        - 2 * train.D1 * test.D1 * np.trace(Lambda_bar @ inverse @ Lambda_bar)
    )
