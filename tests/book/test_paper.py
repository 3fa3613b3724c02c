"""The short paper: its numbers are macros that the library computes, and what it cites and points at is there."""

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from icl.theory.steady import large_d

PAPER = Path(__file__).resolve().parents[2] / "paper"


def source() -> str:
    """The paper without its comments."""
    return re.sub(r"(?<!\\)%.*", "", (PAPER / "paper.tex").read_text(encoding="utf-8"))


@functools.cache
def make() -> ModuleType:
    """paper/make.py as a module."""
    spec = importlib.util.spec_from_file_location("paper_make", PAPER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def typed_decimals(text: str) -> list[str]:
    """Numbers with a decimal point in the body, but for the arguments of commands that lay it out."""
    body = text.split(r"\begin{document}")[1]
    laid_out = r"\\(?:begin\{minipage\}\[\w\]\{[^}]*\}|includegraphics\[[^]]*\]|setlength\{[^}]*\}\{[^}]*\})"
    return re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d{4})", re.sub(laid_out, "", body))


def own_macros(text: str) -> set[str]:
    """Macros that the preamble defines."""
    return set(re.findall(r"\\(?:newcommand\{\\|DeclareMathOperator\{\\)(\w+)\}", text))


def cited(text: str) -> set[str]:
    """Keys of all citations."""
    found = re.findall(r"\\cite[tp]?\*?(?:\[[^]]*\])*\{([^}]*)\}", text)
    return {key.strip() for keys in found for key in keys.split(",")}


def test_no_number_is_typed():
    """A number with a decimal point in the text comes from a macro."""
    assert typed_decimals(source()) == []
    assert typed_decimals(r"\begin{document} it has \includegraphics[width=0.5\linewidth]{a} 1.27 times") == ["1.27"]


def test_macros_are_made_and_used():
    """Every macro of make.py is in the text, none clashes with one of the text's own, and none else is asked for."""
    text = source()
    numbers = set(make().NUMBERS)
    used = set(re.findall(r"\\([A-Z][A-Za-z]+)", text.split(r"\begin{document}")[1]))
    of_latex = {"Lambda", "Omega", "Phi", "Psi", "Sigma", "Bigl", "Bigr"}
    assert numbers <= used
    assert used - of_latex - own_macros(text) <= numbers, used - of_latex - own_macros(text) - numbers
    assert not numbers & own_macros(text)
    assert all(name.isalpha() for name in numbers)  # TeX takes no digits in a name


def test_figures_are_made():
    """Each picture of the text is one that make.py draws, and the other way round."""
    assert set(re.findall(r"\\includegraphics\[[^]]*\]\{build/(\w+)\.pdf\}", source())) == set(make().FIGURES)


def test_citations_and_labels_resolve():
    """Every citation has an entry and every entry is cited; every reference has its label and every label is used."""
    text = source()
    entries = re.findall(r"^@\w+\{([\w-]+),", (PAPER / "paper.bib").read_text(encoding="utf-8"), re.M)
    assert len(entries) == len(set(entries))
    assert cited(text) == set(entries)
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(labels) == len(set(labels))
    pointed = set(re.findall(r"\\(?:eq)?ref\{([^}]*)\}", text))
    assert pointed <= set(labels), pointed - set(labels)
    assert {label for label in labels if not label.startswith("co:")} <= pointed


def test_every_statement_is_proved():
    """A theorem, proposition or corollary is followed by its proof before the next one stands."""
    kinds = re.findall(r"\\begin\{(theorem|proposition|corollary|proof)\}", source())
    assert len(kinds) >= 16
    assert all((kind == "proof") == bool(i % 2) for i, kind in enumerate(kinds))


def test_cheap_numbers_are_those_of_the_text():
    """A few macros, computed: what the prose around them says holds."""
    numbers = make().NUMBERS
    value = {name: float(numbers[name]()) for name in ("DeltaOverBound", "GlaOverBound", "LadderOne", "MatrixOne")}
    assert 1 < value["DeltaOverBound"] < value["GlaOverBound"]
    assert 0.9 < value["LadderOne"] < 1
    assert 1.4 < value["MatrixOne"] < 1.5
    s, v = np.geomspace(1e-3, 30, 30)[:, None], np.array([0.0, 1e-3, 0.03, 0.3, 3.0])
    assert (large_d.eps_delta(s, v) / large_d.kalman_large_d(s, v)).max() <= 4 / np.e
    assert [float(numbers[f"Swing{layer}"]()) for layer in ("Gla", "Delta", "Gated")] == pytest.approx(
        [0.74786, 0.68798, 0.64195], abs=2e-5
    )


def test_a_search_below_its_bound_is_refused():
    """The build stops where a search contradicts a theorem."""
    searched = make().Searched
    assert make().over(searched(1.0, 1 + 3e-9)) == "10^{-8}"
    with pytest.raises(RuntimeError, match="below its bound"):
        make().over(searched(1 - 1e-6, 1.0))
