"""Operators, kernel launches and copies of torch, whose times ``perfkit calibrate`` measures."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from perfkit_core.base.system.device_events import DeviceClock
from perfkit_core.measure.calibration import bench
from perfkit_core.plugins import frameworks
from perfkit_torch import framework, live_events, throughput


def version() -> str | None:
    """Return the installed version of torch, or None if torch is not installed. Does not import torch."""
    return bench.installed_version("torch")


def machine_bench() -> frameworks.Bench:
    """Return the calls to be timed, on the host and on the current GPU (if any). Raises CaptureError without torch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler prints a line whenever it starts or stops
    torch = framework.torch()
    operators: dict[tuple[str, int], frameworks.Call] = {}
    for count in bench.ELEMENTS:
        operators |= bench.small_operators(
            torch,
            count,
            gather=lambda values, numbers: lambda: torch.index_select(values, 0, numbers),
            cast=lambda numbers: numbers.float,
        )
    device = CudaBench(torch) if torch.cuda.is_available() else None
    return frameworks.Bench(operators, device, torch.get_num_threads(), _recording(torch))


def _recording(torch: Any) -> frameworks.RecordingBench:
    layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    inputs = torch.ones(4, 16)

    def profiled(option: str, run: frameworks.Call) -> float:
        activities = [torch.profiler.ProfilerActivity.CPU]
        profiler = torch.profiler.profile(activities=activities, **({option: True} if option else {}))
        with framework.quiet_start(), profiler:
            run()
        batches = live_events.batches(profiler.profiler.kineto_results, False, option == "with_stack")
        categories = Counter(category for batch in batches for category in batch.categories)
        return categories.total() - (categories["cpu_instant_event"] + categories["python_function"]) / 2

    options = ("", "record_shapes", "profile_memory", "with_stack")
    return frameworks.RecordingBench(lambda: layers(inputs).sum().backward(), options, profiled)


class CudaBench:
    """The :class:`~perfkit_core.plugins.frameworks.DeviceBench` of the current GPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._scalar = torch.zeros(1, device="cuda")
        self._square = torch.ones(bench.OCCUPYING, bench.OCCUPYING, device="cuda")
        self.name = str(torch.cuda.get_device_name())
        self.clock: DeviceClock = throughput.cuda_clock(torch)

    def launch(self) -> object:
        return self._scalar.add_(1)

    def occupy(self) -> object:
        return self._square @ self._square

    def synchronize(self) -> object:
        return self._torch.cuda.synchronize()

    def copy(self, direction: frameworks.Direction, size: int, pinned: bool) -> frameworks.Call:
        host = self._torch.zeros(size, dtype=self._torch.uint8, pin_memory=pinned)
        device = self._torch.zeros(size, dtype=self._torch.uint8, device="cuda")
        target, source = (device, host) if direction == "htod" else (host, device)

        def copied() -> None:
            target.copy_(source)
            self._torch.cuda.synchronize()

        return copied
