"""Step times measured on a device, without waiting for it. The host launches work faster than the device runs it. So at
the end of each step an event is queued after the work, and the time between two events that the device has passed is
the time of a step."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Protocol


class DeviceClock(Protocol):
    """A device's own clock. Only ``wait`` may block. Marks are passed in the order in which they were queued."""

    name: str

    def mark(self) -> Any:
        """Queue a mark after all work launched so far."""

    def passed(self, mark: Any) -> bool:
        """Return whether the device has finished the work before the mark."""

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Return the time between two passed marks."""

    def wait(self, mark: Any) -> None:
        """Block until the mark is passed."""


class EventClock:
    """The :class:`DeviceClock` of frameworks with timing events, on the current stream of its creation. ``device`` is
    the framework's module with ``Event`` and ``current_stream``."""

    def __init__(self, name: str, device: Any) -> None:
        self.name = name
        self._device = device
        self._stream = device.current_stream()

    def mark(self) -> Any:
        event = self._device.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def elapsed_ns(self, start: Any, end: Any) -> int:
        # Frameworks return milliseconds as a float; CUDA as one of 32 bits, in steps of about half a microsecond.
        return round(float(start.elapsed_time(end)) * 1e6)

    def wait(self, mark: Any) -> None:
        mark.synchronize()


class DeviceSteps:
    """Times of the steps that a device has finished, in ns, in ``finished_ns``. ``earlier``: times of the steps before
    the device was first used, on the host's clock."""

    def __init__(self, clock: DeviceClock, earlier: array[int]) -> None:
        self.clock = clock
        self.finished_ns = array("q", earlier)
        self._marks: deque[tuple[Any, bool]] = deque()  # with whether it ends a step
        self._last: Any = None

    def begin(self) -> None:
        self._marks.append((self.clock.mark(), False))

    def step(self) -> None:
        """Mark the end of a step on the host; its work may still run on the device."""
        self._marks.append((self.clock.mark(), True))
        self.collect()

    def collect(self) -> None:
        """Add the times of all finished steps, without waiting."""
        clock, marks = self.clock, self._marks
        while marks and clock.passed(marks[0][0]):
            mark, ends_step = marks.popleft()
            if ends_step:
                self.finished_ns.append(clock.elapsed_ns(self._last, mark))
            self._last = mark

    def drain(self) -> None:
        """Wait until the device has finished all steps, and add their times."""
        if self._marks:
            self.clock.wait(self._marks[-1][0])
            self.collect()
