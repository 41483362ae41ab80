"""The peak of allocated memory on each device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.language.messages import message
from perfkit_core.model.schema import CPU
from perfkit_core.views.memory.events import MISSING, levels, memory_events


@dataclass(frozen=True, slots=True)
class Peak:
    """Most ``bytes`` that one process had allocated on a device at once, how many the device has (``of_bytes``), and
    the ``row`` of the event after which that was."""

    device: str
    rank: int
    bytes: int
    of_bytes: int
    row: int

    @property
    def ratio(self) -> float:
        """Share of the device's memory."""
        return self.bytes / self.of_bytes


def peaks(facts: Facts) -> list[Peak]:
    """Return the peak of each device and process. Raises NotEvaluableError."""
    trace = facts.trace
    events = memory_events(trace)
    if not len(events.row):
        raise NotEvaluableError(
            message("no memory events were recorded"),
            message("pass profile_memory=True to the profiler (record --memory)"),
        )
    devices = trace.codes("device").values
    sizes = {device.id: device.memory_bytes for device in trace.meta.devices if device.memory_bytes}
    pools = [pool for pool, code in enumerate(events.pool_device.tolist()) if code >= 0 and devices[code] != CPU]
    if not pools:
        raise NotEvaluableError(message("no device memory was recorded, only host memory"))
    pools = [pool for pool in pools if devices[events.pool_device[pool]] in sizes]
    if not pools:
        raise NotEvaluableError(message("the memory size of the device was not recorded"))
    level = levels(trace)
    known = []
    for pool in pools:
        if level.start[pool] == MISSING:  # what was allocated before the first event is unknown
            continue
        device, at = devices[events.pool_device[pool]], np.flatnonzero(events.pool == pool)
        top = int(at[level.allocated[at].argmax()])
        rank, row = int(events.pool_rank[pool]), int(events.row[top])
        known.append(Peak(device, rank, int(level.allocated[top]), sizes[device], row))
    if not known:
        raise NotEvaluableError(
            message("the memory events have no running totals, so what was allocated before them is unknown")
        )
    return known
