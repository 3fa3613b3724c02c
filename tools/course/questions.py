"""The question bank (`bank`) on paper (`sheets`) and for learning platforms (`exchange`)."""

from collections.abc import Sequence
from pathlib import Path

from course import bank, exchange, sheets


def exchanged(questions: Sequence[bank.Question]) -> dict[str, bytes]:
    """The bank for learning platforms: files by name."""
    return {
        "questions-moodle.xml": exchange.moodle(questions),
        "questions-qti-1.2.zip": exchange.qti12(questions),
        "questions-qti-2.1.zip": exchange.qti21(questions),
    }


def make(out: Path) -> list[Path]:
    """Write sheets, keys and the files for platforms; return the paths."""
    questions = bank.load()
    files = exchanged(questions)
    by_part = {part: [question for question in questions if question.part == part] for part in bank.PARTS}
    pages = {
        f"{place + 1}-{part}-{name}.pdf": sheets.sheet(by_part[part], key=key)
        for place, part in enumerate(bank.PARTS)
        for name, key in (("sheet", False), ("key", True))
    }
    files |= sheets.printed(pages)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in sorted(files.items()):
        (out / name).write_bytes(content)
        written.append(out / name)
    return written
