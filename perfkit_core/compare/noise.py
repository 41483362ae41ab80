"""Noise between equal runs, below which a difference is not significant, and bootstrap intervals of differences.

Steps of one process are not independent: the state of memory, clocks and neighbours affects all of them. So the spread
is that of *groups*: the captures of a side if there are several, else quarters of a capture (batch means: the mean of
four quarters varies half as much as one). The band is the half width of the 95 % interval (Student's t, by the number
of groups) of the difference of two sides. Unless a side has several captures, equal processes are assumed to differ in
addition, by a standard deviation that depends on where the step spends its time (:func:`between_runs`).

The bootstrap draws captures, then steps inside of them. Draws are seeded by the samples, so that swapped sides give the
negated interval.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import sample_statistics
from perfkit_core.model.trace import Trace
from perfkit_core.views.steps import activity, partition, step_rows

QUARTERS: Final = 4
"""Groups of one capture."""
ON_HOST: Final = 0.15
"""Standard deviation of the median step of equal processes, as a share, for steps on a shared host (in the range that
benchmarks/false_alarms.py has measured for two frameworks; docs/compare.md)."""
ON_DEVICE: Final = 0.02
"""The same for time in which an unshared device works: an assumption, not measured."""
MOMENT_NS: Final = 500_000_000
"""Disturbances (neighbours, memory, clocks) last tenths of a second: a shorter capture saw one state of the machine,
and equal processes differ by more."""
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95 %, by degrees of freedom from 1."""
_NORMAL: Final = 1.95996
_DEVICE_CATEGORIES: Final = 3
"""The number of leading categories, in steps with device work, in which a device works."""
_DRAWN_TOGETHER: Final = 1 << 22
"""Samples drawn in one array: more cost memory, fewer cost time."""

Samples = Sequence[npt.NDArray[Any]]
"""The samples of each capture of a side, shape (samples,) or (samples, ranks)."""
Statistic = Callable[..., Any]


def noise_band(
    base: Samples, other: Samples, statistic: Statistic = np.median, between: float = ON_HOST
) -> float | None:
    """Return by how much two equal sides may differ, in the unit of the samples; None if fewer than two steps on each
    side give no estimate. ``between``: the assumed difference of equal processes if no side has several."""
    several = max(len(base), len(other)) > 1
    # Captures vary by more than quarters do: sides with several captures take precedence.
    sides = [list(side) for side in (base, other) if len(side) > 1] or [_quarters(side[0]) for side in (base, other)]
    sides = [groups for groups in sides if len(groups) > 1]
    freedom = sum(len(groups) - 1 for groups in sides)
    if not freedom:
        return None
    squares = []
    for groups in sides:
        values = np.array([float(statistic(group)) for group in groups])
        mean = values.mean()
        squares.append(float((((values - mean) / mean) ** 2).sum()) if mean else float((values != 0).sum()))
    seen, unseen = student(freedom) * float(np.sqrt(sum(squares) / freedom)), 0.0 if several else _NORMAL * between
    counts = [len(side) if several else len(_quarters(side[0])) for side in (base, other)]
    shares = [float(np.sqrt(seen**2 / count + unseen**2)) for count in counts]
    levels = [float(statistic(pool(side))) for side in (base, other)]
    if min(levels) <= 0:
        return math.hypot(*(level * share for level, share in zip(levels, shares, strict=True)))
    # Equal runs differ by factors (one is slowed by a third, another twice as long), so the band is that of the
    # logarithm, converted to a difference: it does not grow without limit with the slower side.
    return 2 * math.sqrt(levels[0] * levels[1]) * math.sinh(math.hypot(*shares) / 2)


def _quarters(steps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return groups of consecutive steps of nearly equal size; single steps if there are fewer."""
    return np.array_split(steps, min(QUARTERS, len(steps)))


def between_runs(traces: Sequence[Trace]) -> float:
    """Return the standard deviation, as a share, by which equal processes of these trainings are assumed to differ,
    from the part of the steps in which a device works: the largest over the traces."""
    shares = []
    for trace in traces:
        steps = step_rows.step_rows(trace)
        total = int(trace.ints("dur_ns")[steps].sum())
        share = on_host(total) if total else ON_HOST
        if total and activity.has_device_work(trace):
            busy = int(partition.partition(trace, steps)[:, :_DEVICE_CATEGORIES].sum()) / total
            share += (ON_DEVICE - share) * busy
        shares.append(share)
    return max(shares, default=ON_HOST)


def on_host(recorded_ns: int) -> float:
    """Return the share by which equal processes that work on a host for so long are assumed to differ."""
    return ON_HOST * max(1.0, float(np.sqrt(MOMENT_NS / recorded_ns)))


def pool(side: Samples) -> npt.NDArray[Any]:
    """Return all samples of a side, shape (samples,), each rank's separately."""
    return np.concatenate([capture.ravel() for capture in side])


def student(freedom: int) -> float:
    """Return the 97.5th percentile of Student's t; beyond 30 by the first term of its expansion about the normal."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _NORMAL * (1 + (_NORMAL**2 + 1) / (4 * freedom))


def count(side: Samples) -> int:
    """Return the number of samples of all captures; those of several ranks count as one."""
    return sum(map(len, side))


def interval(base: Samples, other: Samples, statistic: Statistic, level: float) -> tuple[int | None, int | None]:
    """Return the middle ``level`` of the differences, other less base; None if a side has only one sample. Uses order
    statistics, not interpolated quantiles: they are symmetric in both ends."""
    if min(map(count, (base, other))) < 2:
        return None, None
    differences = np.sort(_resampled(other, statistic) - _resampled(base, statistic))
    outside = int(len(differences) * (1 - level) / 2)
    return round(float(differences[outside])), round(float(differences[-1 - outside]))


def _resampled(side: Samples, statistic: Statistic) -> npt.NDArray[np.float64]:
    draw = np.random.default_rng(zlib.crc32(b"".join(np.asarray(one, np.float64).tobytes() for one in side)))
    if len({capture.shape[1:] for capture in side}) > 1:  # captures differ in their number of ranks
        side = [capture.ravel() for capture in side]
    if len(side) == 1:
        return sample_statistics.medians(
            np.asarray(side[0], np.float64), draw, lambda drawn, axis: _per_draw(drawn, statistic)
        )
    steps, sizes = np.concatenate(side).astype(np.float64), np.array([len(capture) for capture in side])
    first, each = np.cumsum(sizes) - sizes, max(len(steps) // len(side), 1)
    at_once = max(_DRAWN_TOGETHER // (each * len(side)), 1)
    statistics = []
    for start in range(0, sample_statistics.DRAWS, at_once):
        draws = min(at_once, sample_statistics.DRAWS - start)
        captures = draw.integers(0, len(sizes), (draws, len(sizes)))[:, :, None]
        inside = (draw.random((draws, len(sizes), each)) * sizes[captures]).astype(np.int64)
        statistics.append(_per_draw(steps[first[captures] + inside], statistic))
    return np.concatenate(statistics)


def _per_draw(drawn: npt.NDArray[Any], statistic: Statistic) -> npt.NDArray[Any]:
    return np.asarray(statistic(drawn.reshape(len(drawn), -1), axis=1))
