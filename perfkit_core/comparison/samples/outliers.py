"""Which steps took much longer than the others of their capture? They are named, and stay counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.comparison.samples.captures import Capture
from perfkit_core.trace import BoolArray

LEAST_STEPS: Final = 5
"""Fewer do not tell what is usual."""
_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""


def outliers(sides: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """Columns run (the side), capture (its number, from 1 on), step, dur_ns, median_ns (of the capture), longer_ratio;
    in the order of the captures."""
    rows = [
        row for side, captures in sides.items() for at, one in enumerate(captures, 1) for row in _rows(side, at, one)
    ]
    return pd.DataFrame(rows, columns=["run", "capture", "step", "dur_ns", "median_ns", "longer_ratio"])


def _rows(side: str, number: int, one: Capture) -> list[tuple[object, ...]]:
    times, outlying = one.mean_ns, late(one)
    pairs = zip(one.step[outlying].tolist(), times[outlying].tolist(), strict=True)
    median = int(np.median(times)) if len(times) else 0
    return [(side, number, step, ns, median, ns / median - 1) for step, ns in pairs]


def late(one: Capture) -> BoolArray:
    """Which steps of a capture took much longer than its others, shape (steps,): more than so many standard deviations
    above the median, and by a share that is worth a look. By the limits of the advice on outlying steps."""
    step_ns = one.mean_ns
    if len(step_ns) < LEAST_STEPS:
        return np.zeros(len(step_ns), np.bool_)
    limits, median = Thresholds(), float(np.median(step_ns))
    above = step_ns - median
    deviation = float(np.median(np.abs(above))) * _SIGMA
    found: BoolArray = (above > limits.outlier_sigmas * deviation) & (above > limits.outlier_share * median)
    return found
