"""What a chapter shows: claims, records, charts, exercises, notation; and experiments of single chapters.

- `chapters`: experiments of single chapters
- `charts`: figures
- `claims`: the ledger of claims and their checks
- `closure`: the modules of the library that a piece of Python reaches
- `exercises`: self-checks of exercises
- `grading`: graded exercises: secret cases, barred calls, time
- `notation`: every symbol of the book
- `prose`: sentences of the text, beside what makes them true
- `records`: recorded long runs with where they come from
"""
