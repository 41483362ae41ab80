"""Rule 29, memory-near-limit: the memory of a device is nearly full.

Seen by: the peak of the allocator's running total exceeds ``memory_share`` of the device's memory. There is no
transform: it is about capacity, not time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.evidence.memory_peaks import peaks
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.language.messages import message
from perfkit_core.plugins.contracts import Rule


def find(facts: Facts) -> list[Candidate]:
    """Return a candidate for each device and process that comes near the limit."""
    return [
        Candidate(
            message(
                "At the peak {bytes:bytes} of the {total:bytes} ({ratio:.0%}) of {device} are allocated.",
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
                message("the memory size of the device is known"),
            ),
            risks=(
                message("Recomputing activations takes time."),
                message("Other processes may need memory of the device, too."),
            ),
            conflicts=("low-device-utilisation",),
        )
        for peak in peaks(facts)
        if peak.ratio > facts.thresholds.memory_share
    ]  # fmt: skip


RULE: Final = Rule("memory-near-limit", 29, 1, "Free device memory", find)
