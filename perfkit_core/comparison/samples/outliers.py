"""Which steps took much longer than the others of their capture? They are named, and stay counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.comparison.samples.captures import Capture
from perfkit_core.outlying import outlying
from perfkit_core.trace import BoolArray


def outliers(sides: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """Columns run (the side), capture (its number, from 1 on), step, dur_ns, median_ns (of the capture), longer_ratio;
    in the order of the captures."""
    rows = [
        row for side, captures in sides.items() for at, one in enumerate(captures, 1) for row in _rows(side, at, one)
    ]
    return pd.DataFrame(rows, columns=["run", "capture", "step", "dur_ns", "median_ns", "longer_ratio"])


def _rows(side: str, number: int, one: Capture) -> list[tuple[object, ...]]:
    times, found = one.mean_ns, late(one)
    pairs = zip(one.step[found].tolist(), times[found].tolist(), strict=True)
    median = int(np.median(times)) if len(times) else 0
    return [(side, number, step, ns, median, ns / median - 1) for step, ns in pairs]


def late(one: Capture) -> BoolArray:
    """Which steps of a capture took much longer than its others, shape (steps,), by the limits of the advice on
    outlying steps."""
    limits = Thresholds()
    return outlying(one.mean_ns, limits.outlier_sigmas, limits.outlier_share)
