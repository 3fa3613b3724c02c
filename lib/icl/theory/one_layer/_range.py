"""Range of moments that float64 holds."""

import numpy as np

from icl.theory.moments import Moments


def within_float64(m: Moments) -> bool:
    """True if D1 .. D4 are within float64, and the sum of squares D2 does not underflow."""
    return bool(np.isfinite([m.D1, m.D2, m.D3, m.D4]).all() and (m.D2 > 1e-300 or not m.D4 > 0))
