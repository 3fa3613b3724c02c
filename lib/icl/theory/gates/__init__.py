"""Gates that depend on the current key: error bounds.

- `finite_key_gates`: exact error of any layer with such gates, and a search for the best, at finite length
- `key_gates`: lower bounds over all such gates, and a layer that attains them
"""

from icl.theory.gates import finite_key_gates, key_gates

__all__ = ["finite_key_gates", "key_gates"]
