"""``Throughput`` for Paddle: step times, rates and costs of a training loop. Paddle's DataLoader reports its waits to
the benchmark hooks of ``paddle.profiler``, so it needs no wrapping. On a device, an event is recorded at the end of
each step on the stream that is current at ``start()`` and queried later, so the loop never waits for the device."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from perfkit_core.system.device_events import DeviceClock, EventClock
from perfkit_core.throughput.loop import Throughput as _Throughput
from perfkit_core.throughput.step_log import StepLog
from perfkit_core.verify.step_times import OptimizerSteps
from perfkit_paddle import framework

__all__ = ["Throughput"]


class Throughput(_Throughput):
    """Timer of the steps of a loop and its waits for input, used as ``with Throughput() as throughput``. Paddle's
    DataLoader is timed automatically, ``throughput.reader(loader)`` times any other iterable;
    ``throughput.step(num_samples)`` ends a step, ``throughput.summary()`` returns costs and rates. See
    :class:`perfkit_core.throughput.Throughput`."""

    def _device_clock(self) -> DeviceClock | None:
        device = framework.paddle().device
        name = str(device.get_device())
        return None if name == "cpu" else device_clock(device, name)

    def _watch(self) -> None:
        framework.profiler()
        timer = importlib.import_module("paddle.profiler.timer")
        hook = type("ThroughputHook", (_ReaderHook, timer.Hook), {})
        timer.benchmark().hooks[self._hook_name] = hook(self._log)

    def _unwatch(self) -> None:
        timer = importlib.import_module("paddle.profiler.timer")
        timer.benchmark().hooks.pop(self._hook_name, None)

    @property
    def _hook_name(self) -> str:
        return f"perfkit_throughput_{id(self)}"


class _ReaderHook:
    """Hook that Paddle calls around each batch that any loader of this process reads, on any thread."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._start_ns = 0

    def before_reader(self, benchmark: Any) -> None:
        if threading.get_ident() == self._log.thread:
            self._start_ns = self._log.clock()

    def after_reader(self, benchmark: Any) -> None:
        """Skip batches that a ``reader`` around the loader already times, and those that other threads prefetch."""
        log = self._log
        if not log.reading and threading.get_ident() == log.thread:
            log.read_ns.append(log.clock() - self._start_ns)


def device_clock(device: Any, name: str) -> DeviceClock:
    """Return the clock of Paddle's current device; ``device`` is ``paddle.device``."""
    return EventClock(f"device events of {name}", device)


def start() -> OptimizerSteps:
    """Time the updates of the first optimizer of this process that updates anything; dynamic graphs only."""
    steps = OptimizerSteps(Throughput(warmup=0))
    framework.Updates(steps.updated)
    return steps
