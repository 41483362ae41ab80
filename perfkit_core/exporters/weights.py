"""What a stack may weigh: host time, device time, calls, bytes. One value an event, summed over equal stacks."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.analyses.memory.events import counted_bytes, memory_events
from perfkit_core.schema import DEVICE_WORK
from perfkit_core.trace import IntArray, Trace

CPU: Final = "cpu"
DEVICE: Final = "device"
CALLS: Final = "calls"
BYTES: Final = "bytes"
WEIGHTS: Final = (CPU, DEVICE, CALLS, BYTES)

LACKING: Final = {
    CPU: "no host events were recorded, so no stack has host time",
    DEVICE: "no work on a device was recorded, so no stack has device time",
    CALLS: "no events that nest were recorded",
    BYTES: "no memory events were recorded, so no stack has bytes: record with profile_memory",
}
"""Why a weight is 0 everywhere."""


def default(trace: Trace) -> str:
    """Host time, or device time of a trace without any."""
    return CPU if weigh(trace, CPU).any() or not weigh(trace, DEVICE).any() else DEVICE


def weigh(trace: Trace, weight: str) -> IntArray:
    """The weight of each event itself, shape (rows,): self time of host events or duration of device work in ns, 1 for
    each of both, bytes of memory that was allocated (not the allocator's own reserve)."""
    if weight == CPU:
        return trace.ints("self_ns", 0)
    work = trace.rows("kind", *DEVICE_WORK)
    if weight == DEVICE:
        return np.where(work, trace.ints("dur_ns"), 0)
    if weight == CALLS:
        nested = trace.ints("self_ns") >= 0
        return np.where(work | nested, 1, 0).astype(np.int64)
    found, allocated = memory_events(trace), np.zeros(len(trace), np.int64)
    allocated[found.row] = np.maximum(counted_bytes(found), 0)
    return allocated
