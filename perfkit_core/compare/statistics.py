"""Is the step of one side longer than that of the other, by how much, and how sure is that? Steps are samples.

===============================  ======================================================================================
faster, slower                   the 95 % interval of the difference excludes 0, and the difference is above the noise
                                 band, and so is that of the quickest steps
faster (slower), perhaps noise   one of these is not so, but the whole interval is above what the recordings themselves
                                 show of noise: only more of them can tell
no difference beyond noise       nor is this
too few steps to tell            a side has one step only
===============================  ======================================================================================

What others take from a machine lengthens most steps of a process, but rarely all: its quickest ones are those that
were left alone.

Swapping the sides changes every sign and nothing else: draws are seeded by what is drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.compare.noise import ON_HOST, Of, Samples, count, interval, noise_band, pool

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
