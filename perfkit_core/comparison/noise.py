"""How far apart are two equal runs? A difference below that is none.

Steps of one process are not independent: what its memory, clocks and neighbours were like holds for all of them. So
the spread is that of *groups*: the captures of a side where there are several; else quarters of a capture, each of
steps that follow each other, which stand for captures that nobody made. The band is the half width of the 95 % interval
(of Student's t, by the number of groups) of the difference of two runs with that spread.

What a process holds for all of its steps shows in none of them. So where no side has several captures, equal processes
are taken to differ by a standard deviation of :data:`BETWEEN_RUNS` besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

QUARTERS: Final = 4
"""Groups of one capture."""
BETWEEN_RUNS: Final = 0.02
"""Standard deviation of the median step of equal processes, as a share, where nothing tells it: measured by
benchmarks/false_alarms.py."""
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95 %, by degrees of freedom from 1 on."""
_NORMAL: Final = 1.95996

FloatArray = npt.NDArray[np.float64]
Samples = Sequence[npt.NDArray[Any]]
Statistic = Callable[..., Any]


def noise_band(base: Samples, other: Samples, of: Statistic = np.median, between: float = BETWEEN_RUNS) -> float | None:
    """What the two sides may differ by although they are equal, in the unit of the samples; None where that cannot be
    told (fewer than two steps on each side). ``base`` and ``other`` hold the samples of each capture; ``between`` is
    what equal processes are taken to differ by where no side has several."""
    spread = _spread(base, other, of)
    if spread is None:
        return None
    share, freedom = spread
    unseen = 0.0 if max(len(base), len(other)) > 1 else between
    middle = [float(of(np.concatenate(side))) ** 2 / len(side) for side in (base, other)]
    return float(np.hypot(student(freedom) * share, _NORMAL * unseen) * np.sqrt(sum(middle)))


def student(freedom: int) -> float:
    """The 97.5th percentile of Student's t; beyond 30 by the first term of its expansion about the normal one."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _NORMAL * (1 + (_NORMAL**2 + 1) / (4 * freedom))


def _spread(base: Samples, other: Samples, of: Statistic) -> tuple[float, int] | None:
    """Standard deviation of the groups as a share of their side's mean, and degrees of freedom.

    Captures know more than quarters: where a side has several, only such sides are asked."""
    several = [side for side in (base, other) if len(side) > 1]
    groups = [list(side) for side in several] or [_quarters(side[0]) for side in (base, other)]
    found = [_relative(np.array([float(of(one)) for one in side])) for side in groups if len(side) > 1]
    freedom = sum(len(side) - 1 for side in groups if len(side) > 1)
    if not freedom:
        return None
    return float(np.sqrt(sum(map(float, found)) / freedom)), freedom


def _relative(values: FloatArray) -> float:
    """Sum of squared deviations, as a share of the mean."""
    mean = values.mean()
    return float((((values - mean) / mean) ** 2).sum()) if mean else float((values != 0).sum())


def _quarters(steps: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Groups of following steps, as equal as can be; single steps where there are fewer."""
    return np.array_split(steps, min(QUARTERS, len(steps)))
