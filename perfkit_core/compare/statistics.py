"""Steps as samples: captures, outlying steps, statistics and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.algorithms.sample_statistics import outlying
from perfkit_core.compare.noise import ON_HOST, Of, Samples, count, interval, noise_band, pool
from perfkit_core.model.trace import Trace, concat_traces
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

GAP_NS = 1_000_000_000
"""Between the captures of a pooled trace, so that nothing of them overlaps."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The steps of one recording in the order of time: their numbers, shape (steps,), and ns, shape (steps,), or
    (steps, ranks) where each rank has each of them."""

    source: str
    step: IntArray
    step_ns: IntArray

    @property
    def of_ranks(self) -> bool:
        """Whether a step has a time for each of several ranks."""
        return self.step_ns.ndim > 1

    @property
    def mean_ns(self) -> IntArray:
        """One time a step: the mean of its ranks, to the nearest ns. Shape (steps,)."""
        if not self.of_ranks:
            return self.step_ns
        return rounded_division(self.step_ns.sum(axis=1), self.step_ns.shape[1])


def capture(trace: Trace) -> Capture:
    """The samples of one trace. Where ranks have recorded other steps, each step of each rank is a sample."""
    rows = step_rows(trace)
    rows = rows[np.argsort(trace.ints("start_ns")[rows], kind="stable")]
    number, duration = trace.ints("step")[rows], trace.ints("dur_ns")[rows]
    numbers, first, group, times = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
    ranks, rank = np.unique(trace.ints("rank")[rows], return_inverse=True)
    cells = np.unique(group * len(ranks) + rank)
    if len(ranks) < 2 or (times != len(ranks)).any() or len(cells) < len(rows):
        return Capture(trace.meta.source, number, duration)
    table = np.empty((len(numbers), len(ranks)), np.int64)
    table[group, rank] = duration
    order = np.argsort(first, kind="stable")
    return Capture(trace.meta.source, numbers[order], table[order])


def pooled(traces: Sequence[Trace]) -> Trace:
    """Captures of the same training as one trace: one after the other on its clock, with steps numbered on.

    Raises ValueError without traces.
    """
    if not traces:
        raise ValueError("no captures")
    if len(traces) == 1:
        return traces[0]
    shifted, at, number = [], 0, 0
    for trace in traces:
        moved, at, number = _moved(trace, at, number)
        shifted.append(moved)
    return concat_traces(shifted)


def _moved(trace: Trace, at: int, number: int) -> tuple[Trace, int, int]:
    """The trace from ``at`` on with steps from ``number`` on, and where the next one begins."""
    start, end, step = trace.ints("start_ns"), trace.end_ns, trace.ints("step")
    if not len(trace):
        return trace, at, number
    shift = at - int(start.min())
    numbered = step[step >= 0]
    lowest = int(numbered.min()) if len(numbered) else 0
    moved = trace.with_ints(start_ns=start + shift, step=np.where(step >= 0, step - lowest + number, -1))
    window = trace.meta.window_ns
    after = int(end.max()) + shift
    meta = {"window_ns": (window[0] + shift, window[1] + shift) if window else None, "clock": "relative"}
    last = int(numbered.max()) - lowest + 1 if len(numbered) else 0
    return moved.with_meta(**meta), after + GAP_NS, number + last


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


FASTER: Final = "faster"
SLOWER: Final = "slower"
PERHAPS_FASTER: Final = "faster, perhaps noise"
PERHAPS_SLOWER: Final = "slower, perhaps noise"
PERHAPS: Final = (PERHAPS_FASTER, PERHAPS_SLOWER)
NO_DIFFERENCE: Final = "no difference beyond noise"
TOO_FEW: Final = "too few steps to tell"
LEVEL: Final = 0.95
"""Of the interval and of the noise band."""
QUICKEST: Final = 0.1
"""Share of the steps that are the quickest: this percentile is compared."""


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """``other`` against ``base``, in the unit of the samples (ns, and integers for steps).

    ``difference`` is other less base, ``low`` to ``high`` its 95 % interval (None for too few samples),
    ``change_ratio`` the difference by the base (None where that is 0).
    ``probability_slower``: how likely a sample of other is above one of base, ties half (the common language effect
    size; 0.5: no effect). ``cliffs_delta``: the same from -1 to 1.
    ``noise``: what equal runs differ by (None: cannot be told). ``quickest``: difference of the quickest tenth of the
    steps, where the verdict asks for it (times). ``steps`` and ``captures`` are (base, other).
    """

    base: int
    other: int
    difference: int
    low: int | None
    high: int | None
    change_ratio: float | None
    probability_slower: float
    cliffs_delta: float
    noise: int | None
    verdict: str
    steps: tuple[int, int]
    captures: tuple[int, int]
    quickest: int | None = None

    @property
    def beyond_noise(self) -> bool:
        """Whether the sides differ by more than chance and noise explain."""
        return self.verdict in (FASTER, SLOWER)


def step_statistics(
    base: Samples | npt.NDArray[Any],
    other: Samples | npt.NDArray[Any],
    of: Of = np.median,
    between: float = ON_HOST,
) -> SampleStatistics:
    """Compare samples: an array, or one a capture in the order of time, of shape (samples,) or (samples, ranks), where
    ranks are no samples of their own. ``of``: the statistic that is compared;
    ``between``: what single captures are taken to differ by (:mod:`perfkit_core.compare.noise`); 0 of what
    is the same in equal runs.

    Raises ValueError where a side has no samples.
    """
    sides = _captures(base), _captures(other)
    pools = [pool(side) for side in sides]
    middle = [int(of(one)) for one in pools]  # halves of a ns are left out, as in the other tables
    low, high = interval(*sides, of, LEVEL)
    noise = noise_band(*sides, of, between)
    delta = cliffs_delta(pools[0], pools[1])
    difference = middle[1] - middle[0]
    quickest = _quickest(pools[0], pools[1]) if between > 0 else None
    seen = noise_band(*sides, of, between=0.0)
    verdict = _verdict(difference, low, high, noise, quickest, seen)
    return SampleStatistics(
        middle[0], middle[1], difference, low, high, difference / middle[0] if middle[0] else None,
        (delta + 1) / 2, delta, None if noise is None else round(noise), verdict,
        (count(sides[0]), count(sides[1])), (len(sides[0]), len(sides[1])),
        None if quickest is None else round(quickest),
    )  # fmt: skip


def cliffs_delta(base: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """How much more often a sample of other is above one of base than below it, over all pairs (Cliff 1993)."""
    ordered = np.sort(base)
    below = np.searchsorted(ordered, other, "left").sum()
    above = (len(base) - np.searchsorted(ordered, other, "right")).sum()
    return float(int(below) - int(above)) / (len(base) * len(other))


def _captures(side: Samples | npt.NDArray[Any]) -> Samples:
    found = [side] if isinstance(side, np.ndarray) else [np.asarray(one) for one in side]
    found = [one for one in found if len(one)]
    if not found:
        raise ValueError("no samples")
    return found


def _quickest(base: npt.NDArray[Any], other: npt.NDArray[Any]) -> float | None:
    """Difference of the quickest steps; None of what most steps lack, which has a value in some only."""
    first, second = (float(np.quantile(side, QUICKEST)) for side in (base, other))
    return second - first if first or second else None


def _verdict(
    difference: int, low: int | None, high: int | None, noise: float | None, quickest: float | None, seen: float | None
) -> str:
    """``seen``: the noise that the recordings show themselves."""
    if not difference:
        return NO_DIFFERENCE
    if low is None or high is None or noise is None or seen is None:
        return TOO_FEW
    slower, sign = difference > 0, 1 if difference > 0 else -1
    sure = not low <= 0 <= high and abs(difference) > noise and (quickest is None or sign * quickest > noise)
    if sure:
        return SLOWER if slower else FASTER
    if low > seen or high < -seen:
        return PERHAPS_SLOWER if slower else PERHAPS_FASTER
    return NO_DIFFERENCE


def of_steps(base: Samples, other: Samples, between: float = ON_HOST) -> SampleStatistics | None:
    """The statistics of steps, None where a side has none."""
    return step_statistics(base, other, between=between) if all(sum(map(len, side)) for side in (base, other)) else None
