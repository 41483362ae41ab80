"""The noise band of a comparison, and bootstrap intervals of differences. A difference in the band is not significant.

The steps of one process are not independent, because the state of memory, clocks and other processes affects all of
them. So the spread is measured between *groups* of steps. The groups are the captures of a side if there are several,
else the quarters of its capture (the method of batch means).

The noise band is half the width of the 95% interval of the difference between equal sides, by Student's t. If neither
side has several captures, the spread between processes is added (:func:`between_runs`). It was measured on this machine
before, or is assumed.

The bootstrap draws captures with replacement, then steps from each drawn capture. The samples of a side seed its random
numbers, so that swapping the sides negates the interval.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms import sample_statistics
from perfkit_core.compare.windows import step_windows, whole_run
from perfkit_core.measure.calibration import equal_runs
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import activity, partition

QUARTERS: Final = 4
ON_HOST: Final = 0.1
"""Assumed relative standard deviation of the median step between equal runs, for time on a host that other programs
use. 95% of the equal runs in benchmarks/advice/measured.jsonl differ by less than it implies (docs/compare.md)."""
ON_DEVICE: Final = 0.02
"""Assumed relative standard deviation of the median step between equal runs, for time on a device that no other process
uses. Two recordings of one training on a V100 differ by less, different devices of one model by more."""
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5th percentile of Student's t for 1, 2, 3 … degrees of freedom."""
_NORMAL: Final = 1.95996
_DRAWN_TOGETHER: Final = 1 << 22
"""Largest number of samples that are drawn in one array: a compromise between memory and speed."""

GIVEN, MEASURED, ASSUMED = "given", "measured", "assumed"

Samples = Sequence[npt.NDArray[Any]]
"""The samples of one side: one array per capture, with shape (samples,) or (samples, ranks)."""
Statistic = Callable[..., Any]


def noise_band(
    base: Samples, other: Samples, statistic: Statistic = np.median, between: float = ON_HOST
) -> float | None:
    """Return the noise band in the unit of the samples, or None if each side has fewer than two steps. ``between`` is
    the assumed relative standard deviation between equal runs. It is used only if each side has one capture."""
    several = max(len(base), len(other)) > 1
    # Separate captures differ more than quarters of one capture. So quarters only count if each side has one capture.
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
    measured, assumed = student(freedom) * float(np.sqrt(sum(squares) / freedom)), 0.0 if several else _NORMAL * between
    counts = [len(side) if several else len(_quarters(side[0])) for side in (base, other)]
    shares = [float(np.sqrt(measured**2 / count + assumed**2)) for count in counts]
    levels = [float(statistic(pool(side))) for side in (base, other)]
    if min(levels) <= 0:
        return math.hypot(*(level * share for level, share in zip(levels, shares, strict=True)))
    # Equal runs differ by a factor. So the band is computed for the logarithm of the time, then converted to a time.
    # Without logarithms, the band would grow in proportion to the time of the slower side.
    return 2 * math.sqrt(levels[0] * levels[1]) * math.sinh(math.hypot(*shares) / 2)


def _quarters(steps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return np.array_split(steps, min(QUARTERS, len(steps)))


@dataclass(frozen=True, slots=True)
class Between:
    """How much equal runs differ if each side has one capture.

    - ``ratio``: the relative standard deviation. If few runs were measured, it is increased by Student's t.
    - ``origin``: :data:`GIVEN` by the user, :data:`MEASURED` on this machine, or :data:`ASSUMED`.
    - ``device_busy``: the share of the steps in which a device works; None if the steps have no device work.
    - ``runs``: the number of measured runs, 0 if none was measured.
    """

    ratio: float
    origin: str = ASSUMED
    device_busy: float | None = None
    runs: int = 0


def between_runs(traces: Sequence[Trace], total_ns: int | None = None) -> Between:
    """Return how much equal runs (processes of the same training) differ. Of several traces, the largest ratio counts.
    ``total_ns`` is the time of all timed steps, by default that of the recorded steps.

    Noise that was measured on the machine of a trace has precedence. Otherwise :data:`ON_HOST` is assumed for the time
    without device work, and :data:`ON_DEVICE` for the time with it. If all steps together take less than
    :data:`~perfkit_core.measure.calibration.equal_runs.MOMENT_NS`, the deviation on the host is larger."""
    every = (_between(trace, total_ns) for trace in traces)
    return max(every, key=lambda between: between.ratio, default=Between(ON_HOST))


def _between(trace: Trace, total_ns: int | None) -> Between:
    steps = step_windows(trace)
    steps = steps if len(steps) else whole_run(trace)
    total = int(steps.dur_ns.sum())
    busy = None
    if total and activity.has_device_work(trace):
        times = partition.of_windows(trace, steps.rank, steps.start_ns, steps.end_ns)
        busy = int(times[:, : partition.ON_DEVICE.index("input_wait")].sum()) / total
    total = total if total_ns is None else total_ns
    measured = equal_runs.measured(trace.meta, equal_runs.HOST if busy is None else equal_runs.DEVICE, total)
    return assumed(total, busy) if measured is None else of_measured(measured, busy)


def assumed(total_ns: int, busy: float | None = None) -> Between:
    """Return what is assumed for recordings whose steps take ``total_ns`` in total. ``busy`` is the share of this time
    in which a device works, None without device work."""
    host = ON_HOST * equal_runs.short(total_ns, equal_runs.MOMENT_NS)
    return Between(host if busy is None else math.hypot(host * (1 - busy), ON_DEVICE * busy), ASSUMED, busy)


def of_measured(measured: equal_runs.Measured, busy: float | None = None) -> Between:
    """Return what was measured. Few runs show the deviation only roughly, so it is increased by Student's t."""
    return Between(measured.ratio * student(measured.freedom) / _NORMAL, MEASURED, busy, measured.runs)


def band_of_equal_runs(ratio: float) -> float:
    """Return by which share single captures of equal runs may differ. ``ratio``: their relative standard deviation."""
    return math.sqrt(2) * _NORMAL * ratio


def pool(side: Samples) -> npt.NDArray[Any]:
    """Return the samples of all captures and ranks in one array of one dimension."""
    return np.concatenate([capture.ravel() for capture in side])


def student(freedom: int) -> float:
    """Return the 97.5th percentile of Student's t. Beyond 30 degrees of freedom, it is approximated by the first term
    of the expansion around the normal distribution."""
    return _T[freedom - 1] if freedom <= len(_T) else _NORMAL * (1 + (_NORMAL**2 + 1) / (4 * freedom))


def count(side: Samples) -> int:
    """Return the number of samples of all captures. A step of several ranks counts as one sample."""
    return sum(map(len, side))


def interval(base: Samples, other: Samples, statistic: Statistic, level: float) -> tuple[int | None, int | None]:
    """Return the lower and upper end of the bootstrap interval of the difference, other minus base. ``level`` is the
    probability of the interval. Both ends are None if a side has only one sample."""
    if min(map(count, (base, other))) < 2:
        return None, None
    differences = np.sort(_resampled(other, statistic) - _resampled(base, statistic))
    # The quantiles are not interpolated, so that swapping the sides exactly negates the interval.
    outside = int(len(differences) * (1 - level) / 2)
    return round(float(differences[outside])), round(float(differences[-1 - outside]))


def _resampled(side: Samples, statistic: Statistic) -> npt.NDArray[np.float64]:
    draw = np.random.default_rng(zlib.crc32(b"".join(np.asarray(steps, np.float64).tobytes() for steps in side)))
    if len({capture.shape[1:] for capture in side}) > 1:  # The captures have different numbers of ranks.
        side = [capture.ravel() for capture in side]
    if len(side) == 1:
        return sample_statistics.medians(
            np.asarray(side[0], np.float64), draw, lambda drawn, axis: _per_draw(drawn, statistic)
        )
    steps, sizes = np.concatenate(side).astype(np.float64), np.array([len(capture) for capture in side])
    first, steps_drawn = np.cumsum(sizes) - sizes, max(len(steps) // len(side), 1)
    most_draws = max(_DRAWN_TOGETHER // (steps_drawn * len(side)), 1)
    statistics = []
    for start in range(0, sample_statistics.DRAWS, most_draws):
        draws = min(most_draws, sample_statistics.DRAWS - start)
        captures = draw.integers(0, len(sizes), (draws, len(sizes)))[:, :, None]
        inside = (draw.random((draws, len(sizes), steps_drawn)) * sizes[captures]).astype(np.int64)
        statistics.append(_per_draw(steps[first[captures] + inside], statistic))
    return np.concatenate(statistics)


def _per_draw(drawn: npt.NDArray[Any], statistic: Statistic) -> npt.NDArray[Any]:
    return np.asarray(statistic(drawn.reshape(len(drawn), -1), axis=1))
