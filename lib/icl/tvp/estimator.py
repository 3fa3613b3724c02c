"""Regression with time-varying coefficients, for a table of one's own.

The labels of row t, at time T_t, are y_t = x_t'b_t + N(0, s2), and the coefficients drift between rows, each by itself:

    random walk:  b(T + D) = b(T) + N(0, diag(q) D),
    stationary:   b(T) = m + a(T),    a(T + D) = gamma^D a(T) + N(0, diag(v) (1 - gamma^(2 D))),

or the past is forgotten at a factor lambda a step. Every column is centred and scaled by the first rows, those called
known, on which variances are learnt too, by maximum likelihood; so units change nothing. All estimates are Gaussian
conditionals given the labels so far (Kalman filter) or all labels (smoother).
The filter is `_state_space`'s, the search `_likelihood`'s.
"""

import inspect
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import blas

from icl import _checks
from icl._bounds import OpenUnit, validated
from icl.tvp._comparison import compare_methods
from icl.tvp._likelihood import Likeliest
from icl.tvp._state_space import FACTORS, WEIGHTS, Array, Model, State, design, forecast, learn, pass_time, start

_FLOAT64, _ONE = np.dtype(np.float64), np.ones(1)


class Path(NamedTuple):
    """Coefficients at each row, in the table's units: mean and standard deviation."""

    mean: Any
    sd: Any


# Tables.


def _names(X: Any) -> list[str] | None:
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(column) for column in columns]


def _index(*tables: Any) -> Any:
    """Index of the first that is a frame or a series."""
    return next((table.index for table in tables if isinstance(table, pd.DataFrame | pd.Series)), None)


def _check_index(X: Any, **others: Any) -> None:
    """Refuse labels, times or names of other rows: pandas would order them by their index, and arrays have none."""
    kinds = (pd.DataFrame, pd.Series)
    for name, other in others.items():
        alike = isinstance(X, kinds) and isinstance(other, kinds) and len(X) == len(other)
        if alike and not X.index.equals(other.index):
            raise ValueError(f"{name} must have the index of X, row by row: sort both alike, or pass {name}.to_numpy()")


def _rows(table: Any, rows: Array) -> Any:
    """Some rows of a table, array, tensor or list."""
    if isinstance(table, pd.DataFrame | pd.Series):
        return table.iloc[rows]
    return (np.asarray(table) if isinstance(table, list | tuple) else table)[rows]


def _numbers(name: str, values: Any, columns: Sequence[str] | None = None) -> Array:
    """Table, array or tensor as float64; a column that holds no numbers is refused by name."""
    if type(values) is np.ndarray and values.dtype is _FLOAT64 and values.flags.c_contiguous:
        return values
    if isinstance(values, pd.DataFrame):
        for column, dtype in values.dtypes.items():
            if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
                raise ValueError(
                    f"{name} must hold numbers, column {column!r} has dtype {dtype}: convert it by "
                    "pandas.to_numeric, or encode its categories by pandas.get_dummies"
                )
    try:
        if isinstance(values, pd.DataFrame | pd.Series):
            values = values.to_numpy(np.float64, na_value=np.nan)
        return np.asarray(_checks.numbers(name, values), np.float64, order="C")  # sums round alike in one order
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array, a tensor or a frame of real numbers") from error


def _is_finite(values: Array) -> bool:
    """Test whether all are, in one call; of very large values it says no, too."""
    values = values.ravel()
    return math.isfinite(blas.ddot(values, values))


def _times(time: Any, count: int) -> Array:
    """Times as float64, dates in nanoseconds; refused where they go back."""
    if count == 1 and isinstance(time, float) and math.isfinite(time):
        return np.array([time], np.float64)
    values = np.atleast_1d(time)
    if values.dtype.kind in "OmMU":
        dates = pd.DatetimeIndex(pd.to_datetime(values)).as_unit("ns")
        values = np.where(dates.isna(), np.nan, dates.asi8)
    values = np.asarray(values, np.float64)
    if values.shape != (count,):
        raise ValueError(f"time must have a number or date for each of {count} rows, got shape {values.shape}")
    if (wrong := np.flatnonzero(~np.isfinite(values))).size:
        raise ValueError(f"time must be finite, row {wrong[0]} has none: leave such rows out")
    if (back := np.flatnonzero(np.diff(values) < 0)).size:
        raise ValueError(f"time must not go back, row {back[0] + 1} is earlier than the one before it: sort the table")
    return values


class _Row(NamedTuple):
    """A row of the filter's path: states before and after its label, and its prediction."""

    before: State
    after: State
    mean: Any
    S: Any


class _Units(NamedTuple):
    """Centre and scale of columns and labels over the known rows. Labels have an axis, columns may have one before."""

    mean: Array
    scale: Array
    label_mean: Array
    label_scale: Array
    intercept: bool

    def inputs(self, X: Array) -> Array:
        """Standardised rows with their intercept (rows, k); one alone is taken as a vector, in half the time."""
        if len(X) == 1:
            z = (X[0] - self.mean) / self.scale
            return np.concatenate([_ONE, z])[None] if self.intercept else z[None]
        z = (X - self.mean) / self.scale
        return np.column_stack([np.ones(len(z)), z]) if self.intercept else z

    def to_table(self) -> tuple[Array, Array]:
        """Matrix (labels, k, k) and offset (labels, k) from standardised coefficients to those of the table."""
        d = self.mean.shape[-1] + self.intercept
        T = np.zeros((len(self.label_mean), d, d))
        i = np.arange(self.intercept, d)
        T[:, i, i] = self.label_scale[:, None] / self.scale
        offset = np.zeros((len(T), d))
        if self.intercept:
            T[:, 0, 0] = self.label_scale
            T[:, 0, 1:] = -T[:, i, i] * self.mean
            offset[:, 0] = self.label_mean
        return T, offset


class TVPRegression:
    """Linear regression whose coefficients drift.

    Follows scikit-learn's conventions. Tables may be frames, arrays or tensors; labels may be missing (NaN), and rows
    may come at uneven times: time passes, and nothing is learnt.

    Args:
        drift: "per coefficient" learns one variance for each coefficient, "shared" one for all (in standardised
            columns), "none" keeps coefficients constant; or their standard deviations a unit of time, the intercept's
            first, in the table's units.
        process: "random walk", or "stationary": about means of their own, with one time constant for all.
        gamma: what a stationary drift keeps a unit of time, in (0, 1); None learns it.
        noise: standard deviation of the labels' noise, in their units; None learns it.
        forgetting: in place of a drift, the factor in (0, 1] by which a past row's weight falls a unit of time
            (recursive least squares), or "self-tuned": a bank of factors, mixed by how well each has predicted,
            above all in the last hundred units of time.
        known: how many rows from the start may be learnt from, a count or a share: units and variances come from them.
            None is all that `fit` is given.
        fit_intercept: add an intercept. It drifts where inputs are at their known means.
        prior_scale: standard deviation of coefficients before the first row, in standard deviations of label by column;
            so large that it matters for a few rows only. Of a stationary drift it is that of its means: 0 holds them at
            0, and the intercept's at the known labels' mean.
        keep_path: keep each row's coefficients, which `coefficients_` and `smooth` need; not for endless streams.

    Attributes:
        coefficients_: coefficients after each row, in the table's units (rows, coefficients), the intercept first; with
            several labels (rows, labels, coefficients).
        coefficients_sd_: their standard deviations.
        predictions_: of each row before its label.
        predictions_sd_: their standard deviations, the label's noise included. Here as in `coefficients_sd_` variances
            count as known: where they are learnt from a hundred rows or fewer, intervals come out too narrow, those of
            coefficients above all.
        noise_sd_: standard deviation of the noise, in the labels' units.
        drift_sd_: standard deviation that each coefficient gains a unit of time; of a stationary drift its stationary
            one, with `gamma_` what it keeps a unit of time.
        time_unit_: the unit of time: the median step of the known rows, in the index's units (nanoseconds of dates).
        log_likelihood_: log density of the labels, each given those before it; of a self-tuned model that of normal
            laws with its mixtures' moments.
        notes_: what was found on the way, in sentences: columns that are constant or collinear in the known rows,
            bounds that the likelihood ran into, coefficients whose drift is not told from none.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((400, 2))
    >>> slope = 1 + 0.05 * rng.standard_normal(400).cumsum()
    >>> y = 5 + slope * x[:, 0] - 2 * x[:, 1] + 0.1 * rng.standard_normal(400)
    >>> model = TVPRegression().fit(x, y)
    >>> model.drift_sd_.round(2)
    array([0.  , 0.05, 0.  ])
    >>> mean, sd = model.predict(x[-1:], return_std=True)

    Many series, each with inputs of its own, take `fit_each`.
    """

    def __init__(
        self,
        drift: Any = "per coefficient",
        *,
        process: str = "random walk",
        gamma: float | None = None,
        noise: float | None = None,
        forgetting: Any = None,
        known: Any = None,
        fit_intercept: bool = True,
        prior_scale: float = 100.0,
        keep_path: bool = True,
    ) -> None:
        """Keep the settings; `fit` checks them."""
        self.drift = drift
        self.process = process
        self.gamma = gamma
        self.noise = noise
        self.forgetting = forgetting
        self.known = known
        self.fit_intercept = fit_intercept
        self.prior_scale = prior_scale
        self.keep_path = keep_path

    # scikit-learn's conventions.

    @validated
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "TVPRegression":
        """Change settings."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{name} must be one of {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Show the settings that are not the defaults."""
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = [f"{n}={v!r}" for n, v in self.get_params().items() if repr(v) != repr(defaults[n])]
        return f"TVPRegression({', '.join(changed)})"

    # Fitting.

    def fit(self, X: Any, y: Any, time: Any = None) -> "TVPRegression":
        """Learn units and variances from the known rows, then follow the coefficients through all rows.

        Args:
            X: inputs (rows, columns); none missing.
            y: labels (rows,), or several columns of them (rows, labels), each with variances of its own; NaN is none.
            time: time or date of each row; one unit a row without it.

        Raises:
            ValueError: naming the argument, the row or the column that cannot be used, and the way out.
        """
        table = self._prepare(X, y, time)
        search = self._search(*table)
        if search is not None:
            self._adopt(search, *search.find())
        for warning in self._warnings:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)
        return self._begin(*table, _index(X, y))

    def fit_each(
        self, X: Any, y: Any, by: Any, time: Any = None, *, errors: Any = "raise"
    ) -> dict[Any, "TVPRegression"]:
        """Fit many series in one call, each with inputs, units and variances of its own.

        The searches for variances run side by side, several times faster than a loop over `fit`, and end in the same
        place. This model itself stays as it is: it only has the settings. Where series differ in length, let `known`
        be a share.

        >>> rng = np.random.default_rng(0)
        >>> table = pd.DataFrame(rng.standard_normal((200, 2)), columns=["input", "label"])
        >>> table["site"] = ["north", "south"] * 100
        >>> models = TVPRegression("shared").fit_each(table[["input"]], table["label"], by=table["site"])
        >>> pd.concat({site: model.summary() for site, model in models.items()}).index.tolist()
        [('north', 'intercept'), ('north', 'input'), ('south', 'intercept'), ('south', 'input')]

        Args:
            X: inputs (rows, columns) of all series, one below the other or mixed, each in order of time.
            y: labels (rows,) or (rows, labels).
            by: name of the series that each row belongs to (rows,), of any hashable kind.
            time: time or date of each row; one unit a row of its series without it.
            errors: "raise", or "warn": leave out series that `fit` would refuse, with a warning for each.

        Returns:
            A fitted model for each name, in order of appearance.

        Raises:
            ValueError: as `fit` does, naming the series, and how many others could not be fitted either.
        """
        _checks.one_of("errors", errors, ("raise", "warn"))
        names = np.asarray(by, object)
        if names.shape != (len(X),):
            raise ValueError(
                f"by must name the series of each of {len(X)} rows, as table['site'] does, got {by!r:.60}"
                if names.ndim == 0
                else f"by must name the series of each of {len(X)} rows, got shape {names.shape}"
            )
        if (nameless := np.flatnonzero(pd.isna(names))).size:
            raise ValueError(f"by must name the series of each row, row {nameless[0]} has no name: leave such rows out")
        if len(y) != len(X):
            raise ValueError(f"y must have {len(X)} rows to match X, got {len(y)}")
        _check_index(X, y=y, by=by, time=time)
        series, searches, refused = {}, [], {}
        for name, rows in pd.Series(range(len(X))).groupby(names, sort=False):
            model, at = type(self)(**self.get_params()), rows.to_numpy()
            data = _rows(X, at), _rows(y, at), None if time is None else _rows(time, at)
            try:
                table = model._prepare(*data)
                search = model._search(*table)
            except ValueError as error:
                refused[name] = error
                continue
            series[name] = model, table, _index(*data[:2])
            if search is not None:
                searches.append((model, search))
        if refused and errors == "raise":
            name, first = next(iter(refused.items()))
            suffix = f" ({len(refused) - 1} others cannot be fitted either)" * (len(refused) > 1)
            raise ValueError(f"series {name!r}: {first}{suffix}; errors='warn' leaves such series out") from first
        for name, why in refused.items():
            warnings.warn(f"Series {name!r} is left out: {why}", RuntimeWarning, stacklevel=2)
        # Series of about one length go side by side, as many as processors' caches hold.
        searches.sort(key=lambda pair: len(pair[1].y))
        for begin in range(0, len(searches), 64):
            some = searches[begin : begin + 64]
            joined = Likeliest.join([search for _, search in some])
            theta, ratios = joined.find()
            end = 0
            for model, search in some:
                labels = slice(end, end := end + search.y.shape[1])
                search.settled = joined.settled[labels]
                model._adopt(search, theta[labels], ratios[labels])
        for name, (model, table, index) in series.items():
            for warning in model._warnings:
                warnings.warn(f"Series {name!r}: {warning}", RuntimeWarning, stacklevel=2)
            model._begin(*table, index)
        return {name: model for name, (model, _, _) in series.items()}

    def _prepare(self, X: Any, y: Any, time: Any) -> tuple[Array, Array, Array]:
        """Inputs, labels and times of a table that is to be fitted, checked; units are learnt."""
        self._check_settings()
        self._columns = _names(X)
        inputs = self._inputs(X, fitted=False)
        self._frame = isinstance(X, pd.DataFrame) or isinstance(y, pd.Series | pd.DataFrame)
        labels = self._labels(y, len(inputs))
        _check_index(X, y=y, time=time)
        times = np.arange(len(inputs), dtype=np.float64) if time is None else _times(time, len(inputs))
        self.n_features_in_ = inputs.shape[1]
        if self._columns is not None:
            self.feature_names_in_ = np.array(self._columns, dtype=object)
        self.notes_: list[str] = []
        self._warnings: list[str] = []
        known = self._known_count(len(inputs))
        steps = np.diff(times[:known])
        self.time_unit_ = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
        self._timed = time is not None
        self._units = self._standardise(inputs, labels, known)
        return inputs, labels, times

    def _begin(self, inputs: Array, labels: Array, times: Array, index: Any) -> "TVPRegression":
        """Follow the coefficients from the first row."""
        self._state = start(self._model, times[0])
        self.n_rows_ = 0
        self._index: list[Any] = []
        self._rows: list[_Row] = []
        self._table_rows: dict[str, list[Array]] = {"inputs": [], "labels": [], "times": []}
        self._follow(inputs, labels, times.tolist(), index)
        return self

    def partial_fit(self, X: Any, y: Any, time: Any = None) -> "TVPRegression":
        """Take in later rows, one or several; the same, to the last bit, as if `fit` had been given them.

        Two settings must not depend on them for that: `known` is a count, and no column is constant in the known rows
        (its unit comes from all rows that `fit` sees). A row that is refused leaves the state as it was.

        Rows are taken in their order. For a label that comes late keep a copy from before its row, go on without it,
        and once it is there let the copy take the rows since:

        >>> import pickle
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
        >>> model = TVPRegression(known=90, keep_path=False).fit(x[:90], y[:90])
        >>> copy = pickle.loads(pickle.dumps(model))
        >>> for row in range(90, 100):
        ...     _ = model.partial_fit(x[row], np.nan if row == 92 else y[row])
        >>> model = copy.partial_fit(x[90:], y[90:])

        Args:
            X: row (columns,) or rows (rows, columns).
            y: label, or labels.
            time: of each row, if `fit` was given times.
        """
        if not hasattr(self, "_state"):
            return self.fit(X, y, time)
        inputs = self._inputs(X)
        labels = self._labels(y, len(inputs), fitted=True)
        _check_index(X, y=y, time=time)
        if self._timed and time is None:
            raise ValueError("time must be given for each row, as it was to fit")
        if time is None:
            times = [self._state.time + self.time_unit_ * ahead for ahead in range(1, len(inputs) + 1)]
        else:
            times = _times(time, len(inputs)).tolist()
            if times[0] < self._state.time:
                raise ValueError("time must not go back, the first row is earlier than the last that was learnt")
        self._follow(inputs, labels, times, _index(X) if self.keep_path else None)
        return self

    def _check_settings(self) -> None:
        _checks.one_of("process", self.process, ("random walk", "stationary"))
        if isinstance(self.drift, str):
            _checks.one_of("drift", self.drift, ("per coefficient", "shared", "none"))
        if isinstance(self.forgetting, str):
            _checks.one_of("forgetting", self.forgetting, ("self-tuned",))
        elif self.forgetting is not None:
            _checks.number("forgetting", self.forgetting, above=0, at_most=1)
        if self.noise is not None:
            _checks.number("noise", self.noise, above=0)
        _checks.number("prior_scale", self.prior_scale, at_least=0)
        stationary = self.process == "stationary" and self.forgetting is None
        if not stationary and not self.prior_scale:
            raise ValueError("prior_scale must be > 0 without a stationary drift, got 0")
        if self.gamma is not None:
            _checks.number("gamma", self.gamma, above=0, below=1)
            if not stationary:
                raise ValueError('gamma must be None without process="stationary": a random walk keeps all')

    def _inputs(self, X: Any, fitted: bool = True) -> Array:
        """Rows of inputs; a missing one is refused by row and column."""
        if fitted and self._columns is not None and (columns := _names(X)) is not None and columns != self._columns:
            raise ValueError(
                f"X must have the columns {', '.join(self._columns)}, got {', '.join(columns)}: where a category's "
                "columns lack, pass X.reindex(columns=model.feature_names_in_, fill_value=0)"
            )
        values = _numbers("X", X)
        if values.ndim == 1 and fitted:
            values = values[None]
        if values.ndim != 2 or not values.size or (fitted and values.shape[1] != self.n_features_in_):
            wanted = f"(rows, {self.n_features_in_})" if fitted else "(rows, columns), none of them 0"
            wanted += ", of one column as of several" if values.ndim == 1 else ""
            raise ValueError(f"X must have shape {wanted}, got {values.shape}")
        if not _is_finite(values) and (wrong := np.argwhere(~np.isfinite(values))).size:
            (row, column), index = wrong[0].tolist(), _index(X)
            others = len(set(wrong[:, 0])) - 1
            raise ValueError(
                f"X must be finite, row {row if index is None else index[row]} has none in column {self._name(column)}"
                f"{f' (and {others} other rows lack some)' * (others > 0)}: leave such rows out, and give time, so "
                "that it passes"
            )
        return values

    def _labels(self, y: Any, count: int, fitted: bool = False) -> Array:
        if fitted and isinstance(y, float) and not self._several and count == 1 and not math.isinf(y):
            return np.array([[y]], np.float64)
        values = _numbers("y", y)
        if not fitted:
            self._several: bool = values.ndim == 2
            self._label_names = _names(y) if self._several else None
            self._labels_count = values.shape[1] if self._several else 1
        elif values.ndim == 0 or (values.ndim == 1 and self._several and count == 1):
            values = values.reshape(1, -1) if self._several else values[None]
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != (count, self._labels_count):
            labels = f" of {self._labels_count} labels" if self._several else ""
            raise ValueError(f"y must have {count} rows{labels} to match X, got shape {np.shape(y)}")
        if not math.isfinite(values.sum()) and (wrong := np.argwhere(np.isinf(values))).size:
            row, label = wrong[0]
            raise ValueError(f"y must be finite or missing (NaN), row {row} of label {label} is {values[row, label]}")
        return values

    def _known_count(self, count: int) -> int:
        if self.known is None:
            known = count
        elif isinstance(self.known, float):
            known = int(_checks.number("known", self.known, above=0, at_most=1) * count)
        else:
            known = _checks.integer("known", self.known, at_least=1, at_most=count)
        if known < self.n_features_in_ + 2:
            raise ValueError(
                f"known must leave more rows than coefficients: {known} of {count} rows are known, and "
                f"{self.n_features_in_ + 2} are needed for {self.n_features_in_} columns"
            )
        return known

    def _warn(self, note: str) -> None:
        """Keep a note that whoever called `fit` is warned of."""
        self.notes_.append(note)
        self._warnings.append(note)

    def _name(self, column: int) -> str:
        return repr(self._columns[column] if self._columns else int(column))

    def _standardise(self, inputs: Array, labels: Array, known: int) -> _Units:
        """Units of the known rows; what cannot be told apart there is said."""
        x, y = inputs[:known], labels[:known]
        if (few := np.flatnonzero(np.isfinite(y).sum(0) < 3)).size:
            have = np.isfinite(y[:, few[0]]).sum()
            raise ValueError(f"y must have at least three labels in the known rows, label {few[0]} has {have}")
        still = np.ptp(x, axis=0) == 0
        for column in np.flatnonzero(still).tolist():
            if self.fit_intercept and x[0, column]:
                raise ValueError(
                    f"X must vary, column {self._name(column)} is {x[0, column]:g} in all known rows, and an intercept "
                    "is added: leave the column out, or pass fit_intercept=False"
                )
            if not x[0, column]:
                self._warn(f"Column {self._name(column)} is 0 in all known rows, which cannot tell its drift.")
        mean = x.mean(0) if self.fit_intercept else np.zeros(x.shape[1])
        scale = np.sqrt(((x - mean) ** 2).mean(0))
        # A column that moves later has the unit of the values it takes then.
        late = np.sqrt(((inputs - mean) ** 2).mean(0))
        scale = np.where(still & (scale == 0), np.where(late > 0, late, 1.0), scale)
        moving = np.flatnonzero(~still)
        if len(moving) > 1:
            z = (x[:, moving] - mean[moving]) / scale[moving]
            values, vectors = np.linalg.eigh(z.T @ z / known)
            lost = values < 1e-9 * values[-1]
            if lost.any():
                among = moving[(vectors[:, lost] ** 2).sum(1) > 1e-6].tolist()
                self._warn(
                    f"Columns {', '.join(map(self._name, among))} are collinear in the known rows: their coefficients "
                    "are not told apart there, their weighted sum is."
                )
        label_mean = np.nanmean(y, axis=0) if self.fit_intercept else np.zeros(y.shape[1])
        label_scale = np.sqrt(np.nanmean((y - label_mean) ** 2, axis=0))
        if not label_scale.all():
            raise ValueError("y must vary in the known rows")
        return _Units(mean, scale, label_mean, label_scale, bool(self.fit_intercept))

    def _search(self, inputs: Array, labels: Array, times: Array) -> Likeliest | None:
        """Search for the variances of each label that are likeliest on the known rows; None if a factor forgets."""
        known = self._known_count(len(inputs))
        x = self._units.inputs(inputs[:known])
        y = (labels[:known] - self._units.label_mean) / self._units.label_scale
        elapsed = np.diff(times[:known], prepend=times[0]) / self.time_unit_
        k, m = x.shape[1], y.shape[1]
        given = None if self.noise is None else np.asarray((self.noise / self._units.label_scale) ** 2)
        if self.forgetting is not None:
            self._model = self._forgetful(x, y, elapsed, np.full((m, k), self.prior_scale**2), given)
            return None
        # The search's covariances would round at a wider prior, which changes the likeliest variances by less.
        wide, drift = min(self.prior_scale, 1e3) ** 2, self._unit_drift(k)
        return Likeliest(x, y, elapsed, drift, self.process == "stationary", wide, given, self.gamma)

    def _adopt(self, search: Likeliest, theta: Array, ratios: Array) -> None:
        """Take the variances that were found."""
        search.prior = self.prior_scale**2
        self._model = search.model(theta)
        for label, what in search.at_bounds(theta):
            self._warn(f"Label {self._label_name(label)}: {what}." if self._several else f"{what}.")
        for label, row in enumerate(ratios if isinstance(self.drift, str) and self.drift == "per coefficient" else []):
            if still := [name for name, ratio in zip(self.coefficient_names_, row, strict=True) if ratio < 2.706]:
                of = f" of label {self._label_name(label)}" if self._several else ""
                self.notes_.append(
                    f"The drift{of} of {', '.join(still)} is not told from none (likelihood ratio below 2.71)."
                )

    def _label_name(self, label: int) -> Any:
        return self._label_names[label] if self._label_names else label

    def _unit_drift(self, k: int) -> Any:
        """Given drift as variances of standardised coefficients (labels, k), or the name of what is learnt."""
        if isinstance(self.drift, str):
            return self.drift
        sd = np.asarray(_checks.real("drift", self.drift, at_least=0), np.float64)
        if sd.shape not in ((), (k,)):
            raise ValueError(f"drift must have one standard deviation for each of {k} coefficients, got {sd.shape}")
        T, _ = self._units.to_table()
        return (sd / np.einsum("mii->mi", T)) ** 2

    def _forgetful(self, x: Array, y: Array, elapsed: Array, prior: Array, given: Any) -> Model:
        """Recursive least squares with one factor or several; its noise from the known rows' errors."""
        factors = np.array(FACTORS if isinstance(self.forgetting, str) else [self.forgetting], np.float64)
        m, k = prior.shape
        batch = np.repeat(np.arange(m), len(factors))
        ones = np.ones(len(batch))
        model = Model(np.zeros((len(batch), k)), None, ones, prior[batch], np.tile(factors, m))
        state, total, count = start(model, 0.0), np.zeros(len(batch)), np.zeros(len(batch))
        skip, observed = k + 1, np.isfinite(y.sum(1)).tolist()
        for t in range(len(x)):
            state = pass_time(model, state, float(elapsed[t]), 0.0)
            label = y[t][batch] if len(batch) > 1 else y.item(t)
            state, mean, S = learn(model, state, x[t], label, observed[t])
            here = np.isfinite(y[t][batch]) & (t >= skip)
            total += np.where(here, (label - mean) ** 2 / S, 0.0)
            count += here
        noise = total / np.maximum(count, 1) if given is None else given[batch]
        return replace(model, noise=np.maximum(noise, 1e-16), prior=prior[batch])

    def _follow(self, inputs: Array, labels: Array, times: list[float], index: Any) -> None:
        """Run the filter on through these rows; the state is replaced when all are through."""
        model, units, state = self._model, self._units, self._state
        x = design(model, units.inputs(inputs))
        c = len(model.noise) // self._labels_count
        if len(model.noise) == 1:
            mean, scale = units.label_mean.item(), units.label_scale.item()
            y: Any = [(label - mean) / scale for label in labels.ravel().tolist()]
            observed = [label == label for label in y]
        else:
            y = np.repeat((labels - units.label_mean) / units.label_scale, c, axis=1)
            observed = np.isfinite(y.sum(1)).tolist()
        rows, begun, keep = [], self.n_rows_ > 0, self.keep_path
        for t, at in enumerate(times):
            before = pass_time(model, state, (at - state.time) / self.time_unit_ if begun else 0.0, at)
            # A copy: some processors' kernels round by where a row begins in memory, which a table decides.
            state, mean, S = learn(model, before, x[t].copy(), y[t], observed[t])
            if c > 1:
                state, mean, S = self._reweigh(before, state, y[t], mean, S)
            if keep:
                rows.append(_Row(before, state, mean, S))
            begun = True
        self._state = state
        self.n_rows_ += len(x)
        if keep:
            self._rows += rows
            for name, part in (("inputs", inputs), ("labels", labels), ("times", np.array(times))):
                self._table_rows[name].append(part)
            self._index += list(range(self.n_rows_ - len(x), self.n_rows_) if index is None else index)

    def _reweigh(self, before: State, after: State, y: Array, mean: Array, S: Array) -> tuple[State, Array, Array]:
        """Bank of factors: state with new weights, and the moments of the mixture in advance (labels,).

        Weights forget as time passes [Raftery, Karny & Ettler 2010].
        """
        density = np.where(np.isnan(y), 0.0, -(np.log(S) + (y - mean) ** 2 / S) / 2)
        weight = (before.log_weight + density).reshape(self._labels_count, -1)
        weight = weight - weight.max(1, keepdims=True)
        weight = weight - np.log(np.exp(weight).sum(1, keepdims=True))
        mixed = self._mixture_moments(mean[:, None], S[:, None], before.log_weight)
        return after._replace(log_weight=weight.reshape(-1)), mixed[0][:, 0], mixed[1][:, 0]

    # What was found.

    def _mixture_moments(self, mean: Array, variance: Array, log_weight: Array) -> tuple[Array, Array]:
        """Moments of each label's mixture, mean and variance (labels, rows); log weights (batch,) or (batch, rows)."""
        weight = np.exp(log_weight - log_weight.max(0)).reshape(self._labels_count, len(mean) // self._labels_count, -1)
        weight = weight / weight.sum(1, keepdims=True)
        mean = mean.reshape(self._labels_count, -1, mean.shape[-1])
        variance = variance.reshape(mean.shape)
        centre = (weight * mean).sum(1)
        return centre, (weight * (variance + (mean - centre[:, None]) ** 2)).sum(1)

    def _table(self, w: Array, R: Array, log_weight: Array) -> tuple[Array, Array]:
        """Coefficients in the table's units and their standard deviations (rows, labels, k) of laws by row."""
        T, offset = self._units.to_table()
        c = w.shape[1] // len(T)
        T, offset = np.repeat(T, c, axis=0), np.repeat(offset, c, axis=0)
        if self._model.gamma is not None:
            T = np.concatenate([T, T], axis=-1)
        mean = (T @ w[..., None])[..., 0] + offset
        sd = np.linalg.norm(R @ T.mT, axis=-2)
        if c == 1:
            return mean, sd
        laws = [self._mixture_moments(a, b**2, each) for a, b, each in zip(mean, sd, log_weight, strict=True)]
        mixed, variance = map(np.array, zip(*laws, strict=True))
        return mixed, np.sqrt(variance)

    def _coefficient_table(self, values: Array) -> Any:
        """Values (rows, labels, coefficients) as fit was given its table."""
        if not self._several:
            values = values[:, 0]
        if not self._frame:
            return values
        names = self.coefficient_names_
        columns: Any = names
        if self._several:
            labels = [self._label_name(label) for label in range(self._labels_count)]
            columns = pd.MultiIndex.from_product([labels, names])
        return pd.DataFrame(values.reshape(len(values), -1), index=self._index, columns=columns)

    def _label_table(self, values: Array) -> Any:
        """Values (rows, labels) as fit was given its labels."""
        if not self._several:
            return pd.Series(values[:, 0], index=self._index) if self._frame else values[:, 0]
        if not self._frame:
            return values
        return pd.DataFrame(values, index=self._index, columns=list(map(self._label_name, range(self._labels_count))))

    @property
    def coefficient_names_(self) -> list[str]:
        """Names of the coefficients, the intercept first."""
        columns = self._columns or [f"x{column}" for column in range(self.n_features_in_)]
        return ["intercept"] * self._units.intercept + columns

    def _check_fitted(self) -> None:
        if not hasattr(self, "_state"):
            raise AttributeError("fit must be called first")

    def _check_path(self) -> None:
        self._check_fitted()
        if not self.keep_path:
            raise ValueError(
                "keep_path must be True for coefficients_, predictions_, smooth and compare, which need all rows"
            )

    def _path(self) -> Path:
        self._check_path()
        laws = [np.array([getattr(row.after, name) for row in self._rows]) for name in ("w", "R", "log_weight")]
        mean, sd = self._table(*laws)
        return Path(self._coefficient_table(mean), self._coefficient_table(sd))

    @property
    def coefficients_(self) -> Any:
        """Coefficients after each row."""
        return self._path().mean

    @property
    def coefficients_sd_(self) -> Any:
        """Standard deviations of the coefficients after each row."""
        return self._path().sd

    def _laws(self) -> tuple[Array, Array]:
        """Predictive mean and variance of each row's label (rows, labels), in the table's units."""
        self._check_path()
        mean, variance = (
            np.array([getattr(row, name) for row in self._rows]).reshape(-1, self._labels_count)
            for name in ("mean", "S")
        )
        scale = self._units.label_scale
        return mean * scale + self._units.label_mean, variance * scale**2

    @property
    def predictions_(self) -> Any:
        """Prediction of each row's label before it was seen."""
        return self._label_table(self._laws()[0])

    @property
    def predictions_sd_(self) -> Any:
        """Standard deviation of each row's label before it was seen."""
        return self._label_table(np.sqrt(self._laws()[1]))

    def _of_labels(self, values: Array) -> Any:
        return values if self._several else values[0]

    @property
    def noise_sd_(self) -> Any:
        """Standard deviation of the labels' noise; with several factors that of the factor now likeliest."""
        noise = self._model.noise.reshape(self._labels_count, -1)
        at = self._state.log_weight.reshape(noise.shape).argmax(1)
        return self._of_labels(np.sqrt(noise[np.arange(len(noise)), at]) * self._units.label_scale)

    @property
    def drift_sd_(self) -> Any:
        """Standard deviation that each coefficient gains a unit of time, or stationary, in the table's units."""
        if self._model.forget is not None:
            raise AttributeError("a model with a forgetting factor has no drift")
        T, _ = self._units.to_table()
        return self._of_labels(np.sqrt(self._model.q[:, : T.shape[-1]]) * np.einsum("mii->mi", T))

    @property
    def gamma_(self) -> Any:
        """What a stationary drift keeps a unit of time."""
        if self._model.gamma is None:
            raise AttributeError("a random walk keeps all")
        return self._of_labels(self._model.gamma)

    @property
    def log_likelihood_(self) -> Any:
        """Log density of the labels, each given those before it, in the table's units."""
        mean, variance = self._laws()
        terms = np.log(2 * np.pi * variance) + (np.concatenate(self._table_rows["labels"]) - mean) ** 2 / variance
        return self._of_labels(-np.nansum(terms, axis=0) / 2)

    def summary(self) -> pd.DataFrame:
        """Last coefficients with their standard deviations, and drift: a row for each coefficient (and label)."""
        self._check_fitted()
        mean, sd = self._table(*(part[None] for part in self._state[:3]))
        names = self.coefficient_names_
        labels = [self._label_name(label) for label in range(self._labels_count)]
        index: Any = pd.MultiIndex.from_product([labels, names]) if self._several else names
        table = pd.DataFrame({"coefficient": mean[0].ravel(), "sd": sd[0].ravel()}, index=index)
        if self._model.forget is None:
            table["drift sd"] = np.ravel(self.drift_sd_)
        return table

    # Looking ahead and back.

    @validated
    def predict(self, X: Any, return_std: bool = False, ahead: Any = None, time: Any = None) -> Any:
        """Labels of new rows, given all labels so far; labels that come late are told by `ahead`.

        Args:
            X: row or rows of inputs.
            return_std: return standard deviations too, the label's noise included.
            ahead: units of time after the last row that was learnt, one for all rows or one each; 1 by default.
            time: of the rows, in place of `ahead`.

        Returns:
            Means (rows,), or (rows, labels) of several labels; with `return_std` a pair of them.
        """
        self._check_fitted()
        model, units, inputs = self._model, self._units, self._inputs(X)
        if time is not None and ahead is not None:
            raise ValueError("ahead or time must be given, not both")
        elapsed: Any = 1.0
        if time is not None or ahead is not None:
            if time is not None:
                ahead = (_times(time, len(inputs)) - self._state.time) / self.time_unit_
            elapsed = np.broadcast_to(np.asarray(ahead, np.float64), len(inputs))
            if not (elapsed >= 0).all():
                raise ValueError("ahead must be >= 0, and time not before the last row that was learnt")
        means, variances = forecast(model, self._state, elapsed, design(model, units.inputs(inputs)), return_std)
        if len(model.noise) > self._labels_count:
            weights = self._state.log_weight[:, None] * WEIGHTS ** np.atleast_1d(elapsed)
            mixed, variance = self._mixture_moments(means.T, variances.T, weights)
            means, variances = mixed.T, variance.T
        if not self._several:
            means, variances = means[:, 0], variances[:, 0]
        mean = means * units.label_scale + units.label_mean
        return (mean, np.sqrt(variances) * units.label_scale) if return_std else mean

    def smooth(self) -> Path:
        """Coefficients at each row given all labels, earlier and later; not for prediction.

        The square-root form of the fixed-interval smoother [Rauch, Tung & Striebel 1965; Park & Kailath 1995]: with P
        the covariance after a row, (R F, R; Q^(1/2), 0) has the triangle (R+, B; 0, C), and G = (R+^-1 B)'.

        Raises:
            ValueError: of a model with a forgetting factor, which says nothing of the past.
        """
        self._check_path()
        if self._model.forget is not None:
            raise ValueError("forgetting must be None for smooth: a forgetting factor is no model of the past")
        model, rows = self._model, self._rows
        w, R = (np.array([getattr(row.after, name) for row in rows]) for name in ("w", "R"))
        ahead = np.array([row.before.w for row in rows])
        n, m, K = w.shape
        stack = np.zeros((n - 1, m, 2 * K, 2 * K))
        i = np.arange(K)
        for t, (row, then) in enumerate(itertools.pairwise(rows)):
            keep, gain = model.drift((then.after.time - row.after.time) / self.time_unit_)
            stack[t, :, :K, :K] = R[t] if keep is None else R[t] * keep[:, None]
            stack[t, :, K + i, i] = np.sqrt(gain).T
        stack[:, :, :K, K:] = R[:-1]
        triangle: Any = np.linalg.qr(stack, mode="r")
        # The pseudo-inverse: a coefficient without variance has nothing to learn.
        G = (np.linalg.pinv(triangle[:, :, :K, :K]) @ triangle[:, :, :K, K:]).mT
        C = triangle[:, :, K:, K:]
        mean, root = w.copy(), R.copy()
        for t in range(n - 2, -1, -1):
            mean[t] += (G[t] @ (mean[t + 1] - ahead[t + 1])[..., None])[..., 0]
            root[t] = np.linalg.qr(np.concatenate([C[t], root[t + 1] @ G[t].mT], axis=-2), mode="r")
        of_table, sd = self._table(mean, root, np.zeros((n, m)))
        return Path(self._coefficient_table(of_table), self._coefficient_table(sd))

    @validated
    def compare(self, known: OpenUnit = 0.4) -> pd.DataFrame:
        """One-step predictions of this model and of simpler ones, judged on the rows that none has learnt from.

        All settings come from the known rows: this model's `known`, or else this share. Rivals are the last label,
        constant coefficients, least squares on a rolling window and with a forgetting factor (the length and the factor
        with the least squared error on the known rows), and self-tuned forgetting.

        Args:
            known: share of the rows that is known, if this model's `known` is all.

        Returns:
            A row for each method (and label): error, the mean squared error as a share of the known labels' variance,
            and its standard error, which allows for neighbours that are alike; gap, how much larger the error is than
            this model's, and the standard error of that, row by row; coverage, how many labels fell into their 90%
            interval, and its standard error; setting, the length or the factor that was chosen.
        """
        self._check_path()
        inputs, labels, times = (np.concatenate(self._table_rows[name]) for name in ("inputs", "labels", "times"))
        count = int(known * len(inputs)) if self.known is None else self._known_count(len(inputs))
        if not self._several:
            return compare_methods(self, inputs, labels[:, 0], times, count)
        tables = {
            self._label_name(i): compare_methods(self, inputs, labels[:, i], times, count)
            for i in range(labels.shape[1])
        }
        return pd.concat(tables, names=["label"])

    @validated
    def plot(self, smooth: bool = False) -> Any:
        """Coefficients with bands of two standard deviations, a panel each, as an Altair chart.

        Args:
            smooth: draw the coefficients given all labels, in place of those given the labels so far.
        """
        import altair as alt

        mean, sd = self.smooth() if smooth else self._path()
        k = len(self.coefficient_names_)
        mean, sd = (np.asarray(part).reshape(self.n_rows_, self._labels_count, k) for part in (mean, sd))
        some = np.unique(np.linspace(0, self.n_rows_ - 1, min(self.n_rows_, 1000)).astype(int))
        frames = [
            pd.DataFrame(
                {
                    "row": np.array(self._index)[some],
                    "coefficient": f"{name} of {self._label_name(label)}" if self._several else name,
                    "value": mean[some, label, j],
                    "low": mean[some, label, j] - 2 * sd[some, label, j],
                    "high": mean[some, label, j] + 2 * sd[some, label, j],
                }
            )
            for label in range(self._labels_count)
            for j, name in enumerate(self.coefficient_names_)
        ]
        dated = isinstance(self._index[0], pd.Timestamp)
        words = f"Coefficients of {', '.join(self.coefficient_names_)} by row, with bands of two standard deviations"
        chart = alt.Chart(pd.concat(frames), description=words)
        base = chart.encode(x=alt.X("row", type="temporal" if dated else "quantitative"))
        title = "label's unit per input's"
        band = base.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
        line = base.mark_line().encode(y=alt.Y("value:Q", title=title))
        panels = alt.layer(band, line).properties(width=280, height=110)
        facet = alt.Facet("coefficient:N", sort=None, title=None)
        return panels.facet(facet, columns=2).resolve_scale(y="independent")
