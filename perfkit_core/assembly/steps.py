"""Which training step each event belongs to.

Steps are the events of kind ``step``. A host or memory event belongs to the step in which it starts, on any thread of
the same process; device work belongs to the step of its launch, whenever it runs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.assembly.threads import thread_numbers
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Finding
from perfkit_core.model.schema import (
    BACKWARD,
    DATALOADER,
    FORWARD,
    MEMORY,
    OPERATOR_KINDS,
    OPTIMIZER,
    OTHER,
    RUNTIME,
    STEP,
    SYNC,
)
from perfkit_core.model.trace import Trace

PARTIAL: Final = "partial-step"
EMPTY: Final = "empty-last-step"
"""Codes of findings. The second is no fault: a loop that calls step() after each iteration leaves such a step."""


def assign(trace: Trace) -> tuple[IntArray, tuple[Finding, ...]]:
    """Step number of each event (-1: none), shape (rows,)."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP))
    partial = _partial(trace)
    if not len(rows):
        return np.full(len(trace), -1, np.int64), (*partial, _no_steps())
    number = _numbers(trace.ints("step")[rows])
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    step = _inside(trace.ints("start_ns"), start, end, number)
    step[~trace.host & ~trace.rows("kind", MEMORY)] = -1
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    step[launched] = step[launched_by[launched]]
    step[rows] = number
    return step, partial + _findings(start, end, number)


def _numbers(recorded: IntArray) -> IntArray:
    """Recorded step numbers; counted from 0 where the names have none."""
    return recorded if (recorded >= 0).all() else np.arange(len(recorded), dtype=np.int64)


def _inside(time: IntArray, start: IntArray, end: IntArray, number: IntArray) -> IntArray:
    """The last step that began at or before each time, if it had not ended. Times and starts ascend."""
    begun = np.append(np.searchsorted(time, start), len(time))
    ended = np.clip(np.searchsorted(time, end), begun[:-1], begun[1:])
    edges = np.stack([begun[:-1], ended], axis=1).ravel()
    counts = np.diff(edges, prepend=0, append=len(time))
    inside = np.stack([np.full(len(number), -1), number], axis=1).ravel()
    return np.repeat(np.append(inside, -1), counts)


def empty_last_step(trace: Trace) -> IntArray:
    """Row of the last step of the recording when nothing was computed in it, shape (0,) or (1,).

    A loop that calls the profiler's step() after each iteration opens a step that never takes place: at most its data
    loader is asked once more, shuffles its samples, and says that it has ended.
    """
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP))[-2:]
    worked = _worked_in(trace, rows)
    if len(rows) == 2 and not worked[0]:  # steps that do nothing but load data are steps
        worked = _worked_in(trace, rows, loading=True)
    return rows[-1:][~worked[-1:]]


def _worked_in(trace: Trace, rows: IntArray, loading: bool = False) -> BoolArray:
    """True for those of the steps ``rows`` in whose time something was computed on the host, shape (rows,); what a data
    loader computes counts with ``loading``."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    begin, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    start = trace.ints("start_ns")[_computing(trace, int(begin.min()), loading)]
    first, last = np.searchsorted(start, begin), np.searchsorted(start, end)
    endless = trace.ints("dur_ns")[rows] <= 0  # cut off before anybody knew its duration
    worked: BoolArray = first < np.where(endless, len(start), last)
    return worked


def _computing(trace: Trace, since_ns: int, loading: bool) -> IntArray:
    """Rows of what the host computes from a time on; ``loading``: in data loaders, too."""
    first = int(np.searchsorted(trace.ints("start_ns"), since_ns))
    work = trace.host & trace.rows("kind", *OPERATOR_KINDS, RUNTIME, SYNC, FORWARD, BACKWARD, OPTIMIZER)
    loaders = trace.host & trace.rows("kind", DATALOADER)
    if loading or not loaders[first:].any():
        return first + np.flatnonzero(work[first:])
    rows = first + np.flatnonzero((work | loaders)[first:])
    parent = nesting.nest(thread_numbers(trace, rows), trace.ints("start_ns")[rows], trace.end_ns[rows])
    return rows[work[rows] & ~nesting.lies_in(parent, loaders[rows])]


def _partial(trace: Trace) -> tuple[Finding, ...]:
    """Steps that are none: they have kind ``other`` and keep their number. Cut off by the end, or never begun."""
    rows = np.flatnonzero(trace.rows("kind", OTHER) & (trace.ints("step") >= 0))
    number, worked = trace.ints("step")[rows], _worked_in(trace, rows)
    cut, empty = (np.unique(number[chosen]) for chosen in (worked, ~worked))
    found = []
    if len(cut):
        numbers = ", ".join(map(str, cut))
        text = message("the recording ended inside step {numbers}: it is not counted as a step", numbers=numbers)
        found.append(Finding(PARTIAL, text))
    if len(empty):
        text = message(
            "step {numbers} was opened when the recording ended, and nothing took place in it: it is left out",
            numbers=", ".join(map(str, empty)),
        )
        found.append(Finding(EMPTY, text))
    return tuple(found)


def _no_steps() -> Finding:
    text = message(
        "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
    )
    return Finding("no-steps", text)


def _findings(start: IntArray, end: IntArray, number: IntArray) -> tuple[Finding, ...]:
    found = []
    if (start[1:] < end[:-1]).any():
        text = message("some steps overlap: events are counted in the one begun last")
        found.append(Finding("overlapping-steps", text))
    if len(np.unique(number)) < len(number):
        text = message("some step numbers occur more than once in one recording")
        found.append(Finding("repeated-step-numbers", text))
    return tuple(found)
