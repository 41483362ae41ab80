"""``Throughput`` for PyTorch: step times, rates and costs of a training loop. On CUDA and ROCm, an event on the device
marks the end of each step. The event is recorded in the stream that was current at ``start()``, and queried later. The
loop therefore never waits for the device."""

from __future__ import annotations

import sys
from typing import Any

from perfkit_core.system.device_events import DeviceClock, EventClock
from perfkit_core.throughput.loop import Throughput as _Throughput
from perfkit_core.verify.step_times import OptimizerSteps
from perfkit_torch.framework import Updates

__all__ = ["Throughput"]


class Throughput(_Throughput):
    """Timer for the steps of a training loop and for its waits for input.

    - ``with Throughput() as throughput:`` encloses the loop.
    - ``throughput.reader(loader)`` times the waits for a loader.
    - ``throughput.step(num_samples)`` ends a step.
    - ``throughput.summary()`` returns rates and costs.

    See :class:`perfkit_core.throughput.Throughput`.
    """

    def _device_clock(self) -> DeviceClock | None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None  # a query must not initialise CUDA
        return cuda_clock(torch)


def cuda_clock(torch: Any) -> DeviceClock:
    return EventClock(f"CUDA events of cuda:{torch.cuda.current_device()}", torch.cuda)


def start() -> OptimizerSteps:
    """Start timing the updates of the first optimizer that takes a step in this process."""
    steps = timer()
    Updates(steps.updated)
    return steps


def timer() -> OptimizerSteps:
    return OptimizerSteps(Throughput(warmup=0))
