"""The trace handler that all frameworks share: guards, numbers and names cycles, and hands them over to be written.

A handler runs inside someone's training. It never raises into it: an error is logged with its reason, what has been
recorded so far stays on disk, and the run is marked as incomplete. A folder that cannot be written is reported when the
handler is made, not when the recording is over. The training waits only while the cycle is taken from the profiler.
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
from perfkit_core.recording import background, signals
from perfkit_core.recording.environment import Place, environment_place
from perfkit_core.storage import store
from perfkit_core.system import failures
from perfkit_core.system.paths import absolute, as_path, is_remote

Result = TypeVar("Result")
Profiler = TypeVar("Profiler")


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished cycle that no longer needs its profiler.

    ``finish()`` makes the Trace, once. ``background`` says that it may do so in another thread while the training and
    the next cycle go on; else it is finished before the training goes on.
    """

    finish: Callable[[], Trace]
    background: bool = True

    def then(self, change: Callable[[Trace], Trace]) -> Taken:
        """Return the same with ``change`` made to the Trace."""
        return Taken(lambda: change(self.finish()), self.background)


Take = Callable[[Profiler, Place], Taken]
"""The adapter's half: the profiler's last cycle, so that it can be finished without the profiler; its rows have the
rank of the place. Called in the training's thread."""


class CycleWriter(Generic[Profiler]):
    """The framework-independent half of a trace handler; an instance handles all cycles of one process.

    ``take`` is the adapter's half (:data:`Take`). Finishing and writing happen in the background where the adapter
    allows it; :meth:`flush` waits for that, and so does whatever reads the folder in this process, and its end.
    ``also`` are further callbacks that get the profiler after us, each guarded in the same way. Whether the folder
    can be written is tried at once; where it cannot, that is logged in one line, and nothing raised. SIGTERM ends the
    process as ``sys.exit`` does from now on (:mod:`perfkit_core.recording.signals`). A relative folder is relative to
    the current folder of this moment. ``warn_uncalled``: log a warning where no cycle ever comes, because the loop
    forgets ``step()`` or the schedule never gets to record.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        take: Take[Profiler],
        also: Iterable[Callable[[Profiler], Any]] = (),
        place: Callable[[], Place] = environment_place,
        warn_uncalled: bool = False,
    ) -> None:
        self.run_dir = as_path(absolute(run_dir))  # a training may change its folder, also while a cycle is written
        self._take = take
        self._also = tuple(also)
        self._place = place
        self._begin()
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            fate = "kept on this machine" if is_remote(self.run_dir) else "lost"
            failures.tell(f"{run_dir} cannot be written ({reason}): until it can, cycles are {fate}")
        background.shared()
        signals.install()
        # when the handler is gone, at the latest when the process ends
        self._uncalled = weakref.finalize(self, _warn, self.run_dir, os.getpid()) if warn_uncalled else None

    def __call__(self, profiler: Profiler) -> None:
        """Take and write a cycle; the profiler calls this at the end of each."""
        if self._uncalled is not None:
            self._uncalled.detach()
        with signals.held(profiler):
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
                    failures.log(f"the callback {callback!r} failed, training goes on", error)

    @property
    def written(self) -> list[Path]:
        """The files of this process, in the order of their cycles. Waits for those that are being written."""
        self._follow_fork()
        self.flush()
        return list(self._written)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every cycle is written; ``timeout`` in seconds, None: as long as it takes. False: it ran out."""
        return store.flush(self.run_dir, timeout)

    def mark_incomplete(self, error: BaseException) -> None:
        """Say in the run folder that the last cycle of this process is missing, and why. Never raises."""
        store.mark_incomplete(self.run_dir, max(self._cycle - 1, 0), error)

    def _begin(self) -> None:
        self._pid, self._recording, self._cycle = os.getpid(), store.new_recording(), 0
        self._forked_ns: int | None = None
        self._written: list[Path] = []

    def _follow_fork(self) -> None:
        """Begin a recording of its own in a forked child."""
        if self._pid != os.getpid():
            self._begin()
            self._forked_ns = background.shared().forked_ns
            self.run_dir = as_path(self.run_dir)  # a connection to a store is the parent's
            signals.install()

    def _write(self, taken: Taken, cycle: int, facts: dict[str, Any]) -> None:
        try:
            trace = taken.finish()
            window = trace.meta.window_ns if trace.meta.clock == "epoch" else None
            if self._forked_ns and window and window[0] < self._forked_ns:
                # the first cycle of a child, begun before the fork: the parent writes it
                self._cycle = cycle
                return
            meta = msgspec.structs.replace(trace.meta, **facts)
            self._written.append(store.write_cycle(Trace(trace.events, meta, trace.quality), self.run_dir))
        except BaseException as error:
            self._lost(cycle, error)

    def _lost(self, cycle: int, error: BaseException) -> None:
        """Mark the run as incomplete and log why. Raises again what is no Exception: the user's interrupt."""
        store.mark_incomplete(self.run_dir, cycle, error)
        if not isinstance(error, Exception):
            raise error
        failures.log("a cycle is missing in the run folder, training goes on", error)


def _warn(run_dir: Path, pid: int) -> None:
    """Warn of a handler that was never called; not in forked children, as the handler is their parent's."""
    if os.getpid() == pid:
        failures.tell(
            f"a handler recorded nothing into {run_dir}: its profiler never ended a cycle. Does the loop call the "
            "profiler's step(), and does the schedule reach its active steps?",
            logging.WARNING,
        )


def _without_gc(action: Callable[[], Result]) -> Result:
    """Run with the garbage collector off: it would scan the millions of objects that an extraction makes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return action()
    finally:
        if was_on:
            gc.enable()
