"""How fast does the training loop go, and how much of it waits for input? Timed without a profiler.

A benchmark for a loop: ``Throughput`` records every step and every wait for a batch, ``ThroughputSummary`` says what
came of it. Adapters add their framework's devices and loaders.
"""

from __future__ import annotations

from perfkit_core.system.device_events import DeviceClock
from perfkit_core.throughput.costs import Costs, Rates, ThroughputSummary
from perfkit_core.throughput.loop import Throughput
from perfkit_core.throughput.native import NativeSummary

__all__ = ["Costs", "DeviceClock", "NativeSummary", "Rates", "Throughput", "ThroughputSummary"]
