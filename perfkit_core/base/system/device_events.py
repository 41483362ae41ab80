"""Step times measured on a device without waiting for the device. The host often launches the work of several steps
before the device has finished the first. Therefore a timing event is queued on the device after the work of each step.
The step time is the time between two of these events."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Protocol


class DeviceClock(Protocol):
    """The clock of a device. Marks are queued on the device, between pieces of work. Only ``wait`` may block."""

    name: str

    def mark(self) -> Any:
        """Queue a mark after all work launched so far."""

    def passed(self, mark: Any) -> bool:
        """Return whether the device has finished all work before the mark."""

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Return the time between two marks that the device has passed."""

    def wait(self, mark: Any) -> None:
        """Block until the device has passed the mark."""


class EventClock:
    """A :class:`DeviceClock` for frameworks with timing events. The events are queued on the stream that is current
    when the clock is created. ``device`` is a module with ``Event`` and ``current_stream``, such as ``torch.cuda``."""

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
        # Frameworks return milliseconds as a float. CUDA returns a 32-bit float with a resolution of about 0.5 µs.
        return round(float(start.elapsed_time(end)) * 1e6)

    def wait(self, mark: Any) -> None:
        mark.synchronize()


class DeviceSteps:
    """Collects the times of finished steps in ``finished_ns``, measured on the device. ``earlier`` contains the times
    of the steps before the device was first used, measured on the host, in ns."""

    def __init__(self, clock: DeviceClock, earlier: array[int]) -> None:
        self.clock = clock
        self.finished_ns = array("q", earlier)
        self._marks: deque[tuple[Any, bool]] = deque()  # each mark, and whether it ends a step
        self._last: Any = None

    def begin(self) -> None:
        self._marks.append((self.clock.mark(), False))

    def step(self) -> None:
        """Mark the end of a step on the host; its work may still run on the device."""
        self._marks.append((self.clock.mark(), True))
        self.collect()

    def collect(self) -> None:
        """Add to ``finished_ns`` the times of steps that the device has finished. Does not wait for the device."""
        clock, marks = self.clock, self._marks
        while marks and clock.passed(marks[0][0]):
            mark, ends_step = marks.popleft()
            if ends_step:
                self.finished_ns.append(clock.elapsed_ns(self._last, mark))
            self._last = mark

    def drain(self) -> None:
        """Wait until the device has finished all steps, then add their times to ``finished_ns``."""
        if self._marks:
            self.clock.wait(self._marks[-1][0])
            self.collect()
