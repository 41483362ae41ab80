"""What does each piece of device work wait for: its launch, the work before it in its stream, work of another stream?

Every edge has the lag that is usual for its cause, or less where the recording shows less. The one edge that explains
the recorded start best has the whole recorded lag, so that the unchanged graph repeats the recording. A start that no
edge explains (beyond ``UNEXPLAINED_NS``) is looked for among the ends of work on other streams of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import grouped
from perfkit_core.replay.graph import EVENT, LAUNCH, STREAM, Edges, all_edges, edges
from perfkit_core.schema import DEVICE_WORK
from perfkit_core.trace import BoolArray, IntArray, Trace

UNEXPLAINED_NS: Final = 20_000
"""A later start than usual by this much has another cause."""
_USUAL: Final = 0.1
"""Quantile of recorded lags that counts as usual: the rest waited for something else, too."""
_LAUNCH_NS, _GAP_NS = 5_000, 1_000
"""Lags where the recording shows none: typical of CUDA devices."""
_NEVER: Final = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Device work in the order of streams and time, arrays of shape (work,): ``row`` of the event, ``lane`` of its
    stream (from 0 on), ``before`` the work before it in its stream (-1: none)."""

    row: IntArray
    lane: IntArray
    before: IntArray
    lanes: int

    def __len__(self) -> int:
        return len(self.row)


def device_work(trace: Trace) -> DeviceWork:
    """All work on devices; every rank has devices of its own."""
    rows = np.flatnonzero(~trace.host & trace.rows("kind", *DEVICE_WORK))
    keys = [trace.ints("rank")[rows], trace.codes("device").codes[rows].astype(np.int64), trace.ints("stream")[rows]]
    lane, first = grouped.sorted_codes(keys, len(rows))
    order = grouped.stable_order(lane, len(first))
    lane = lane[order]
    before = np.arange(-1, len(rows) - 1)
    before[np.flatnonzero(np.diff(lane, prepend=-1))] = -1
    return DeviceWork(rows[order], lane, before, len(first))


def work_edges(trace: Trace, work: DeviceWork, launch_node: IntArray, nodes: IntArray, events: Edges) -> Edges:
    """Edges into device work. ``launch_node`` of each work is the node that begins with its launch (-1: none),
    ``nodes`` its own; ``events`` are the recorded waits of streams for others."""
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
    return all_edges(
        [
            edges(LAUNCH, launch_node[launched], nodes[launched], launch_lag[launched], work.row[launched], True),
            edges(STREAM, nodes[work.before[follows]], nodes[follows], gap[follows]),
            edges(EVENT, nodes[other[explained]], nodes[explained], start[explained] - end[other[explained]]),
            events,
        ]
    )


def _usual(lags: IntArray, otherwise: int) -> int:
    lags = lags[lags >= 0]
    return int(np.quantile(lags, _USUAL)) if len(lags) else otherwise


def _other_stream(trace: Trace, work: DeviceWork, start: IntArray, end: IntArray, late: IntArray) -> IntArray:
    """The work of another stream of the same device whose end lies just before a start that nothing else explains."""
    found = np.full(len(work), -1, np.int64)
    open_work: BoolArray = late > UNEXPLAINED_NS
    if work.lanes < 2 or not open_work.any():
        return found
    keys = [trace.ints("rank")[work.row], trace.codes("device").codes[work.row].astype(np.int64)]
    device, _ = grouped.sorted_codes(keys, len(work))
    for one in np.unique(device[open_work]):
        here = np.flatnonzero(device == one)
        by_end = here[np.argsort(end[here], kind="stable")]
        wanted = here[open_work[here]]
        at = np.searchsorted(end[by_end], start[wanted], side="right") - 1
        hit = by_end[np.maximum(at, 0)]
        close = (at >= 0) & (work.lane[hit] != work.lane[wanted]) & (start[wanted] - end[hit] <= UNEXPLAINED_NS)
        close &= start[hit] < start[wanted]
        found[wanted[close]] = hit[close]
    return found
