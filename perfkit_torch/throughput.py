"""``Throughput`` for PyTorch: step times, rates and costs of a training loop. On CUDA and ROCm, an event on the device
marks the end of each step. The event is recorded in the stream that was current at ``start()``, and queried later. The
loop therefore never waits for the device."""

from __future__ import annotations

import sys
import threading
from typing import Any

from perfkit_core.base.system.device_events import DeviceClock, EventClock
from perfkit_core.measure.verify.step_times import OptimizerSteps
from perfkit_core.recording.throughput.loop import Throughput as _Throughput
from perfkit_torch.framework import Updates

__all__ = ["Throughput"]


class Throughput(_Throughput):
    """Timer for the steps of a training loop and for its waits for input.

    - ``with Throughput() as throughput:`` encloses the loop.
    - ``throughput.reader(loader)`` times the waits for a loader.
    - ``throughput.step(num_samples)`` ends a step.
    - ``throughput.summary()`` returns rates and costs.

    See :class:`perfkit_core.recording.throughput.Throughput`."""

    def _device_clock(self) -> DeviceClock | None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None  # a query must not initialise CUDA
        return cuda_clock(torch)


class LoaderThroughput(Throughput):
    """Also times the waits for torch's DataLoaders without ``reader``, for the callbacks of trainers."""

    def _watch(self) -> None:
        from torch.utils.data import dataloader

        log, self._original = self._log, dataloader._BaseDataLoaderIter.__next__
        original = self._original

        def timed_next(iterator: Any) -> Any:
            if log.reading or threading.get_ident() != log.thread:
                return original(iterator)
            start, log.reading = log.clock(), True
            try:
                batch = original(iterator)
            except StopIteration:
                log.wait_without_batch(log.clock() - start)
                raise
            finally:
                log.reading = False
            if log.running:
                log.read_ns.append(log.clock() - start)
            return batch

        self._timed = dataloader._BaseDataLoaderIter.__next__ = timed_next

    def _unwatch(self) -> None:
        from torch.utils.data import dataloader

        if dataloader._BaseDataLoaderIter.__next__ is self._timed:  # nobody has wrapped it since
            dataloader._BaseDataLoaderIter.__next__ = self._original


def cuda_clock(torch: Any) -> DeviceClock:
    return EventClock(f"CUDA events of cuda:{torch.cuda.current_device()}", torch.cuda)


def start() -> OptimizerSteps:
    """Start timing the updates of the first optimizer that takes a step in this process."""
    steps = timer()
    Updates(steps.updated)
    return steps


def timer() -> OptimizerSteps:
    return OptimizerSteps(Throughput(warmup=0))
