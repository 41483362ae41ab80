"""``Throughput`` for Paddle: step times, rates and costs of a training loop. The benchmark hooks of ``paddle.profiler``
time the waits for Paddle's DataLoader. On a device, an event marks the end of each step. The event is recorded in the
stream that was current at ``start()``, and queried later. The loop therefore never waits for the device."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from perfkit_core.base.system.device_events import DeviceClock, EventClock
from perfkit_core.measure.verify.step_times import OptimizerSteps
from perfkit_core.recording.throughput.loop import Throughput as _Throughput
from perfkit_core.recording.throughput.step_log import StepLog
from perfkit_paddle import framework

__all__ = ["Throughput"]


class Throughput(_Throughput):
    """Timer for the steps of a training loop and for its waits for input. Waits for Paddle's DataLoader are timed
    automatically.

    - ``with Throughput() as throughput:`` encloses the loop.
    - ``throughput.reader(loader)`` times the waits for another loader.
    - ``throughput.step(num_samples)`` ends a step.
    - ``throughput.summary()`` returns rates and costs.

    See :class:`perfkit_core.recording.throughput.Throughput`."""

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
    """Hook that Paddle calls before and after any loader of this process reads a batch, in any thread."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._start_ns = 0

    def before_reader(self, benchmark: Any) -> None:
        if threading.get_ident() == self._log.thread:
            self._start_ns = self._log.clock()

    def after_reader(self, benchmark: Any) -> None:
        """Store how long the training waited for a batch. Nothing is stored if another thread read the batch, or if
        ``throughput.reader`` measures the wait."""
        log = self._log
        if not log.reading and threading.get_ident() == log.thread:
            log.read_ns.append(log.clock() - self._start_ns)


def device_clock(device: Any, name: str) -> DeviceClock:
    return EventClock(f"device events of {name}", device)


def start() -> OptimizerSteps:
    """Start timing the updates of the first optimizer of this process, or the runs of the first static program."""
    steps = timer()
    framework.Updates(steps.updated)
    return steps


def timer() -> OptimizerSteps:
    return OptimizerSteps(Throughput(warmup=0))
