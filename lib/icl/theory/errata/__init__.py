"""Errata of the papers: equations as printed, corrected, and listed.

- `adaptation`: Learning to Adapt
- `erratum`: one entry of a list, of any paper: an erratum, or a statement that does not hold
- `memory`: Memformers
- `selection`: Mamba as online gradient descent
"""

from icl.theory.errata import adaptation, erratum, memory, selection
from icl.theory.errata.adaptation import ADAPTATION, ADAPTATION_STATEMENTS
from icl.theory.errata.erratum import Erratum, Statement
from icl.theory.errata.memory import MEMORY, MEMORY_STATEMENTS
from icl.theory.errata.selection import SELECTION, SELECTION_STATEMENTS

__all__ = [
    "ADAPTATION",
    "ADAPTATION_STATEMENTS",
    "MEMORY",
    "MEMORY_STATEMENTS",
    "SELECTION",
    "SELECTION_STATEMENTS",
    "Erratum",
    "Statement",
    "adaptation",
    "erratum",
    "memory",
    "selection",
]
