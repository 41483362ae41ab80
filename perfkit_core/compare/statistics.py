"""Steps as samples: captures, outlying steps, and the statistics of a difference with its verdict.

A step of several ranks is one sample with a time for each rank, because ranks that wait for each other are not
independent. The captures of a run (recordings of the same training by separate processes) are kept apart: their
differences show how much equal runs differ.

The verdict is "faster" or "slower" if three criteria hold:

- The 95% interval of the difference excludes 0.
- The difference between the medians exceeds the noise band.
- The difference between the 10th percentiles exceeds the noise band. Other processes hardly disturb fast steps.

The other verdicts:

- faster (slower), perhaps noise: not all three criteria hold, but the interval lies beyond the measured noise (the
  noise band without the assumed spread between processes). Only more recordings can decide.
- no difference beyond noise: all other cases.
- too few steps to tell: a side has only one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.algorithms.sample_statistics import outlying
from perfkit_core.compare.noise import ON_HOST, Samples, Statistic, count, interval, noise_band, pool
from perfkit_core.compare.windows import step_windows
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

FASTER: Final = "faster"
SLOWER: Final = "slower"
PERHAPS_FASTER: Final = "faster, perhaps noise"
PERHAPS_SLOWER: Final = "slower, perhaps noise"
PERHAPS: Final = (PERHAPS_FASTER, PERHAPS_SLOWER)
NO_DIFFERENCE: Final = "no difference beyond noise"
TOO_FEW: Final = "too few steps to tell"
LEVEL: Final = 0.95
"""Confidence level of the interval. The module ``noise`` uses the same level for the noise band."""
QUICKEST: Final = 0.1
"""Quantile of the step times that stands for the fastest steps."""
GAP_NS: Final = 1_000_000_000
"""Gap between the captures in a pooled trace."""


@dataclass(frozen=True, slots=True)
class StepSamples:
    """The steps of one recording in order of time."""

    step: IntArray  # The numbers of the steps, shape (steps,).
    step_ns: IntArray  # The durations, shape (steps, ranks) if every rank recorded all steps, else (steps,).
    preempted: float = 0.0  # The share of the recorded time that was lost to other processes.

    @property
    def of_ranks(self) -> bool:
        """Whether each step has one duration per rank."""
        return self.step_ns.ndim > 1

    @property
    def mean_ns(self) -> IntArray:
        """Mean duration of each step over its ranks, rounded to ns, shape (steps,)."""
        if not self.of_ranks:
            return self.step_ns
        return rounded_division(self.step_ns.sum(axis=1), self.step_ns.shape[1])

    @property
    def outlying(self) -> BoolArray:
        """Mask of the steps above the limits of the rule ``outlier-steps``, shape (steps,)."""
        limits = Thresholds()
        return outlying(self.mean_ns, limits.outlier_sigmas, limits.outlier_share)


def samples_of(trace: Trace) -> StepSamples:
    """Return the steps of one trace. If ranks recorded different steps, the steps of each rank are separate samples."""
    windows = step_windows(trace)
    order = np.argsort(windows.start_ns, kind="stable")
    rows, duration = step_rows(trace)[order], windows.dur_ns[order]
    preempted = trace.timed_steps.preempted
    number = trace.ints("step")[rows]
    numbers, first, group, times = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
    ranks, rank = np.unique(trace.ints("rank")[rows], return_inverse=True)
    cells = np.unique(group * len(ranks) + rank)
    if len(ranks) < 2 or (times != len(ranks)).any() or len(cells) < len(rows):
        return StepSamples(number, duration, preempted)
    table = np.empty((len(numbers), len(ranks)), np.int64)
    table[group, rank] = duration
    order = np.argsort(first, kind="stable")
    return StepSamples(numbers[order], table[order], preempted)


def pooled(traces: Sequence[Trace]) -> Trace:
    """Concatenate captures of the same training into one trace. In the result, each capture begins after the end of the
    previous one, and its step numbers follow those of the previous one. Raises ValueError if there are no traces."""
    if not traces:
        raise ValueError("no captures")
    if len(traces) == 1:
        return traces[0]
    shifted, at, number = [], 0, 0
    for trace in traces:
        if not len(trace):
            shifted.append(trace)
            continue
        start, end, step = trace.ints("start_ns"), trace.end_ns, trace.ints("step")
        shift = at - int(start.min())
        numbered = step[step >= 0]
        first = int(numbered.min()) if len(numbered) else 0
        moved = trace.with_ints(start_ns=start + shift, step=np.where(step >= 0, step - first + number, -1))
        window = trace.meta.window_ns
        window = (window[0] + shift, window[1] + shift) if window else None
        shifted.append(moved.with_meta(window_ns=window, clock="relative"))
        at = int(end.max()) + shift + GAP_NS
        number += int(numbered.max()) - first + 1 if len(numbered) else 0
    return concat_traces(shifted)


def outliers(sides: Mapping[str, Sequence[StepSamples]]) -> pd.DataFrame:
    """Return a table of the outlying steps. Captures are numbered from 1. ``median_ns`` is the median step of the
    capture, and ``longer_ratio`` is dur_ns / median_ns - 1."""
    rows = []
    for side, captures in sides.items():
        for number, samples in enumerate(captures, 1):
            mask, times = samples.outlying, samples.mean_ns
            median = int(np.median(times)) if len(times) else 0
            for step, ns in zip(samples.step[mask].tolist(), times[mask].tolist(), strict=True):
                rows.append((side, number, step, ns, median, ns / median - 1))
    return pd.DataFrame(rows, columns=["run", "capture", "step", "dur_ns", "median_ns", "longer_ratio"])


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """The difference between the samples of two sides, in the unit of the samples (ns for steps).

    - ``base``, ``other``: the compared statistic of each side, for example the median.
    - ``difference``: other minus base.
    - ``low``, ``high``: the 95% interval of the difference; None if there are too few samples.
    - ``change_ratio``: the difference divided by base; None if base is 0.
    - ``probability_slower``: the probability that a sample of other is larger than a sample of base (the common
      language effect size). Ties count half, and 0.5 means no effect.
    - ``cliffs_delta``: the same effect from -1 to 1 (``2 * probability_slower - 1``).
    - ``noise``: the noise band, which is the largest difference that equal runs may show; None if unknown.
    - ``quickest``: the difference between the 10th percentiles; None if the verdict does not use it.
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
        return self.verdict in (FASTER, SLOWER)


def step_statistics(
    base: Samples | npt.NDArray[Any],
    other: Samples | npt.NDArray[Any],
    statistic: Statistic = np.median,
    between: float = ON_HOST,
) -> SampleStatistics:
    """Compare the samples of two sides. Raises ValueError for a side without samples.

    A side is an array, or one array per capture, in order of time. Arrays have the shape (samples,), or (samples,
    ranks) if the ranks are not independent. ``between`` is the assumed relative standard deviation between equal runs
    (:mod:`perfkit_core.compare.noise`). Give 0 for numbers that equal runs repeat exactly.
    """
    sides = _captures(base), _captures(other)
    pools = [pool(side) for side in sides]
    level = [int(statistic(samples)) for samples in pools]  # Truncated to ns, as in all tables.
    low, high = interval(*sides, statistic, LEVEL)
    noise = noise_band(*sides, statistic, between)
    delta = cliffs_delta(pools[0], pools[1])
    difference = level[1] - level[0]
    quickest = None
    if between > 0 and statistic is np.median:
        fast = [float(np.quantile(samples, QUICKEST)) for samples in pools]
        # If the 10th percentile of both sides is 0, many samples are 0. Such samples cannot show a difference.
        quickest = fast[1] - fast[0] if any(fast) else None
    measured_noise = noise_band(*sides, statistic, between=0.0)
    return SampleStatistics(
        level[0], level[1], difference, low, high, difference / level[0] if level[0] else None,
        (delta + 1) / 2, delta, None if noise is None else round(noise),
        _verdict(difference, low, high, noise, quickest, measured_noise),
        (count(sides[0]), count(sides[1])), (len(sides[0]), len(sides[1])),
        None if quickest is None else round(quickest),
    )  # fmt: skip


def _captures(side: Samples | npt.NDArray[Any]) -> Samples:
    captures = [side] if isinstance(side, np.ndarray) else [np.asarray(samples) for samples in side]
    captures = [samples for samples in captures if len(samples)]
    if not captures:
        raise ValueError("no samples")
    return captures


def _verdict(
    difference: int, low: int | None, high: int | None, noise: float | None, quickest: float | None,
    measured_noise: float | None,
) -> str:  # fmt: skip
    if not difference:
        return NO_DIFFERENCE
    if low is None or high is None or noise is None or measured_noise is None:
        return TOO_FEW
    slower, sign = difference > 0, 1 if difference > 0 else -1
    sure = not low <= 0 <= high and abs(difference) > noise and (quickest is None or sign * quickest > noise)
    if sure:
        return SLOWER if slower else FASTER
    if low > measured_noise or high < -measured_noise:
        return PERHAPS_SLOWER if slower else PERHAPS_FASTER
    return NO_DIFFERENCE


def of_steps(base: Samples, other: Samples, between: float = ON_HOST) -> SampleStatistics | None:
    """Return the statistics of the steps, or None if a side has no steps."""
    return step_statistics(base, other, between=between) if count(base) and count(other) else None


def cliffs_delta(base: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Return Cliff's delta (Cliff 1993). Each sample of base is paired with each sample of other. The result is the
    share of pairs in which other is larger, minus the share of pairs in which other is smaller."""
    ordered = np.sort(base)
    below = np.searchsorted(ordered, other, "left").sum()
    above = (len(base) - np.searchsorted(ordered, other, "right")).sum()
    return float(int(below) - int(above)) / (len(base) * len(other))
