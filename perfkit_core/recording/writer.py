"""The part of a trace handler that all frameworks share. It takes cycles (the active windows of the schedule) from the
profiler, numbers them, and writes them in the background.

A handler never raises. If an error occurs, it is logged, and the run is marked as incomplete. The files on disk are
kept. A folder that is not writable is reported when the handler is created. The training waits only while a cycle is
taken."""

from __future__ import annotations

import atexit
import functools
import gc
import logging
import os
import socket
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from perfkit_core.base.language.units import counted
from perfkit_core.base.system import failures, paths, processes
from perfkit_core.base.system.packages import no_collection
from perfkit_core.errors import UsageError
from perfkit_core.recording import environment, signals
from perfkit_core.recording.on_demand import OnDemand, Report
from perfkit_core.recording.step_clock import StepClock
from perfkit_core.trace.model import frame_samples, timed_steps
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.side_tables import FRAME_SAMPLES, STEP_CLOCK, Load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import background, store

Profiler = TypeVar("Profiler")

_MANY_CYCLES: Final = 20
LOST: Final = "a cycle is missing in"
"""Beginning of the log message about a cycle that is not in the run folder. A refused upload is kept elsewhere."""
_ONCE: Final = "and it grows with each further cycle: give the schedule repeat=1 to record once"


@dataclass(frozen=True, slots=True)
class DetachedCycle:
    """A cycle that no longer needs its profiler. ``finish()`` returns the Trace, and may be called only once. If
    ``background`` is set, another thread may call ``finish()`` while the training continues. ``clock`` is the clock of
    the training, if it has one."""

    finish: Callable[[], Trace]
    background: bool = True
    clock: StepClock | None = None

    def then(self, change: Callable[[Trace], Trace]) -> DetachedCycle:
        """Return the cycle with the function ``change`` applied to its Trace."""
        return replace(self, finish=lambda: change(self.finish()))


Take = Callable[[Profiler, environment.ProcessRank], DetachedCycle]
"""Type of an adapter's function ``take(profiler, process_rank)``, which runs in the training thread. It takes the last
cycle from the profiler, and gives the events of this cycle the rank in ``process_rank``."""


class WrittenCallback(ABC):
    """A callback in ``also`` that needs the file of a cycle."""

    @abstractmethod
    def __call__(self, profiler: Any) -> Callable[[Path], Any]:
        """Return a function that is called with the path of the cycle when it is written, in the thread that writes it.
        This method is called in the training's thread, before the cycle is written."""


def callbacks(also: Iterable[Callable[[Any], Any]]) -> tuple[Callable[[Any], Any], ...]:
    """Return the callbacks as a tuple. Raises UsageError if ``also`` is no list of functions."""
    functions = tuple(also) if isinstance(also, Iterable) else (None,)
    if not all(map(callable, functions)):
        raise UsageError(f"also={also!r} is no list of functions", "give also=[function]")
    return functions


class CycleWriter(Generic[Profiler]):
    """Trace handler that writes all cycles of a process into ``run_dir``. It also installs the handlers of signals.

    Cycles are written in the background if the adapter allows it. :meth:`flush`, readers of the folder in this process,
    and the end of the process wait until all cycles are written.

    - ``take``: the adapter's function that takes a cycle from the profiler.
    - ``also``: callbacks that are called with the profiler after each cycle. Their errors are logged.
    - ``of_user``: whether the user passes the writer to a profiler. Then a warning is logged if the profiler never ends
      a cycle, and if it ends very many.
    - ``demand``: the requests for windows of steps, if the writer records on demand."""

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        take: Take[Profiler],
        also: Iterable[Callable[[Profiler], Any]] = (),
        process_rank: Callable[[], environment.ProcessRank] = environment.environment_rank,
        of_user: bool = False,
        demand: OnDemand | None = None,
    ) -> None:
        self.run_dir = paths.as_path(paths.absolute(run_dir))  # the training may change the current folder
        self.demand = demand
        if demand is not None:
            demand.process_rank = process_rank
        self._take = take
        self._also = callbacks(also)
        self._process_rank = process_rank
        self._clock: StepClock | None = None
        self.job: str | None = None
        """A text that is equal for all processes of a recorded script."""
        self._announced: Path | None = None  # the pending file of a cycle that is being recorded
        self._begin()
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            fate = "stay on this machine" if paths.is_remote(self.run_dir) else "are lost"
            failures.tell(f"{run_dir} is not writable ({reason}): new cycles {fate} until it is")
        elif not paths.is_remote(self.run_dir):
            processes.remove_stale(self.run_dir)
        background.shared()
        signals.install()
        # The finalizer runs when the handler is deleted or the process ends.
        self._uncalled = weakref.finalize(self, _warn, self.run_dir, os.getpid(), demand) if of_user else None

    def __call__(self, profiler: Profiler) -> None:
        """Take a cycle and write it. The profiler calls this method at the end of each cycle."""
        if self._uncalled is not None:
            self._uncalled.detach()
        signals.shared().protect(type(profiler))
        with signals.shared().delayed(script=True):
            self._follow_fork()
            cycle = self._cycle
            self._cycle += 1
            report = None if self.demand is None else self.demand.cycle()
            if self._uncalled is not None and self._cycle == _MANY_CYCLES and report is None:
                failures.tell(f"{self._cycle} cycles are recorded into {self.run_dir}, {_ONCE}", logging.WARNING)
            pending, announced, self._announced = None, self._announced, None
            try:
                process_rank, facts = self._facts(cycle)
                meta = TraceMeta(source="", format="", **facts)
                pending = store.begin(self.run_dir / store.cycle_name(meta))
                if announced != pending:
                    store.end(announced)
                with no_collection():  # it would scan the millions of new objects
                    detached = self._take(profiler, process_rank)
                tables = {} if detached.clock is None else self._timed(detached.clock, meta)
            except BaseException as error:
                self._lost(cycle, error, report, pending)
            else:
                after = [
                    call for also in self._also if isinstance(also, WrittenCallback) for call in _called(also, profiler)
                ]

                def write() -> None:
                    self._write(detached, cycle, facts, tables, report, after, pending)

                if detached.background and not (cycle == 0 and self._forked_ns):
                    background.shared().submit(self.run_dir, write)
                else:
                    with no_collection():
                        write()
            for callback in self._also:
                if not isinstance(callback, WrittenCallback):
                    _called(callback, profiler)

    def announce(self) -> None:
        """Create the pending file of the next cycle now. If the process is killed before, readers know of the cycle."""
        meta = TraceMeta(source="", format="", **self._facts(self._cycle)[1])
        self._announced = store.begin(self.run_dir / store.cycle_name(meta))

    def withdraw(self) -> None:
        """Remove the pending file of a cycle that will not be taken."""
        announced, self._announced = self._announced, None
        store.end(announced)

    def announced(self) -> int:
        """Return the number of processes that record into this folder, at least 1."""
        return max(len(store.pending(self.run_dir)), 1)

    def never_called(self, reason: str) -> None:
        """Log why the profiler will not call this handler, instead of a warning at the end."""
        if self._uncalled is not None and self._uncalled.detach():
            text = f"a trace handler will record nothing into {self.run_dir}, because {reason}"
            failures.tell(text, logging.WARNING)

    @property
    def written(self) -> list[Path]:
        """The files that this process wrote, in the order of the cycles. Waits until all cycles are written."""
        self._follow_fork()
        self.flush()
        return list(self._written)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds until every cycle is written. Return False if the time was too short."""
        if self._clock is not None:
            self._clock.save_rest()
        return store.flush(self.run_dir, timeout)

    def mark_incomplete(self, error: BaseException) -> None:
        """Note in the run folder that the last cycle of this process is missing because of ``error``. Never raises."""
        store.mark_incomplete(self.run_dir, max(self._cycle - 1, 0), error)

    def __repr__(self) -> str:
        return f"<trace_handler {self.run_dir}, {counted(self._cycle, 'cycle')}>"

    def _timed(self, clock: StepClock, meta: TraceMeta) -> dict[str, Load]:
        """Return the step times so far and the samples of frames. Let the clock save the times of later steps, because
        the training may go on without the profiler when the cycle is already written."""
        clock.cycle_taken()
        rank = str(meta.ranks[0]) if meta.ranks else "-"
        run_dir = self.run_dir
        path = store.steps_path(run_dir / store.cycle_name(meta))

        def save() -> None:  # it lives until the process ends, so it must not hold the handler and its socket
            write = functools.partial(store.write_steps, path, {rank: clock.times()})
            background.shared().submit(run_dir, write)

        if clock.save is None:
            atexit.register(clock.save_rest)
        clock.save, self._clock = save, clock
        times, samples = {rank: clock.times()}, {rank: clock.samples()}
        return {
            STEP_CLOCK: lambda: timed_steps.to_table(times),
            FRAME_SAMPLES: lambda: frame_samples.to_table(samples),
        }

    def _begin(self) -> None:
        self._pid, self._recording, self._cycle = os.getpid(), store.new_recording(), 0
        self._forked_ns: int | None = None
        self._written: list[Path] = []
        self.steps_ns: list[int] = []
        """The times of the recorded steps, as reports read them."""
        self.threads: int | None = None
        """Number of threads that an operator has."""
        self._clock = None
        self._announced = None

    def _facts(self, cycle: int) -> tuple[environment.ProcessRank, dict[str, Any]]:
        process_rank = self._process_rank()
        facts: dict[str, Any] = {
            "ranks": () if process_rank.rank is None else (process_rank.rank,),
            "world_size": process_rank.world_size,
            "hostname": socket.gethostname(),
            "recording": self._recording,
            "job": self.job,
            "cycle": cycle,
            "recorded_at_ns": time.time_ns(),
        }
        return process_rank, facts

    def _follow_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()
            self._forked_ns = background.shared().forked_ns
            self.run_dir = paths.as_path(self.run_dir)  # a child process needs a new connection to a remote store
            signals.install()

    def _write(
        self,
        detached: DetachedCycle,
        cycle: int,
        facts: dict[str, Any],
        tables: Mapping[str, Load],
        report: Report | None,
        after: Sequence[Callable[[Path], Any]],
        pending: Path | None,
    ) -> None:
        try:
            trace = detached.finish()
            window = trace.meta.window_ns if trace.meta.clock == "epoch" else None
            if self._forked_ns and window and window[0] < self._forked_ns:
                # This cycle began before the fork, so the parent process writes it.
                self._cycle = cycle
                store.end(pending)
                return
            trace = trace.with_meta(**facts).with_tables(**tables)
            self.steps_ns += trace.ints("dur_ns")[trace.host & trace.rows("kind", STEP)].tolist()
            self.threads = trace.meta.threads
            self._written.append(store.write_cycle(trace, self.run_dir))
            store.end(pending)
            if report is not None:
                report(self._written[-1], None)
        except BaseException as error:
            self._lost(cycle, error, report, pending)
        else:
            for callback in after:
                _called(callback, self._written[-1])

    def _lost(self, cycle: int, error: BaseException, report: Report | None, pending: Path | None) -> None:
        """Mark the run as incomplete, and log the error. KeyboardInterrupt and SystemExit are raised again."""
        store.mark_incomplete(self.run_dir, cycle, error, pending)
        if report is not None:
            report(None, failures.one_line(error))
        if not isinstance(error, Exception):
            raise error
        failures.log_first(f"{LOST} {self.run_dir}, training continues", error)


def _called(callback: Callable[[Any], Any], argument: Any) -> tuple[Any, ...]:
    """Return what the callback returns, or nothing if it fails."""
    try:
        return (callback(argument),)
    except Exception as error:
        failures.log(f"the callback {callback!r} failed, training continues", error)
        return ()


def trace_handler(
    run_dir: str | os.PathLike[str],
    take: Take[Profiler],
    also: Iterable[Callable[[Profiler], Any]],
    process_rank: Callable[[], environment.ProcessRank],
    on_demand: bool = False,
    profiler: type | None = None,
    recording: Callable[[], bool] = bool,
) -> CycleWriter[Profiler]:
    """Return the writer that a user passes to a profiler. ``recording()`` says whether a profiler of the
    class ``profiler`` records. If the user passed the adapter's ``trace_handler`` without calling it, the profiler
    calls it: ``run_dir`` is then the profiler. This is logged, and does not raise."""
    if callable(getattr(run_dir, "stop", None)):
        tell_uncalled()
        return cast("CycleWriter[Profiler]", None)  # the profiler ignores what its callback returns
    demand = OnDemand(paths.as_path(paths.absolute(run_dir))) if on_demand else None
    handler = CycleWriter(run_dir, take, also, process_rank, of_user=True, demand=demand)
    if profiler is not None:
        _stop_at_exit(handler, profiler, recording)
    return handler


def _stop_at_exit(handler: CycleWriter[Any], profiler: type, recording: Callable[[], bool]) -> None:
    """At the end of the process, stop the profilers that have this handler and still record. If an error ends the
    training between ``start()`` and ``stop()``, the open cycle would be lost, and torch crashes when its profiler still
    records at the end of the process."""
    signals.shared().protect(profiler)
    reference, pid = weakref.ref(handler), os.getpid()

    def stop() -> None:
        if reference() is None or os.getpid() != pid or not recording():
            return
        for running in gc.get_objects():  # a handler does not know its profiler before the first cycle
            if issubclass(type(running), profiler) and running.on_trace_ready is reference():
                with signals.guarded(
                    "a profiler that was still running at the end could not be stopped: its last cycle is lost"
                ):
                    running.stop()

    atexit.register(stop)


@functools.cache  # once per process, not once per cycle
def tell_uncalled() -> None:
    call = 'pass on_trace_ready=trace_handler("runs/baseline"), not on_trace_ready=trace_handler'
    failures.tell(f"nothing is recorded, because trace_handler must be called with a folder: {call}")


def _warn(run_dir: Path, pid: int, demand: OnDemand | None) -> None:
    if os.getpid() != pid:  # in a forked child, the handler belongs to the parent process
        return
    if demand is not None and demand.used:  # nobody may have asked for a window
        return
    reason = "its profiler never ended a cycle: "
    reason += "check that the loop calls the profiler's step(), and that the schedule reaches its active steps"
    if demand is not None:
        reason = "no schedule asks for its requests: pass on_demand=handler to perfkit's schedule or make_scheduler"
    error = getattr(sys, "last_value", None)
    if error is not None and not hasattr(sys, "ps1"):  # an interactive session goes on after errors
        reason = f"the script failed before its profiler ended a cycle ({failures.one_line(error)})"
    failures.tell(f"a trace handler recorded nothing into {run_dir}, because {reason}", logging.WARNING)
