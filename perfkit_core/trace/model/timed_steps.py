"""Step times of a process that were measured with a clock, inside and outside of the recorded windows. They show what a
step takes without the profiler, and how much of a step the process did not run although it could have."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from perfkit_core.base.language.messages import Message, Text, message
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.schema import Column, Int64
from perfkit_core.trace.model.side_table import RANK, SideTable, rank_cells, structs

_ENOUGH: Final = 3
"""Minimum number of steps before the first recorded step from which the time of an unprofiled step is taken."""
_FIRST: Final = 3
"""Number of steps at the beginning of a training that are longer than others, because memory and caches fill."""


NOTABLE: Final = 0.05
"""A larger share of the recorded steps that was lost to other processes is reported."""
NOTABLE_BETWEEN: Final = 0.1
"""A larger share of the time that lies between the training steps is reported."""

WORK_BETWEEN: Final = "work-between-steps"
"""Code of the finding on this time."""


class WorkBetween(msgspec.Struct, frozen=True):
    """Work between the training steps, such as evaluation or rollouts.

    - ``share``: its share of the time from the first update to the last
    - ``function``: the function that takes most of it, ``""`` if this is not known
    - ``place``: file name and line that call the function, such as ``train.py:20``
    - ``each``: most steps contain such work, so it is part of the typical step
    """

    share: float
    function: str = ""
    place: str = ""
    each: bool = False

    def text(self) -> Text:
        where = message("it is not known what runs there")
        if self.function:
            where = message("most of it in {function} ({place})", function=self.function, place=self.place)
        text = message(
            "{share:ratio} of the time lies between the training steps: {where}", share=self.share, where=where
        )
        return message("{text}. Most steps contain such work", text=text) if self.each else text


def works_between(findings: Iterable[Finding]) -> Iterator[WorkBetween]:
    """Yield the work between the steps of each rank, as the findings on a recording say it."""
    for finding in findings:
        text = finding.text
        if finding.code == WORK_BETWEEN and isinstance(text, Message):
            each = text.values.get("text")
            values: Mapping[str, Any] = (each if isinstance(each, Message) else text).values
            where = getattr(values.get("where"), "values", {})
            yield WorkBetween(
                values.get("share", 0.0), where.get("function", ""), where.get("place", ""), isinstance(each, Message)
            )


class TimedStep(msgspec.Struct, frozen=True, array_like=True):
    """One step of the thread that runs the training. ``ran_ns`` to ``faults`` are None if the system does not tell.

    - ``number``: number of the step, as the profiler counts it
    - ``recorded``: whether the profiler recorded the step
    - ``wall_ns``: time from the start of the step to the start of the next step
    - ``ran_ns``: time for which the thread ran on a processor
    - ``waited_ns``: time for which the thread could have run, but other threads occupied the processors
    - ``preempted``: number of times that the system took the processor away from the thread
    - ``faults``: number of pages of memory that the thread touched for the first time
    - ``process_ns``: time for which all threads of the process ran on processors
    """

    number: Int64
    recorded: bool
    wall_ns: Int64
    ran_ns: Int64 | None = None
    waited_ns: Int64 | None = None
    preempted: Int64 | None = None
    faults: Int64 | None = None
    process_ns: Int64 | None = None


class StepTime(msgspec.Struct, frozen=True):
    """The time of a step, as medians over some steps. These are all kinds of step times that perfkit shows:

    - ``wall_ns``: from the start of a step to the start of the next, as a clock on the wall shows it
    - ``less_waits_ns``: the same, without the time that was lost to other processes. Predictions start from it."""

    wall_ns: int
    less_waits_ns: int

    @property
    def waits(self) -> bool:
        """Whether a notable part of the step is lost to other processes."""
        return self.wall_ns - self.less_waits_ns > NOTABLE * self.wall_ns


class TimedSteps(msgspec.Struct, frozen=True):
    """The timed steps of one process, the number of the training's first step, and the number of processors that the
    process may use (0 if unknown). ``between``: work between the steps, if it was looked for and takes long."""

    steps: tuple[TimedStep, ...] = ()
    first: Int64 = 0
    cpus: Int64 = 0
    between: WorkBetween | None = None

    def with_threads(self, threads: int | None) -> TimedSteps:
        """Return the times of a process whose operators have so many threads. If these are more than there are
        processors, they wait for each other, so it is unknown what was lost to other processes."""
        return msgspec.structs.replace(self, cpus=0) if threads and threads > self.cpus else self

    def unprofiled(self) -> tuple[TimedStep, ...]:
        """Return steps without a profiler: those before the first recorded step if there are enough, else all of them.

        A profiler changes how memory is used, and this lasts when it has stopped. The first steps of the training are
        left out if there are others, because memory and caches fill in them."""
        off = [step for step in self.steps if not step.recorded]
        usual = [step for step in off if step.number >= self.first + _FIRST]
        begin = min((step.number for step in self.recorded()), default=0)
        before = [step for step in usual if step.number < begin]
        return tuple(before if len(before) >= _ENOUGH else usual or off)

    def lost_ns(self, step: TimedStep) -> int:
        """Return for how long other processes occupied the processors while the thread could have run.

        If the process itself uses all processors, its threads wait for each other, and would without other processes
        as well."""
        if step.waited_ns is None or step.process_ns is None or not self.cpus:
            return 0
        return max(min(step.waited_ns, self.cpus * step.wall_ns - step.process_ns, step.wall_ns), 0)

    def typical_ns(self, steps: Sequence[TimedStep], period: int = 1) -> int | None:
        """Return the median time of the steps in ns, without the time that was lost to other processes. If one of every
        ``period`` steps differs from the others, return the median of the means of ``period`` steps. Return None if
        there are no steps."""
        times = [step.wall_ns - self.lost_ns(step) for step in steps]
        means = [statistics.mean(times[at : at + period]) for at in range(0, len(times) - period + 1, period)]
        return round(statistics.median(means or times)) if times else None

    def time(self, steps: Sequence[TimedStep]) -> StepTime | None:
        """Return the time of a step of those that :meth:`unprofiled` or :meth:`recorded` returns, None without any."""
        less_waits_ns = self.typical_ns(steps)
        if less_waits_ns is None:
            return None
        return StepTime(round(statistics.median(step.wall_ns for step in steps)), less_waits_ns)

    @property
    def unprofiled_ns(self) -> int | None:
        """The median time of a step without a profiler and without waits, None if no such step was timed."""
        return self.typical_ns(self.unprofiled())

    def recorded(self) -> tuple[TimedStep, ...]:
        return tuple(step for step in self.steps if step.recorded)

    @property
    def preempted(self) -> float:
        """The share of the recorded steps that was lost to other processes."""
        shares = [self.lost_ns(step) / max(step.wall_ns, 1) for step in self.recorded()]
        return statistics.median(shares) if shares else 0.0


def to_table(timed: Mapping[str, TimedSteps]) -> pa.Table:
    """Return the timed steps of several ranks, which are texts, "-" for an unknown rank."""
    clocks = [(rank, clock, step) for rank, clock in timed.items() for step in clock.steps]
    return STEP_CLOCK.of_structs(
        [step for _, _, step in clocks],
        rank=rank_cells(rank for rank, _, _ in clocks),
        first=[clock.first for _, clock, _ in clocks],
        cpus=[clock.cpus for _, clock, _ in clocks],
    )


def of_table(table: pa.Table) -> dict[str, TimedSteps]:
    """Return the timed steps by rank, a text, "-" for an unknown rank."""
    timed: dict[str, TimedSteps] = {}
    steps = structs(table, TimedStep)
    cells = zip(*(table[name].to_pylist() for name in ("rank", "first", "cpus")), steps, strict=True)
    for rank, first, cpus, step in cells:
        key = "-" if rank is None else str(rank)
        before = timed[key].steps if key in timed else ()
        timed[key] = TimedSteps((*before, step), first, cpus)
    return timed


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the clock of a run. Each cycle has the steps of all cycles before, so the last one of a rank is used."""
    return to_table({rank: timed for table in tables for rank, timed in of_table(table).items()})


STEP_CLOCK: Final = SideTable(
    "step_clock",
    "steps that a clock timed, inside and outside of the recorded windows",
    (
        RANK,
        Column("first", pa.int64(), False, "number of the first step of the training"),
        Column("cpus", pa.int64(), False, "number of processors that the process may use; 0 if unknown"),
        Column("number", pa.int64(), False, "number of the step, as the profiler counts it"),
        Column("recorded", pa.bool_(), False, "whether the profiler recorded the step"),
        Column("wall_ns", pa.int64(), False, "time from the start of the step to the start of the next step"),
        Column("ran_ns", pa.int64(), True, "time for which the thread ran on a processor"),
        Column("waited_ns", pa.int64(), True, "time for which other threads occupied the processors"),
        Column("preempted", pa.int64(), True, "number of times that the processor was taken away from the thread"),
        Column("faults", pa.int64(), True, "number of pages of memory that the thread touched for the first time"),
        Column("process_ns", pa.int64(), True, "time for which all threads of the process ran on processors"),
    ),
    join=_joined,
)
