"""Edges of the replay that end at device work.

Device work waits for its launch and for the previous work of its stream. Both waits become edges into the work. The
recorded lag of an edge is the time from the launch, or from the end of the previous work, to the start of the work.

One of the two edges keeps its recorded lag, so that the unchanged graph repeats the recording. This is the edge with
the smaller ``recorded lag - usual lag``. The other edge gets ``min(recorded lag, usual lag)``.

If ``recorded lag - usual lag`` exceeds ``UNEXPLAINED_NS`` for both edges, the work may have waited for another stream.
This is assumed if work of another stream of the device ended just before. Then a third edge begins at
this other work. Only this edge keeps its recorded lag. The first two edges get ``min(recorded lag, usual lag)``.

A launch blocks its caller while the launch queue of the stream is full (``queue_limits``)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.replay.graph import EVENT, LAUNCH, QUEUE, STREAM, Edges, Waits, all_edges, edges
from perfkit_core.replay.host_segments import Segments
from perfkit_core.trace.assembly.graph_capture import graph_launches
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace

UNEXPLAINED_NS: Final = 20_000
"""Device work has a lag after its launch and a lag after the previous work of its stream. If both exceed their usual
values by more than ``UNEXPLAINED_NS``, the work must have waited for something else."""
_USUAL: Final = 0.1
"""The usual lag is this quantile of the recorded lags."""
_LAUNCH_NS, _GAP_NS = 5_000, 1_000
"""Lags that are assumed if the recording shows none. The values are typical of CUDA devices."""
_NEVER: Final = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Device work, sorted by stream and time, arrays of shape (work,)."""

    row: IntArray  # row of the event
    lane: IntArray  # number of the stream, counted from 0 over all devices
    before: IntArray  # position of the previous work of the stream, -1 if none
    lanes: int  # number of streams

    def __len__(self) -> int:
        return len(self.row)


def device_work(trace: Trace) -> DeviceWork:
    """Return all device work of a trace. Equal device numbers of two ranks stand for two devices."""
    rows = np.flatnonzero(~trace.host & trace.rows("kind", *DEVICE_WORK))
    keys = [trace.ints("rank")[rows], trace.codes("device").codes[rows].astype(np.int64), trace.ints("stream")[rows]]
    lane, first = groupby.sorted_codes(keys, len(rows))
    order = groupby.stable_order(lane, len(first))
    lane = lane[order]
    before = np.arange(-1, len(rows) - 1)
    before[np.flatnonzero(np.diff(lane, prepend=-1))] = -1
    return DeviceWork(rows[order], lane, before, len(first))


def work_edges(trace: Trace, work: DeviceWork, launch_node: IntArray, nodes: IntArray, events: Edges) -> Edges:
    """Return all edges that end at device work. Arguments:

    - ``launch_node``: for each piece of work, the node that starts when the launch starts, -1 if there is none.
    - ``nodes``: for each piece of work, its node.
    - ``events``: edges for recorded waits between streams. The result contains these edges, too."""
    start, end = trace.ints("start_ns")[work.row], trace.end_ns[work.row]
    launched = launch_node >= 0
    call = np.where(launched, trace.ints("start_ns")[trace.ints("launched_by")[work.row]], -_NEVER)
    previous = np.where(work.before >= 0, end[work.before], -_NEVER)
    launch_lag, gap = start - call, start - previous
    usual_launch = _usual(launch_lag[launched & (previous <= call)], _LAUNCH_NS)
    usual_gap = _usual(gap[(work.before >= 0) & (call < previous - UNEXPLAINED_NS) & launched], _GAP_NS)
    late = np.minimum(launch_lag - usual_launch, gap - usual_gap)
    by_launch = launched & (launch_lag - usual_launch <= gap - usual_gap)
    other = _other_stream(trace, work, start, end, late)
    explained = other >= 0
    launch_lag = np.where(by_launch & ~explained, launch_lag, np.minimum(launch_lag, usual_launch))
    gap = np.where(~by_launch & ~explained, gap, np.minimum(gap, usual_gap))
    follows = work.before >= 0
    links = [
        edges(LAUNCH, launch_node[launched], nodes[launched], launch_lag[launched], work.row[launched], True),
        edges(STREAM, nodes[work.before[follows]], nodes[follows], gap[follows]),
        edges(EVENT, nodes[other[explained]], nodes[explained], start[explained] - end[other[explained]]),
        events,
    ]
    return all_edges(links)


def _usual(lags: IntArray, otherwise: int) -> int:
    lags = lags[lags >= 0]
    return int(np.quantile(lags, _USUAL)) if len(lags) else otherwise


def _other_stream(trace: Trace, work: DeviceWork, start: IntArray, end: IntArray, late: IntArray) -> IntArray:
    """Return, for each piece of work, the work of another stream for which it probably waited, shape (work,). For a
    piece that starts late, this is the work that ended just before on its device. The value is -1 if there is none."""
    other = np.full(len(work), -1, np.int64)
    open_work: BoolArray = late > UNEXPLAINED_NS
    if work.lanes < 2 or not open_work.any():
        return other
    keys = [trace.ints("rank")[work.row], trace.codes("device").codes[work.row].astype(np.int64)]
    device, _ = groupby.sorted_codes(keys, len(work))
    for number in np.unique(device[open_work]):
        here = np.flatnonzero(device == number)
        by_end = here[np.argsort(end[here], kind="stable")]
        delayed = here[open_work[here]]
        at = np.searchsorted(end[by_end], start[delayed], side="right") - 1
        hit = by_end[np.maximum(at, 0)]
        close = (at >= 0) & (work.lane[hit] != work.lane[delayed]) & (start[delayed] - end[hit] <= UNEXPLAINED_NS)
        close &= start[hit] < start[delayed]
        other[delayed[close]] = hit[close]
    return other


DEPTH: Final = 1021
"""Number of launches that a CUDA stream holds in addition to the running work. A further launch blocks until the next
work begins. On a V100, 1,132 of 1,139 blocked launches had exactly this many launches ahead."""
_BLOCKED: Final = 4
"""A launch call was blocked by a full launch queue if a place in the queue became free during the call, and the call
took longer than ``_BLOCKED`` times the usual duration."""


def queue_limits(trace: Trace, work: DeviceWork, segments: Segments, nodes: IntArray) -> Waits:
    """Return the launches that waited because the launch queue of their stream was full. Also return edges that make
    every launch wait for room, because launches that did not wait in the recording may wait in a changed graph. Launch
    ``i`` of a stream has room once the work of launch ``i - DEPTH`` has begun. The replay of a graph is one launch, so
    it never waits for its own work. ``nodes`` are the nodes of the work."""
    launched_by = trace.ints("launched_by")[work.row]
    of_graph = nesting.nearest_on_path(trace.ints("parent"), graph_launches(trace))[launched_by]
    of_graph[launched_by == NO_ROW] = NO_ROW
    launched_by = np.where(of_graph == NO_ROW, launched_by, of_graph)
    same = (work.lane[1:] == work.lane[:-1]) & (of_graph[1:] == of_graph[:-1]) & (of_graph[1:] != NO_ROW)
    begins = np.flatnonzero(np.append(True, ~same)[: len(work)])  # the first work of each launch
    made_room = np.arange(-DEPTH, len(begins) - DEPTH)
    first = np.searchsorted(work.lane[begins], work.lane[begins])
    usable = (made_room >= first) & (launched_by[begins] >= 0)
    at, made_room = begins[usable], begins[made_room[usable]]
    has_node = segments.after[launched_by[at]] >= 0
    at, made_room = at[has_node], made_room[has_node]
    if not len(at):
        nothing = np.empty(0, np.int64)
        return Waits(nothing, nothing, all_edges([]))
    call, room = launched_by[at], made_room
    begun, end = trace.ints("start_ns")[work.row[room]], trace.end_ns[call]
    within = (begun > trace.ints("start_ns")[call]) & (begun <= end)
    unblocked = np.setdiff1d(launched_by[launched_by >= 0], call[within])  # launches that did not wait for room
    usual = int(np.median(trace.ints("dur_ns")[unblocked])) if len(unblocked) else 0
    blocked = within & (trace.ints("dur_ns")[call] > _BLOCKED * usual)
    lag = np.where(blocked, end - begun, np.minimum(end - begun, 0))
    limits = edges(QUEUE, nodes[room], segments.after[call], lag, call, from_start=True)
    return Waits(call[blocked], np.full(int(blocked.sum()), usual), limits)


class Queued:
    """The device work of each stream in the order of its launches, as positions in :class:`DeviceWork`."""

    def __init__(self, trace: Trace, work: DeviceWork) -> None:
        launched_by, start = trace.ints("launched_by")[work.row], trace.ints("start_ns")
        self.launch_ns: IntArray = np.where(launched_by >= 0, start[launched_by], start[work.row])
        self.end_ns: IntArray = trace.end_ns[work.row]
        self.rank: IntArray = trace.ints("rank")[work.row]
        first = np.searchsorted(work.lane, np.arange(work.lanes + 1))
        self._orders, self._times, self._latest = [], [], []
        for low, high in itertools.pairwise(first):
            order = low + np.argsort(self.launch_ns[low:high], kind="stable")
            end = self.end_ns[order]
            self._orders.append(order)
            self._times.append(self.launch_ns[order])
            # for each launch: of all work launched until then, the work that ends last
            is_latest = end == np.maximum.accumulate(end)
            self._latest.append(order[np.maximum.accumulate(np.where(is_latest, np.arange(len(order)), 0))])

    def ends_last(self, lane: int, before_ns: IntArray) -> IntArray:
        """For each time, return which work ends last of all work launched on the stream before this time, else -1."""
        at = np.searchsorted(self._times[lane], before_ns) - 1
        return np.where(at >= 0, self._latest[lane][np.maximum(at, 0)], -1)

    def next_after(self, lane: int, time_ns: IntArray) -> IntArray:
        """Return, for each time, the first work launched on the stream at or after this time; -1 if there is none."""
        at, order = np.searchsorted(self._times[lane], time_ns), self._orders[lane]
        return np.where(at < len(order), order[np.minimum(at, len(order) - 1)], -1)
