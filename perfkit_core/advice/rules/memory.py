"""Rule 29: the memory of a device is nearly full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.analyses.memory.events import MISSING, NOT_RECORDED, MemoryEvents, memory_events
from perfkit_core.analyses.memory.levels import levels
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.schema import CPU


@dataclass(frozen=True, slots=True)
class Peak:
    """Most bytes that one process had allocated on a device at once, how many the device has, and the row of the event
    after which that was."""

    device: str
    rank: int
    bytes: int
    of_bytes: int
    row: int

    @property
    def ratio(self) -> float:
        """Share of the device's memory."""
        return self.bytes / self.of_bytes


def find(facts: Facts) -> list[Candidate]:
    """Allocated memory comes near to what the device has. Carries no number: it is about capacity."""
    return [_candidate(peak) for peak in peaks(facts) if peak.ratio > facts.thresholds.memory_share]


def peaks(facts: Facts) -> list[Peak]:
    """The peak of each device and process. Raises NotEvaluableError."""
    trace = facts.trace
    found = memory_events(trace)
    if not len(found.row):
        raise NotEvaluableError(NOT_RECORDED)
    devices = trace.codes("device").values
    size = {device.id: device.memory_bytes for device in trace.meta.devices if device.memory_bytes}
    pools = [pool for pool, code in enumerate(found.pool_device.tolist()) if code >= 0 and devices[code] != CPU]
    if not pools:
        raise NotEvaluableError(say("no memory of a device was recorded, only that of the host"))
    if not any(devices[found.pool_device[pool]] in size for pool in pools):
        raise NotEvaluableError(say("how much memory the device has was not recorded"))
    known = [peak for pool in pools if (peak := _peak(facts, found, pool, devices[found.pool_device[pool]], size))]
    if not known:
        raise NotEvaluableError(
            say("the memory events have no running totals: what was allocated before them is unknown")
        )
    return known


def _peak(facts: Facts, found: MemoryEvents, pool: int, device: str, size: dict[str, int]) -> Peak | None:
    """None where the total or the size of the device is unknown."""
    level = levels(facts.trace)
    at = np.flatnonzero(found.pool == pool)
    if level.start[pool] == MISSING or device not in size:
        return None
    top = int(at[level.allocated[at].argmax()])
    return Peak(device, int(found.pool_rank[pool]), int(level.allocated[top]), size[device], int(found.row[top]))


def _candidate(peak: Peak) -> Candidate:
    share = say(
        "{bytes:.3g} of {of_bytes:.3g} GB ({ratio:.0%})",
        bytes=peak.bytes / 1000000000.0,
        of_bytes=peak.of_bytes / 1000000000.0,
        ratio=peak.ratio,
    )
    return Candidate(
        say("at the peak {share} of the memory of {device} are allocated", share=share, device=peak.device),
        evidence={
            "peak_bytes": peak.bytes, "device_bytes": peak.of_bytes, "memory_ratio": peak.ratio, "device": peak.device,
        },
        rows=np.array([peak.row]),
        method="none",
        preconditions=(
            say("running totals of the allocator were recorded"),
            say("the size of the device's memory is known"),
        ),
        risks=(say("recomputing activations takes time"), say("other processes may need memory of the device, too")),
        conflicts=("low-device-utilisation",),
    )  # fmt: skip


RULES: Final = (Rule("memory-near-limit", 29, 1, "Make room in the device's memory", find),)
