"""What a chapter shows: claims, records, charts, exercises, notation.

- `charts`: figures
- `claims`: the ledger of claims and their checks
- `exercises`: self-checks of exercises
- `grading`: graded exercises: secret cases, barred calls, time
- `notation`: every symbol of the book
- `prose`: sentences of the text, beside what makes them true
- `records`: recorded long runs with where they come from
"""

from icl_book import charts, claims, exercises, grading, notation, prose, records
from icl_book.charts import (
    BY_DRIFT,
    BY_EXAMPLES,
    BY_LAYERS,
    BY_LENGTH,
    METHODS,
    SEQUENCE,
    Explorable,
    Figure,
    dots,
    heatmap,
    lines,
    theme,
)
from icl_book.claims import (
    CHECK_MIME,
    JUDGED,
    QUALIFIED,
    VERDICTS,
    Check,
    Claim,
    VerdictChanged,
    claim,
    folder,
    ledger,
    readable,
    residue,
)
from icl_book.exercises import EXERCISE_MIME, SelfCheck, check, seal
from icl_book.grading import (
    DEFAULT_SECRET,
    DYNAMIC,
    SECRET_VARIABLE,
    Refused,
    barred,
    breach,
    earn,
    judge,
    seeded,
)
from icl_book.notation import SYMBOLS, Symbol
from icl_book.prose import SAID_MIME, Said, said
from icl_book.records import Record, record, recorded, sealed

__all__ = [
    "BY_DRIFT",
    "BY_EXAMPLES",
    "BY_LAYERS",
    "BY_LENGTH",
    "CHECK_MIME",
    "DEFAULT_SECRET",
    "DYNAMIC",
    "EXERCISE_MIME",
    "JUDGED",
    "METHODS",
    "QUALIFIED",
    "SAID_MIME",
    "SECRET_VARIABLE",
    "SEQUENCE",
    "SYMBOLS",
    "VERDICTS",
    "Check",
    "Claim",
    "Explorable",
    "Figure",
    "Record",
    "Refused",
    "Said",
    "SelfCheck",
    "Symbol",
    "VerdictChanged",
    "barred",
    "breach",
    "charts",
    "check",
    "claim",
    "claims",
    "dots",
    "earn",
    "exercises",
    "folder",
    "grading",
    "heatmap",
    "judge",
    "ledger",
    "lines",
    "notation",
    "prose",
    "readable",
    "record",
    "recorded",
    "records",
    "residue",
    "said",
    "seal",
    "sealed",
    "seeded",
    "theme",
]
