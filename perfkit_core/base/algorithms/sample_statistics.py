"""Statistics of samples: percentile bootstrap intervals of medians and means, and outliers. Source: Efron and
Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Random numbers are seeded, so results repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.arrays import BoolArray

DRAWS: Final = 2000
_SEED: Final = 20_201
_CELLS: Final = 1 << 22
"""Largest number of samples that are drawn into one array, to limit the memory."""
LEAST_TIMES: Final = 5
"""Outliers are determined only if there are at least this many measured times."""
_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""

FloatArray = npt.NDArray[np.float64]
Samples = Sequence[float] | npt.NDArray[Any]


def median_interval(samples: Samples, level: float = 0.95) -> tuple[float, float]:
    """Return the ends of the interval that contains the median with probability ``level``. If there is only one sample,
    both ends equal this sample. Raises ValueError if there are no samples."""
    return interval(medians(np.asarray(samples, np.float64), np.random.default_rng(_SEED)), level)


def means(samples: Samples) -> FloatArray:
    """Return the means of DRAWS resamples with replacement, shape (DRAWS,). Raises ValueError without samples."""
    return medians(np.asarray(samples, np.float64), np.random.default_rng(_SEED), np.mean)


def two_medians(base: Samples, other: Samples) -> tuple[FloatArray, FloatArray]:
    """Return the medians of DRAWS resamples of ``base`` and of as many independent resamples of ``other``, each of
    shape (DRAWS,). Raises ValueError if either has no samples."""
    draw = np.random.default_rng(_SEED)
    return medians(np.asarray(base, np.float64), draw), medians(np.asarray(other, np.float64), draw)


def medians(samples: FloatArray, draw: np.random.Generator, of: Callable[..., Any] = np.median) -> FloatArray:
    """Draw DRAWS resamples with replacement, and return the median of each, shape (DRAWS,). If ``of`` is another
    function, such as ``np.mean``, return its results instead. Raises ValueError if there are no samples."""
    if not len(samples):
        raise ValueError("no samples")
    rows = max(_CELLS // len(samples), 1)
    drawn = [
        of(samples[draw.integers(0, len(samples), (min(rows, DRAWS - at), len(samples)))], axis=1)
        for at in range(0, DRAWS, rows)
    ]
    return np.concatenate(drawn)


def interval(values: FloatArray, level: float) -> tuple[float, float]:
    """Return the ends of the central interval of ``values``. For ``level`` 0.9, it extends from p5 to p95."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def outlying(times: npt.NDArray[Any], sigmas: float = 3.0, share: float = 0.05) -> BoolArray:
    """Return the mask of outliers, shape (times,). An outlier exceeds the median by more than ``sigmas`` standard
    deviations and by more than ``share`` times the median. The standard deviation is estimated from the median absolute
    deviation. No time is an outlier if there are fewer than :data:`LEAST_TIMES`."""
    if len(times) < LEAST_TIMES:
        return np.zeros(len(times), np.bool_)
    median = float(np.median(times))
    above = times - median
    deviation = float(np.median(np.abs(above))) * _SIGMA
    outliers: BoolArray = (above > sigmas * deviation) & (above > share * median)
    return outliers
