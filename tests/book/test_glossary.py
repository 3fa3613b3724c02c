"""The glossary: every word once, said in a sentence, and used by the page that it names."""

from pathlib import Path

import directives
import yaml

ROOT = Path(__file__).resolve().parents[2]

TERMS = yaml.safe_load((ROOT / "book/start/terms.yml").read_text(encoding="utf-8"))


def test_terms_are_whole():
    """No term stands twice, under its own or another name, and each has a meaning that ends as a sentence does."""
    names = [name.lower() for entry in TERMS for name in (entry["term"], entry.get("also")) if name]
    assert len(names) == len(set(names))
    assert all(set(entry) <= {"term", "also", "letter", "meaning"} for entry in TERMS)
    assert all(entry["meaning"].endswith(".") for entry in TERMS)


def test_first_use_is_the_first():
    """The first page in order that uses a word or its other name, in the plural too, and not inside another word."""
    texts = {"a": "Registers and prompting.", "b": "A prompt, answering 0.", "c": "Prompts; the zero predictor."}
    assert directives.first_use(["prompt"], texts) == "b"
    assert directives.first_use(["register"], texts) == "a"
    assert directives.first_use(["zero predictor", "answering 0"], texts) == "b"
    assert directives.first_use(["filter"], texts) is None
