"""What a framework lets be timed. Adapters fill it, :mod:`perfkit_core.calibration.measuring` times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Direction = Literal["htod", "dtoh"]
Call = Callable[[], object]


class DeviceBench(Protocol):
    """One device. ``launch`` hands over the smallest kernel there is and returns before it has run."""

    name: str
    """The model, as the framework tells it."""

    def launch(self) -> object: ...

    def synchronize(self) -> object:
        """Returns when the device has finished all that was handed over."""

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call | None:
        """A call that copies so many bytes and returns when they are there; None where there is no such memory."""


@dataclass(frozen=True, slots=True)
class Bench:
    """``operators``: calls of operators on the host, by canonical name and number of elements. ``threads`` are those
    that one operator may use."""

    operators: Mapping[tuple[str, int], Call] = field(default_factory=dict)
    device: DeviceBench | None = None
    threads: int | None = None
