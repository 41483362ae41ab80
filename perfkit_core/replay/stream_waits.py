"""Which work of a stream waits for another stream, as the synchronisation records of the device tell?

The host's calls alone do not: that one records an event and another lets a stream wait for one is recorded, but neither
which event nor which streams.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.replay.device_work import DeviceWork, device_work
from perfkit_core.replay.graph import EVENT, Edges, all_edges, edges
from perfkit_core.replay.queued import Queued
from perfkit_core.replay.sync_records import SyncRecords, sync_records
from perfkit_core.trace import IntArray, Trace

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
