"""Which calls of the host wait for a device, for which work, and how much of their time is waiting?

A call that waits ends just after work that had been launched before it. What it can wait for is told by its name
(``sync_calls``) and by the records of the device, where there are some (``sync_records``); else the work that ends last
within the call shows it. Copies block where their work ends within the call, as those of pageable memory do.

Which calls of the host synchronise, and with what: a device, a stream, an event?
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import MEMCPY, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.replay.device_work import DeviceWork, Queued
from perfkit_core.replay.graph import WAIT, Edges, edges
from perfkit_core.replay.host_segments import Segments
from perfkit_core.replay.stream_waits import SyncRecords

DEVICE: Final = 0
STREAM: Final = 1
EVENT: Final = 2
_OF_DEVICE: Final = re.compile(
    r"(Device|Ctx|Context)_?Synchronize|Free(?!Async)|HostUnregister|ModuleUnload", re.IGNORECASE
)
_OF_EVENT: Final = re.compile(r"Event_?Synchronize", re.IGNORECASE)
_FREES: Final = re.compile(r"^(cuda|hip|cu|musa|acl\w*)Free(?!Async)", re.IGNORECASE)
"""Freeing device memory waits until the device is idle."""


def sync_calls(trace: Trace) -> tuple[IntArray, npt.NDArray[np.int8]]:
    """Rows of the calls of the host that synchronise, and the scope of each: DEVICE, STREAM or EVENT."""
    names = trace.codes("name")
    frees = names.lookup(np.array([bool(_FREES.search(name)) for name in names.values], np.bool_), False)
    rows = np.flatnonzero(trace.host & (trace.rows("kind", SYNC) | (trace.rows("kind", RUNTIME) & frees)))
    scope = np.array([_scope(name) for name in names.values], np.int8)
    return rows, scope[names.codes[rows]]


def _scope(name: str) -> int:
    if _OF_DEVICE.search(name):
        return DEVICE
    return EVENT if _OF_EVENT.search(name) else STREAM


BUSY_NS: Final = 2_000
"""What a call takes at most on its own when it waits for a device."""
RETURN_NS: Final = 5_000
"""From the end of the work to the return of the call, where nothing was waited for."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Calls that wait, arrays of shape (calls,): ``row`` of the call, ``busy_ns`` what it takes on its own; ``edges``
    go to the nodes behind the calls."""

    row: IntArray
    busy_ns: IntArray
    edges: Edges


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each call with work that it waits for: rows of calls and positions of work, of shape (pairs,)."""

    call: IntArray
    work: IntArray


def waits(trace: Trace, work: DeviceWork, segments: Segments, nodes: IntArray, records: SyncRecords) -> Waits:
    """All calls that wait for device work. ``nodes`` are those of the work."""
    copies, staged = _copies(trace, work, segments)
    pairs = _pairs(trace, work, segments, records)
    call = np.concatenate([copies.call, pairs.call])
    done = np.concatenate([copies.work, pairs.work])
    start, end = trace.ints("start_ns"), trace.end_ns
    over = end[work.row[done]]
    last = np.full(len(trace), np.iinfo(np.int64).min)
    np.maximum.at(last, call, over)
    blocked = last[call] > start[call]
    tight = blocked & (over == last[call])
    lag = np.where(tight, end[call] - over, np.minimum(end[call] - over, RETURN_NS))
    waiting = np.unique(call[blocked])
    most = np.full(len(trace), BUSY_NS)
    most[copies.call] = staged
    busy = np.minimum(most[waiting], last[waiting] - start[waiting])
    return Waits(waiting, busy, edges(WAIT, nodes[done], segments.after[call], lag, call))


def _copies(trace: Trace, work: DeviceWork, segments: Segments) -> tuple[_Pairs, IntArray]:
    """Calls that return after their copy, and what they take before it could begin: staging of pageable memory. While
    the stream works on what was queued before, they wait."""
    call = trace.ints("launched_by")[work.row]
    at = np.flatnonzero(trace.rows("kind", MEMCPY)[work.row] & (call >= 0))
    at = at[segments.after[call[at]] >= 0]
    start, end = trace.ints("start_ns"), trace.end_ns
    at = at[(end[work.row[at]] <= end[call[at]]) & ~_never_blocks(trace, work.row[at], call[at])]
    free = np.where(work.before[at] >= 0, end[work.row[work.before[at]]], start[call[at]])
    staged = np.maximum(start[work.row[at]] - np.maximum(start[call[at]], free), 0)
    return _Pairs(call[at], at), np.where(_to_host(trace, work.row[at]), np.minimum(staged, BUSY_NS), staged)


def _to_host(trace: Trace, copied: IntArray) -> BoolArray:
    """Copies to the host, before which there is nothing to stage: what passes until they begin is waiting."""
    kinds = trace.codes("copy_kind")
    found: BoolArray = kinds.lookup(np.array([kind.startswith("DtoH") for kind in kinds.values], np.bool_), False)[
        copied
    ]
    return found


def _never_blocks(trace: Trace, copied: IntArray, calls: IntArray) -> BoolArray:
    """Copies inside a device, and asynchronous ones of pinned memory."""
    kinds, names = trace.codes("copy_kind"), trace.codes("name")
    inside = kinds.lookup(np.array([kind.startswith(("DtoD", "PtoP")) for kind in kinds.values], np.bool_), False)
    pinned = kinds.lookup(np.array(["pinned" in kind.lower() for kind in kinds.values], np.bool_), False)
    asynchronous = names.lookup(np.array(["async" in name.lower() for name in names.values], np.bool_), False)
    found: BoolArray = inside[copied] | (pinned[copied] & asynchronous[calls])
    return found


def _pairs(trace: Trace, work: DeviceWork, segments: Segments, records: SyncRecords) -> _Pairs:
    """Synchronising calls with the work that each waits for, one a stream at most."""
    calls, scope = sync_calls(trace)
    placed = segments.after[calls] >= 0
    calls, scope = calls[placed], scope[placed]
    if not len(calls) or not len(work):
        return _Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    queued = Queued(trace, work)
    until, stream = _told(trace, calls, records)
    stream[scope == DEVICE] = -1  # whatever number its record has
    end, over = trace.end_ns[calls], queued.end_ns
    last = np.stack([_last_of(trace, queued, lane, calls, until) for lane in range(len(queued))])
    ends = np.where(last >= 0, over[last], np.iinfo(np.int64).min)
    ends[ends > end] = np.iinfo(np.int64).min  # what goes on behind the call was not waited for
    ends[(stream >= 0) & (_streams(trace, work)[:, None] != stream)] = np.iinfo(np.int64).min
    chosen = np.zeros(ends.shape, np.bool_)
    chosen[ends.argmax(axis=0), np.arange(len(calls))] = True
    chosen |= scope == DEVICE
    chosen &= ends > np.iinfo(np.int64).min
    lane, which = np.nonzero(chosen)
    pairs = _Pairs(calls[which], last[lane, which])
    return _with_events(trace, work, queued, pairs, calls[(scope == EVENT) & (stream < 0)])


def _streams(trace: Trace, work: DeviceWork) -> IntArray:
    """Number of the stream of each lane."""
    first = np.searchsorted(work.lane, np.arange(work.lanes))
    streams: IntArray = trace.ints("stream")[work.row[first]]
    return streams


def _told(trace: Trace, calls: IntArray, records: SyncRecords) -> tuple[IntArray, IntArray]:
    """Until when work counts that a call waits for (its start, or the recording of its event), and its stream (-1)."""
    until, stream = trace.ints("start_ns")[calls].copy(), np.full(len(calls), -1, np.int64)
    at = np.full(len(trace), -1, np.int64)
    at[records.call[~records.on_device]] = np.flatnonzero(~records.on_device)
    found = at[calls]
    known = found >= 0
    stream[known] = np.where(records.of_stream >= 0, records.of_stream, records.stream)[found[known]]
    by_event = known.copy()
    by_event[known] = records.recorded_by[found[known]] >= 0
    until[by_event] = trace.ints("start_ns")[records.recorded_by[found[by_event]]]
    return until, stream


def _last_of(trace: Trace, queued: Queued, lane: int, calls: IntArray, until: IntArray) -> IntArray:
    same = trace.ints("rank")[calls] == queued.rank_of(lane)
    return np.where(same, queued.ends_last(lane, until), -1)


def _with_events(trace: Trace, work: DeviceWork, queued: Queued, pairs: _Pairs, calls: IntArray) -> _Pairs:
    """Calls that wait for an event that no record describes: for the work that ends last within the call."""
    if not len(calls):
        return pairs
    others = ~np.isin(pairs.call, calls)
    found = np.full(len(calls), -1, np.int64)
    rank = trace.ints("rank")[calls]
    for one in np.unique(rank):
        here = np.flatnonzero(queued.rank == one)
        by_end = here[np.argsort(queued.end_ns[here], kind="stable")]
        at = np.searchsorted(queued.end_ns[by_end], trace.end_ns[calls[rank == one]], side="right") - 1
        found[rank == one] = np.append(by_end, -1)[at]
    start = trace.ints("start_ns")[calls]
    hit = (found >= 0) & (queued.end_ns[found] > start) & (queued.launch_ns[found] < start)
    return _Pairs(np.concatenate([pairs.call[others], calls[hit]]), np.concatenate([pairs.work[others], found[hit]]))
