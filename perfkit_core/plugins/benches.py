"""Benchmarks that adapters provide for ``perfkit calibrate``: the calls whose time is measured on a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from perfkit_core.base.system.device_events import DeviceClock

Direction = Literal["htod", "dtoh"]
Call = Callable[[], object]


class DeviceBench(Protocol):
    """The calls whose time a calibration measures on a device, and a clock that times work on this device."""

    name: str
    """The device model, as the framework names it."""
    clock: DeviceClock

    def launch(self) -> object:
        """Launch the smallest possible kernel, and do not wait for it."""

    def occupy(self) -> object:
        """Launch work of about ten milliseconds, and do not wait for it."""

    def synchronize(self) -> object:
        """Wait until the device has finished all launched work."""

    def copy(self, direction: Direction, size: int, pinned: bool) -> Call | None:
        """Return a call that copies ``size`` bytes and waits for the copy; None if the framework cannot pin memory."""


@dataclass(frozen=True, slots=True)
class RecordingBench:
    """Small operators with gradients, and the framework's profiler, which records them.

    - ``options``: options of the profiler, such as ``record_shapes``. "" stands for no option and comes first.
    - ``profiled(option, run)`` calls ``run`` while the profiler records, and returns the number of recorded operators.
      A Python frame and a memory event count as half an operator."""

    work: Call
    options: tuple[str, ...]
    profiled: Callable[[str, Call], float]


@dataclass(frozen=True, slots=True)
class Bench:
    """The calls whose time a calibration measures."""

    # The small operators to time on the host. The key is (canonical name, number of elements).
    operators: Mapping[tuple[str, int], Call] = field(default_factory=dict)
    device: DeviceBench | None = None
    threads: int | None = None  # The maximum number of threads that an operator uses.
    recording: RecordingBench | None = None


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Measures what tiny operators, launches and copies cost on a machine. Predictions use these costs.

    - ``version()`` returns the version of the framework, or None if not installed, without importing it.
    - ``bench()`` returns what to measure (:func:`perfkit_core.measure.calibration.calibrate.measured`), or raises
      CaptureError.
    - ``recording_ns``: time that the framework's profiler takes to record an operator, in ns: the least, a likely and
      the longest. The key is an option of the profiler, such as ``record_shapes``, that adds to the time; "" is the
      time without options. It is used on machines that are not calibrated."""

    version: Callable[[], str | None]
    bench: Callable[[], Bench]
    recording_ns: Mapping[str, tuple[float, float, float]] = field(default_factory=dict, hash=False)
