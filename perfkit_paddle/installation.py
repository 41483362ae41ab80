"""Checks of the installed Paddle for ``perfkit doctor``: its devices, and a short recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from perfkit_core.integrations.doctor.frameworks import recorded
from perfkit_core.plugins.contracts import Check
from perfkit_paddle import framework
from perfkit_paddle.on_trace_ready import trace_handler

_SIZE: Final = 64


def running() -> Iterator[Check]:
    """Import Paddle, and yield its build, the devices that it sees, and what its profiler records."""
    paddle = framework.paddle()
    build = _build(paddle)
    text = f"Paddle {paddle.__version__} can be imported; built for {build or 'CPUs only'}"
    yield Check("framework.paddle.import", "ok", text, data={"version": str(paddle.__version__), "build": build})
    yield _devices(paddle, build)
    yield from recorded("paddle", lambda folder: _record(paddle, folder), _count(paddle) > 0)


def _build(paddle: Any) -> str | None:
    device = paddle.device
    if device.is_compiled_with_rocm():
        return "ROCm"
    if device.is_compiled_with_cuda():
        return f"CUDA {paddle.version.cuda()}"
    return "Kunlun XPU" if device.is_compiled_with_xpu() else None


def _count(paddle: Any) -> int:
    """Return the number of devices that Paddle sees."""
    build = _build(paddle)
    if build == "Kunlun XPU":
        return int(paddle.device.xpu.device_count())
    return 0 if build is None else int(paddle.device.cuda.device_count())


def _devices(paddle: Any, build: str | None) -> Check:
    name, count = "framework.paddle.devices", _count(paddle)
    data: dict[str, Any] = {"devices": count, "names": []}
    if build is None:
        return Check(name, "note", "Paddle sees no GPU, because this build is for CPUs only", data=data)
    if not count:
        fix = "check that the driver is installed and new enough, and CUDA_VISIBLE_DEVICES"
        return Check(name, "warning", f"Paddle sees no device, although it is built for {build}", fix, data)
    names = [build] * count
    if build != "Kunlun XPU":
        names = [str(paddle.device.cuda.get_device_name(at)) for at in range(count)]
    return Check(name, "ok", f"Paddle sees {', '.join(names)}", data=data | {"names": names})


def _record(paddle: Any, folder: str) -> None:
    with framework.profiler().Profiler(on_trace_ready=trace_handler(folder)):
        float(paddle.ones([_SIZE, _SIZE]).matmul(paddle.ones([_SIZE, _SIZE])).sum())
