"""By which clock are the steps of a loop timed? By the device's where it has one, else by the host's."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from perfkit_core.system.device_events import DeviceClock, DeviceSteps
from perfkit_core.throughput.steps import StepLog
from perfkit_core.throughput.summary import HOST


class Timing:
    """Guards the loop against its device: when that fails, it is logged and all steps are timed by the host.

    ``find`` returns the clock of the device in use, None where none is. It is asked at the start and once more after
    the first step, for many loops first touch the device there. ``active`` says whether ``step`` must be called.
    """

    def __init__(self, log: StepLog, find: Callable[[], DeviceClock | None]) -> None:
        self.active = True
        self._log = log
        self._find = find
        self._device: DeviceSteps | None = None

    def begin(self) -> None:
        """The loop starts, or goes on."""
        self._guarded(self._begin)

    def step(self) -> None:
        """A step has ended, and is in the log."""
        self._guarded(self._step)

    def end(self, wait: bool) -> None:
        """The loop stops. ``wait`` until the device has finished its steps?"""
        self._guarded(self._device.drain if self._device and wait else self._collect)

    def times(self) -> tuple[array[int], str]:
        """Durations of the steps known by now, from the first on, and what timed them."""
        self._guarded(self._collect)
        if self._device is None:
            return self._log.batch_ns, HOST
        return self._device.finished_ns, self._device.clock.name

    def _begin(self) -> None:
        if self._device is None and self.active:
            clock = self._find()
            self._device = None if clock is None else DeviceSteps(clock, self._log.batch_ns)
        if self._device is not None:
            self._device.begin()

    def _step(self) -> None:
        if self._device is not None:
            self._device.step()
            return
        self._begin()
        self.active = self._device is not None

    def _collect(self) -> None:
        if self._device is not None:
            self._device.collect()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # a device's clock must not break the training
            self._device, self.active = None, False
            self._log.complain(f"the device cannot be timed ({error}); steps are timed by the host's clock")
