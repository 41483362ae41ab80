"""``Throughput`` for PyTorch: step times, rates and costs of a training loop. On CUDA and ROCm, an event is recorded at
the end of each step on the stream that is current at ``start()`` and queried later, so the loop never waits for the
device."""

from __future__ import annotations

import sys
from typing import Any

from perfkit_core.system.device_events import DeviceClock, EventClock
from perfkit_core.throughput.loop import Throughput as _Throughput
from perfkit_core.verify.step_times import OptimizerSteps
from perfkit_torch.framework import Updates

__all__ = ["Throughput"]


class Throughput(_Throughput):
    """Timer of the steps of a loop and its waits for input, used as ``with Throughput() as throughput``.
    ``throughput.reader(loader)`` times any iterable, ``throughput.step(num_samples)`` ends a step,
    ``throughput.summary()`` returns costs and rates. See :class:`perfkit_core.throughput.Throughput`."""

    def _device_clock(self) -> DeviceClock | None:
        """Return the clock of the current GPU if CUDA is already in use; querying it otherwise would initialise it."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None
        return cuda_clock(torch)


def cuda_clock(torch: Any) -> DeviceClock:
    return EventClock(f"CUDA events of cuda:{torch.cuda.current_device()}", torch.cuda)


def start() -> OptimizerSteps:
    """Time the updates of the first optimizer of this process that updates anything."""
    steps = OptimizerSteps(Throughput(warmup=0))
    Updates(steps.updated)
    return steps
