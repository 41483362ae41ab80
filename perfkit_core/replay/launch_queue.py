"""Launches that wait for room: a stream holds so many launches that have not begun, the next one blocks its caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import QUEUE, Edges, all_edges, edges
from perfkit_core.replay.host_segments import Segments
from perfkit_core.trace import IntArray, Trace

DEPTH: Final = 1021
"""Launches that a CUDA stream holds besides the one that runs. The next one blocks until that has ended and its
successor begins: measured on a V100, where 1,132 of 1,139 blocked launches found exactly so many waiting."""
_BLOCKED: Final = 4
"""A launch that takes so many times the usual was blocked, if room was made while it lasted."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Launches that waited for room: ``row`` of each, ``busy_ns`` what it takes otherwise, shape (calls,); ``edges``
    from the work that made room to what follows each launch, whether it waited or not."""

    row: IntArray
    busy_ns: IntArray
    edges: Edges


def queue_limits(trace: Trace, work: DeviceWork, segments: Segments, nodes: IntArray) -> QueueLimits:
    """The limit of every stream that got more work than it holds. ``nodes`` are those of the work."""
    made_room = np.arange(-DEPTH, len(work) - DEPTH)
    first = np.searchsorted(work.lane, work.lane)
    launched_by = trace.ints("launched_by")[work.row]
    at = np.flatnonzero((made_room >= first) & (launched_by >= 0))
    at = at[segments.after[launched_by[at]] >= 0]
    if not len(at):
        nothing = np.empty(0, np.int64)
        return QueueLimits(nothing, nothing, all_edges([]))
    call, room = launched_by[at], made_room[at]
    begun, end = trace.ints("start_ns")[work.row[room]], trace.end_ns[call]
    within = (begun > trace.ints("start_ns")[call]) & (begun <= end)
    usual = _usual_ns(trace, np.setdiff1d(launched_by[launched_by >= 0], call[within]))
    blocked = within & (trace.ints("dur_ns")[call] > _BLOCKED * usual)
    lag = np.where(blocked, end - begun, np.minimum(end - begun, 0))
    limits = edges(QUEUE, nodes[room], segments.after[call], lag, call, from_start=True)
    return QueueLimits(call[blocked], np.full(int(blocked.sum()), usual), limits)


def _usual_ns(trace: Trace, calls: IntArray) -> int:
    """What a launch takes that waits for no room: the first ones of a stream at least."""
    return int(np.median(trace.ints("dur_ns")[calls])) if len(calls) else 0
