"""Views of long recordings, computed part by part. Each part is read, reduced and dropped, so that the memory does not
grow with the recording. The merged tables equal those of the whole recording."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW
from perfkit_core.model import schema
from perfkit_core.model.event_columns import OutsidePartError
from perfkit_core.model.trace import Trace
from perfkit_core.ranks.plan import Job, Partial
from perfkit_core.ranks.reduce import reduce_trace

PART_ROWS: Final = 1 << 21
"""Number of events that are read for one part. More are read if the part would lack steps, for example."""
_LOOK_AHEAD: Final = 16
"""One of this many events of a part is read again with the next part."""


def reduce_parts(trace: Trace, job: Job) -> list[Partial]:
    """Return the partial results of the parts of a trace of one rank, in order of time.

    Between two parts, no event runs, and no work waits for its start. Views compute other cells if a recording has no
    steps, no memory events, or no work on a device: so each part has steps, and all parts have memory events and work
    on the same devices, or none has. Return an empty list if the trace is shorter than two parts, or cannot be divided
    like this. Raises UsageError."""
    partials: list[Partial] = []
    first, rows, last = 0, PART_ROWS, len(trace) < 2 * PART_ROWS
    expected: frozenset[str] = frozenset()
    while first < len(trace) and not last:
        last = first + rows + PART_ROWS > len(trace)
        if last and not first:
            break
        try:
            part = trace.part(first, len(trace) if last else first + rows)
            part = part if last else part.part(0, _last_quiet_row(part))
            found = _deciding(part)
            if schema.STEP in found and found == (expected or found):
                partials.append(reduce_trace(part, job))
                first, rows, expected = first + len(part), PART_ROWS, found
                continue
            if expected and found > expected:
                break
        except OutsidePartError:
            pass
        rows *= 2
    return partials if first == len(trace) else []


def _deciding(trace: Trace) -> frozenset[str]:
    """Return which of these a trace has: steps of the host, memory events, and work on each device."""
    devices = trace.codes("device")
    used = np.unique(devices.codes[trace.rows("kind", *schema.DEVICE_WORK)])
    has = {
        schema.STEP: (trace.host & trace.rows("kind", schema.STEP)).any(),
        schema.MEMORY: trace.rows("kind", schema.MEMORY).any(),
    }
    return frozenset((*(devices.values[code] for code in used), *(name for name, true in has.items() if true)))


def _last_quiet_row(trace: Trace) -> int:
    """Return the last row before which all earlier events have ended and no launch has its work in this row or later, 0
    if there is none. The last events only show which launches have their work there."""
    start, launched_by = trace.ints("start_ns"), trace.ints("launched_by")
    count = len(trace) - len(trace) // _LOOK_AHEAD
    quiet = np.flatnonzero(start[1:count] > np.maximum.accumulate(trace.end_ns[:count])[:-1]) + 1
    work = np.flatnonzero(launched_by != NO_ROW)
    launch = launched_by[work]
    begins = np.searchsorted(quiet, np.minimum(launch, work), "right")
    ends = np.searchsorted(quiet, np.maximum(launch, work), "right")
    waiting = np.bincount(begins, minlength=len(quiet) + 1) - np.bincount(ends, minlength=len(quiet) + 1)
    return int(quiet[np.cumsum(waiting)[:-1] == 0].max(initial=0))
