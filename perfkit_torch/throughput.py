"""``Throughput``: how fast does a training loop go in PyTorch? Steps on a GPU are timed by what has finished there.

On CUDA and ROCm an event is recorded at the end of each step, on the stream that is current at ``start()``, and asked
later whether it has passed: nothing waits for the device inside the loop.

Calls after each update of a torch training, without a profiler.
"""

from __future__ import annotations

import sys
from typing import Any

from perfkit_core.system.device_events import DeviceClock
from perfkit_core.throughput.loop import Throughput as _Throughput
from perfkit_core.verify.step_times import OptimizerSteps

__all__ = ["CudaEvents", "Throughput"]


class Throughput(_Throughput):
    """Times the steps of a loop and its waits for input; use as ``with Throughput() as throughput``.

    ``throughput.reader(loader)`` times any iterable, ``throughput.step(num_samples)`` ends a step,
    ``throughput.summary()`` returns what came of it. See :class:`perfkit_core.throughput.Throughput`.
    """

    def _device_clock(self) -> DeviceClock | None:
        """The current GPU, if CUDA is in use by now: asking for more would start it."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None
        return CudaEvents(torch.cuda)


class CudaEvents:
    """A :class:`~perfkit_core.throughput.DeviceClock` of the current GPU; ``cuda`` is the module ``torch.cuda``."""

    def __init__(self, cuda: Any) -> None:
        self.name = f"CUDA events of cuda:{cuda.current_device()}"
        self._cuda = cuda
        self._stream = cuda.current_stream()

    def mark(self) -> Any:
        """An event behind what the stream holds."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def passed(self, mark: Any) -> bool:
        """Asks without waiting."""
        return bool(mark.query())

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """CUDA tells milliseconds as a 32-bit float, in steps of about half a microsecond."""
        return round(float(start.elapsed_time(end)) * 1e6)

    def wait(self, mark: Any) -> None:
        """Waits for this event, not for the whole device."""
        mark.synchronize()


def start() -> OptimizerSteps:
    """Time the updates of the first optimizer of this process that updates anything."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps, first = OptimizerSteps(Throughput(warmup=0)), None

    def after(optimizer: Any, *_: Any) -> None:
        nonlocal first
        first = first or id(optimizer)
        if first == id(optimizer):
            steps.updated()

    register_optimizer_step_post_hook(after)
    return steps
