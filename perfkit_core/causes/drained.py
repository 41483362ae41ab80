"""The waits that leave a device without queued work. After such a wait, each launch comes when the device is idle
already, until the host has gained a lead again. So the gaps that follow exist because of the wait.

    host    launch  launch | wait for the device | launch      launch      launch
    device         | work  |  work               | gap | work | gap | work | gap |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    IN_FLIGHT,
    LATENCY_NS,
    WORDS,
    Segments,
    launching_calls,
)
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace

_MOSTLY: Final = 0.8
"""Minimum share of a gap in which the host waits."""


def drained_by(trace: Trace, segments: Segments, work: IntArray, rank: int) -> IntArray:
    """Return for each segment the row of the last wait of the host since the device had queued work, -1 if there is
    none. Shape (segments,). ``work`` are the rows of the device's work, sorted by start.

    Work was queued if its launch had returned more than :data:`LATENCY_NS` before it began."""
    start, end = trace.ints("start_ns"), trace.end_ns
    launch = launching_calls(trace)[work]
    returned = np.where(launch != NO_ROW, end[launch], start[work])
    queued = np.where(start[work] - returned > LATENCY_NS, np.arange(len(work)), NO_ROW)
    last_queued = np.append(NO_ROW, np.maximum.accumulate(queued))  # before each work
    waits = _waits(trace, work, rank)
    if not len(waits) or not len(work):
        return np.full(len(segments.start), NO_ROW)
    following = np.searchsorted(start[work], segments.end)  # the work that ends the gap
    before = last_queued[following]
    since = np.where(before == NO_ROW, np.iinfo(np.int64).min, returned[before])
    until = np.append(returned, np.iinfo(np.int64).max)[following]
    at = np.searchsorted(end[waits], until, side="right") - 1
    wait = np.where(at >= 0, waits[np.maximum(at, 0)], NO_ROW)
    return np.where((wait != NO_ROW) & (end[wait] > since), wait, NO_ROW)


def earlier_waits(trace: Trace, segments: Segments, work: IntArray, rank: int) -> IntArray:
    """Return for each segment the row of the host call that waits during most of it for work from before the recording,
    -1 if there is none. Shape (segments,). ``work`` are the rows of the device's work, sorted by start.

    The kernel that ends such a gap was launched, but does not start. It is the first work on its stream, so what the
    stream did before was not recorded, and the host waits for the device. A copy may only be prepared in the gap."""
    start, end = trace.ints("start_ns"), trace.end_ns
    stream = trace.ints("stream")[work]
    first = work[np.unique(stream, return_index=True)[1]]
    first = first[trace.rows("kind", schema.KERNEL)[first] & (trace.ints("stream")[first] != NO_ROW)]
    gaps = np.flatnonzero((segments.word == WORDS.index(IN_FLIGHT)) & np.isin(segments.event, first))
    waits = _waits(trace, work, rank)
    result = np.full(len(segments.start), NO_ROW)
    for gap in gaps.tolist():  # at most one for each stream
        begin, finish = segments.start[gap], segments.end[gap]
        waited = np.minimum(end[waits], finish) - np.maximum(start[waits], begin)
        if len(waits) and waited.max() >= _MOSTLY * (finish - begin):
            result[gap] = waits[waited.argmax()]
    return result


def earlier_work(trace: Trace, segments: Segments, work: IntArray, steps: IntArray) -> tuple[BoolArray, BoolArray]:
    """Return the masks of the segments in which a device runs work from before the recording, and work that was
    launched outside of ``steps``, the numbers of the steps that count. Shape (segments,). ``work`` are the rows of the
    device's work, sorted by start.

    Work from before the recording has no launch, and precedes the first work of its stream that has one."""
    busy = np.isin(segments.word, [WORDS.index(word) for word in (COMPUTE, COMMUNICATION, COPY)])
    launched, stream = trace.ints("launched_by")[work] != NO_ROW, trace.ints("stream")[work]
    streams, first = np.unique(stream[launched], return_index=True)
    begins = np.append(np.flatnonzero(launched)[first], NO_ROW)[np.searchsorted(streams, stream)]
    known = np.isin(stream, streams)
    before = work[~launched & known & (np.arange(len(work)) < begins)]
    outside = work[launched & ~np.isin(trace.ints("step")[work], steps)]
    masks = np.zeros((2, len(trace)), np.bool_)
    masks[0, before] = masks[1, outside] = True
    return busy & masks[0, segments.event], busy & masks[1, segments.event]


def _waits(trace: Trace, work: IntArray, rank: int) -> IntArray:
    """Return the rows of the host calls that wait for the device, sorted by end: synchronisation calls, and calls whose
    copy ends within them."""
    end = trace.end_ns
    of_rank = trace.ints("rank") == rank
    calls = np.flatnonzero(of_rank & trace.host & trace.rows("kind", schema.SYNC))
    copies = work[trace.rows("kind", schema.MEMCPY)[work] & (trace.ints("launched_by")[work] != NO_ROW)]
    caller = trace.ints("launched_by")[copies]
    blocking = trace.rows("kind", schema.RUNTIME)[caller] & (end[copies] <= end[caller])
    rows = np.unique(np.concatenate([calls, caller[blocking]]))
    return rows[np.argsort(end[rows], kind="stable")]
