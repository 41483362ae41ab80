"""The benchmark that a training loop calls: start, step, stop, and the timing of its reader and device."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

from perfkit_core.errors import UsageError
from perfkit_core.system.device_events import DeviceClock, DeviceSteps
from perfkit_core.throughput import costs, step_log
from perfkit_core.throughput.native import NativeSummary, native_summary

if TYPE_CHECKING:
    from typing import Self


class Timing:
    """Guard between the loop and its device: if timing fails, it is logged and the host times all steps. ``find``
    returns the clock of the device in use, or None. It is called at the start and again after the first step, because
    many loops first use the device there. ``active`` says whether ``step`` must be called."""

    def __init__(self, log: step_log.StepLog, find: Callable[[], DeviceClock | None]) -> None:
        self.active = True
        self._log = log
        self._find = find
        self._device: DeviceSteps | None = None

    def begin(self) -> None:
        self._guarded(self._begin)

    def step(self) -> None:
        """End a step, which is in the log."""
        self._guarded(self._step)

    def end(self, wait: bool) -> None:
        self._guarded(self._device.drain if self._device and wait else self._collect)

    def times(self) -> tuple[array[int], str]:
        """Return the durations of the steps known so far, from the first, and the name of their clock."""
        self._guarded(self._collect)
        if self._device is None:
            return self._log.batch_ns, costs.HOST
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


Item = TypeVar("Item")


class TimedReader(Generic[Item]):
    """A loader with timed waits; can be iterated as often as the loader, and forwards all other attributes. Waits count
    while the benchmark runs, on the thread that started it: prefetching on another thread is no wait of the loop. A
    reader inside another one leaves the timing to the outer."""

    def __init__(self, log: step_log.StepLog, loader: Iterable[Item]) -> None:
        self._log = log
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Item]:
        if self._log.reading:
            return iter(self._loader)
        return self._timed()

    def _timed(self) -> Iterator[Item]:
        log = self._log
        if self._log.thread not in (None, threading.get_ident()):
            log.complain("the reader is iterated in another thread than the loop: its waits are not the loop's")
            yield from self._loader
            return
        clock, read = log.clock, log.read_ns.append
        iterator = self._opened()
        while True:
            log.reading = True
            start = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                log.wait_without_batch(clock() - start)
                return
            finally:
                log.reading = False
            if log.running:
                read(clock() - start)
            yield batch

    def _opened(self) -> Iterator[Item]:
        """Return the loader's iterator. Creating it starts the workers, for which the loop waits."""
        log = self._log
        start = log.clock()
        log.reading = True
        try:
            return iter(self._loader)
        finally:
            log.reading = False
            log.wait_without_batch(log.clock() - start)


_MOST: Final = 2**63 - 1


class Throughput:
    """Timer of the steps of a loop and its waits for input, for one loop on one thread. ``warmup`` steps are left out
    of the summary. ``clock`` returns nanoseconds. Raises UsageError for a ``warmup`` that is no number of steps; later
    errors are logged once under ``perfkit``, and the loop continues."""

    def __init__(self, warmup: int = 10, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        if not isinstance(warmup, int) or warmup < 0:
            raise UsageError(f"warmup is {warmup!r}", "it is the number of steps to leave out, 0 or more")
        self.warmup = warmup
        self._log = step_log.StepLog(clock)
        self._timing = Timing(self._log, self._device_clock)
        self._informed = 0
        self._unit = "samples"

    def start(self) -> None:
        """Start measuring, or resume after ``stop()``; the time in between does not count."""
        log = self._log
        if log.running:
            log.complain("start() while it runs; ignored")
            return
        log.thread = threading.get_ident()
        self._guarded(self._watch)
        self._timing.begin()
        log.running = True
        log.last_ns = log.clock()

    def stop(self) -> None:
        """Stop measuring, after the last step has finished on a timed device."""
        self._stop(wait=True)

    def _stop(self, wait: bool) -> None:
        if not self._log.running:
            self._log.complain("stop() without start(); ignored")
            return
        self._log.running = False
        self._guarded(self._unwatch)
        self._timing.end(wait)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._log.running:
            self._stop(wait=kind is None)  # an interrupt of a hanging device must not wait for it

    def step(self, num_samples: int | None = None) -> None:
        """End a step of ``num_samples`` (None: unknown). Never waits for a device and never raises. A batch ``(x, y)``
        has ``len(x)`` samples; the length of the pair is 2."""
        log = self._log
        now = log.clock()
        if not log.running:
            log.complain("step() outside of start() and stop(); ignored")
            return
        if type(num_samples) is not int or not 0 <= num_samples <= _MOST:
            num_samples = self._counted(num_samples)
        log.samples.append(num_samples)
        log.reads.append(len(log.read_ns))
        log.batch_ns.append(now - log.last_ns)
        log.last_ns = now
        if self._timing.active:
            self._timing.step()

    def reader(self, loader: Iterable[Item]) -> TimedReader[Item]:
        """Return the loader with its waits timed. It can be iterated as often as the loader itself."""
        return TimedReader(self._log, loader)

    def step_info(self, unit: str | None = None) -> str:
        """Return averages over the steps since the last call, warm-up included, as text; ``unit`` is that of
        samples."""
        self._unit = unit or self._unit
        times_ns, _ = self._timing.times()
        first, self._informed = self._informed, len(times_ns)
        return costs.info_line(step_log.steps_of(self._log, times_ns, first, len(times_ns)), self._unit)

    @overload
    def summary(self, native: Literal[False] = False) -> costs.ThroughputSummary: ...

    @overload
    def summary(self, native: Literal[True]) -> NativeSummary: ...

    def summary(self, native: bool = False) -> costs.ThroughputSummary | NativeSummary:
        """Return the summary of all steps after the warm-up. ``native``: what Paddle's own timer prints, errors
        included."""
        if native:
            return native_summary(self._log, self._unit)
        times_ns, timed_by = self._timing.times()
        steps = step_log.steps_of(self._log, times_ns, self.warmup, len(times_ns))
        unfinished = len(self._log.batch_ns) - len(times_ns)
        return costs.summarize_steps(steps, len(times_ns) - len(steps), unfinished, timed_by, self._unit)

    def step_times(self) -> tuple[Sequence[int], str]:
        """Return the durations in ns of all finished steps, warm-up included, and the clock that timed them."""
        return self._timing.times()

    def _counted(self, num_samples: Any) -> int:
        """Return the count as a Python integer. Tensors are rejected: reading one would wait for its device."""
        if num_samples is None:
            return step_log.UNKNOWN
        if not isinstance(num_samples, Integral):
            self._log.complain(f"num_samples is not an integer but {type(num_samples).__name__}: taken as unknown")
        elif 0 <= int(num_samples) <= _MOST:
            return int(num_samples)
        else:
            self._log.complain("num_samples is below 0 or above 2⁶³ - 1: taken as unknown")
        return step_log.UNKNOWN

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # the benchmark must not break the training
            self._log.complain(f"the framework's own loader is not timed ({error})")

    def _device_clock(self) -> DeviceClock | None:
        """Return the clock of the loop's device, None for the host. Adapters override it."""
        return None

    def _watch(self) -> None:
        """Subscribe to the framework's own loader, if possible. Adapters override it."""

    def _unwatch(self) -> None:
        """Undo ``_watch``."""
