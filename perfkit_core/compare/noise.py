"""How far apart are two equal runs? A difference below that is none.

Steps of one process are not independent: what its memory, clocks and neighbours were like holds for all of them. So
the spread is that of *groups*: the captures of a side where there are several; else quarters of a capture, each of
steps that follow each other (batch means: what four quarters tell together varies half as much as one of them). The
band is the half width of the 95 % interval (of Student's t, by the number of groups) of the difference of two sides.

What a process holds for all of its steps shows in none of them. So where no side has several captures, equal processes
are taken to differ besides, by a standard deviation that depends on where the step is spent (:func:`between_runs`).

How far do differences of samples spread when the samples are drawn again? The bootstrap in two stages.

Draws are seeded by what is drawn from, so swapped sides give the negated interval.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import sample_statistics
from perfkit_core.model.trace import Trace
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.steps.partition import partition
from perfkit_core.views.steps.step_rows import step_rows

QUARTERS: Final = 4
"""Groups of one capture."""
ON_HOST: Final = 0.15
"""Standard deviation of the median step of equal processes, as a share: of steps on a host that others use as well
(between what benchmarks/false_alarms.py has measured for two frameworks; docs/compare.md)."""
ON_DEVICE: Final = 0.02
"""The same of time in which a device works, which is nobody else's: an assumption, not measured."""
MOMENT_NS: Final = 500_000_000
"""What takes a processor away (neighbours, memory, clocks) comes and goes in tenths of a second: a capture that is
shorter than this saw one moment, and equal processes differ by more."""
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95 %, by degrees of freedom from 1 on."""
_NORMAL: Final = 1.95996
_WORKS: Final = ("device_compute", "exposed_communication", "exposed_copy")
"""The first categories of the partition of steps with device work: in these, a device works."""

FloatArray = npt.NDArray[np.float64]
Samples = Sequence[npt.NDArray[Any]]
Statistic = Callable[..., Any]


def noise_band(base: Samples, other: Samples, of: Statistic = np.median, between: float = ON_HOST) -> float | None:
    """What the two sides may differ by although they are equal, in the unit of the samples; None where that cannot be
    told (fewer than two steps on each side). ``base`` and ``other`` hold the samples of each capture, shape (samples,)
    or (samples, ranks); ``between`` is
    what equal processes are taken to differ by where no side has several."""
    several = max(len(base), len(other)) > 1
    spread = _spread(base, other, of)
    if spread is None:
        return None
    seen, unseen = student(spread.freedom) * spread.share, 0.0 if several else _NORMAL * between
    middle = [float(of(pool(side))) for side in (base, other)]
    groups = [len(side) if several else len(_quarters(side[0])) for side in (base, other)]
    return _band(middle, [float(np.sqrt(seen**2 / count + unseen**2)) for count in groups])


def _band(middle: Sequence[float], shares: Sequence[float]) -> float:
    """The half width of the interval of the difference of two levels that are known to such shares.

    Equal runs differ by factors (one is slowed by a third, another twice as long), so the band is that of the
    logarithm, told as a difference: it does not grow with the slower side without end.
    """
    if min(middle) <= 0:
        return math.hypot(*(level * share for level, share in zip(middle, shares, strict=True)))
    return 2 * math.sqrt(middle[0] * middle[1]) * math.sinh(math.hypot(*shares) / 2)


def between_runs(traces: Sequence[Trace]) -> float:
    """What equal processes of these trainings are taken to differ by, as a standard deviation and share: by how much of
    their steps passes while a device works. The largest of them."""
    return max(map(_between, traces), default=ON_HOST)


def _between(trace: Trace) -> float:
    steps = step_rows(trace)
    total = int(trace.ints("dur_ns")[steps].sum())
    if not total:
        return ON_HOST
    if not has_device_work(trace):
        return on_host(total)
    works = int(partition(trace, steps)[:, : len(_WORKS)].sum()) / total
    return on_host(total) + (ON_DEVICE - on_host(total)) * works


def on_host(recorded_ns: int) -> float:
    """What equal processes are taken to differ by that work on a host, as a share, where the steps took so long."""
    return ON_HOST * max(1.0, float(np.sqrt(MOMENT_NS / recorded_ns)))


def pool(side: Samples) -> npt.NDArray[Any]:
    """All samples of a side, shape (samples,); those of ranks one by one."""
    return np.concatenate([one.ravel() for one in side])


def student(freedom: int) -> float:
    """The 97.5th percentile of Student's t; beyond 30 by the first term of its expansion about the normal one."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _NORMAL * (1 + (_NORMAL**2 + 1) / (4 * freedom))


class _Spread(NamedTuple):
    """Standard deviation of groups as a share of their mean, and its degrees of freedom."""

    share: float
    freedom: int


def _spread(base: Samples, other: Samples, of: Statistic) -> _Spread | None:
    """That of the groups of both sides, None where no side has two.

    Captures know more than quarters: where a side has several, only such sides are asked."""
    several = [side for side in (base, other) if len(side) > 1]
    groups = [list(side) for side in several] or [_quarters(side[0]) for side in (base, other)]
    found = [_relative(np.array([float(of(one)) for one in side])) for side in groups if len(side) > 1]
    freedom = sum(len(side) - 1 for side in groups if len(side) > 1)
    if not freedom:
        return None
    return _Spread(float(np.sqrt(sum(found) / freedom)), freedom)


def _relative(values: FloatArray) -> float:
    """Sum of squared deviations, as a share of the mean."""
    mean = values.mean()
    return float((((values - mean) / mean) ** 2).sum()) if mean else float((values != 0).sum())


def _quarters(steps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Groups of following steps, as equal as can be; single steps where there are fewer."""
    return np.array_split(steps, min(QUARTERS, len(steps)))


Of = Callable[..., Any]
_AT_ONCE: Final = 1 << 22


def count(side: Samples) -> int:
    """Samples of all captures; those of ranks are one."""
    return sum(map(len, side))


def interval(base: Samples, other: Samples, of: Of, level: float) -> tuple[int | None, int | None]:
    """The middle ``level`` of the differences, other less base, None where a side has one sample only.

    Order statistics rather than quantiles between them: they are the same from both ends."""
    if min(map(count, (base, other))) < 2:
        return None, None
    differences = np.sort(_drawn(other, of) - _drawn(base, of))
    outside = int(len(differences) * (1 - level) / 2)
    return round(float(differences[outside])), round(float(differences[-1 - outside]))


def _drawn(side: Samples, of: Of) -> npt.NDArray[np.float64]:
    """The statistic of samples drawn again: captures first, then steps inside of them (two stages)."""
    draw = np.random.default_rng(zlib.crc32(b"".join(np.asarray(one, np.float64).tobytes() for one in side)))
    if len({one.shape[1:] for one in side}) > 1:  # captures of other numbers of ranks
        side = [one.ravel() for one in side]
    if len(side) == 1:
        return sample_statistics.medians(
            np.asarray(side[0], np.float64), draw, lambda drawn, axis: _over_all(drawn, of)
        )
    flat, sizes = np.concatenate(side).astype(np.float64), np.array([len(one) for one in side])
    first, each = np.cumsum(sizes) - sizes, max(len(flat) // len(side), 1)
    rows = max(_AT_ONCE // (each * len(side)), 1)
    found = [_stages(flat, first, sizes, each, min(rows, sample_statistics.DRAWS - at), draw, of)
             for at in range(0, sample_statistics.DRAWS, rows)]  # fmt: skip
    return np.concatenate(found)


def _stages(
    flat: npt.NDArray[np.float64], first: npt.NDArray[Any], sizes: npt.NDArray[Any], each: int, draws: int,
    draw: np.random.Generator, of: Of,
) -> npt.NDArray[Any]:  # fmt: skip
    chosen = draw.integers(0, len(sizes), (draws, len(sizes)))[:, :, None]
    inside = (draw.random((draws, len(sizes), each)) * sizes[chosen]).astype(np.int64)
    return _over_all(flat[first[chosen] + inside], of)


def _over_all(drawn: npt.NDArray[Any], of: Of) -> npt.NDArray[Any]:
    """The statistic of each draw, shape (draws,)."""
    return np.asarray(of(drawn.reshape(len(drawn), -1), axis=1))
