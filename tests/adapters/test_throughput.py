"""On a device, the events of the framework time the steps. The devices here are replaced."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit_core.recording.throughput.costs import Costs
from tests.support.frameworks import Framework


class Device:
    """A device that is ``behind`` events later than the host, and takes 2.5 ms for an event. Its stream may be asked
    for once, at the start."""

    def __init__(self, behind: int) -> None:
        self.behind, self.recorded, self.synchronized = behind, 0, 0
        self.streams = iter(["stream at start"])

    def event(self, enable_timing: bool = False) -> Event:
        assert enable_timing
        return Event(self)

    def current_stream(self) -> str:
        return next(self.streams)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.number = device, -1

    def record(self, stream: str) -> None:
        assert stream == "stream at start"
        self.number = self.device.recorded
        self.device.recorded += 1

    def query(self) -> bool:
        return 0 <= self.number < self.device.recorded - self.device.behind

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return (end.number - self.number) * 2.5

    def synchronize(self) -> None:
        self.device.synchronized += 1
        self.device.behind = 0


def in_use(native: Framework, device: Device, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the framework use the device. Return the name of its clock."""
    module: Any = SimpleNamespace(Event=device.event, current_stream=device.current_stream)
    if native.name == "torch":
        module.is_available = module.is_initialized = lambda: True
        module.current_device = lambda: 1
        monkeypatch.setattr(native.module, "cuda", module)
        return "CUDA events of cuda:1"
    module.get_device = lambda: "gpu:0"
    framework = importlib.import_module("perfkit_paddle.framework")
    monkeypatch.setattr(framework, "paddle", lambda: SimpleNamespace(device=module))
    return "device events of gpu:0"


def test_steps_are_timed_by_events_that_are_not_waited_for(native: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(behind=4)
    clock = in_use(native, device, monkeypatch)
    with native.perfkit.Throughput(warmup=3) as throughput:
        for _ in range(10):
            throughput.step(5)
        running = throughput.summary()
        assert (running.steps, running.warmup_steps, running.unfinished_steps) == (3, 3, 4)
        assert device.synchronized == 0
    summary = throughput.summary()
    assert device.synchronized == 1
    assert (summary.steps, summary.unfinished_steps, summary.samples) == (7, 0, 35)
    assert summary.timed_by == clock
    assert summary.batch_cost == Costs(7 * 2_500_000, *[2_500_000] * 6)
    assert summary.ips
    assert summary.ips.avg_per_s == 2000


def test_the_frameworks_events_have_the_called_methods(native: Framework) -> None:
    """There is no device here, so only names and arguments are checked."""
    events = native.module.cuda.Event if native.name == "torch" else native.module.device.Event
    made = events.__new__ if native.name == "torch" else events.__init__
    assert "enable_timing" in inspect.signature(made).parameters
    assert "stream" in inspect.signature(events.record).parameters
    for name in ("query", "elapsed_time", "synchronize"):
        assert callable(getattr(events, name))
    if native.name == "paddle":
        assert callable(native.module.device.current_stream)
        assert isinstance(native.module.device.get_device(), str)
