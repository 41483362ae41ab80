"""A benchmark of a training loop without a profiler: step times, rates, and waits for input. ``Throughput`` times the
steps and the waits, and returns a ``ThroughputSummary``. Adapters add the devices and data loaders of a framework."""

from __future__ import annotations

from perfkit_core.base.system.device_events import DeviceClock
from perfkit_core.recording.throughput.costs import Costs, NativeSummary, Rates, ThroughputSummary
from perfkit_core.recording.throughput.loop import Throughput

__all__ = ["Costs", "DeviceClock", "NativeSummary", "Rates", "Throughput", "ThroughputSummary"]
