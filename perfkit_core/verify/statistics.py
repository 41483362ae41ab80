"""How far are two sets of runs apart, how sure is that, and how far apart are runs of the same command?

All numbers are of *cost*: the metric itself where smaller is better, its inverse where it is a rate. A saving is a
share of the cost of the base, 0.2 for a fifth less, negative where the change costs more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import sample_statistics

LEVEL: Final = 0.95
"""Of the interval, and of the noise floor: so many of equal pairs lie within."""
SPLITS: Final = 2000
"""Divisions of the runs of the base into halves that are looked at: all where there are fewer."""
_SEED: Final = 20_202

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians in the metric's unit; the saving with its interval and the noise floor as shares of the base.

    ``noise`` is what two halves of the runs of the base differ by, in all but 5 % of the ways to halve them.
    """

    base: float
    change: float
    saving: float
    saving_low: float
    saving_high: float
    noise: float
    base_runs: int
    change_runs: int

    @property
    def better(self) -> bool:
        """Whether the change costs less, by more than chance and noise explain."""
        return self.saving_low > 0 and self.saving > self.noise

    @property
    def worse(self) -> bool:
        """Whether it costs more, by more than chance and noise explain."""
        return self.saving_high < 0 and -self.saving > self.noise


def measured(base: Sequence[float], change: Sequence[float], higher_is_better: bool = False) -> Measured:
    """Compare the runs of both sides. Raises ValueError without two runs of the base and one of the change."""
    if len(base) < 2 or not change:
        raise ValueError("the noise needs two runs of the base, and the change one")
    first, second = (_cost(one, higher_is_better) for one in (base, change))
    low, high = saving_interval(first, second)
    saving = 1 - float(np.median(second)) / float(np.median(first))
    return Measured(
        float(np.median(base)), float(np.median(change)), saving, low, high, noise_floor(first), len(base), len(change)
    )


def _cost(values: Sequence[float], higher_is_better: bool) -> FloatArray:
    found = np.asarray(values, np.float64)
    return 1 / found if higher_is_better else found


def saving_interval(base: FloatArray, change: FloatArray) -> tuple[float, float]:
    """The 95 % bootstrap interval of the saving of medians."""
    first, second = sample_statistics.two_medians(base, change)
    return sample_statistics.interval(1 - second / first, LEVEL)


def noise_floor(base: FloatArray) -> float:
    """The 95th percentile of the difference of two halves of the same runs, as a share of their median."""
    half = len(base) // 2
    found = [_apart(base, list(chosen), half) for chosen in _halves(len(base), half)]
    return float(np.quantile(np.array(found), LEVEL)) / float(np.median(base))


def _halves(count: int, half: int) -> Iterator[tuple[int, ...] | npt.NDArray[Any]]:
    """Which runs the first half holds: every way to choose them, or a sample of the ways."""
    if math.comb(count, half) <= SPLITS:
        yield from itertools.combinations(range(count), half)
        return
    draw = np.random.default_rng(_SEED)
    yield from (draw.permutation(count)[:half] for _ in range(SPLITS))


def _apart(base: FloatArray, chosen: list[int], half: int) -> float:
    rest = np.delete(base, chosen)[: max(half, 1)]
    return abs(float(np.median(base[chosen])) - float(np.median(rest)))
