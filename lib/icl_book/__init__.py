"""Chapter support: claims, records, charts, exercises, notation, and the experiments of single chapters.

- `chapters`: experiments of single chapters
- `charts`: figures
- `claims`: the ledger of claims and their checks
- `closure`: transitive imports of a piece of Python code
- `exercises`: self-checking exercises
- `grading`: graded exercises: hidden test cases, forbidden calls, time limits
- `notation`: the table of symbols
- `prose`: sentences of the text, checked against the computation
- `records`: recorded long runs and their provenance
"""
