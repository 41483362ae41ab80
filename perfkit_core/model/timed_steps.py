"""Step times of a process that were measured with a clock, inside and outside of the recorded windows. They show what a
step takes without the profiler, and how much of a step the process did not run although it could have."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Final

import msgspec

_FIRST: Final = 3
"""Number of steps at the beginning of a training that are longer than others, because memory and caches fill."""


class TimedStep(msgspec.Struct, frozen=True, array_like=True):
    """One step of the thread that runs the training. ``ran_ns`` to ``faults`` are None if the system does not tell.

    - ``number``: number of the step, as the profiler counts it
    - ``recorded``: whether the profiler recorded the step
    - ``wall_ns``: time from the start of the step to the start of the next step
    - ``ran_ns``: time for which the thread ran on a processor
    - ``waited_ns``: time for which the thread could have run, but other threads occupied the processors
    - ``preempted``: number of times that the system took the processor away from the thread
    - ``faults``: number of pages of memory that the thread touched for the first time
    """

    number: int
    recorded: bool
    wall_ns: int
    ran_ns: int | None = None
    waited_ns: int | None = None
    preempted: int | None = None
    faults: int | None = None


class TimedSteps(msgspec.Struct, frozen=True):
    """The timed steps of one process, and the number of the training's first step."""

    steps: tuple[TimedStep, ...] = ()
    first: int = 0

    def unprofiled(self) -> tuple[TimedStep, ...]:
        """Return the steps without a profiler, less the first steps of the training if there are others."""
        off = [step for step in self.steps if not step.recorded]
        return tuple([step for step in off if step.number >= self.first + _FIRST] or off)

    def recorded(self) -> tuple[TimedStep, ...]:
        return tuple(step for step in self.steps if step.recorded)

    @property
    def preempted(self) -> float:
        """The share of the recorded steps in which the thread could have run, but other threads had the processors."""
        shares = [min((step.waited_ns or 0) / max(step.wall_ns, 1), 1.0) for step in self.recorded()]
        return statistics.median(shares) if shares else 0.0


def typical_ns(steps: Iterable[TimedStep], period: int = 1) -> int | None:
    """Return the median time of the steps in ns, without the time in which other threads occupied the processors. If
    one of every ``period`` steps differs from the others, return the median of the means of ``period`` steps. Return
    None if there are no steps."""
    times = [step.wall_ns - min(step.waited_ns or 0, step.wall_ns) for step in steps]
    means = [statistics.mean(times[at : at + period]) for at in range(0, len(times) - period + 1, period)]
    return round(statistics.median(means or times)) if times else None
