"""What do the collectives that a rank shares with others tell of its clock: how far is it ahead, and does it drift?

The offset is the median difference of the ends, kept within its bounds: a collective ends nowhere before its last rank
has begun it. A drift is taken away where the ends tell it; elsewhere the offset is constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray

MOST_CROSSING_NS: Final = 10**6
"""By how much the bounds may cross; what crosses further was not one collective, or not on such a clock."""

MOST_DRIFT_PPM: Final = 500
"""As fast as a system lets a clock be slewed (adjtime); a faster drift is not taken away."""

_FASTEST_DRIFT_PPM: Final = 10_000
"""No clock gains a hundredth; what changes faster is no drift."""

FOR_A_DRIFT: Final = 9
"""Collectives from which a drift can be told: three at the beginning, three at the end."""

_LEAST_SPAN_NS: Final = 10**9
"""Over a shorter time the ends scatter more than clocks drift."""

_TOLD: Final = 10
"""How many times what the ends still scatter by a drift must amount to over the recording."""

_LEAST_SCATTER_NS: Final = 1000
"""Some profilers round their times to a microsecond."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """An offset, what it must lie between, and how far each end is from it, without sign, shape (collectives,)."""

    offset_ns: int
    earliest_ns: int
    latest_ns: int
    residuals: IntArray

    @property
    def crossing_ns(self) -> int:
        return max(self.earliest_ns - self.latest_ns, 0)

    @property
    def told_ns(self) -> int | None:
        """None where the bounds contradict each other."""
        return self.offset_ns if self.crossing_ns <= MOST_CROSSING_NS else None


def clock(mine: pd.DataFrame) -> dict[str, object]:
    """The row of a rank in :func:`clock_offsets.clock_offsets`, from the collectives that it shares with ranks whose
    clocks are known: ``start`` and ``end`` on its own clock; ``reference`` (end), ``first_end`` and ``latest_start`` on
    the other."""
    time, difference = mine["reference"].to_numpy(), (mine["end"] - mine["reference"]).to_numpy()
    drift, moment = _drift(time, difference), int(mine["end"].min())
    constant, rate, too_fast = _fit(mine, 0.0, moment), 0.0, False
    fit = constant
    if drift is not None and abs(drift) * 1e6 <= _FASTEST_DRIFT_PPM:
        own = drift / (1 + drift)  # by its own time
        without = _fit(mine, own, moment)
        even = _is_told(abs(drift) * int(np.ptp(time)), constant, without)
        too_fast = even and abs(drift) * 1e6 > MOST_DRIFT_PPM
        if even and not too_fast:
            fit, rate = without, own
    span = int(np.ptp(mine["end"].to_numpy()))
    return {
        "offset_ns": fit.told_ns,
        "earliest_ns": fit.earliest_ns,
        "latest_ns": fit.latest_ns,
        "matched": len(mine),
        "residual_ns": median(fit.residuals),
        "max_residual_ns": int(fit.residuals.max()),
        "drift_ppm": None if drift is None else drift * 1e6,
        "rate": rate,
        "moment_ns": moment,
        "constant_ns": constant.told_ns,
        "numbered": bool(mine["numbered"].all()),
        "may_drift": fit.crossing_ns * 1e6 <= MOST_DRIFT_PPM * span,
        "too_fast": too_fast,
    }


def gained_ns(rate: float, moment_ns: int, time: IntArray) -> IntArray:
    """What a clock has gained since a moment, at times that it shows itself; exactly 0 without a rate."""
    gained: IntArray = np.rint(rate * (time - moment_ns)).astype(np.int64)
    return gained


def median(values: IntArray) -> int:
    """An exact integer: of an even number the larger one of the two in the middle."""
    return int(np.sort(values)[len(values) // 2])


def _fit(mine: pd.DataFrame, rate: float, moment: int) -> _Fit:
    start, end = (mine[edge].to_numpy() - gained_ns(rate, moment, mine[edge].to_numpy()) for edge in ("start", "end"))
    difference = end - mine["reference"].to_numpy()
    earliest = int((start - mine["first_end"].to_numpy()).max())
    latest = int((end - mine["latest_start"].to_numpy()).min())
    offset = median(difference)
    if earliest <= latest:
        offset = min(max(offset, earliest), latest)
    return _Fit(offset, earliest, latest, np.abs(difference - offset))


def _is_told(gained: float, constant: _Fit, without: _Fit) -> bool:
    """Whether the ends tell a drift that gained so much, or nothing but a drift lets them be of one collective each."""
    scatter = max(median(without.residuals), _LEAST_SCATTER_NS)
    clear = gained >= _TOLD * scatter and without.crossing_ns <= constant.crossing_ns
    return clear or without.crossing_ns <= MOST_CROSSING_NS < constant.crossing_ns


def _drift(time: IntArray, difference: IntArray) -> float | None:
    """Between the medians of the first and of the last third of the collectives."""
    if len(time) < FOR_A_DRIFT:
        return None
    order, third = np.argsort(time), len(time) // 3
    first, last = order[:third], order[-third:]
    elapsed = median(time[last]) - median(time[first])
    return (median(difference[last]) - median(difference[first])) / elapsed if elapsed >= _LEAST_SPAN_NS else None
