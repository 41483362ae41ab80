"""The benchmark that a training loop calls. It times the steps, the waits for the data loader, and the device."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

from perfkit_core.base.system import failures
from perfkit_core.base.system.device_events import DeviceClock, DeviceSteps
from perfkit_core.errors import UsageError
from perfkit_core.recording.throughput import costs, step_log
from perfkit_core.recording.throughput.costs import NativeSummary, native_summary

if TYPE_CHECKING:
    from typing import Self


Item = TypeVar("Item")


class WrappedLoader(Generic[Item]):
    """Has the length, the truth value and the attributes of ``loader``. Attributes that are set are set there, so that
    ``loader.epoch = 1`` has an effect. Own attributes of subclasses are those in ``__slots__``."""

    __slots__ = ("__weakref__", "_loader")

    def __init__(self, loader: Iterable[Item]) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":  # it is not set while the object is being copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._loader, name, value)


class Timing:
    """The timing of the steps on the device. If it fails, the error is logged, and all steps are timed by the host.

    ``find`` returns the clock of the device in use, or None. It is called at the start, and again after the first step,
    because many loops first use the device in a step. ``step`` must be called only while ``active`` is true."""

    def __init__(self, log: step_log.StepLog, find: Callable[[], DeviceClock | None]) -> None:
        self.active = True
        self._log = log
        self._find = find
        self._device: DeviceSteps | None = None

    def begin(self) -> None:
        self._guarded(self._begin)

    def step(self) -> None:
        self._guarded(self._step)

    def end(self, wait: bool) -> None:
        self._guarded(self._device.drain if self._device and wait else self._collect)

    def times(self) -> tuple[array[int], str]:
        """Return the durations of all finished steps in ns, and the name of their clock."""
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
        except Exception as error:  # an error of the device clock must not break the training
            if failures.raised_by_signal(error):
                raise
            self._device, self.active = None, False
            self._log.complain(f"the device cannot be timed ({error}); steps are timed by the host clock")


class TimedReader(WrappedLoader[Item]):
    """A data loader whose waits are timed. It can be iterated as often as the loader, and has its attributes.

    Waits count only while the benchmark runs, and only on the thread that started it. The loop does not wait for
    prefetching on other threads. If readers are nested, only the outermost one is timed."""

    __slots__ = ("_log",)

    def __init__(self, log: step_log.StepLog, loader: Iterable[Item]) -> None:
        super().__init__(loader)
        self._log = log

    def __iter__(self) -> Iterator[Item]:
        if self._log.reading:
            return iter(self._loader)
        return self._timed()

    def _timed(self) -> Iterator[Item]:
        log = self._log
        if self._log.thread not in (None, threading.get_ident()):
            log.complain("the reader is not iterated on the thread of the loop, so its waits are not counted")
            yield from self._loader
            return
        clock, read = log.clock, log.read_ns.append
        start = clock()
        log.reading = True
        try:  # Creating the iterator starts the worker processes, for which the loop waits.
            iterator = iter(self._loader)
        finally:
            log.reading = False
            log.wait_without_batch(clock() - start)
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


_MOST: Final = 2**63 - 1


class Throughput:
    """A timer of the steps of one loop on one thread, and of its waits for input.

    The summary leaves out the first ``warmup`` steps. ``clock`` returns the time in ns. Raises UsageError if ``warmup``
    is not a number of steps. Later errors do not stop the loop; each is logged once under the name ``perfkit``."""

    def __init__(self, warmup: int = 10, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        if not isinstance(warmup, int) or warmup < 0:
            raise UsageError(f"warmup is {warmup!r}", "give the number of steps to leave out, 0 or more")
        self.warmup = warmup
        self._log = step_log.StepLog(clock)
        self._timing = Timing(self._log, self._device_clock)
        self._informed = 0
        self._unit = "samples"

    def start(self) -> None:
        """Start measuring, or resume after ``stop()``. The time between ``stop()`` and ``start()`` does not count."""
        log = self._log
        if log.running:
            log.complain("start() is ignored, because the benchmark already runs")
            return
        log.thread = threading.get_ident()
        self._guarded(self._watch)
        self._timing.begin()
        log.running = True
        log.last_ns = log.clock()

    def stop(self, wait: bool = True) -> None:
        """Stop measuring. If the device is timed, ``wait`` until it has finished the last step."""
        if not self._log.running:
            self._log.complain("stop() is ignored, because the benchmark does not run")
            return
        self._log.running = False
        self._guarded(self._unwatch)
        self._timing.end(wait)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._log.running:
            self.stop(wait=kind is None)  # After an exception, waiting for the device may never end.

    def step(self, num_samples: int | None = None) -> None:
        """End a step. ``num_samples`` is the number of samples in its batch, such as ``len(x)`` for a batch ``(x, y)``.
        This method never waits for a device, and never raises."""
        log = self._log
        now = log.clock()
        if not log.running:
            log.complain("step() is ignored, because the benchmark does not run")
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
        """Return the data loader with timed waits. It can be iterated as often as the loader."""
        return TimedReader(self._log, loader)

    def step_info(self, unit: str | None = None) -> str:
        """Return a line of text with averages over the steps since the last call, warm-up steps included. ``unit`` is
        the name of the samples, such as "images"."""
        self._unit = unit or self._unit
        return costs.info_line(self._since_last_call(), self._unit)

    def metrics(self) -> dict[str, float]:
        """Return the numbers of :meth:`step_info` for the log of a trainer. ``perfkit/batch_cost_ms``,
        ``perfkit/reader_cost_ms``, and ``perfkit/samples_per_s`` (``perfkit/steps_per_s`` if no number of samples is
        known). Unknown numbers are left out. A call of this method or of ``step_info`` begins the next interval."""
        return costs.metrics(self._since_last_call())

    def _since_last_call(self) -> step_log.Steps:
        times_ns, _ = self._timing.times()
        first, self._informed = self._informed, len(times_ns)
        return step_log.steps_of(self._log, times_ns, first, len(times_ns))

    @overload
    def summary(self, native: Literal[False] = False) -> costs.ThroughputSummary: ...

    @overload
    def summary(self, native: Literal[True]) -> NativeSummary: ...

    def summary(self, native: bool = False) -> costs.ThroughputSummary | NativeSummary:
        """Return the summary of all steps after the warm-up. If ``native`` is true, return the summary that Paddle's
        own timer computes, including the mistakes in Paddle's formulas."""
        if native:
            return native_summary(self._log, self._unit)
        times_ns, timed_by = self._timing.times()
        steps = step_log.steps_of(self._log, times_ns, self.warmup, len(times_ns))
        unfinished = len(self._log.batch_ns) - len(times_ns)
        return costs.summarize_steps(steps, len(times_ns) - len(steps), unfinished, timed_by, self._unit)

    def step_times(self) -> tuple[Sequence[int], str]:
        """Return the durations of all finished steps in ns, warm-up steps included, and the name of their clock."""
        return self._timing.times()

    def _counted(self, num_samples: Any) -> int:
        """Return the number as a Python integer. A tensor is rejected, because reading it would wait for a device."""
        if num_samples is None:
            return step_log.UNKNOWN
        if not isinstance(num_samples, Integral):
            self._log.complain(f"num_samples is ignored, because it is a {type(num_samples).__name__}, not an integer")
        elif 0 <= int(num_samples) <= _MOST:
            return int(num_samples)
        else:
            self._log.complain("num_samples is ignored, because it is below 0 or above 2⁶³ - 1")
        return step_log.UNKNOWN

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # an error of the benchmark must not break the training
            if failures.raised_by_signal(error):
                raise
            self._log.complain(f"the data loader of the framework is not timed ({error})")

    def _device_clock(self) -> DeviceClock | None:
        """Return the clock of the device in use, or None for the host clock. Adapters override this method."""
        return None

    def _watch(self) -> None:
        """Subscribe to the data loader of the framework. Adapters override this method."""

    def _unwatch(self) -> None:
        """Undo ``_watch``. Adapters override this method."""
