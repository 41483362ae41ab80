"""By how much has the difference of two runs changed, and is that real? A difference of differences.

Where a run is the same in both pairs it cancels out, and the change is what the other runs differ by, with the interval
and the noise of these two. Else both pairs are taken to be independent: the interval is put together from theirs by the
method of variance estimates recovery (Zou and Donner 2008), the noise from theirs as standard deviations are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np

from perfkit_core.comparison.pair import Pair
from perfkit_core.comparison.samples.captures import Capture
from perfkit_core.comparison.samples.statistics import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    TOO_FEW,
    SampleStatistics,
    of_steps,
)


@dataclass(frozen=True, slots=True)
class Change:
    """In ns. ``before`` and ``now``: what the median step of other takes more than that of base, in the earlier pair
    and in this one. ``change`` is now less before, ``low`` to ``high`` its 95 % interval, ``noise`` what it may be
    between equal pairs (None: too few steps). ``verdict`` as of steps: slower where other has lost."""

    before: int
    now: int
    low: int | None
    high: int | None
    noise: int | None
    verdict: str

    @property
    def change(self) -> int:
        """How much longer the step of other takes than before, compared with base."""
        return self.now - self.before


def change(before: Pair, now: Pair) -> Change | None:
    """The change of the difference; None where a run has no steps."""
    if before.steps is None or now.steps is None:
        return None
    alone = _alone(before, now)
    if alone is not None:
        return Change(before.steps.difference, now.steps.difference, alone.low, alone.high, alone.noise, alone.verdict)
    return _of_both(before.steps, now.steps)


def _alone(before: Pair, now: Pair) -> SampleStatistics | None:
    """The statistics of the two runs that are left where the others are the same."""
    (base, other), (old_base, old_other) = now.captures, before.captures
    between = max(now.between, before.between)
    if _same(base, old_base):
        return of_steps(_steps(old_other), _steps(other), between)
    if _same(other, old_other):
        return of_steps(_steps(base), _steps(old_base), between)
    return None


def _same(one: Sequence[Capture], other: Sequence[Capture]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a.step_ns, b.step_ns) for a, b in zip(one, other, strict=True))


def _steps(captures: Sequence[Capture]) -> list[np.ndarray]:
    return [one.step_ns for one in captures]


def _of_both(before: SampleStatistics, now: SampleStatistics) -> Change:
    whole = now.difference - before.difference
    known = (before.low, before.high, now.low, now.high, before.noise, now.noise)
    if any(value is None for value in known):
        return Change(before.difference, now.difference, None, None, None, TOO_FEW if whole else NO_DIFFERENCE)
    b_low, b_high, n_low, n_high, b_noise, n_noise = (float(value or 0) for value in known)
    low = round(whole - hypot(now.difference - n_low, b_high - before.difference))
    high = round(whole + hypot(n_high - now.difference, before.difference - b_low))
    noise = round(hypot(b_noise, n_noise))
    beyond = not low <= 0 <= high and abs(whole) > noise
    verdict = (SLOWER if whole > 0 else FASTER) if beyond else NO_DIFFERENCE
    return Change(before.difference, now.difference, low, high, noise, verdict)
