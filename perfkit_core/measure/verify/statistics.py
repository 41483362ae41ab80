"""The saving of a change with its interval, and the noise floor of equal runs.

Savings are computed from the *cost* of a run. The cost is the metric if lower is better, or its inverse for rates. A
saving is a share of the cost of the base: 0.2 means a fifth less. A negative saving means that the change costs more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms import sample_statistics

LEVEL: Final = 0.95
"""Confidence level of the saving's interval. The noise floor is this quantile of the differences between base runs."""
SPLITS: Final = 2000
"""The noise floor compares two halves of the base runs. At most this many ways to halve the runs are tried."""
_SEED: Final = 20_202

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a verification. The medians ``base`` and ``change`` are in the unit of the metric. The saving, its
    interval and the noise floor are shares of the base."""

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
        """Whether the change improves the metric: ``saving`` is above ``noise``, and ``saving_low`` is positive."""
        return self.saving_low > 0 and self.saving > self.noise

    @property
    def worse(self) -> bool:
        """Whether the change worsens the metric: ``saving`` is below ``-noise``, and ``saving_high`` is negative."""
        return self.saving_high < 0 and -self.saving > self.noise


def measured(base: Sequence[float], change: Sequence[float], higher_is_better: bool = False) -> Measured:
    """Compare the values of the runs. Raises ValueError with fewer than two runs of the base, or none of the change."""
    if len(base) < 2 or not change:
        raise ValueError("at least two runs of the base and one of the change are needed")
    base_cost, change_cost = (np.asarray(values, np.float64) for values in (base, change))
    if higher_is_better:
        base_cost, change_cost = 1 / base_cost, 1 / change_cost
    low, high = saving_interval(base_cost, change_cost)
    saving = 1 - float(np.median(change_cost)) / float(np.median(base_cost))
    noise = noise_floor(base_cost)
    return Measured(float(np.median(base)), float(np.median(change)), saving, low, high, noise, len(base), len(change))


def saving_interval(base: FloatArray, change: FloatArray) -> tuple[float, float]:
    """Return the 95% bootstrap interval of 1 − (median of ``change`` / median of ``base``), the saved share."""
    base_medians, change_medians = sample_statistics.two_medians(base, change)
    return sample_statistics.interval(1 - change_medians / base_medians, LEVEL)


def noise_floor(base: FloatArray) -> float:
    """Return the noise floor as a share of the median. It is the 95th percentile of the difference between the medians
    of two halves of the runs. All ways to halve the runs are used, or ``SPLITS`` random ones if there are more."""
    half = len(base) // 2
    if math.comb(len(base), half) <= SPLITS:
        halves = [list(runs) for runs in itertools.combinations(range(len(base)), half)]
    else:
        draw = np.random.default_rng(_SEED)
        halves = [draw.permutation(len(base))[:half].tolist() for _ in range(SPLITS)]
    differences = []
    for runs in halves:
        rest = np.delete(base, runs)[: max(half, 1)]
        differences.append(abs(float(np.median(base[runs])) - float(np.median(rest))))
    return float(np.quantile(np.array(differences), LEVEL)) / float(np.median(base))
