"""By how much has the difference of two runs changed, and is that real? A difference of differences.

Where a run is the same in both pairs it cancels out, and the change is what the other runs differ by, with the interval
and the noise of these two. Else both pairs are taken to be independent: the interval is put together from theirs by the
method of variance estimates recovery (Zou and Donner 2008), the noise from theirs as standard deviations are.

Which causes of a difference are new, and which were there before?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
import pandas as pd

from perfkit_core.compare.attribute.causes import by_layer, causes, explained, largest_first
from perfkit_core.compare.pair import Pair
from perfkit_core.compare.samples import Capture
from perfkit_core.compare.statistics import FASTER, NO_DIFFERENCE, SLOWER, TOO_FEW, SampleStatistics, of_steps


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


CAUSE = ("operator", "category", "place", "phase", "family")


def new_causes(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Of two trees of :func:`~perfkit_core.compare.attribute.attribute`: operator, category, place, phase, family,
    before_difference_ns, now_difference_ns (other less base, of the earlier pair and of this one), difference_ns (now
    less before), explained_ratio (of the whole change, by this row and those before it). Largest changes first; they
    sum to the change of the difference of the medians."""
    return _changed(causes(before), causes(now), CAUSE)


def new_layers(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """The same by layer, with the column layer in front. No rows where not all runs have layers."""
    first, last = by_layer(before), by_layer(now)
    if first.empty or last.empty:
        first, last = first.head(0), last.head(0)
    return _changed(first, last, ("layer",))


def changes(found: Change) -> pd.DataFrame:
    """One row: verdict, before_difference_ns, now_difference_ns, difference_ns (the change), low_ns, high_ns (its 95 %
    interval), noise_ns."""
    row = {
        "verdict": found.verdict, "before_difference_ns": found.before, "now_difference_ns": found.now,
        "difference_ns": found.change, "low_ns": found.low, "high_ns": found.high, "noise_ns": found.noise,
    }  # fmt: skip
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def _changed(before: pd.DataFrame, now: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    names = list(keys)
    sides = zip(("before", "now"), (before, now), strict=True)
    parts = [table.set_index(names)["difference_ns"].rename(f"{side}_difference_ns") for side, table in sides]
    joined = pd.concat(parts, axis=1).fillna(0).astype(np.int64).reset_index()
    joined["difference_ns"] = joined["now_difference_ns"] - joined["before_difference_ns"]
    return explained(largest_first(joined, names))
