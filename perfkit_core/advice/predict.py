"""How long would a step be with a candidate's edits? Three replays: all uncertain numbers at their best, likely, worst.

The interval of a step is that of the three cases, wider by how uncertain the median of the recorded steps itself is.
That of the saving is only scaled by it: a training that is slower than recorded is so before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core import bootstrap
from perfkit_core.advice.ceiling import most_ns
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, Prediction
from perfkit_core.advice.step_time import step_ns
from perfkit_core.bootstrap import FloatArray
from perfkit_core.replay.edits.contract import Edit, edited
from perfkit_core.replay.quantity import Case, Quantity

_LEVEL: Final = 0.8
"""p10 to p90."""
ONE_STEP: Final = 0.05
"""Spread that is assumed for a recording of a single step, which shows none: what identical steps of one training
differ by on an idle machine."""


def predict(facts: Facts, candidate: Candidate) -> Prediction:
    """The prediction of one candidate."""
    base = _base_ns(facts, candidate)
    naive = candidate.ceiling_ns if candidate.share_ns is None else candidate.share_ns
    naive_ns = None if naive is None else max(base - naive, 0)
    after = _after(facts, candidate)
    interval = _now(facts, candidate)
    now = Prediction(candidate.method, base, ceiling_ns=candidate.ceiling_ns, naive_ns=naive_ns, **interval)
    if after is None:
        return now
    low, mid, high = widened(facts, after)
    least, most = _saved(facts, base, after)
    ceiling = _ceiling_ns(facts, candidate, after)
    return replace(
        now, p10_ns=low, p50_ns=mid, p90_ns=high, saving_ns=base - mid, saving_p10_ns=least,
        saving_p90_ns=most if ceiling is None else min(most, ceiling), ceiling_ns=ceiling,
    )  # fmt: skip


def _ceiling_ns(facts: Facts, candidate: Candidate, after: Quantity) -> int | None:
    """The limit of the edits by replay where they have one, else what the rule says; never less than what the replay
    with all uncertain numbers at their best saves."""
    limit = most_ns(facts, candidate.edits, candidate.period) if candidate.method == "replay" else None
    known = candidate.ceiling_ns if limit is None else limit
    return None if known is None else max(known, _base_ns(facts, candidate) - round(after.low))


def _base_ns(facts: Facts, candidate: Candidate) -> int:
    return facts.step_ns if candidate.base_ns is None else candidate.base_ns


def _now(facts: Facts, candidate: Candidate) -> dict[str, int]:
    """The interval of the recorded median, or mean."""
    if candidate.base_ns is None:
        low, high = (facts.step_ns * factor for factor in noise(facts))
    else:
        low, high = bootstrap.interval(bootstrap.means(step_times(facts)), _LEVEL)
    return {"base_p10_ns": round(low), "base_p90_ns": round(high)}


def _saved(facts: Facts, base_ns: int, after: Quantity) -> tuple[int, int]:
    """10th and 90th percentile of the saving."""
    factors = noise(facts)
    least, most = base_ns - after.high, base_ns - after.low
    return round(min(least * factor for factor in factors)), round(max(most * factor for factor in factors))


def _after(facts: Facts, candidate: Candidate) -> Quantity | None:
    if candidate.method == "none":
        return None
    if candidate.method == "replay":
        return replayed(facts, candidate.edits, candidate.period)
    return candidate.after_ns


def replayed(facts: Facts, edits: Sequence[Edit], period: int = 1) -> Quantity:
    """Time of a step with some edits (:func:`step_ns`), in the three cases.

    Raises CyclicGraphError.
    """
    low, mid, high = sorted(step_ns(facts, edited(facts.replay, edits, case), period) for case in Case)
    return Quantity(low, mid, high, "replay")


def widened(facts: Facts, after: Quantity) -> tuple[int, int, int]:
    """The three times in whole ns, the outer ones further apart by the uncertainty of the recorded median."""
    shorter, longer = noise(facts)
    return round(after.low * shorter), round(after.mid), round(after.high * longer)


def noise(facts: Facts) -> tuple[float, float]:
    """The interval of the recorded median as factors of it."""
    steps = step_times(facts)
    if len(steps) < 2:
        return 1 - ONE_STEP, 1 + ONE_STEP
    low, high = bootstrap.median_interval(steps, _LEVEL)
    middle = max(float(np.median(steps)), 1.0)
    return low / middle, high / middle


def step_times(facts: Facts) -> FloatArray:
    """The recorded time of each step in ns, median of its ranks: that ranks differ is no noise. Shape (steps,); where
    several in a row belong together (``facts.period``) the mean of each so many, which is the noise between them."""
    times = pd.Series(facts.steps.recorded_ns).groupby(facts.steps.number).median().to_numpy(np.float64)
    whole = len(times) // facts.period * facts.period
    means: FloatArray = times[:whole].reshape(-1, facts.period).mean(axis=1)
    return means
