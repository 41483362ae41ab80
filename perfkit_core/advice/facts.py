"""What rules ask of a recording: its replay, its steps, and times as sums or medians over them.

Each property is computed when it is first read, and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.language.messages import Text, message
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.replay import batches
from perfkit_core.replay.batches import begins_epoch, loads, waited
from perfkit_core.replay.build import Replay, build
from perfkit_core.replay.steps import Steps, steps
from perfkit_core.views.steps.activity import Activity, activities, covered_ns, has_device_work


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
            raise NotEvaluableError(message("no host events were recorded, so the start of a step is unknown"))
        return int(self.typical(self.steps.recorded_ns))

    @cached_property
    def in_steps(self) -> BoolArray:
        """True for events of a step, for all events where no steps were recorded, shape (rows,)."""
        return self.trace.ints("step") >= 0 if self.has_steps else np.ones(len(self.trace), np.bool_)

    @cached_property
    def period(self) -> int:
        """How many steps in a row belong together, since one of them waits for the batches of all: with starved loader
        workers as many as there are workers. 1 where every step waits for its own, or the waits take little."""
        if self.waited_ns.sum() <= self.thresholds.loader_share * int(self.steps.recorded_ns[self.mine].sum()):
            return 1
        rows = loads(self.trace)
        begins = self.steps.only(self.mine).position(self.trace, rows[begins_epoch(self.trace, rows)])
        return batches.period(self.waited_ns, np.isin(np.arange(len(self.waited_ns)), begins))

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

    def exceeds(self, spent_ns: float, share: float) -> bool:
        """Return whether a time is more than this share of the step: what nearly every rule asks before it fires."""
        return spent_ns > share * self.step_ns

    def mean_ns(self, rows: IntArray) -> float:
        """Return the time of some events, summed and averaged over the steps."""
        return self.per_step(int(self.trace.ints("dur_ns")[rows].sum()))

    def totals(self, rows: IntArray, values: IntArray | None = None) -> IntArray:
        """Return what the values of the rows (None: 1 each) add up to in each step, shape (all steps,)."""
        total = np.zeros(len(self.steps), np.int64)
        step = self.steps.position(self.trace, rows)
        np.add.at(total, step[step >= 0], 1 if values is None else values[step >= 0])
        return total

    def median_total(self, rows: IntArray, values: IntArray | None = None) -> float:
        """Return the median of :meth:`totals`."""
        return float(np.median(self.totals(rows, values))) if len(self.steps) else 0.0

    def covered_ns(self, rows: IntArray) -> float:
        """Return how much of a step the events of :attr:`rank` among the rows cover (union), median over its steps."""
        if not len(self.steps) or not len(rows):
            return 0.0
        covered = intervals.union_of(np.sort(self.of_rank(rows)), self.trace.ints("start_ns"), self.trace.end_ns)
        return float(np.median(self.within_steps(covered)))

    @cached_property
    def busy_ns(self) -> float:
        """How much of a step any device works (union, of :attr:`rank`), median over its steps."""
        return self.covered_ns(np.flatnonzero(~self.trace.host & self.trace.rows("kind", *DEVICE_WORK)))

    @cached_property
    def waiting_ns(self) -> IntArray:
        """How much of its self time each host event waits for a device or another thread, shape (rows,)."""
        trace, graph = self.trace, self.replay.graph
        nodes = np.flatnonzero(graph.on_host & (graph.row >= 0))
        busy = np.zeros(len(trace), np.int64)
        np.add.at(busy, graph.row[nodes], graph.dur_ns[nodes])
        waiting: IntArray = np.where(self.replay.first >= 0, np.maximum(trace.ints("self_ns") - busy, 0), 0)
        return waiting

    def ceiling_ns(self, part_ns: IntArray) -> int:
        """Return by how much the typical step is shorter once each step loses its part, shape (all steps,), and nothing
        waits instead."""
        return self.step_ns - max(int(self.typical(self.steps.recorded_ns - part_ns)), 0)

    def need_steps(self) -> None:
        """Raise NotEvaluableError where no steps were recorded."""
        if not self.has_steps:
            raise NotEvaluableError(
                message("no steps were recorded"),
                message("give the profiler a schedule, and call its step() after each iteration"),
            )

    def need_device(self) -> None:
        """Raise NotEvaluableError where no device work was recorded."""
        if not self.on_device:
            raise NotEvaluableError(message("no device work was recorded"))

    def need(self, column: str, record: Text) -> None:
        """Raise NotEvaluableError where a column of the event table is empty; ``record`` says how to record it."""
        if not self.trace.known(column):
            raise NotEvaluableError(message("no {column} were recorded", column=column), record)
