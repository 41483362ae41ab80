"""What Paddle lets be timed: operators on few numbers, launches, copies. ``perfkit_torch`` has the same operators."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any, Final

from perfkit_core.calibration.model import Bench, Call, Direction
from perfkit_core.system.device_events import DeviceClock
from perfkit_paddle import framework
from perfkit_paddle.throughput import DeviceEvents

ELEMENTS: Final = (1, 64)
_OCCUPYING: Final = 8192
"""Rows of a square matrix whose product takes a device milliseconds."""
_DISTRIBUTIONS: Final = ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu")
"""Packages that all install the module ``paddle``."""


def version() -> str | None:
    """The installed version, without importing Paddle."""
    for name in _DISTRIBUTIONS:
        try:
            return installed(name)
        except PackageNotFoundError:
            continue
    return None


def bench() -> Bench:
    """The host, and the current device where there is one. Raises CaptureError without Paddle."""
    paddle = framework.paddle()
    device = str(paddle.device.get_device())
    paddle.set_device("cpu")
    try:
        operators = {key: call for count in ELEMENTS for key, call in _operators(paddle, count).items()}
    finally:
        paddle.set_device(device)
    return Bench(operators, None if device == "cpu" else PaddleBench(paddle, device))


def _operators(paddle: Any, count: int) -> Mapping[tuple[str, int], Call]:
    """Of arithmetic and control flow: each makes its result anew, as eager code does."""
    values, numbers = paddle.ones([count]), paddle.arange(count)
    condition = values > 0
    return {
        ("add", count): lambda: values + 1.0,
        ("multiply", count): lambda: values * values,
        ("compare", count): lambda: values < 0.5,
        ("logical", count): lambda: paddle.logical_and(condition, condition),
        ("where", count): lambda: paddle.where(condition, values, values),
        ("gather", count): lambda: paddle.index_select(values, numbers),
        ("slice", count): lambda: values[0],
        ("sum", count): values.sum,
        ("cast", count): lambda: numbers.astype("float32"),
        ("fill", count): lambda: paddle.full_like(values, 1.0),
    }


class PaddleBench:
    """A :class:`~perfkit_core.calibration.model.DeviceBench` of a device, "gpu:0" or another."""

    def __init__(self, paddle: Any, device: str) -> None:
        self._paddle = paddle
        self._one = paddle.zeros([1])
        self._square = paddle.ones([_OCCUPYING, _OCCUPYING])
        self.name = _model(paddle, device)
        self.clock: DeviceClock = DeviceEvents(paddle.device, device)

    def launch(self) -> object:
        return self._one.scale_(1.0)

    def occupy(self) -> object:
        return self._paddle.matmul(self._square, self._square)

    def synchronize(self) -> object:
        return self._paddle.device.synchronize()

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call | None:
        here = self._paddle.zeros([size], dtype="uint8")
        host = here.cpu()
        if pinned:
            if not hasattr(host, "pin_memory"):
                return None
            host = host.pin_memory()
        if direction == "htod":
            return lambda: self._waited(host._copy_to(here.place, True))
        place = host.place
        return lambda: here._copy_to(place, True)

    def _waited(self, result: object) -> object:
        self._paddle.device.synchronize()
        return result


def _model(paddle: Any, device: str) -> str:
    kind = device.partition(":")[0]
    named = getattr(getattr(paddle.device, "cuda", None), "get_device_name", None)
    return str(named()) if kind == "gpu" and named is not None else device
