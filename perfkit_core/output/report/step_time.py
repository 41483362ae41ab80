"""Sentences on the time of a step, for all screens: without the profiler, recorded, and without waits for a processor.

All step times of a screen are medians. Where the mean of the recorded steps differs much from their median, a sentence
says which steps are long, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from perfkit_core.base.algorithms.sample_statistics import outlying
from perfkit_core.base.language.messages import Message, mark, message, plural
from perfkit_core.trace.model.timed_steps import StepTime, TimedSteps
from perfkit_core.views.steps.steady_steps import DEVICE_BOUND

_MANY_STEPS: Final = 10
"""Minimum number of steps for which the 10th and 90th percentile are given instead of the minimum and maximum."""
UNEQUAL: Final = 0.2
"""The mean of the steps is explained if it differs from their median by more than this share of the median."""
_SHORT: Final = 1.5
"""Steps are much shorter if the median is at least this multiple of their time."""
_NAMED: Final = 3
_PARTS: Final = {
    "dataloader_ns": mark("data loading"), "forward_ns": mark("the forward pass"),
    "backward_ns": mark("the backward pass"), "optimizer_ns": mark("the optimizer"),
}  # fmt: skip


def step_time(steps: pd.DataFrame | None, timed: TimedSteps | None = None, between: bool = False) -> Iterator[Message]:
    """Yield sentences on the durations of the steps. ``steps``: table of the view steps. ``timed``: the steps that a
    clock timed, None if there was no clock. ``between``: whether work between
    the steps takes long."""
    if steps is None or steps.empty:
        return
    times = steps["dur_ns"].astype("float64")
    ranks = steps["rank"].nunique() if "rank" in steps else 1
    of_ranks = message(" of {count} ranks", count=ranks) if ranks > 1 else None
    median = float(times.median())
    values = {"median": median, "count": len(times), "ranks": of_ranks, "most": times.max()}
    if timed is not None and timed.unprofiled():
        yield from with_clock(timed, median)
        if timed.time(timed.unprofiled()) is not None:
            yield message("All other times are of the recorded steps.")
    if len(times) == 1:
        yield message("The only recorded step took {time:ns}.", time=times.iloc[0])
    elif len(times) < _MANY_STEPS:
        text = mark("The median of {count} step times{ranks} is {median:ns}. The steps took {least:ns} to {most:ns}.")
        yield message(text, **values, least=times.min())
    else:
        text = mark(
            "The median of {count} step times{ranks} is {median:ns}. 80% of the steps took {low:ns} to {high:ns}. The "
            "slowest step took {most:ns}."
        )
        yield message(text, **values, low=times.quantile(0.1), high=times.quantile(0.9))
    known = steps["device_cadence_ns"].dropna() if "device_cadence_ns" in steps else steps.iloc[:0, 0]
    cadence = float(known.astype("float64").median()) if len(known) else 0.0
    if cadence > DEVICE_BOUND * median:
        text = mark(
            "The device needs {device:ns} from the work of one step to that of the next, longer than a step on the "
            "host ({host:ns})."
        )
        yield message(text, device=cadence, host=median)
    yield from _unequal(steps, times, between)


def with_clock(timed: TimedSteps, recorded_ns: float | None = None) -> Iterator[Message]:
    """Yield what a step takes, and what recording made of it. ``recorded_ns``: median of the recorded steps, None for
    that of the clock."""
    usual, recorded = timed.time(timed.unprofiled()), timed.time(timed.recorded())
    if usual is None:
        if recorded is not None:
            yield message("A recorded step takes {recorded:ns}.", recorded=recorded_ns or recorded.wall_ns)
            yield from _less_waits(recorded)
        return
    if recorded is None and recorded_ns is None:
        yield message("A step takes {usual:ns} without the profiler.", usual=usual.wall_ns)
        yield from _less_waits(usual)
        return
    wall_ns = recorded.wall_ns if recorded_ns is None and recorded is not None else recorded_ns
    text = mark("A step takes {usual:ns}; recording made it {recorded:ns}.")
    if wall_ns is not None and wall_ns < usual.wall_ns:  # recording makes no step shorter
        text = mark("A step takes {usual:ns} without the profiler. The recorded steps were shorter: {recorded:ns}.")
    yield message(text, usual=usual.wall_ns, recorded=wall_ns)
    if recorded is None:  # a single step was recorded, which the clock leaves out
        yield from _less_waits(usual, mark("Without waits for a processor, an unprofiled step takes {time:ns}."))
    elif usual.waits or recorded.waits:
        text = mark("Without waits for a processor, these are {usual:ns} and {recorded:ns}.")
        yield message(text, usual=usual.less_waits_ns, recorded=recorded.less_waits_ns)


def _less_waits(
    time: StepTime, text: str = mark("Without waits for a processor, this is {time:ns}.")
) -> Iterator[Message]:
    if time.waits:
        yield message(text, time=time.less_waits_ns)


def equal(times: pd.Series) -> bool:
    """Return whether mean and median of the step times in ns are so close that one stands for both."""
    return bool(abs(times.mean() - times.median()) <= UNEQUAL * times.median())


def _unequal(steps: pd.DataFrame, times: pd.Series, between: bool) -> Iterator[Message]:
    """Yield a sentence on the steps that make the mean differ from the median, if it does by more than a fifth. Work
    ``between`` the steps, such as a rollout, has forward passes of its own, so the phases do not tell what it is."""
    if equal(times):
        return
    of_ranks = times.groupby(steps["rank"] if "rank" in steps else times * 0, dropna=False)
    long = steps[of_ranks.transform(lambda ns: outlying(ns.to_numpy())).astype(bool)]
    values = {"mean": times.mean(), "count": steps["step"].nunique()}
    if long.empty or times.mean() < times.median():
        short = steps["step"][times * _SHORT <= times.median()].nunique()
        yield message("Their mean is {mean:ns}.", **values) if not short else plural(
            "Their mean is {mean:ns}: {n} of {count} steps is much shorter.",
            "Their mean is {mean:ns}: {n} of {count} steps are much shorter.",
            short, **values,
        )  # fmt: skip
        return
    rest = steps.drop(long.index)
    excess = {
        name: float(long[column].astype("Float64").mean() - rest[column].astype("Float64").median())
        for column, name in _PARTS.items()
        if column in steps and long[column].notna().any() and rest[column].notna().any()
    }
    most = max(excess, key=excess.__getitem__, default=None)
    longer = float(times[long.index].mean() - times[rest.index].median()) if len(rest) else 0.0
    holds = message("outside of all recorded phases")
    explains = most is not None and 2 * excess[most] >= longer
    if between and (not explains or most == _PARTS["forward_ns"]):
        holds = message("in work between the training steps")
    elif most is not None and explains:
        holds = message("in {phase}", phase=message(most))
    elif 2 * sum(excess.values()) >= longer:
        holds = message("in several phases")
    named = long.sort_values("dur_ns", ascending=False, kind="stable").drop_duplicates("step").head(_NAMED)
    pairs = zip(named["step"].tolist(), named["dur_ns"].tolist(), strict=True)
    examples = [message("step {number}: {time:ns}", number=number, time=ns) for number, ns in pairs]
    yield plural(
        "Their mean is {mean:ns}: {n} of {count} steps is long ({examples:list}), and most of its additional time is "
        "{holds}.",
        "Their mean is {mean:ns}: {n} of {count} steps are long ({examples:list}), and most of their additional time "
        "is {holds}.",
        long["step"].nunique(), **values, examples=examples, holds=holds,
    )  # fmt: skip
