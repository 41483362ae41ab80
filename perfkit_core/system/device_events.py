"""When did a device finish each step? Asked without waiting for it.

Handing work to a device takes less time than the work, so a step that the host has ended may not have run yet. At the
end of each step a mark is put behind the work; later, when the device has passed it, the time between two marks is the
time of a step.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Protocol


class DeviceClock(Protocol):
    """A device's own clock. Only ``wait`` may block. Marks pass in the order in which they were put."""

    name: str
    """What the times are called in outputs, such as "CUDA events on cuda:0"."""

    def mark(self) -> Any:
        """Put a mark behind all work handed to the device so far."""

    def passed(self, mark: Any) -> bool:
        """Has the device finished what was before the mark?"""

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Time between two passed marks."""

    def wait(self, mark: Any) -> None:
        """Return when the mark is passed."""


class EventClock:
    """The :class:`DeviceClock` of frameworks with timing events, on the stream that is current when it is made.

    ``device`` is the framework's module that has ``Event`` and ``current_stream``.
    """

    def __init__(self, name: str, device: Any) -> None:
        self.name = name
        self._device = device
        self._stream = device.current_stream()

    def mark(self) -> Any:
        """Record an event after what the stream holds."""
        event = self._device.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def passed(self, mark: Any) -> bool:
        """Ask without waiting."""
        return bool(mark.query())

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Frameworks return milliseconds as a float; CUDA as one of 32 bits, in steps of about half a microsecond."""
        return round(float(start.elapsed_time(end)) * 1e6)

    def wait(self, mark: Any) -> None:
        """Wait for this event, not for the whole device."""
        mark.synchronize()


class DeviceSteps:
    """The steps that a device has finished. ``finished_ns[i]`` is step i: from the end of the one before to its end.

    ``earlier`` are the times of the steps before the device came into use, on the host's clock.
    """

    def __init__(self, clock: DeviceClock, earlier: array[int]) -> None:
        self.clock = clock
        self.finished_ns = array("q", earlier)
        self._marks: deque[tuple[Any, bool]] = deque()  # with whether it ends a step
        self._last: Any = None

    def begin(self) -> None:
        """The loop starts, or goes on after a pause."""
        self._marks.append((self.clock.mark(), False))

    def step(self) -> None:
        """The host has ended a step."""
        self._marks.append((self.clock.mark(), True))
        self.collect()

    def collect(self) -> None:
        """Take the times of all steps finished by now."""
        clock, marks = self.clock, self._marks
        while marks and clock.passed(marks[0][0]):
            mark, ends_step = marks.popleft()
            if ends_step:
                self.finished_ns.append(clock.elapsed_ns(self._last, mark))
            self._last = mark

    def drain(self) -> None:
        """Wait until the device has finished all steps, and take their times."""
        if self._marks:
            self.clock.wait(self._marks[-1][0])
            self.collect()
