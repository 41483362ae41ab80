"""Predict the step time after the transforms of a candidate, by replaying the recording.

- Step time: three replays use the best, the likely and the worst values of the uncertain numbers. The interval spans
  their results. The uncertainty of the recorded median makes the interval wider.
- Saving: the interval spans the three savings. Then both ends move outwards by the relative uncertainty of the recorded
  median, because this uncertainty scales the step times before and after the change alike.
- Ceiling: an upper limit of the saving, for all values of the uncertain numbers. It comes from a replay in which the
  changed events take no time and nothing waits for them, and from the account of the device. No saving exceeds it,
  whatever earlier outcomes say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice import device_account
from perfkit_core.advice.advice import Base, Identity, Prediction
from perfkit_core.advice.experience import Experience
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms import sample_statistics
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.algorithms.sample_statistics import FloatArray
from perfkit_core.replay import played_steps, transforms, waits
from perfkit_core.replay.graph import play
from perfkit_core.replay.transforms import Case
from perfkit_core.trace.model.cache import once

_LEVEL: Final = 0.8
"""Probability that a value lies in its interval from p10 to p90."""
ONE_STEP: Final = 0.05
"""Assumed relative uncertainty if only one step was recorded, typical of steps on an idle machine."""
_LONGER: Final = 1.2
"""A mean step that exceeds the median step by a larger factor contains work that a usual step does not."""

_NO_EXPERIENCE: Final = Experience()


@once
def step_ns(facts: RuleInput, changes: tuple[transforms.Transform, ...], case: Case, period: int) -> float:
    """Return the median step time in ns after the changes. Raises CyclicGraphError.

    If one of every N consecutive steps differs from the others, ``period`` is N. A median over steps would ignore the
    steps that differ, so medians are taken over periods of N steps. Then the result is
    ``step time now * replayed time of a period / time of a period now``. If too few loader workers make
    steps differ with the period ``facts.period``, N is the least common multiple of both periods."""
    both = math.lcm(period, facts.period)
    if len(facts.steps.of_periods(facts.steps.recorded_ns, both)):  # at least one period of this length was recorded
        period = both
    played, device_ns = _played(facts, changes, case, period)
    after = float(np.median(played))
    if period != facts.period:
        now = facts.played_ns(facts.training.replay.graph, period)
        after *= facts.training.step_ns / max(now, 1.0)
    return max(after, facts.least_ns(device_ns))


def played_ns(
    facts: RuleInput, changes: tuple[transforms.Transform, ...], case: Case = Case.LIKELY, period: int = 1
) -> IntArray:
    """Return the time in ns of each step after the changes, or of each ``period`` steps. Raises CyclicGraphError."""
    return _played(facts, changes, case, period)[0]


@once
def _played(
    facts: RuleInput, changes: tuple[transforms.Transform, ...], case: Case, period: int = 1
) -> tuple[IntArray, IntArray]:
    """Return the times of :func:`played_ns`, and how long a device works on each step, in ns. Raises
    CyclicGraphError."""
    graph = transforms.transformed(facts.training.replay, changes, case)
    start_ns, steps = play(graph), facts.steps
    return steps.lasting_ns(facts.replay, graph, start_ns, period), steps.device_ns(facts.replay, graph, start_ns)


def floor_ns(facts: RuleInput, candidate: Candidate, case: Case = Case.LIKELY) -> float:
    """Return how long a device works on a step after the changes of a candidate, in ns: no step of a long training is
    shorter. 0 without device work, and if the changes are unknown. Raises CyclicGraphError."""
    if not candidate.transforms or not facts.on_device:
        return 0.0
    _, device_ns = _played(facts, candidate.transforms, case, candidate.period)
    return facts.least_ns(device_ns) if candidate.base_ns is None else float(device_ns.mean())


def most_ns(facts: RuleInput, changes: tuple[transforms.Transform, ...], period: int = 1) -> int | None:
    """Return an upper limit of the saving in ns per step, for all values of the uncertain numbers. Return None if no
    limit is known. ``period`` means the same as in :func:`step_ns`. Raises CyclicGraphError."""
    limits = [limit(transform) for transform in changes]
    if not changes or None in limits:
        return None
    most = tuple(transform for part in limits for transform in part or ())
    return max(round(facts.training.step_ns) - round(step_ns(facts, most, Case.LIKELY, period)), 0)


def limit(change: Any) -> tuple[transforms.Transform, ...] | None:
    """Return transforms that together save at least as much as ``change``. This holds for all values of the uncertain
    numbers (``Quantity``) in ``change``.

    Most of these transforms remove the changed events or their time. Return None if no such transforms are known, for
    example for ``Load`` and ``Batch``."""
    match change:
        case transforms.InCases():
            return limit(change.change)
        case transforms.Insert():
            return ()
        case transforms.Remove():
            return (change,)
        case transforms.Scale() if change.host and change.device:
            return (transforms.Remove(change.rows, change.below),)
        case transforms.Scale() | transforms.Shorten():
            return (replace(change, factor=0),)
        case transforms.Overlap():
            return (transforms.Scale(change.rows, 0, device=False),)
        case transforms.Unblock():
            return (transforms.Remove(change.rows, below=False),)
        case transforms.Move():
            gone = () if change.copies_gone is None else (transforms.Remove(change.copies_gone),)
            return (transforms.Remove(change.rows), *gone)
    return None


def predict(facts: RuleInput, candidate: Candidate, learned: Experience = _NO_EXPERIENCE) -> Prediction:
    """Return the prediction for a candidate. ``learned`` is the experience with earlier predictions of its rule. Raises
    NotEvaluableError if the prediction needs a replay that cannot be played."""

    def without_profiler(recorded: float | None) -> int | None:
        return None if recorded is None else round(recorded / facts.slowdown)

    now_ns, factors = facts.training.step_ns, noise(facts)
    base_low, base_high = (now_ns * factor for factor in factors)
    if candidate.base_ns is not None:
        now_ns = candidate.base_ns / facts.slowdown
        ends = sample_statistics.interval(sample_statistics.means(step_times(facts)), _LEVEL)
        base_low, base_high = (end / facts.slowdown for end in ends)
    naive = without_profiler(candidate.ceiling_ns if candidate.share_ns is None else candidate.share_ns)
    ceiling, most = without_profiler(candidate.ceiling_ns), None
    now = Prediction(
        candidate.method, round(now_ns), ceiling_ns=ceiling, base_p10_ns=round(base_low), base_p90_ns=round(base_high),
        naive_ns=None if naive is None else max(round(now_ns) - naive, 0),
    )  # fmt: skip
    if candidate.method == "replay":
        if facts.contradiction is not None:
            raise NotEvaluableError(facts.contradiction)
        changes, period = candidate.transforms, candidate.period
        low, mid, high = sorted(step_ns(facts, changes, case, period) for case in Case)
        low, mid, high = (
            now_ns - (now_ns - end) * _usual(facts, changes, 1 - mid / now_ns) for end in (low, mid, high)
        )
        most = most_ns(facts, changes, period)
        if most is None:  # the rule itself limits what the change can save
            learned = replace(learned, least_spread=0.0)
    elif candidate.method == "none" or candidate.after_ns is None:
        return now
    else:
        low, mid, high = (end / facts.slowdown for end in candidate.after_ns.ends)
        learned = replace(learned, least_spread=0.0)  # the rule states its own interval
    replayed, best_ns = 1 - mid / max(now_ns, 1), round(now_ns) - round(low)
    savings = learned.adjusted((1 - high / max(now_ns, 1), replayed, 1 - low / max(now_ns, 1)))
    high, mid, low = (now_ns * (1 - saved) for saved in savings)
    least, likely, greatest = (round(now_ns) - round(end) for end in (high, mid, low))
    if ceiling is not None and (most is None or not facts.on_device):
        # the best case of the replay may save more than the rule's ceiling
        most = min(max(ceiling, best_ns), round(now_ns) if most is None else most)
    ceiling = _ceiling_ns(facts, candidate, most, round(now_ns))
    if ceiling is not None:
        likely_ns = round(min(_claimed_ns(facts, candidate, Case.LIKELY), ceiling))
        least, likely, greatest = min(least, likely_ns), min(likely, likely_ns), min(greatest, ceiling)
        high, mid, low = max(high, now_ns - likely_ns), max(mid, now_ns - likely_ns), max(low, now_ns - ceiling)
    floors = sorted(min(floor_ns(facts, candidate, case), now_ns) for case in Case)
    low, mid, high = map(max, (low, mid, high), floors)
    least, likely = min(least, round(now_ns) - round(high)), min(likely, round(now_ns) - round(mid))
    greatest, most_saved = min(greatest, round(now_ns) - round(low)), round(now_ns) - round(floors[0])
    saving_low = round(min(least * factor for factor in factors))
    saving_high = min(round(max(greatest * factor for factor in factors)), most_saved)
    return replace(
        now, p10_ns=round(max(low * factors[0], floors[0])), p50_ns=round(mid), p90_ns=round(high * factors[1]),
        saving_ns=likely, saving_p10_ns=saving_low,
        saving_p90_ns=saving_high if ceiling is None else min(saving_high, ceiling), ceiling_ns=ceiling,
        replayed_ratio=replayed, outcomes=len(learned.misses),
    )  # fmt: skip


def _usual(facts: RuleInput, changes: tuple[transforms.Transform, ...], share: float) -> float:
    """Return by which factor the saving is a smaller share of all steps than of the median step, of which it is
    ``share``. If a few steps take much of the time, the change may save little of it, and the account of causes counts
    all steps. 1 if the share is not smaller, or if the mean step is hardly longer than the median step."""
    if float(facts.usual_ns.mean()) <= _LONGER * facts.step_ns:
        return 1.0
    now_ns, after_ns = (int(played_ns(facts, part).sum()) for part in ((), changes))
    return min(max(1 - after_ns / max(now_ns, 1), 0) / share, 1.0) if share > 0 else 1.0


def unknown(prediction: Prediction) -> Prediction:
    """Return a prediction without its saving."""
    return Prediction(
        "none", prediction.base_ns, ceiling_ns=prediction.ceiling_ns,
        base_p10_ns=prediction.base_p10_ns, base_p90_ns=prediction.base_p90_ns,
    )  # fmt: skip


def _ceiling_ns(facts: RuleInput, candidate: Candidate, most_ns: int | None, now_ns: int) -> int | None:
    """Return the largest possible saving in ns: the smallest of ``most_ns``, the time that the change claims of the
    account of the device, and the time now. None if neither limit is known."""
    claimed_ns = _claimed_ns(facts, candidate, Case.SHORT)
    if most_ns is None and claimed_ns == math.inf:
        return None
    return round(min(claimed_ns, now_ns if most_ns is None else most_ns, now_ns))


def _claimed_ns(facts: RuleInput, candidate: Candidate, case: Case) -> float:
    claimed = device_account.limit(facts, candidate.transforms, case) if candidate.transforms else None
    return math.inf if claimed is None else round(claimed.ns / facts.slowdown)


def noise(facts: RuleInput) -> tuple[float, float]:
    """Return the ends of the 80% interval of the median step time, as factors of the median."""
    steps = step_times(facts)
    if len(steps) < 2:
        return 1 - ONE_STEP, 1 + ONE_STEP
    low, high = sample_statistics.median_interval(steps, _LEVEL)
    middle = max(float(np.median(steps)), 1.0)
    return low / middle, high / middle


def step_times(facts: RuleInput) -> FloatArray:
    """Return the recorded step times in ns from which noise is computed.

    Differences between ranks are not noise, so the time of a step is the median over its ranks. Long waits in every
    N-th step (``facts.period`` is N) are not noise either, so each N steps give one mean, shape (steps // N,)."""
    times = pd.Series(facts.usual_ns).groupby(facts.steps.number).median().to_numpy(np.float64)
    complete = len(times) // facts.period * facts.period
    means: FloatArray = times[:complete].reshape(-1, facts.period).mean(axis=1)
    return means


def base(facts: RuleInput) -> Base | None:
    """Return the step from which predictions start."""
    if not len(facts.steps):
        return None
    run = facts.training
    return Base(facts.step_ns, round(run.step_ns), run.measured_ns, run.event_ns, run.speed, run.error, facts.preempted)


def identity(facts: RuleInput) -> Identity:
    """Return the accuracy of the replay of the unchanged graph."""
    unexplained = played_steps.unexplained_ratio(facts.replay)
    unrecorded_events = waits.waits_for_unrecorded_events(facts.trace)
    if not len(facts.steps):
        return Identity(None, None, 0, unexplained, unrecorded_events)
    if facts.contradiction is not None:
        return Identity(None, None, len(facts.steps), unexplained, unrecorded_events, facts.contradiction)
    recorded_ns = facts.steps.recorded_ns
    difference_ns = np.abs(facts.steps.played_ns(play(facts.replay.graph)) - recorded_ns)
    errors = difference_ns / np.maximum(recorded_ns, 1)
    return Identity(float(np.median(errors)), float(errors.max()), len(facts.steps), unexplained, unrecorded_events)
