"""What a framework lets be timed. Adapters fill it, :mod:`perfkit_core.calibration.measuring` times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from perfkit_core.throughput.device import DeviceClock

Direction = Literal["htod", "dtoh"]
Call = Callable[[], object]


class DeviceBench(Protocol):
    """One device, with the clock that its steps are timed by."""

    name: str
    """The model, as the framework tells it."""
    clock: DeviceClock

    def launch(self) -> object:
        """Hand over the smallest kernel there is; returns before it has run."""

    def occupy(self) -> object:
        """Hand over work that takes the device some ten milliseconds; returns before it has run."""

    def synchronize(self) -> object:
        """Return when the device has finished all that was handed over."""

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call | None:
        """A call that copies so many bytes and returns when they are there; None where there is no such memory."""


@dataclass(frozen=True, slots=True)
class Bench:
    """``operators``: calls of operators on the host, by canonical name and number of elements. ``threads`` are those
    that one operator may use."""

    operators: Mapping[tuple[str, int], Call] = field(default_factory=dict)
    device: DeviceBench | None = None
    threads: int | None = None
