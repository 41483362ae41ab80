"""What torch lets be timed: operators on few numbers, launches, copies. ``perfkit_paddle`` has the same operators."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any, Final

from perfkit_core.calibration.model import Bench, Call, Direction
from perfkit_core.errors import CaptureError
from perfkit_core.system.device_events import DeviceClock
from perfkit_torch.throughput import CudaEvents

ELEMENTS: Final = (1, 64)
_OCCUPYING: Final = 8192
"""Rows of a square matrix whose product takes a device milliseconds."""


def version() -> str | None:
    """The installed version, without importing torch."""
    try:
        return installed("torch")
    except PackageNotFoundError:
        return None


def bench() -> Bench:
    """The host, and the current GPU where there is one. Raises CaptureError without torch."""
    try:
        import torch
    except ImportError as error:
        raise CaptureError(f"torch cannot be imported ({error})", 'pip install "perfkit[torch]"') from None
    operators = {key: call for count in ELEMENTS for key, call in _operators(torch, count).items()}
    return Bench(operators, CudaBench(torch) if torch.cuda.is_available() else None, torch.get_num_threads())


def _operators(torch: Any, count: int) -> Mapping[tuple[str, int], Call]:
    """Of arithmetic and control flow: each makes its result anew, as eager code does."""
    values, numbers = torch.ones(count), torch.arange(count)
    condition = values > 0
    return {
        ("add", count): lambda: values + 1.0,
        ("multiply", count): lambda: values * values,
        ("compare", count): lambda: values < 0.5,
        ("logical", count): lambda: torch.logical_and(condition, condition),
        ("where", count): lambda: torch.where(condition, values, values),
        ("gather", count): lambda: torch.index_select(values, 0, numbers),
        ("slice", count): lambda: values[0],
        ("sum", count): values.sum,
        ("cast", count): numbers.float,
        ("fill", count): lambda: torch.full_like(values, 1.0),
    }


class CudaBench:
    """A :class:`~perfkit_core.calibration.model.DeviceBench` of the current GPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._one = torch.zeros(1, device="cuda")
        self._square = torch.ones(_OCCUPYING, _OCCUPYING, device="cuda")
        self.name = str(torch.cuda.get_device_name())
        self.clock: DeviceClock = CudaEvents(torch.cuda)

    def launch(self) -> object:
        return self._one.add_(1)

    def occupy(self) -> object:
        return self._square @ self._square

    def synchronize(self) -> object:
        return self._torch.cuda.synchronize()

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call:
        host = self._torch.zeros(size, dtype=self._torch.uint8, pin_memory=pinned)
        device = self._torch.zeros(size, dtype=self._torch.uint8, device="cuda")
        target, source = (device, host) if direction == "htod" else (host, device)

        def copied() -> None:
            target.copy_(source)
            self._torch.cuda.synchronize()

        return copied
