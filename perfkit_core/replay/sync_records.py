"""What synchronisation records of the device say: which stream a call waits for, which event, and who waits for whom.

CUPTI writes one record for each call that synchronises (``cuda_sync`` in Chrome traces): it stands on the device, is
linked to its call, and tells the stream, and of events the stream and the call that recorded them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.schema import NO_ROW, SYNC
from perfkit_core.trace import IntArray, Trace

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
