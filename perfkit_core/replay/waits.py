"""Waits for devices: host calls that wait for device work, and streams that wait for other streams.

Two sources show what a call waits for:

- The name of the call shows whether it waits for a device, a stream or a CUDA event (``sync_calls``).
- Records of CUPTI, the tracing library of CUDA, show which stream or event (``sync_records``). In Chrome traces, these
  are the events ``cuda_sync`` on the device.

Without a record, a call is assumed to wait for the work that ends last within the call. A copy blocks its caller if the
copy ends within the call, as is usual for pageable memory."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, ByteArray, IntArray
from perfkit_core.replay import graph
from perfkit_core.replay.device_work import DeviceWork, Queued, device_work
from perfkit_core.replay.host_segments import Segments, matching
from perfkit_core.trace.model.schema import MEMCPY, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace

_STREAM: Final = "wait_on_stream"
_RECORDED_BY: Final = "wait_on_cuda_event_record_corr_id"
_WAITS_ON_DEVICE: Final = "Stream Wait Event"
_NO_STREAM: Final = 0xFFFFFFFF
"""-1 as an unsigned 32-bit number. Some traces from 2023 contain it instead of the stream -1."""


@dataclass(frozen=True, slots=True)
class SyncRecords:
    """Records of synchronisations, arrays of shape (records,)."""

    call: IntArray  # row of the host call
    device: IntArray  # code of the device
    stream: IntArray  # stream of the record
    of_stream: IntArray  # awaited stream, -1 if unknown
    recorded_by: IntArray  # row of the call that recorded the awaited CUDA event, -1 if unknown
    on_device: BoolArray  # whether a stream waits; otherwise the host waits


def sync_records(trace: Trace) -> SyncRecords:
    """Return all records of synchronisations that are linked to a call."""
    rows = np.flatnonzero(~trace.host & trace.rows("kind", SYNC) & (trace.ints("launched_by") != NO_ROW))
    args = [_decoded(text) for text in trace.pick("args", rows).to_pylist()]
    rank, correlation = trace.ints("rank"), trace.ints("correlation")
    calls = np.flatnonzero(trace.host & (correlation >= 0)) if len(rows) else rows
    keys = zip(rank[calls].tolist(), correlation[calls].tolist(), strict=True)
    row_of = dict(zip(keys, calls.tolist(), strict=True))
    recorders = zip(rank[rows].tolist(), (_number(a, _RECORDED_BY) for a in args), strict=True)
    return SyncRecords(
        trace.ints("launched_by")[rows],
        trace.codes("device").codes[rows].astype(np.int64),
        np.where(trace.ints("stream")[rows] == _NO_STREAM, -1, trace.ints("stream")[rows]),
        np.array([_number(a, _STREAM) for a in args], np.int64),
        np.array([row_of.get(key, NO_ROW) for key in recorders], np.int64),
        trace.rows("name", _WAITS_ON_DEVICE)[rows],
    )


def _decoded(text: str | None) -> dict[str, Any]:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    return {}


def _number(args: dict[str, Any], key: str) -> int:
    value = args.get(key)
    return value if isinstance(value, int) and 0 <= value != _NO_STREAM else -1


def stream_waits(trace: Trace, work: DeviceWork, nodes: IntArray, records: SyncRecords) -> graph.Edges:
    """Return the edges of streams that wait for a CUDA event of another stream. An edge begins at the last work of the
    other stream before the event. It ends at the first work of the waiting stream after the call that makes it wait."""
    complete = np.flatnonzero(records.on_device & (records.of_stream >= 0) & (records.recorded_by >= 0))
    if not len(complete) or not len(work):
        return graph.all_edges([])
    start, rank = trace.ints("start_ns"), trace.ints("rank")
    first = work.row[np.searchsorted(work.lane, np.arange(work.lanes))]
    columns = rank[first], trace.codes("device").codes[first], trace.ints("stream")[first]
    lane_of = {key: lane for lane, key in enumerate(zip(*(column.tolist() for column in columns), strict=True))}
    queued, pairs = Queued(trace, work), []
    for at in complete.tolist():
        call, recorded_by = records.call[[at]], records.recorded_by[[at]]
        device = int(rank[call[0]]), int(records.device[at])
        waiting = lane_of.get((*device, int(records.stream[at])))
        awaited = lane_of.get((*device, int(records.of_stream[at])))
        if waiting is None or awaited is None or waiting == awaited:
            continue
        done = queued.ends_last(awaited, start[recorded_by])[0]
        delayed = queued.next_after(waiting, start[call])[0]
        if done >= 0 and delayed >= 0:
            pairs.append((done, delayed, int(call[0])))
    done, delayed, owner = np.array(pairs, np.int64).reshape(-1, 3).T
    lag = np.minimum(start[work.row[delayed]] - trace.end_ns[work.row[done]], 0)
    return graph.edges(graph.EVENT, nodes[done], nodes[delayed], lag, owner)


_STREAM_WAITS: Final = re.compile(r"Stream_?Wait_?Event", re.IGNORECASE)


def waits_for_unrecorded_events(trace: Trace) -> int:
    """Return the number of calls that make a stream wait for an event, on ranks whose recording does not show which
    event. Ranks with a single stream do not count."""
    rank, calls = trace.ints("rank"), np.flatnonzero(trace.host & matching(trace, "name", _STREAM_WAITS.search))
    if not len(calls):
        return 0
    records, work = sync_records(trace), device_work(trace)
    recorded = rank[records.call[records.on_device]]
    streams = np.unique(np.stack([rank[work.row], work.lane]), axis=1)[0]
    ranks, count = np.unique(streams, return_counts=True)
    return int((np.isin(rank[calls], ranks[count > 1]) & ~np.isin(rank[calls], recorded)).sum())


DEVICE: Final = 0
STREAM: Final = 1
EVENT: Final = 2
_OF_DEVICE: Final = re.compile(
    r"(Device|Ctx|Context)_?Synchronize|Free(?!Async)|HostUnregister|ModuleUnload", re.IGNORECASE
)
_OF_EVENT: Final = re.compile(r"Event_?Synchronize", re.IGNORECASE)
_FREES: Final = re.compile(r"^(cuda|hip|cu|musa|acl\w*)Free(?!Async)", re.IGNORECASE)
"""Calls that free device memory. They wait until the device is idle."""


def sync_calls(trace: Trace) -> tuple[IntArray, ByteArray]:
    """Return the rows of the host calls that synchronise, and the scope of each call: DEVICE, STREAM or EVENT."""
    calls = trace.rows("kind", SYNC) | (trace.rows("kind", RUNTIME) & matching(trace, "name", _FREES.search))
    scope = np.where(matching(trace, "name", _OF_EVENT.search), EVENT, STREAM).astype(np.int8)
    scope[matching(trace, "name", _OF_DEVICE.search)] = DEVICE
    rows = np.flatnonzero(trace.host & calls)
    return rows, scope[rows]


BUSY_NS: Final = 2_000
"""A call that waits for a device is assumed to take at most this time in addition to the wait."""
RETURN_NS: Final = 5_000
"""A call can wait for several pieces of work. The lag of a piece is the recorded time from its end to the end of the
call. The piece that ends last keeps this lag. The other pieces get the lag ``min(recorded lag, RETURN_NS)``."""


def waits(trace: Trace, work: DeviceWork, segments: Segments, nodes: IntArray, records: SyncRecords) -> graph.Waits:
    """Return all calls that wait for device work. ``nodes`` are the nodes of the work."""
    copy_calls, copies, staged = _copies(trace, work, segments)
    sync, awaited = _synchronised(trace, work, segments, records)
    call, done = np.append(copy_calls, sync), np.append(copies, awaited)
    start, end = trace.ints("start_ns"), trace.end_ns
    over = end[work.row[done]]
    last = np.full(len(trace), np.iinfo(np.int64).min)
    np.maximum.at(last, call, over)
    blocked = last[call] > start[call]
    tight = blocked & (over == last[call])
    lag = np.where(tight, end[call] - over, np.minimum(end[call] - over, RETURN_NS))
    waiting = np.unique(call[blocked])
    most = np.full(len(trace), BUSY_NS)
    most[copy_calls] = staged
    busy = np.minimum(most[waiting], last[waiting] - start[waiting])
    return graph.Waits(waiting, busy, graph.edges(graph.WAIT, nodes[done], segments.after[call], lag, call))


_TO_HOST: Final = re.compile("^DtoH")
_IN_DEVICE: Final = re.compile("^(DtoD|PtoP)")
_PINNED: Final = re.compile("pinned", re.IGNORECASE)
_ASYNC: Final = re.compile("async", re.IGNORECASE)


def _copies(trace: Trace, work: DeviceWork, segments: Segments) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows of the calls that wait for the end of their copy, the positions of these copies in ``work``, and
    the time of each call before its copy begins. This time excludes the wait for earlier work of the stream."""
    call = trace.ints("launched_by")[work.row]
    at = np.flatnonzero(trace.rows("kind", MEMCPY)[work.row] & (call >= 0))
    at = at[segments.after[call[at]] >= 0]
    start, end = trace.ints("start_ns"), trace.end_ns
    copied, call = work.row[at], call[at]
    # copies within a device and asynchronous copies of pinned memory never block
    pinned = matching(trace, "copy_kind", _PINNED.search)[copied] & matching(trace, "name", _ASYNC.search)[call]
    blocks = (end[copied] <= end[call]) & ~matching(trace, "copy_kind", _IN_DEVICE.search)[copied] & ~pinned
    at, copied, call = at[blocks], copied[blocks], call[blocks]
    free = np.where(work.before[at] >= 0, end[work.row[work.before[at]]], start[call])
    staged = np.maximum(start[copied] - np.maximum(start[call], free), 0)
    # only a copy to the device stages data before it begins; a copy to the host waits in this time
    return (
        call,
        at,
        np.where(matching(trace, "copy_kind", _TO_HOST.search)[copied], np.minimum(staged, BUSY_NS), staged),
    )


def _synchronised(
    trace: Trace, work: DeviceWork, segments: Segments, records: SyncRecords
) -> tuple[IntArray, IntArray]:
    """Return pairs of a synchronising call and awaited work (position in ``work``), at most one per call and stream."""
    calls, scope = sync_calls(trace)
    placed = segments.after[calls] >= 0
    calls, scope = calls[placed], scope[placed]
    if not len(calls) or not len(work):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    queued, start, rank = Queued(trace, work), trace.ints("start_ns"), trace.ints("rank")[calls]
    # awaited work was launched before the call or, in a wait for a CUDA event, before this event was recorded
    until, stream = start[calls].copy(), np.full(len(calls), -1, np.int64)
    record = np.full(len(trace), -1, np.int64)
    record[records.call[~records.on_device]] = np.flatnonzero(~records.on_device)
    record = record[calls]
    recorded = record >= 0
    stream[recorded] = np.where(records.of_stream >= 0, records.of_stream, records.stream)[record[recorded]]
    by_event = recorded.copy()
    by_event[recorded] = records.recorded_by[record[recorded]] >= 0
    until[by_event] = start[records.recorded_by[record[by_event]]]
    stream[scope == DEVICE] = -1  # these calls wait for all streams, even if a record names one
    heads = np.searchsorted(work.lane, np.arange(work.lanes))  # the first work of each lane
    lanes = enumerate(queued.rank[heads].tolist())
    last = np.stack([np.where(rank == number, queued.ends_last(lane, until), -1) for lane, number in lanes])
    never = np.iinfo(np.int64).min
    ends = np.where(last >= 0, queued.end_ns[last], never)
    ends[ends > trace.end_ns[calls]] = never  # a call does not wait for work that ends after the call
    ends[(stream >= 0) & (trace.ints("stream")[work.row[heads]][:, None] != stream)] = never
    chosen = np.zeros(ends.shape, np.bool_)
    chosen[ends.argmax(axis=0), np.arange(len(calls))] = True
    chosen |= scope == DEVICE
    chosen &= ends > never
    lane, position = np.nonzero(chosen)
    call, done = calls[position], last[lane, position]
    unknown = calls[(scope == EVENT) & (stream < 0)]
    resolved = ~np.isin(call, unknown)
    call_of_event, done_with_event = _last_within(trace, queued, unknown)
    return np.append(call[resolved], call_of_event), np.append(done[resolved], done_with_event)


def _last_within(trace: Trace, queued: Queued, calls: IntArray) -> tuple[IntArray, IntArray]:
    """Return pairs of a call and the awaited work, for ``calls`` that wait for an unknown CUDA event. The awaited work
    is the last work that ends within the call. A call is left out if this work was not launched before the call."""
    last = np.full(len(calls), -1, np.int64)
    rank = trace.ints("rank")[calls]
    for number in np.unique(rank):
        here = np.flatnonzero(queued.rank == number)
        by_end = here[np.argsort(queued.end_ns[here], kind="stable")]
        at = np.searchsorted(queued.end_ns[by_end], trace.end_ns[calls[rank == number]], side="right") - 1
        last[rank == number] = np.append(by_end, -1)[at]
    start = trace.ints("start_ns")[calls]
    waits = (last >= 0) & (queued.end_ns[last] > start) & (queued.launch_ns[last] < start)
    return calls[waits], last[waits]
