"""What rules ask of a recording: computed when first asked for, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.analyses.step.activity import Activity, activities, has_device_work
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.intervals import Intervals
from perfkit_core.language import say
from perfkit_core.replay import rhythm
from perfkit_core.replay.batches import begins_epoch, loads, waited
from perfkit_core.replay.build import Replay, build
from perfkit_core.replay.steps import Steps, steps
from perfkit_core.trace import BoolArray, IntArray, Trace


@dataclass(frozen=True)
class Facts:
    """A recording as rules see it. Everything is in ns a step unless its name says otherwise."""

    trace: Trace
    thresholds: Thresholds = field(default_factory=Thresholds)

    @cached_property
    def replay(self) -> Replay:
        """The graph of the recording."""
        return build(self.trace)

    @cached_property
    def steps(self) -> Steps:
        """Its steps; the whole recording where there are none."""
        return steps(self.replay)

    @cached_property
    def has_steps(self) -> bool:
        """Whether steps were recorded."""
        return bool(len(self.steps)) and int(self.steps.number[0]) >= 0

    @cached_property
    def step_ns(self) -> int:
        """Median time of a step. Raises NotEvaluableError for a recording without host events."""
        if not len(self.steps):
            raise NotEvaluableError(say("no host events were recorded: nothing tells when a step begins"))
        return int(self.typical(self.steps.recorded_ns))

    @cached_property
    def period(self) -> int:
        """How many steps in a row belong together, since one of them waits for the batches of all: with starved loader
        workers as many as there are workers. 1 where every step waits for its own, or the waits take little."""
        if self.waited_ns.sum() <= self.thresholds.loader_share * int(self.steps.recorded_ns[self.mine].sum()):
            return 1
        rows = loads(self.trace)
        begins = self.steps.only(self.mine).position(self.trace, rows[begins_epoch(self.trace, rows)])
        return rhythm.period(self.waited_ns, np.isin(np.arange(len(self.waited_ns)), begins))

    @cached_property
    def waited_ns(self) -> IntArray:
        """What each step of :attr:`rank` waits for batches, beyond what it takes to get those that are there, shape
        (its steps,)."""
        node, waited_ns = waited(self.replay.graph)
        steps = self.steps.only(self.mine)
        step = steps.position(self.trace, self.replay.graph.row[node])
        total = np.zeros(len(steps), np.int64)
        np.add.at(total, step[step >= 0], waited_ns[step >= 0])
        return total

    def typical(self, of_steps: npt.NDArray[Any]) -> float:
        """Median over the steps of a number of each, shape (all steps,) or (steps of :attr:`rank`,); where several in a
        row belong together (:attr:`period`), over their means."""
        steps = self.steps if len(of_steps) == len(self.steps) else self.steps.only(self.mine)
        return float(np.median(steps.of_periods(of_steps, self.period)))

    @property
    def on_device(self) -> bool:
        """Whether work on a device was recorded."""
        return has_device_work(self.trace)

    def per_step(self, dur_ns: int) -> float:
        """A time of the whole recording, as an average over its steps."""
        return dur_ns / max(len(self.steps), 1)

    @cached_property
    def rank(self) -> int:
        """The rank that times of day are told of: unions of one rank are never united with those of another. The first
        one with steps; -1 where the recording names none."""
        ranks = self.steps.rank if len(self.steps) else self.trace.ints("rank")
        return int(ranks.min()) if len(ranks) else -1

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All that have steps."""
        return tuple(np.unique(self.steps.rank).tolist())

    @cached_property
    def mine(self) -> BoolArray:
        """True for the steps of :attr:`rank`, shape (all steps,)."""
        return np.asarray(self.steps.rank == self.rank)

    def of_rank(self, rows: IntArray) -> IntArray:
        """Those of the rows that are of :attr:`rank`."""
        mine: IntArray = rows[self.trace.ints("rank")[rows] == self.rank]
        return mine

    @cached_property
    def activity(self) -> Activity:
        """What :attr:`rank` does at which time (unions)."""
        return activities(self.trace).of(self.rank)

    def within_steps(self, what: Intervals) -> IntArray:
        """How much of each step of :attr:`rank` a set of its intervals covers, shape (its steps,)."""
        begin, end = (self.replay.recorded_ns(nodes[self.mine]) for nodes in (self.steps.first, self.steps.after))
        return covered_ns(what, begin, end)

    def need_steps(self) -> None:
        """Raises NotEvaluableError where no steps were recorded."""
        if not self.has_steps:
            raise NotEvaluableError(
                say("no steps were recorded: give the profiler a schedule, and call its step() after each iteration")
            )

    def need_device(self) -> None:
        """Raises NotEvaluableError where no work of a device was recorded."""
        if not self.on_device:
            raise NotEvaluableError(say("no work of a device was recorded"))

    def need(self, column: str, how: str) -> None:
        """Raises NotEvaluableError where a column of the event table holds nothing; ``how`` says how to record it."""
        if not self.trace.known(column):
            raise NotEvaluableError(say("no {column} were recorded: {how}", column=column, how=how))
