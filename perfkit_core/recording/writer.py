"""Trace handler shared by all frameworks: numbers and names cycles, and passes them to the background writer.

A handler never raises into the training: it logs the error, keeps what is on disk, and marks the run as incomplete. An
unwritable folder is reported when the handler is made. The training waits only while the cycle is taken from the
profiler.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from perfkit_core.model.trace import Trace
from perfkit_core.recording import background, environment, signals
from perfkit_core.storage import store
from perfkit_core.system import failures, paths

Result = TypeVar("Result")
Profiler = TypeVar("Profiler")


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished cycle that no longer needs its profiler. ``finish()`` makes the Trace, once. ``background``: it may
    run in another thread during the training; otherwise it runs before the training continues."""

    finish: Callable[[], Trace]
    background: bool = True

    def then(self, change: Callable[[Trace], Trace]) -> Taken:
        """Return a cycle with ``change`` applied to its Trace."""
        return Taken(lambda: change(self.finish()), self.background)


Take = Callable[[Profiler, environment.Place], Taken]
"""The adapter's function that takes the last cycle from the profiler, in the training's thread; its rows have the rank
of the place."""


class CycleWriter(Generic[Profiler]):
    """Framework-independent part of a trace handler; one instance handles all cycles of a process.

    ``take``: the adapter's part (:data:`Take`). Cycles are finished and written in the background if the adapter allows
    it; :meth:`flush`, readers of the folder in this process, and the end of the process wait for that. ``also``:
    further callbacks that receive the profiler afterwards, each guarded in the same way. A relative folder is resolved
    now; if it is unwritable, one line is logged and nothing raised. ``warn_uncalled``: log a warning if no cycle ever
    comes, because ``step()`` is missing or the schedule never records. Installs the SIGTERM handler of
    :mod:`perfkit_core.recording.signals`.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        take: Take[Profiler],
        also: Iterable[Callable[[Profiler], Any]] = (),
        place: Callable[[], environment.Place] = environment.environment_place,
        warn_uncalled: bool = False,
    ) -> None:
        self.run_dir = paths.as_path(
            paths.absolute(run_dir)
        )  # absolute: a training may change the current folder while a cycle is written
        self._take = take
        self._also = tuple(also)
        self._place = place
        self._begin()
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            fate = "kept on this machine" if paths.is_remote(self.run_dir) else "lost"
            failures.tell(f"{run_dir} cannot be written ({reason}): until it can, cycles are {fate}")
        background.shared()
        signals.install()
        # runs when the handler is deleted, at the latest at exit
        self._uncalled = weakref.finalize(self, _warn, self.run_dir, os.getpid()) if warn_uncalled else None

    def __call__(self, profiler: Profiler) -> None:
        """Take and write a cycle; called by the profiler at the end of each."""
        if self._uncalled is not None:
            self._uncalled.detach()
        with signals.shared().held(profiler):
            self._follow_fork()
            cycle = self._cycle
            self._cycle += 1
            try:
                place = self._place()
                facts = {
                    "ranks": () if place.rank is None else (place.rank,),
                    "world_size": place.world_size,
                    "hostname": socket.gethostname(),
                    "recording": self._recording,
                    "cycle": cycle,
                    "recorded_at_ns": time.time_ns(),
                }
                taken = _without_gc(lambda: self._take(profiler, place))
            except BaseException as error:
                self._lost(cycle, error)
            else:
                if taken.background and not (cycle == 0 and self._forked_ns):
                    background.shared().submit(self.run_dir, lambda: self._write(taken, cycle, facts))
                else:
                    _without_gc(lambda: self._write(taken, cycle, facts))
            for callback in self._also:
                try:
                    callback(profiler)
                except Exception as error:
                    failures.log(f"the callback {callback!r} failed, training continues", error)

    @property
    def written(self) -> list[Path]:
        """The files of this process in the order of cycles. Waits for pending ones."""
        self._follow_fork()
        self.flush()
        return list(self._written)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every cycle is written; return False after ``timeout`` seconds (None: no limit)."""
        return store.flush(self.run_dir, timeout)

    def mark_incomplete(self, error: BaseException) -> None:
        """Record in the run folder that the last cycle of this process is missing, and why. Never raises."""
        store.mark_incomplete(self.run_dir, max(self._cycle - 1, 0), error)

    def _begin(self) -> None:
        self._pid, self._recording, self._cycle = os.getpid(), store.new_recording(), 0
        self._forked_ns: int | None = None
        self._written: list[Path] = []

    def _follow_fork(self) -> None:
        """Begin a new recording in a forked child."""
        if self._pid != os.getpid():
            self._begin()
            self._forked_ns = background.shared().forked_ns
            self.run_dir = paths.as_path(self.run_dir)  # reconnect: the connection to a store is the parent's
            signals.install()

    def _write(self, taken: Taken, cycle: int, facts: dict[str, Any]) -> None:
        try:
            trace = taken.finish()
            window = trace.meta.window_ns if trace.meta.clock == "epoch" else None
            if self._forked_ns and window and window[0] < self._forked_ns:
                # the child's first cycle began before the fork, so the parent writes it
                self._cycle = cycle
                return
            meta = msgspec.structs.replace(trace.meta, **facts)
            self._written.append(store.write_cycle(Trace(trace.events, meta, trace.quality), self.run_dir))
        except BaseException as error:
            self._lost(cycle, error)

    def _lost(self, cycle: int, error: BaseException) -> None:
        """Mark the run as incomplete and log why. Raises again what is no Exception, such as KeyboardInterrupt."""
        store.mark_incomplete(self.run_dir, cycle, error)
        if not isinstance(error, Exception):
            raise error
        failures.log("a cycle is missing in the run folder, training continues", error)


def _warn(run_dir: Path, pid: int) -> None:
    """Warn of a handler that was never called, except in forked children: the handler is their parent's."""
    if os.getpid() == pid:
        failures.tell(
            f"a handler recorded nothing into {run_dir}: its profiler never ended a cycle. Does the loop call the "
            "profiler's step(), and does the schedule reach its active steps?",
            logging.WARNING,
        )


def _without_gc(action: Callable[[], Result]) -> Result:
    """Run with the garbage collector off, which would scan the millions of objects that an extraction creates."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return action()
    finally:
        if was_on:
            gc.enable()
