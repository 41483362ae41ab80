"""Which memory events lie in which step, and how far can a block be followed?

A *run* is a series of steps recorded one after the other. Between two runs (two cycles of a profiler) frees are not
recorded, so a block is followed only to the end of its run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.trace import Trace
from perfkit_core.views.memory.events import MemoryEvents
from perfkit_core.views.steps.step_rows import step_rows


@dataclass(frozen=True, slots=True)
class StepEnds:
    """A row for each pool and step of its rank, in this order. ``pool``; ``step``: row of the step event; ``first`` and
    ``last``: positions of the first and last memory event of the pool in it (last < first: none); ``follower``: row of
    the next step of the run (-1: the step is the last of it); ``run_last``: row of the last step of the run. Shape
    (pools × steps,)."""

    pool: IntArray
    step: IntArray
    first: IntArray
    last: IntArray
    follower: IntArray
    run_last: IntArray

    def of(self, position: IntArray) -> IntArray:
        """The row here of the step in which each memory event lies (-1: none), shape of ``position``."""
        row = np.searchsorted(self.last, position)
        known = row < len(self.last)
        inside = known & (np.append(self.first, np.iinfo(np.int64).max)[row] <= position)
        return np.where(inside, row, -1)

    def run_begin(self) -> IntArray:
        """Position of the first event of the run of each row."""
        starts = np.flatnonzero(np.append(True, self.follower[:-1] < 0)[: len(self.step)])
        return self.first[starts[np.searchsorted(starts, np.arange(len(self.step)), side="right") - 1]]


def step_ends(trace: Trace, found: MemoryEvents) -> StepEnds:
    """The steps of each pool."""
    steps, rank = step_rows(trace), trace.ints("rank")
    mine = [steps[rank[steps] == one] for one in found.pool_rank]
    pool = np.repeat(np.arange(len(mine)), [len(rows) for rows in mine])
    step = np.concatenate(mine) if mine else steps[:0]
    bounds = [_bounds(trace, found, int(p), rows) for p, rows in enumerate(mine)]
    first, last = (np.concatenate(part) for part in zip(*bounds, strict=True)) if bounds else (step, step)
    number = trace.ints("step")[step]
    follows = np.append((pool[1:] == pool[:-1]) & (number[1:] == number[:-1] + 1), False)[: len(step)]
    row = np.arange(len(step))
    return StepEnds(pool, step, first, last, np.where(follows, row + 1, -1), _next_stop(~follows))


def _bounds(trace: Trace, found: MemoryEvents, pool: int, steps: IntArray) -> tuple[IntArray, IntArray]:
    begin, end = np.searchsorted(found.pool, [pool, pool + 1])
    time = trace.ints("start_ns")[found.row[begin:end]]
    first = begin + np.searchsorted(time, trace.ints("start_ns")[steps])
    last = begin + np.searchsorted(time, trace.end_ns[steps]) - 1
    return first, last


def _next_stop(stop: np.ndarray) -> IntArray:
    """The nearest row at or after each one where ``stop`` is true (it is in the last row)."""
    at = np.flatnonzero(stop)
    return np.asarray(at[np.searchsorted(at, np.arange(len(stop)))], np.int64)
