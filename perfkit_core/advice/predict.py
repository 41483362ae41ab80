"""How long would a step be with a candidate's edits? Three replays: all uncertain numbers at their best, likely, worst.

The interval of a step is that of the three cases, wider by how uncertain the median of the recorded steps itself is.
That of the saving is only scaled by it: a training that is slower than recorded is so before and after.

What can no change of a kind save more of? A replay in which what its edits shorten takes no time at all.

Nobody waits for it, either: in the limit of an edit each node takes no longer, and waits for no more, than with the
edit itself, whatever the uncertain numbers are, so that nothing begins later. Two kinds of edits have no limit that
tells anything: data loaded in workers (without its loader a step would still wait for batches to be made, and other
work of the host changes, too) and launches that become one (without them the device would have no work). For these, and
for kinds of edits that are not known here, the number of the rule stands.

How long is a step once a graph is played? One number of all steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, Prediction
from perfkit_core.algorithms import sample_statistics
from perfkit_core.algorithms.sample_statistics import FloatArray
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case, Quantity
from perfkit_core.replay.simulate import play
from perfkit_core.replay.transforms.concurrency import Overlap
from perfkit_core.replay.transforms.durations import Insert, Remove, Scale, Shorten, Unblock
from perfkit_core.replay.transforms.placement import Move
from perfkit_core.replay.transforms.transform import Edit, InCases, edited


def step_ns(facts: Facts, graph: Graph, period: int = 1) -> float:
    """Median time of a step in ns.

    ``period``: how many steps in a row belong together, of which one does what the others leave out: of such steps the
    median is that of either kind, so the time is that of the periods, as a share of what they took when recorded, by
    the median recorded step. With starved loader workers steps belong together by themselves (``facts.period``). Raises
    CyclicGraphError.
    """
    period = _common(facts, period)
    after = float(np.median(facts.steps.lasting_ns(facts.replay, graph, play(graph), period)))
    if period == 1:
        return after
    now = float(np.median(facts.steps.of_periods(facts.steps.recorded_ns, period)))
    return after / max(now, 1.0) * facts.step_ns


def _common(facts: Facts, period: int) -> int:
    """So many steps that they are whole periods of both kinds, where so many were recorded."""
    both = math.lcm(period, facts.period)
    return both if len(facts.steps.of_periods(facts.steps.recorded_ns, both)) else period


Limit = tuple[Edit, ...] | None


def most_ns(facts: Facts, edits: Sequence[Edit], period: int = 1) -> int | None:
    """What a step becomes shorter by, in ns, in the limit of the edits; None where an edit has none. ``period``: see
    :func:`step_ns`. Raises CyclicGraphError."""
    limits = [limit(edit) for edit in edits]
    if not edits or None in limits:
        return None
    graph = edited(facts.replay, [one for found in limits for one in found or ()])
    return max(facts.step_ns - round(step_ns(facts, graph, period)), 0)


@singledispatch
def limit(edit: Any) -> Limit:
    """The edits that no size of this one goes beyond; None: there are none."""
    return None


@limit.register
def _(edit: Remove) -> Limit:
    return (edit,)


@limit.register
def _(edit: Scale) -> Limit:
    whole = edit.host and edit.device
    return (Remove(edit.rows, edit.below) if whole else replace(edit, factor=0),)


@limit.register
def _(edit: Insert) -> Limit:
    return ()


@limit.register
def _(edit: Overlap) -> Limit:
    return (Scale(edit.rows, 0, device=False),)


@limit.register
def _(edit: Shorten) -> Limit:
    return (replace(edit, factor=0),)


@limit.register
def _(edit: Move) -> Limit:
    gone = () if edit.copies_gone is None else (Remove(edit.copies_gone),)
    return (Remove(edit.rows), *gone)


@limit.register
def _(edit: Unblock) -> Limit:
    return (Remove(edit.rows, below=False),)


@limit.register
def _(edit: InCases) -> Limit:
    return limit(edit.change)


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
        low, high = sample_statistics.interval(sample_statistics.means(step_times(facts)), _LEVEL)
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
    low, high = sample_statistics.median_interval(steps, _LEVEL)
    middle = max(float(np.median(steps)), 1.0)
    return low / middle, high / middle


def step_times(facts: Facts) -> FloatArray:
    """The recorded time of each step in ns, median of its ranks: that ranks differ is no noise. Shape (steps,); where
    several in a row belong together (``facts.period``) the mean of each so many, which is the noise between them."""
    times = pd.Series(facts.steps.recorded_ns).groupby(facts.steps.number).median().to_numpy(np.float64)
    whole = len(times) // facts.period * facts.period
    means: FloatArray = times[:whole].reshape(-1, facts.period).mean(axis=1)
    return means
