"""Rule 29, memory-near-limit: the memory of a device is nearly full.
Detected: the peak of the allocated memory exceeds ``memory_share`` of the device's memory.
Predicted: nothing, because the rule is about capacity, not time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.trace.model.meta import PROFILE_MEMORY
from perfkit_core.trace.model.schema import CPU
from perfkit_core.views.memory.events import MISSING, explain_empty, levels, memory_events


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak memory of one process on a device."""

    device: str
    rank: int
    bytes: int  # allocated bytes at the peak
    of_bytes: int  # memory size of the device
    row: int  # event that reached the peak

    @property
    def ratio(self) -> float:
        return self.bytes / self.of_bytes


def find(facts: RuleInput) -> list[Candidate]:
    return [
        Candidate(
            message(
                "At the peak, {bytes:bytes} of the {total:bytes} of memory of {device} are allocated ({ratio:ratio}).",
                bytes=peak.bytes, total=peak.of_bytes, ratio=peak.ratio, device=peak.device,
            ),
            evidence={
                "peak_bytes": peak.bytes, "device_bytes": peak.of_bytes, "memory_ratio": peak.ratio,
                "device": peak.device,
            },
            rows=np.array([peak.row]),
            method="none",
            preconditions=(
                message("running totals of the allocator were recorded"),
                message("the memory size of the device was recorded"),
            ),
            risks=(
                message("Recomputing activations takes time."),
                message("Other processes may also need memory of the device."),
            ),
        )
        for peak in peaks(facts)
        if peak.ratio > facts.thresholds.memory_share
    ]  # fmt: skip


def peaks(facts: RuleInput) -> list[Peak]:
    """Return the peak of each process on each device. Raises NotEvaluableError if no peak is known."""
    trace = facts.trace
    events = memory_events(trace)
    if not len(events.row):
        if trace.meta.options.get(PROFILE_MEMORY):
            raise NotEvaluableError(explain_empty(trace))
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
    peaks = []
    for pool in pools:
        if level.start[pool] == MISSING:  # without running totals, memory allocated before the recording is unknown
            continue
        device, at = devices[events.pool_device[pool]], np.flatnonzero(events.pool == pool)
        top = int(at[level.allocated[at].argmax()])
        rank, row = int(events.pool_rank[pool]), int(events.row[top])
        peaks.append(Peak(device, rank, int(level.allocated[top]), sizes[device], row))
    if not peaks:
        raise NotEvaluableError(message("the memory events have no running totals, so earlier allocations are unknown"))
    return peaks
