"""Errata of the papers: equations as printed, corrected, and listed.

- `adaptation`: Learning to Adapt
- `erratum`: one entry of a list, of any paper: an erratum, or a statement that does not hold
- `memory`: Memformers
- `selection`: Mamba as online gradient descent
"""

from icl.theory.errata import adaptation, erratum, memory, selection
from icl.theory.errata.adaptation import (
    ADAPTATION,
    ADAPTATION_STATEMENTS,
    D1,
    D2,
    D3,
    D4,
    printed_identity_error,
    printed_testing_error,
    printed_training_error,
)
from icl.theory.errata.erratum import Erratum, Statement
from icl.theory.errata.memory import MEMORY, MEMORY_STATEMENTS, Display, Problem, Tokens, deviation
from icl.theory.errata.selection import SELECTION, SELECTION_STATEMENTS, printed_beta2

__all__ = [
    "ADAPTATION",
    "ADAPTATION_STATEMENTS",
    "D1",
    "D2",
    "D3",
    "D4",
    "MEMORY",
    "MEMORY_STATEMENTS",
    "SELECTION",
    "SELECTION_STATEMENTS",
    "Display",
    "Erratum",
    "Problem",
    "Statement",
    "Tokens",
    "adaptation",
    "deviation",
    "erratum",
    "memory",
    "printed_beta2",
    "printed_identity_error",
    "printed_testing_error",
    "printed_training_error",
    "selection",
]
