"""How sure is a median, or the difference of two? By drawing the samples again and again (percentile bootstrap).

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Draws are seeded: the same samples give the
same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

DRAWS: Final = 2000
_SEED: Final = 20_201
_AT_ONCE: Final = 1 << 22

FloatArray = npt.NDArray[np.float64]


def median_interval(samples: Sequence[float] | npt.NDArray[Any], level: float = 0.95) -> tuple[float, float]:
    """Interval that holds the median with a probability of ``level``, in the unit of the samples. One sample says
    nothing about its spread: it is its own interval. Raises ValueError without samples."""
    return interval(medians(np.asarray(samples, np.float64), np.random.default_rng(_SEED)), level)


def means(samples: Sequence[float] | npt.NDArray[Any]) -> FloatArray:
    """Means of samples drawn with replacement, shape (DRAWS,). Raises ValueError without samples."""
    return medians(np.asarray(samples, np.float64), np.random.default_rng(_SEED), np.mean)


def two_medians(
    base: Sequence[float] | npt.NDArray[Any], other: Sequence[float] | npt.NDArray[Any]
) -> tuple[FloatArray, FloatArray]:
    """Medians of both, drawn independently of each other, shape (DRAWS,) each. Raises ValueError without samples."""
    draw = np.random.default_rng(_SEED)
    first, second = (medians(np.asarray(one, np.float64), draw) for one in (base, other))
    return first, second


def medians(samples: FloatArray, draw: np.random.Generator, of: Callable[..., Any] = np.median) -> FloatArray:
    """The statistic of samples drawn with replacement, shape (DRAWS,). Raises ValueError without samples."""
    if not len(samples):
        raise ValueError("no samples")
    rows = max(_AT_ONCE // len(samples), 1)
    found = [
        of(samples[draw.integers(0, len(samples), (min(rows, DRAWS - at), len(samples)))], axis=1)
        for at in range(0, DRAWS, rows)
    ]
    return np.concatenate(found)


def interval(values: FloatArray, level: float) -> tuple[float, float]:
    """The middle part of some values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
