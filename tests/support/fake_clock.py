"""Clocks that only advance when a test says so: a host clock, and a device that may finish its work later than the
host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Clock:
    """A host clock. Calling it returns the time in ns."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def advance(self, dur_ns: int) -> None:
        self.now += dur_ns

    def loader(self, *costs_ns: int) -> Iterator[int]:
        """Yield batches. Reading a batch advances the clock by its cost."""
        for number, cost in enumerate(costs_ns):
            self.now += cost
            yield number


class Device:
    """A device with its own clock. The test decides which marks the device has passed, and when."""

    name = "fake device"

    def __init__(self) -> None:
        self.put = 0
        self.passed_at: list[int] = []
        self.waited: list[int] = []
        self.on_wait: list[int] = []
        self.broken = False

    def reach(self, *times_ns: int) -> None:
        """Let the device pass the next marks at these times."""
        self.passed_at += times_ns

    def mark(self) -> Any:
        if self.broken:
            raise RuntimeError("the device is lost")
        self.put += 1
        return self.put - 1

    def passed(self, mark: int) -> bool:
        return mark < len(self.passed_at)

    def elapsed_ns(self, start: int, end: int) -> int:
        return self.passed_at[end] - self.passed_at[start]

    def wait(self, mark: int) -> None:
        self.waited.append(mark)
        self.reach(*self.on_wait)
