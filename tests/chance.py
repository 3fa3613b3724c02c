"""Assertions that chance could fail, and how often: each states its rate, a run sums them, and seeds may be fresh.

Whatever is compared with random numbers is asserted by a function of this file. A call is one assertion, however many
numbers it looks at, and a right program fails it with probability `FALSE_FAILURE` at most. A test says how many calls
it makes, `@pytest.mark.statistical(3)`, or one if it says nothing; a test that makes more, or makes one unmarked, fails
(harness.py), and `tests/house/test_chance.py` adds up all of them.

Not in the sum is what holds for the numbers it draws and might not for others, from the same seeds in every run: tests
marked `@pytest.mark.one_draw(of)`, a training, a search from one start, a sample whose law has no limit; and the cells
of chapters, which compare with a few standard errors. They pass or fail as the program and its versions do, not by
chance; new versions or another processor may draw other numbers, and then a failure says nothing yet.

`ICL_FRESH=7` runs the marked tests alone and gives every stream and every `rng` of theirs other numbers, for each value
its own; without it numbers are the same in every run. What a test is about, its matrices and tables, comes from
`fixed` or from numpy's own `default_rng`, and is the same under every seed.
"""

import os

import numpy as np
from scipy import stats

#: How often a right program fails one assertion.
FALSE_FAILURE = 1e-9
#: How often it may fail a run of all tests.
A_RUN = 1e-6

FRESH = os.environ.get("ICL_FRESH", "")
if FRESH and not FRESH.isdecimal():
    raise ValueError(f"ICL_FRESH must be a whole number, or empty for the usual seeds, got {FRESH!r}")

#: Assertions that the running test has made so far.
made: list[str] = []


def rng(seed):
    """numpy's generator of this seed, or of this seed and the run's."""
    return np.random.default_rng([*np.atleast_1d(seed), int(FRESH)] if FRESH else seed)


def fixed(name, *, seed=0):
    """The stream of this name, whatever the run's seed."""
    from icl import profile

    return getattr(profile.make_generator, "usual", profile.make_generator)(name, seed=seed)


def freshen():
    """Give every named stream the run's seed, in tests and in the library; call it before these are imported."""
    from icl import profile

    usual = profile.make_generator

    def make_generator(name, *, seed=0, device="cpu"):
        fresh = name and isinstance(name, str)  # a bad name is refused by the library
        return usual(f"{name}/fresh {FRESH}" if fresh else name, seed=seed, device=device)

    make_generator.usual = usual
    profile.make_generator = make_generator


def assertions(marker):
    """How many assertions a test's marker allows."""
    return marker.args[0] if marker.args else 1


def total(items):
    """(assertions, probability that any of them fails by chance) of the tests that were collected."""
    count = sum(assertions(m) for item in items if (m := item.get_closest_marker("statistical")))
    return count, count * FALSE_FAILURE


def limit(numbers=1, *, of=np.inf, skewed=0.0, rate=FALSE_FAILURE):
    """How many standard errors any of some means may be from the truth: one is further with probability `rate`.

    A mean `of` N values over its own standard error is Student's t if they are normal. If they have a skewness g it is
    beyond x about exp(|g| x^3 / 3 N^(1/2)) times as often on one side, and as much more rarely on the other [Wang 2011,
    Refined self-normalized large deviations]. `skewed` is |g| / N^(1/2).
    """

    # Beyond 1 / skewed the approximation grows again, beyond 35 the tail is no number.
    x = np.linspace(0, min(35.0, 1 / skewed if skewed else 35.0), 4001)
    enough = np.log(2) + stats.t.logsf(x, of - 1) + skewed * x**3 / 3 < np.log(rate / numbers)
    assert enough.any(), f"{of} values are too few for their skewness, {skewed:.3f} times the root of their number"
    return x[enough.argmax()]


def deviations(values, expected):
    """(z, skewed, standard errors) of the means of values (N, ...), along the first axis."""
    values = np.asarray(values, dtype=float)
    centred = values - values.mean(0)
    spread, root = values.std(0, ddof=1), len(values) ** 0.5
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (values.mean(0) - expected) / (spread / root)
        skewed = np.abs((centred**3).mean(0) / spread**3) / root
    constant = spread == 0  # values that do not vary are what is expected, or infinitely far from it
    z = np.where(constant, np.where(values.mean(0) == expected, 0.0, np.inf), z)
    return z, float(np.where(constant, 0.0, skewed).max()), spread / root


def assert_mean(values, expected, *, error=None, normal=False):
    """Refuse independent values (N, ...) whose mean is not the expected one, entry by entry.

    error: see `assert_near`; tails may be heavy then. Else the central limit theorem holds, with the correction of
    `limit` for the skewness that the values show, or without for those that are `normal`: means over many positions.
    """
    values = np.asarray(values, dtype=float)
    if error is None:
        z, skewed, _ = deviations(values, expected)
        assert_z(z, of=len(values), skewed=0.0 if normal else skewed)
    else:
        found = (((values - expected) ** 2).mean(0) / len(values)) ** 0.5
        assert_near(values.mean(0), expected, found, error=error)


def assert_near(means, expected, found, *, error):
    """Refuse means that are not the expected ones, where their standard errors were found and are known to be `error`.

    error: what the values' law makes of it, or more: measured over fresh seeds, a tenth and more above it. Nothing else
    is asked of the law: of a sum S of centred values, with V a third of their sum of squares and two thirds of its
    expectation, E exp(t S - t^2 V / 2) <= 1 [Delyon 2009, Exponential inequalities for sums of weakly dependent
    variables], so that S > L / t + t V / 2 in at most e^-L of all cases. Here t makes that least where both are equal.
    """
    made.append("near")
    off = np.abs(np.asarray(means) - expected)
    L = np.log(2 * off.size / FALSE_FAILURE)
    both = np.square(found) / 3 + 2 * np.square(error) / 3
    assert (off < (L / 2) ** 0.5 * (error + both / error)).all()


def assert_z(z, *, of=np.inf, skewed=0.0):
    """Refuse numbers that are not standard normal, independent or not, or means over their own errors: see `limit`."""
    made.append("z")
    z = np.abs(np.asarray(z, dtype=float))
    assert z.max() < limit(z.size, of=of, skewed=skewed)


def assert_p(p):
    """Refuse p-values of exact tests, independent or not, of which the least is too small."""
    made.append("p")
    p = np.asarray(p, dtype=float)
    assert p.min() > FALSE_FAILURE / p.size


def assert_within(values, law):
    """Refuse values, independent or not, that are outside of what their law, one of scipy's, leaves them."""
    made.append("within")
    values = np.asarray(values)
    share = FALSE_FAILURE / values.size
    low, high = law.ppf([share / 2, 1 - share / 2])
    assert (low <= values).all()
    assert (values <= high).all()


def assert_counts(counts, total, probability):
    """Refuse counts, independent or not, that are not binomial of this total and probability (one, or one each)."""
    counts, probability = np.broadcast_arrays(np.asarray(counts), probability)
    pairs = zip(counts.flat, probability.flat, strict=True)
    assert_p([stats.binomtest(int(count), int(total), float(p)).pvalue for count, p in pairs])


def assert_above(values, *, by):
    """Refuse values (N, ...) whose mean is not above 0, where it is so many standard errors above; see `assert_far`."""
    assert_far(deviations(values, 0.0)[0], by=by)


def assert_mostly(hits, *, by):
    """Refuse a share of hits that is not above one half, where it is above by so many standard errors, or more."""
    assert_far((2 * np.sum(hits) - len(hits)) / len(hits) ** 0.5, by=by)


def assert_far(z, *, by):
    """Refuse z below a quarter of `by`, where they are `by` or more on average.

    A quarter of `by` is more than six of the spreads below the average that z had over fresh seeds; where z is large,
    and spreads with the error that it is measured in, that error would have to come out four times too large.
    """
    made.append("far")
    assert by >= 9
    assert np.min(z) > by / 4


def assert_standard_normal(z):
    """Refuse z (N, p) as independent standard normal numbers, with probability `FALSE_FAILURE` if they are."""
    made.append("standard normal")
    rows, columns = z.shape
    # Four kinds of assertion share the failure rate equally, and within a kind the numbers looked at.
    share = FALSE_FAILURE / 4
    squares = (z**2).sum(0)
    low, high = stats.chi2.ppf([share / columns / 2, 1 - share / columns / 2], rows)
    assert low < squares.min()
    assert squares.max() < high
    low, high = stats.chi2.ppf([share / 2, 1 - share / 2], rows * columns)
    assert low < squares.sum() < high
    # a'b / |a| is normal, b'a / |b| too: the upper triangle looks at every pair once.
    pairs = (z.T @ z / np.sqrt(squares)[:, None])[np.triu_indices(columns, 1)]
    if len(pairs):
        assert np.abs(pairs).max() < stats.norm.isf(share / len(pairs) / 2)
    assert stats.kstest(z.ravel(), "norm").pvalue > share


def assert_errors(estimates, squared_errors, *, order=0.0):
    """Refuse standard errors whose mean square is not the variance of the estimates they are of; say what is let
    through.

    That variance is chi-square where estimates are normal, and a mean of squares nearly so, of as many degrees of
    freedom as its own spread says: their ratio has the law F. Terms of second order, up to `order`, are given on top.
    """
    made.append("errors")
    count = len(estimates)
    ratio = np.mean(squared_errors) / np.var(estimates, ddof=1)
    spread = np.std(squared_errors, ddof=1) / np.mean(squared_errors)
    law = stats.f(2 * count / max(spread, 1e-3) ** 2, count - 1)
    low, high = law.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2])
    assert low / (1 + order) < ratio < high * (1 + order)
    return low / (1 + order), high * (1 + order)
