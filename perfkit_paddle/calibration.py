"""Paddle's operators, kernel launches and copies, whose times ``perfkit calibrate`` measures."""

from __future__ import annotations

from typing import Any

from perfkit_core.base.system.device_events import DeviceClock
from perfkit_core.measure.calibration import bench
from perfkit_core.plugins import frameworks
from perfkit_paddle import framework, throughput, wheels
from perfkit_paddle.on_trace_ready import breadth_first


def version() -> str | None:
    """Return the installed version of Paddle, or None if Paddle is not installed. Does not import Paddle."""
    return bench.installed_version(*wheels.DISTRIBUTIONS)


def machine_bench() -> frameworks.Bench:
    """Return the calls to time on the host and on the current device. Raises CaptureError if Paddle is missing."""
    paddle = framework.paddle()
    device = str(paddle.device.get_device())
    operators: dict[tuple[str, int], frameworks.Call] = {}
    paddle.set_device("cpu")
    try:
        for count in bench.ELEMENTS:
            operators |= bench.small_operators(
                paddle,
                count,
                gather=lambda values, numbers: lambda: paddle.index_select(values, numbers),
                cast=lambda numbers: lambda: numbers.astype("float32"),
            )
    finally:
        paddle.set_device(device)
    bench_of_device = None if device == "cpu" else PaddleBench(paddle, device)
    return frameworks.Bench(operators, bench_of_device, recording=_recording(paddle))


def _recording(paddle: Any) -> frameworks.RecordingBench:
    layers = paddle.nn.Sequential(paddle.nn.Linear(16, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 16))
    inputs = paddle.ones([4, 16])
    profiling = framework.profiler()

    def profiled(option: str, run: frameworks.Call) -> float:
        targets = [profiling.ProfilerTarget.CPU]
        # without a callback, Paddle writes a file into the current folder
        profiler = profiling.Profiler(
            targets=targets, on_trace_ready=lambda _: None, **({option: True} if option else {})
        )
        profiler.start()
        run()
        profiler.stop()
        nodes = [node for root in profiler.profiler_result.get_data().values() for node, _ in breadth_first(root)]
        profiler.profiler = None  # Paddle creates no other profiler while this is set
        return len(nodes) + sum(len(node.mem_node) for node in nodes) / 2

    options = ("", "record_shapes", "profile_memory")
    return frameworks.RecordingBench(lambda: layers(inputs).sum().backward(), options, profiled)


class PaddleBench:
    """The :class:`~perfkit_core.plugins.frameworks.DeviceBench` of a device such as "gpu:0"."""

    def __init__(self, paddle: Any, device: str) -> None:
        self._paddle = paddle
        self._scalar = paddle.zeros([1])
        self._square = paddle.ones([bench.OCCUPYING, bench.OCCUPYING])
        model = getattr(getattr(paddle.device, "cuda", None), "get_device_name", None)
        self.name = str(model()) if device.partition(":")[0] == "gpu" and model is not None else device
        self.clock: DeviceClock = throughput.device_clock(paddle.device, device)

    def launch(self) -> object:
        return self._scalar.scale_(1.0)

    def occupy(self) -> object:
        return self._paddle.matmul(self._square, self._square)

    def synchronize(self) -> object:
        return self._paddle.device.synchronize()

    def copy(self, direction: frameworks.Direction, size: int, pinned: bool) -> frameworks.Call | None:
        here = self._paddle.zeros([size], dtype="uint8")
        host = here.cpu()
        if pinned:
            if not hasattr(host, "pin_memory"):
                return None
            host = host.pin_memory()
        if direction == "dtoh":
            place = host.place
            return lambda: here._copy_to(place, True)

        def copied() -> None:
            host._copy_to(here.place, True)
            self._paddle.device.synchronize()

        return copied
