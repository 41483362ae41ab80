"""Which work of a stream waits for another stream, as the synchronisation records of the device tell?

The host's calls alone do not: that one records an event and another lets a stream wait for one is recorded, but neither
which event nor which streams.

What synchronisation records of the device say: which stream a call waits for, which event, and who waits for whom.

CUPTI writes one record for each call that synchronises (``cuda_sync`` in Chrome traces): it stands on the device, is
linked to its call, and tells the stream, and of events the stream and the call that recorded them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.model.schema import SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.replay.device_work import DeviceWork, Queued, device_work
from perfkit_core.replay.graph import EVENT, Edges, all_edges, edges

_STREAM: Final = "wait_on_stream"
_RECORDED_BY: Final = "wait_on_cuda_event_record_corr_id"
_WAITS_ON_DEVICE: Final = "Stream Wait Event"
_NO_STREAM: Final = 0xFFFFFFFF
"""-1, as a profiler of 2023 writes it."""


@dataclass(frozen=True, slots=True)
class SyncRecords:
    """Arrays of shape (records,): ``call`` is the row of the host's call, ``device`` a code of the column, ``stream``
    that of the record, ``of_stream`` the stream that is waited for (-1: not told), ``recorded_by`` the row of the call
    that recorded the event (-1), ``on_device`` whether a stream waits and not the host."""

    call: IntArray
    device: IntArray
    stream: IntArray
    of_stream: IntArray
    recorded_by: IntArray
    on_device: np.ndarray[Any, np.dtype[np.bool_]]

    def __len__(self) -> int:
        return len(self.call)


def sync_records(trace: Trace) -> SyncRecords:
    """All records of a trace that are linked to a call."""
    rows = np.flatnonzero(~trace.host & trace.rows("kind", SYNC) & (trace.ints("launched_by") != NO_ROW))
    args = [_decoded(text) for text in trace.pick("args", rows).to_pylist()]
    call = trace.ints("launched_by")[rows]
    by_correlation = _calls(trace) if len(rows) else {}
    rank = trace.ints("rank")[rows].tolist()
    recorded_by = [by_correlation.get((r, _number(a, _RECORDED_BY)), NO_ROW) for r, a in zip(rank, args, strict=True)]
    return SyncRecords(
        call,
        trace.codes("device").codes[rows].astype(np.int64),
        np.where(trace.ints("stream")[rows] == _NO_STREAM, -1, trace.ints("stream")[rows]),
        np.array([_number(a, _STREAM) for a in args], np.int64),
        np.array(recorded_by, np.int64),
        trace.rows("name", _WAITS_ON_DEVICE)[rows],
    )


def _calls(trace: Trace) -> dict[tuple[int, int], int]:
    """Host events by rank and correlation."""
    rows = np.flatnonzero(trace.host & (trace.ints("correlation") >= 0))
    keys = zip(trace.ints("rank")[rows].tolist(), trace.ints("correlation")[rows].tolist(), strict=True)
    return dict(zip(keys, rows.tolist(), strict=True))


def _decoded(text: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(args: dict[str, Any], key: str) -> int:
    value = args.get(key)
    return value if isinstance(value, int) and 0 <= value != _NO_STREAM else -1


_LETS_WAIT: Final = re.compile(r"Stream_?Wait_?Event", re.IGNORECASE)


def stream_waits(trace: Trace, work: DeviceWork, nodes: IntArray, records: SyncRecords) -> Edges:
    """Edges from the last work before an event was recorded to the first that was launched after a stream was told to
    wait for it."""
    told = np.flatnonzero(records.on_device & (records.of_stream >= 0) & (records.recorded_by >= 0))
    if not len(told) or not len(work):
        return all_edges([])
    queued, lanes = Queued(trace, work), _lanes(trace, work)
    found = []
    for one in told.tolist():
        rank, device = int(trace.ints("rank")[records.call[one]]), int(records.device[one])
        waits = lanes.get((rank, device, int(records.stream[one])))
        waited = lanes.get((rank, device, int(records.of_stream[one])))
        if waits is None or waited is None or waits == waited:
            continue
        done = queued.ends_last(waited, trace.ints("start_ns")[records.recorded_by[[one]]])[0]
        held = queued.next_after(waits, trace.ints("start_ns")[records.call[[one]]])[0]
        if done >= 0 and held >= 0:
            found.append((done, held, int(records.call[one])))
    pairs = np.array(found, np.int64).reshape(-1, 3)
    done, held = pairs[:, 0], pairs[:, 1]
    lag = np.minimum(trace.ints("start_ns")[work.row[held]] - trace.end_ns[work.row[done]], 0)
    return edges(EVENT, nodes[done], nodes[held], lag, pairs[:, 2])


def untold_waits(trace: Trace) -> int:
    """Calls that let a stream wait for an event, of ranks that have work on several streams and no record of the device
    that says for which."""
    names, rank = trace.codes("name"), trace.ints("rank")
    waits = names.lookup(np.array([bool(_LETS_WAIT.search(name)) for name in names.values], np.bool_), False)
    calls = np.flatnonzero(trace.host & waits)
    if not len(calls):
        return 0
    records = sync_records(trace)
    told = rank[records.call[records.on_device]]
    lanes = device_work(trace)
    streams = np.unique(np.stack([rank[lanes.row], lanes.lane]), axis=1)[0]
    several, count = np.unique(streams, return_counts=True)
    return int((np.isin(rank[calls], several[count > 1]) & ~np.isin(rank[calls], told)).sum())


def _lanes(trace: Trace, work: DeviceWork) -> dict[tuple[int, int, int], int]:
    """Lane by rank, device and stream."""
    first = work.row[np.searchsorted(work.lane, np.arange(work.lanes))]
    keys = zip(
        trace.ints("rank")[first].tolist(),
        trace.codes("device").codes[first].tolist(),
        trace.ints("stream")[first].tolist(),
        strict=True,
    )
    return {key: lane for lane, key in enumerate(keys)}
