"""How long does the same work take on both sides: per sample, token or floating point operation?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.comparison.samples.captures import Capture
from perfkit_core.comparison.samples.noise import ON_HOST
from perfkit_core.comparison.samples.statistics import SampleStatistics, step_statistics
from perfkit_core.comparison.work import FLOP, SAMPLE, TOKEN, Work, work
from perfkit_core.errors import UsageError
from perfkit_core.trace import IntArray, Trace

QUANTITY: Final = {SAMPLE: 1, TOKEN: 1000, FLOP: 10**9}
"""Time is told for so many, so that integer ns are exact enough."""
NAMES: Final = {SAMPLE: "sample", TOKEN: "1000 tokens", FLOP: "GFLOP"}


@dataclass(frozen=True, slots=True)
class Normalised:
    """Step times by the work of a step. ``statistics`` is in ns for :data:`QUANTITY` of the unit."""

    unit: str
    base: Work
    other: Work
    statistics: SampleStatistics
    per_s: tuple[float, float]

    @property
    def name(self) -> str:
        """What it is per."""
        return NAMES[self.unit]

    @property
    def different_work(self) -> bool:
        """Whether a step does another amount of it."""
        return self.base.amount != self.other.amount


def normalised(
    unit: str, base: Work, other: Work, sides: Sequence[Sequence[Capture]], between: float = ON_HOST
) -> Normalised:
    """Compare steps by the work that they do; ``between`` as for :func:`step_statistics`.

    Raises ValueError where a side has no steps."""
    scaled = [[_scaled(one.step_ns, amount.amount, QUANTITY[unit]) for one in side]
              for side, amount in zip(sides, (base, other), strict=True)]  # fmt: skip
    whole = [float(np.median(np.concatenate([one.step_ns.ravel() for one in side]))) for side in sides]
    rates = tuple(float(one.amount) * 1e9 / ns if ns else 0.0 for one, ns in zip((base, other), whole, strict=True))
    return Normalised(unit, base, other, step_statistics(scaled[0], scaled[1], between=between), (rates[0], rates[1]))


def asked(
    unit: str,
    traces: Sequence[Trace],
    sides: Sequence[Sequence[Capture]],
    given: Sequence[int] = (),
    between: float = ON_HOST,
) -> Normalised:
    """The same of two traces; ``given``: the work of a step of both. Raises UsageError where nothing tells it."""
    found = [work(trace, unit, given[at] if given else None) for at, trace in enumerate(traces)]
    for trace, one in zip(traces, found, strict=True):
        if one is None:
            raise UsageError(f"{trace.meta.source}: nothing tells the {unit}s of a step", _HINTS[unit])
    if not all(sum(len(one.step_ns) for one in side) for side in sides):
        hint = "give the profiler a schedule, and call its step() after each iteration"
        raise UsageError(f"no step times to tell per {unit}", hint)
    base, other = (one for one in found if one is not None)
    return normalised(unit, base, other, sides, between)


_HINTS: Final = {
    SAMPLE: "--samples A,B gives them; shapes (record_shapes) may tell them, too",
    TOKEN: "--tokens A,B gives them",
    FLOP: "record with_flops=True, or perfkit record --flops",
}


def table(found: Sequence[Normalised]) -> pd.DataFrame:
    """Columns per, base_amount, other_amount (of a step), base_ns, other_ns, difference_ns (median step, for that much
    work), low_ns, high_ns (of the difference), change_ratio, base_per_s, other_per_s, verdict."""
    rows = []
    for one in found:
        s = one.statistics
        rows.append([
            one.name, float(one.base.amount), float(one.other.amount), s.base, s.other, s.difference, s.low, s.high,
            s.change_ratio, *one.per_s, s.verdict,
        ])  # fmt: skip
    columns = ["per", "base_amount", "other_amount", "base_ns", "other_ns", "difference_ns", "low_ns", "high_ns",
               "change_ratio", "base_units_per_s", "other_units_per_s", "verdict"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"low_ns": "Int64", "high_ns": "Int64"})


def _scaled(step_ns: IntArray, amount: Fraction, quantity: int) -> IntArray:
    """ns for ``quantity`` units, to the nearest, halves to even; by integers, so that nothing is lost."""
    top, bottom = quantity * amount.denominator, amount.numerator
    scaled = [round(Fraction(ns * top, bottom)) for ns in step_ns.ravel().tolist()]
    return np.array(scaled, np.int64).reshape(step_ns.shape)
