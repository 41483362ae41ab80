"""The stretches of host time that a phase took: what the model and step views count and add up.

A recorded span (Paddle's Forward, torch's ``Optimizer.step#…``, a module) is a segment by itself. Where a phase is only
known from its operators (torch's backward nodes, inferred forward), consecutive ones on a thread within a step are one
segment, from the first start to the last end: what passes between two of them belongs to the phase, unless another
thread of the process goes on with another phase meanwhile (the optimizer, between two backward passes). A segment ends
with its step at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import DATALOADER, NESTED_KINDS, OTHER, PHASES
from perfkit_core.model.trace import Trace, once
from perfkit_core.runtime.compile import compiled
from perfkit_core.views.steps.step_rows import position, step_rows
from perfkit_core.views.threads import threads


@dataclass(frozen=True, slots=True)
class Segments:
    """Parallel arrays, one item a segment. ``phase`` indexes schema.PHASES. ``roots`` are the rows of the outermost
    events of the segments, ``of_root`` the segment of each."""

    phase: IntArray
    step: IntArray
    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    roots: IntArray
    of_root: IntArray

    @property
    def dur_ns(self) -> IntArray:
        """Length of each segment."""
        return self.end_ns - self.start_ns

    def of_rows(self, trace: Trace, rows: IntArray) -> IntArray:
        """The segment around some host events and around the launch of some device events, -1: none. Shape
        (len(rows),)."""
        own = np.full(len(trace), NO_ROW, np.int32)  # there are never more segments than rows
        own[self.roots] = self.of_root
        found = nesting.first_on_path(trace.ints("parent"), own)
        launched_by = trace.ints("launched_by")[rows]
        return found[np.where(launched_by == NO_ROW, rows, launched_by)].astype(np.int64)


def segments(trace: Trace, chosen: BoolArray, within_step: bool = True) -> Segments:
    """The segments of all phases but ``other``, from the chosen events; ``within_step``: cut at the end of the step."""
    phase = _phase_index(trace)
    rows = _roots(trace)
    rows = rows if chosen.all() else rows[chosen[rows]]
    spans = trace.rows("kind", *PHASES)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = spans[1:] | spans[:-1]
    for values in (threads(trace).code, trace.ints("step"), phase):
        first[1:] |= np.diff(values[rows]) != 0
    first |= _others_turn(trace, rows, phase[rows])
    at = np.flatnonzero(first)
    if not len(at):
        nothing = np.empty(0, np.int64)
        return Segments(nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    end = np.maximum.reduceat(trace.end_ns[rows], at)
    return Segments(
        phase[rows[at]].astype(np.int64),
        trace.ints("step")[rows[at]],
        trace.ints("rank")[rows[at]],
        np.minimum.reduceat(trace.ints("start_ns")[rows], at),
        _within_step(trace, end, rows[at]) if within_step else end,
        rows,
        np.cumsum(first) - 1,
    )


def _others_turn(trace: Trace, rows: IntArray, phase: npt.NDArray[np.int8]) -> BoolArray:
    """True where another phase begins in the time between an event and the one before it, shape (rows,). Loaders, which
    work ahead on threads of their own, do not count."""
    rank = np.unique(trace.ints("rank")[rows], return_inverse=True)[1]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    since = start - start.min(initial=0)
    width = int((end - start.min(initial=0)).max(initial=0)) + 1
    until = rank * width + since
    gap = until - np.append(0, np.maximum(start[1:] - end[:-1], 0))
    found = np.zeros(len(rows), np.bool_)
    for number in np.unique(phase):
        begun = np.sort(until[phase == number])
        if number != PHASES.index(DATALOADER):
            found |= (phase != number) & (np.searchsorted(begun, gap) < np.searchsorted(begun, until))
    return found


def _within_step(trace: Trace, end_ns: IntArray, first: IntArray) -> IntArray:
    """Ends of segments, cut at the end of the step in which their first event starts."""
    steps = step_rows(trace)
    at = position(trace, steps, trace.ints("rank")[first], trace.ints("step")[first])
    limit = np.append(trace.end_ns[steps], np.iinfo(np.int64).max)[at]
    cut: IntArray = np.minimum(end_ns, limit)
    return cut


@once
def _phase_index(trace: Trace) -> npt.NDArray[np.int8]:
    codes = trace.codes("phase")
    return codes.lookup(np.array([PHASES.index(value) for value in codes.values], np.int8), -1)


@once
def _roots(trace: Trace) -> IntArray:
    """Outermost events of each phase, ordered by thread and time."""
    phase = _phase_index(trace)
    phased = trace.host & trace.rows("kind", *NESTED_KINDS) & (phase >= 0) & (phase != PHASES.index(OTHER))
    _keep_changes(trace.ints("parent"), phase, phased)
    rows, found = np.flatnonzero(phased), threads(trace)
    ordered: IntArray = rows[groupby.stable_order(found.code[rows], len(found))]
    return ordered


@compiled
def _keep_changes(parent, phase, kept):  # type: ignore[no-untyped-def]
    """Leaves out the events whose parent is of their phase."""
    for i in range(len(parent)):
        if kept[i] and parent[i] >= 0 and phase[parent[i]] == phase[i]:
            kept[i] = False
