"""Ledger of claims: every claim of the papers with its check, tolerance and verdict.

A chapter settles a claim with one line,

    claim("gla.thm2.training-error").agrees(mse, formula, standard_error=se)
    claim("gla.thm2.lam-eq-gamma").holds(error_at_gamma > error_at_best)
    row = claim("gla.depth.single-timescale")
    row.holds(gain > row.limit("gain"))

The verdict follows from the numbers and must equal the ledger's; otherwise the cell fails, and the build with it.
Tolerances and thresholds are in the ledger, where they were written before the run.
"""

import html
import re
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

#: Verdict of a claim that holds with a caveat, which is checked too.
QUALIFIED = ("holds more narrowly", "holds for another reason", "answered here")
VERDICTS = ("reproduced", *QUALIFIED, "not reproduced", "misprint", "beyond our means", "still open", "not yet")
#: Source that a row judges; additions in a post or a summary are not the paper's.
JUDGED = ("paper", "blog", "summary", "paper and blog", "paper and summary")
#: MIME type of a check in a notebook's output, from which the book collects it.
CHECK_MIME = "application/vnd.icl.check+json"
_REPOSITORY = Path(__file__).resolve().parents[2]


class VerdictChanged(AssertionError):
    """Contradiction between a measurement and the ledger's verdict."""


def _check_booleans(**statements: Any) -> None:
    """Check that statements are booleans or None, not merely truthy (a list, a string, NaN, a function)."""
    for name, value in statements.items():
        if value is not None and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def _check_texts(id: str, name: str, entries: list[Any], keys: tuple[str, ...], *, dated: bool = False) -> None:
    """Check that every entry is a mapping with these keys and texts that say something, and perhaps dates in order."""
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {*keys, *(["date"] if dated else [])}:
            raise ValueError(f"{id}: {name} must have {', '.join(keys)}{', date' if dated else ''}, got {entry!r}")
        if not all(isinstance(entry[key], str) and entry[key].strip() for key in keys):
            raise ValueError(f"{id}: {name} must be of texts, got {entry!r}")
    dates = [entry["date"] for entry in entries if dated]
    if not all(type(day) is date for day in dates) or dates != sorted(dates):
        raise ValueError(f"{id}: {name} must have dates, the oldest first, got {dates}")


def folder(name: str) -> Path:
    """Return `book/<name>` of the repository, or its copy inside the installed package."""
    if not isinstance(name, str):
        raise ValueError(f"name must be a folder's, got {name!r}")
    for candidate in (_REPOSITORY / "book" / name, Path(__file__).parent / name):
        if candidate.is_dir():
            return candidate
    raise ValueError(f"no folder {name!r}: neither beside the sources nor inside the installed package")


@dataclass(frozen=True)
class Claim:
    """Row of the ledger.

    Attributes:
        id: its name, `gla.`, `mem.` or `mamba.` first.
        source: paper, section, equation or figure.
        judges: one of :data:`JUDGED`: the paper itself, a blog post on it, or a summary of it.
        claim: the paper's claim, in our words.
        how: the method of the check.
        verdict: one of `VERDICTS`.
        reason: one-sentence reason of the verdict; empty for 'not yet'.
        tolerance: one of {"relative": x}, {"absolute": x}, {"z": x} or {"truth": True}; None for 'not yet'.
        printed: the paper's number, if it prints one.
        chapter: the page that checks it, relative to `book/`; None for 'not yet'.
        limits: thresholds by name, for the chapter's condition: see :meth:`limit`.
        errata: numbers, in the paper's list of errata (`icl.theory.errata`), of the printed formulas concerned.
        quote: {"words": the paper's own, a short phrase, "place": where}; None if the claim is not a sentence of it.
        changed: every change of verdict, tolerance or limits after a run, oldest first, each with `date`, `from`, `to`
            and `why`; a change of the bar is told in words.
    """

    id: str
    source: str
    judges: str
    claim: str
    how: str
    verdict: str
    reason: str = ""
    tolerance: dict[str, Any] | None = None
    printed: Any = None
    chapter: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    errata: list[int] = field(default_factory=list)
    quote: dict[str, str] | None = None
    changed: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Validate the row: required fields and consistency."""
        # These two appear in URLs and attributes of a page, where they are not escaped.
        if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", self.id):
            raise ValueError(f"id must be words of letters, digits and '-', joined by dots, got {self.id!r}")
        if self.chapter is not None and not re.fullmatch(r"[\w-]+(/[\w-]+)*", self.chapter):
            raise ValueError(f"{self.id}: chapter must be a page's name, got {self.chapter!r}")
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.id}: verdict must be one of {VERDICTS}, got {self.verdict!r}")
        if self.judges not in JUDGED:
            raise ValueError(f"{self.id}: judges must be one of {JUDGED}, got {self.judges!r}")
        settled = self.verdict not in ("not yet", "beyond our means")
        if settled and not (self.reason and self.chapter and self.tolerance):
            raise ValueError(f"{self.id}: a settled claim needs a reason, a chapter and a tolerance")
        if self.tolerance and (
            len(self.tolerance) != 1 or next(iter(self.tolerance)) not in ("relative", "absolute", "z", "truth")
        ):
            raise ValueError(
                f"{self.id}: tolerance must be one of relative, absolute, z or truth, got {self.tolerance}"
            )
        if self.tolerance:
            ((kind, limit),) = self.tolerance.items()
            # YAML reads 1e-9 as a string; 1.0e-9 is the number.
            number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if limit is not True if kind == "truth" else not (number and 0 <= limit < float("inf")):
                raise ValueError(f"{self.id}: tolerance must be a number >= 0, or truth: true, got {self.tolerance}")
        for name, limit in self.limits.items():
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not np.isfinite(limit):
                raise ValueError(f"{self.id}: limit {name!r} must be a finite number, got {limit!r}")
        _check_texts(self.id, "quote", [self.quote] if self.quote is not None else [], ("words", "place"))
        _check_texts(self.id, "changed", self.changed, ("from", "to", "why"), dated=True)
        verdicts = [change["to"] for change in self.changed if change["to"] in VERDICTS]
        if verdicts and verdicts[-1] != self.verdict:
            raise ValueError(f"{self.id}: changed ends in {verdicts[-1]!r}, but the verdict is {self.verdict!r}")

    def limit(self, name: str) -> float:
        """Return a threshold from the ledger; ValueError if the row has none of that name."""
        if name not in self.limits:
            raise ValueError(f"{self.id} has no limit {name!r} in the ledger, only {sorted(self.limits)}")
        return self.limits[name]

    def agrees(
        self,
        measured: Any,
        expected: Any,
        *,
        standard_error: Any = None,
        samples: int | None = None,
        of: str = "prompts",
        mended: Any = None,
        caveat: bool | np.bool_ | None = None,
        note: str = "",
    ) -> "Check":
        """Check the paper's numbers against numbers computed here, within the ledger's tolerance.

        Args:
            measured: the claimed (or implied) value, computed as printed; a number or an array.
            expected: the reference, computed another way; broadcasts with `measured`.
            standard_error: of `measured - expected`; needed when the tolerance is in standard errors.
            samples: number of independent draws behind `measured`.
            of: unit of the draws: prompts, sequences, flows.
            mended: value of the corrected formula, for a misprint: it must pass where the printed one fails.
            caveat: additional condition; a verdict of :data:`QUALIFIED` needs it.
            note: numbers to show, if the deviation alone is not informative.

        Raises:
            ValueError: if measured or expected is not real and finite, if they are the same numbers in memory, or if
                the caveat is neither True nor False.
            VerdictChanged: if the numbers lead to another verdict than the ledger's.
        """
        _check_booleans(caveat=caveat)
        kind, limit = self._tolerance()
        if kind == "truth":
            raise ValueError(f"{self.id} is checked with .holds: its tolerance is a truth, not a number")
        deviation = _deviation(kind, measured, expected, standard_error)
        shown = f"{_UNITS[kind]} {residue(deviation, limit)} (limit {limit:g})"
        amended = caveat
        if mended is not None:
            mended_deviation = _deviation(kind, mended, expected, standard_error)
            amended = mended_deviation <= limit and (caveat is None or bool(caveat))
            shown += f"; mended: {residue(mended_deviation, limit)}"
        return self._settle(
            deviation <= limit, amended, mended is not None, f"{shown}{'; ' * bool(note)}{note}", samples, of
        )

    def holds(
        self,
        condition: bool | np.bool_,
        *,
        note: str,
        caveat: bool | np.bool_ | None = None,
        instead: bool | np.bool_ | None = None,
        samples: int | None = None,
        of: str = "prompts",
    ) -> "Check":
        """Check a true-or-false statement.

        Args:
            condition: the paper's statement.
            note: the numbers behind it, for the reader.
            caveat: additional condition; a verdict of :data:`QUALIFIED` needs it.
            instead: the statement that holds in its place, for a claim that is not reproduced.
            samples: number of independent draws behind it.
            of: unit of the draws: prompts, sequences, flows.

        Raises:
            ValueError: if condition, caveat or instead is neither True nor False.
            VerdictChanged: if this leads to another verdict than the ledger's.
        """
        if condition is None:
            raise ValueError("condition must be True or False, got None")
        _check_booleans(condition=condition, caveat=caveat, instead=instead)
        if self._tolerance()[0] != "truth":
            raise ValueError(f"{self.id} is checked with .agrees: its tolerance is {self.tolerance}")
        if condition and instead is not None:
            raise VerdictChanged(f"{self.id}: the claim holds after all ({note})")
        return self._settle(bool(condition), caveat if instead is None else instead, False, note, samples, of)

    def _tolerance(self) -> tuple[str, float]:
        if self.tolerance is None:
            raise VerdictChanged(
                f"{self.id} stands as {self.verdict!r} in the ledger: give it a tolerance and a verdict"
            )
        return next(iter(self.tolerance.items()))

    def _settle(
        self,
        passed: bool,
        amended: bool | np.bool_ | None,
        by_mending: bool,
        shown: str,
        samples: int | None,
        of: str,
    ) -> "Check":
        if amended is not None and not amended:
            raise VerdictChanged(f"{self.id}: what should hold beside the claim does not ({shown})")
        if passed:
            # The ledger decides the weight of a caveat; the numbers decide that it holds.
            fitting = ("reproduced", *QUALIFIED) if amended and not by_mending else ("reproduced",)
        else:
            fitting = ("misprint",) if by_mending else ("not reproduced",)
        if self.verdict not in fitting:
            verdicts = " or ".join(map(repr, fitting))
            raise VerdictChanged(f"{self.id}: measured {verdicts}, but the ledger says {self.verdict!r} ({shown})")
        drawn = None if samples is None else f"{samples:,} {of}"
        changed = self.changed[-1]["date"].isoformat() if self.changed else None
        return Check(self.id, self.verdict, self.claim, self.judges, shown, drawn, changed)


#: The ledger is ASCII; names of Greek letters and relation signs are replaced for display.
_LETTERS = {"lambda": "λ", "Lambda": "Λ", "gamma": "γ", "Gamma": "Γ", "sigma": "σ", "Sigma": "Σ", "alpha": "α"}
_LETTERS |= {"beta": "β", "Delta": "Δ", "xi": "ξ", "eta": "η", "<=": "≤", ">=": "≥", "!=": "≠", "->": "→"}
_LETTER = re.compile(
    r"(?<![A-Za-z])(lambda|Lambda|gamma|Gamma|sigma|Sigma|alpha|beta|Delta|xi|eta)(?![a-z])|<=|>=|!=|->"
)


def readable(text: str) -> str:
    """Replace ASCII names in a text of the ledger by Greek letters and relation signs.

    >>> readable("lambda >= 1 - gamma")
    'λ ≥ 1 - γ'
    """
    if not isinstance(text, str):
        raise ValueError(f"text must be a text, got {text!r}")
    return _LETTER.sub(lambda m: _LETTERS[m.group(0)], text)


def residue(deviation: float, limit: float = 1e-9) -> str:
    """Format a deviation: two digits, or an upper bound if it is round-off, whose digits depend on the machine.

    Round-off is within the limit and at most 1e-10, or 1e-7 where it is amplified; the bound is ten times that, or the
    limit if it is less.

    >>> residue(0.0312), residue(2.5e-15), residue(2.5e-15, limit=1e-12)
    ('0.031', 'less than 1e-09', 'less than 1e-12')
    """
    for rounding in (1e-10, 1e-7):
        if limit and abs(deviation) <= min(rounding, limit):
            return f"less than {min(limit, 10 * rounding):g}"
    return f"{deviation:.2g}"


_UNITS = {"relative": "relative deviation", "absolute": "deviation", "z": "|z| ="}


def _deviation(kind: str, measured: Any, expected: Any, standard_error: Any) -> float:
    for name, value in (("measured", measured), ("expected", expected)):
        if isinstance(value, np.ma.MaskedArray) or np.iscomplexobj(value):
            raise ValueError(f"{name} must be real and without a mask, got {value!r}")
    same = measured is expected and type(measured) not in (int, float)  # a number of Python may be a shared constant
    if same or np.shares_memory(np.asarray(measured), np.asarray(expected)):
        raise ValueError("measured and expected are the same numbers in memory: a claim needs two computations")
    measured, expected = np.asarray(measured, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if not (np.isfinite(measured).all() and np.isfinite(expected).all()):
        raise ValueError("measured and expected must be finite")
    gap = np.abs(measured - expected)
    if kind == "z":
        spread = np.asarray(np.nan if standard_error is None else standard_error, dtype=np.float64)
        if not (np.isfinite(spread) & (spread > 0)).all():
            raise ValueError(f"standard_error must be positive and finite for a tolerance in z, got {standard_error!r}")
        return float((gap / standard_error).max())
    if kind == "relative":
        # 0 agrees with 0; any other number against 0 does not.
        return float(np.divide(gap, np.abs(expected), out=np.where(gap == 0, 0.0, np.inf), where=expected != 0).max())
    return float(gap.max())


@dataclass(frozen=True)
class Check:
    """Result of checking a claim.

    Attributes:
        id: the claim's.
        verdict: the ledger's, confirmed by the measurement.
        claim: text of the claim, as in the ledger.
        judges: the source that is judged.
        measured: the numbers.
        samples: number and unit of draws behind them; None without sampling.
        changed: day of the row's last change after a run; None if there was none.
    """

    id: str
    verdict: str
    claim: str
    judges: str
    measured: str
    samples: str | None
    changed: str | None = None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        text = f"{self.id}: {self.verdict}. {self.measured}"
        whom = "" if self.judges == "paper" else f" ({html.escape(self.judges)})"
        drawn = f" <span class='icl-check__aside'>({html.escape(self.samples)})</span>" if self.samples else ""
        changed = f" · changed {html.escape(self.changed)}" if self.changed else ""
        return {
            "text/plain": text,
            "text/html": (
                f"<p class='icl-check' id='check-{html.escape(self.id)}' data-verdict='{html.escape(self.verdict)}'>"
                f"<b>Claim{whom}.</b> {html.escape(readable(self.claim))} "
                f"<span class='icl-check__aside'><code>{html.escape(self.id)}</code>{changed}</span><br>"
                f"<b>{html.escape(self.verdict.capitalize())}.</b> {html.escape(self.measured)}{drawn}</p>"
            ),
            CHECK_MIME: asdict(self),
        }


def _check_unique_keys(node: Any) -> None:
    """Check a YAML mapping for duplicate keys."""
    keys = [key.value for key, _ in node.value]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {twice[0]!r} stands there twice")


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys, of which PyYAML would keep the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Build a dict after checking for duplicate keys."""
        _check_unique_keys(node)
        return super().construct_mapping(node, deep)


@cache
def ledger() -> dict[str, Claim]:
    """Return every row of `book/claims/*.yml` by its id; ValueError for duplicate or malformed rows."""
    rows: dict[str, Claim] = {}
    for path in sorted(folder("claims").glob("*.yml")):
        try:
            claims = [Claim(**row) for row in yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)]
        except (TypeError, ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{path.name}: {error}") from error
        for claim in claims:
            if claim.id in rows:
                raise ValueError(f"{path.name}: {claim.id} stands in the ledger twice")
            rows[claim.id] = claim
    return rows


def claim(id: str) -> Claim:
    """Return the ledger's row of this id; ValueError if there is none.

    >>> claim("gla.thm2.training-error").verdict
    'reproduced'
    """
    if id not in list(ledger()):  # a list, so that an unhashable id is an error too
        raise ValueError(f"no claim {id!r} in the ledger (book/claims/)")
    return ledger()[id]
