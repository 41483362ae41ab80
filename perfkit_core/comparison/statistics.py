"""Is the step of one side longer than that of the other, by how much, and how sure is that? Steps are samples.

=========================  ============================================================================================
faster, slower             the 95 % interval of the difference excludes 0, and the difference is above the noise band
no difference beyond noise  one of the two is not so
too few steps to tell      neither side has two steps of which the noise could be told
=========================  ============================================================================================

Swapping the sides changes every sign and nothing else: draws are seeded by what is drawn from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core import bootstrap
from perfkit_core.comparison.noise import ON_HOST, Samples, noise_band, pool

FASTER: Final = "faster"
SLOWER: Final = "slower"
NO_DIFFERENCE: Final = "no difference beyond noise"
TOO_FEW: Final = "too few steps to tell"
LEVEL: Final = 0.95
"""Of the interval and of the noise band."""
_AT_ONCE: Final = 1 << 22

Of = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """``other`` against ``base``, in the unit of the samples (ns, and integers for steps).

    ``difference`` is other less base, ``low`` to ``high`` its 95 % interval (None for too few samples),
    ``change_ratio`` the difference by the base (None where that is 0).
    ``probability_slower``: how likely a sample of other is above one of base, ties half (the common language effect
    size; 0.5: no effect). ``cliffs_delta``: the same from -1 to 1.
    ``noise``: what equal runs differ by (None: cannot be told). ``steps`` and ``captures`` are (base, other).
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
    ``between``: what single captures are taken to differ by (:mod:`perfkit_core.comparison.noise`).

    Raises ValueError where a side has no samples.
    """
    sides = _captures(base), _captures(other)
    pools = [pool(side) for side in sides]
    middle = [int(of(one)) for one in pools]  # halves of a ns are left out, as in the other tables
    low, high = _interval(*sides, of)
    noise = noise_band(*sides, of, between)
    delta = cliffs_delta(pools[0], pools[1])
    difference = middle[1] - middle[0]
    return SampleStatistics(
        middle[0], middle[1], difference, low, high, difference / middle[0] if middle[0] else None,
        (delta + 1) / 2, delta, None if noise is None else round(noise), _verdict(difference, low, high, noise),
        (_count(sides[0]), _count(sides[1])), (len(sides[0]), len(sides[1])),
    )  # fmt: skip


def cliffs_delta(base: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """How much more often a sample of other is above one of base than below it, over all pairs (Cliff 1993)."""
    ordered = np.sort(base)
    below = np.searchsorted(ordered, other, "left").sum()
    above = (len(base) - np.searchsorted(ordered, other, "right")).sum()
    return float(int(below) - int(above)) / (len(base) * len(other))


def _count(side: Samples) -> int:
    return sum(map(len, side))


def _captures(side: Samples | npt.NDArray[Any]) -> Samples:
    found = [side] if isinstance(side, np.ndarray) else [np.asarray(one) for one in side]
    found = [one for one in found if len(one)]
    if not found:
        raise ValueError("no samples")
    return found


def _verdict(difference: int, low: int | None, high: int | None, noise: float | None) -> str:
    if not difference:
        return NO_DIFFERENCE
    if low is None or high is None or noise is None:
        return TOO_FEW
    if low <= 0 <= high or abs(difference) <= noise:
        return NO_DIFFERENCE
    return SLOWER if difference > 0 else FASTER


def _interval(base: Samples, other: Samples, of: Of) -> tuple[int | None, int | None]:
    """Order statistics rather than quantiles between them: they are the same from both ends."""
    if min(map(_count, (base, other))) < 2:
        return None, None
    differences = np.sort(_drawn(other, of) - _drawn(base, of))
    outside = int(len(differences) * (1 - LEVEL) / 2)
    return round(float(differences[outside])), round(float(differences[-1 - outside]))


def _drawn(side: Samples, of: Of) -> npt.NDArray[np.float64]:
    """The statistic of samples drawn again: captures first, then steps inside of them (two stages)."""
    draw = np.random.default_rng(zlib.crc32(b"".join(np.asarray(one, np.float64).tobytes() for one in side)))
    if len({one.shape[1:] for one in side}) > 1:  # captures of other numbers of ranks
        side = [one.ravel() for one in side]
    if len(side) == 1:
        return bootstrap.medians(np.asarray(side[0], np.float64), draw, lambda drawn, axis: _over_all(drawn, of))
    flat, sizes = np.concatenate(side).astype(np.float64), np.array([len(one) for one in side])
    first, each = np.cumsum(sizes) - sizes, max(len(flat) // len(side), 1)
    rows = max(_AT_ONCE // (each * len(side)), 1)
    found = [_stages(flat, first, sizes, each, min(rows, bootstrap.DRAWS - at), draw, of)
             for at in range(0, bootstrap.DRAWS, rows)]  # fmt: skip
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


def of_steps(base: Samples, other: Samples, between: float = ON_HOST) -> SampleStatistics | None:
    """The statistics of steps, None where a side has none."""
    return step_statistics(base, other, between=between) if all(sum(map(len, side)) for side in (base, other)) else None
