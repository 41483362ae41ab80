"""Which of several times are far longer than the others?"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import BoolArray

LEAST_TIMES: Final = 5
"""Fewer do not tell what is usual."""
_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""


def outlying(times: npt.NDArray[Any], sigmas: float, share: float) -> BoolArray:
    """True for times that are more than so many standard deviations above the median (by the median absolute
    deviation), and by more than a share of it; none of fewer than :data:`LEAST_TIMES`. Shape (times,)."""
    if len(times) < LEAST_TIMES:
        return np.zeros(len(times), np.bool_)
    median = float(np.median(times))
    above = times - median
    deviation = float(np.median(np.abs(above))) * _SIGMA
    found: BoolArray = (above > sigmas * deviation) & (above > share * median)
    return found
