"""Which steps took much longer than the others of their capture? They are named, and stay counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.comparison.samples.captures import Capture
from perfkit_core.trace import BoolArray, IntArray

LEAST_STEPS: Final = 5
"""Fewer do not tell what is usual."""
_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""


def outliers(sides: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """Columns side, capture (its source), step, dur_ns, median_ns (of the capture), longer_ratio; in the order of
    the captures. By the limits of the advice on outlying steps."""
    rows = [row for side, captures in sides.items() for one in captures for row in _rows(side, one)]
    return pd.DataFrame(rows, columns=["side", "capture", "step", "dur_ns", "median_ns", "longer_ratio"])


def _rows(side: str, one: Capture) -> list[tuple[object, ...]]:
    times = one.mean_ns
    if len(times) < LEAST_STEPS:
        return []
    late, median = _late(times), int(np.median(times))
    pairs = zip(one.step[late].tolist(), times[late].tolist(), strict=True)
    return [(side, one.source, step, ns, median, ns / median - 1) for step, ns in pairs]


def _late(step_ns: IntArray) -> BoolArray:
    """More than so many standard deviations above the median, and by a share that is worth a look."""
    limits, median = Thresholds(), float(np.median(step_ns))
    above = step_ns - median
    deviation = float(np.median(np.abs(above))) * _SIGMA
    late: BoolArray = (above > limits.outlier_sigmas * deviation) & (above > limits.outlier_share * median)
    return late
