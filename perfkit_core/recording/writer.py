"""What every framework's handler does around its own extraction: guard, number, name, hand over to be written.

A handler runs inside someone's training. It never raises into it: an error is logged with its reason, what has been
recorded so far stays on disk, and the run is marked as incomplete. A folder that cannot be written is told when the
handler is made, not when the recording is over. The training is held only while the cycle is taken from the profiler.

What is taken of a finished cycle while training waits, and what may be done with it later.

Where does this process stand in a distributed job?
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from perfkit_core.model.trace import Trace
from perfkit_core.recording import background, signals, uncalled
from perfkit_core.recording.environment import without_gc
from perfkit_core.storage import store
from perfkit_core.storage.store import INCOMPLETE_MARK, new_recording, write_cycle
from perfkit_core.system import failures
from perfkit_core.system.failures import logger
from perfkit_core.system.paths import absolute, as_path

Variables = tuple[str, str]
"""Names of the environment variables in which a launcher tells a process its rank, and the world size."""

_LAUNCHERS: Final[tuple[Variables, ...]] = (
    ("RANK", "WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in a distributed job; None where the job does not say."""

    rank: int | None
    world_size: int | None


def environment_place(*first: Variables) -> Place:
    """Rank and world size as one launcher's environment variables tell them; those of ``first`` are asked first.

    A launcher that tells both goes before one that tells the rank alone: launchers are run by one another, and the rank
    of one says nothing beside the world size of another.
    """
    told = [Place(_integer(rank), _integer(size)) for rank, size in (*first, *_LAUNCHERS)]
    ranked = [place for place in told if place.rank is not None]
    return next((place for place in ranked if place.world_size is not None), next(iter(ranked), Place(None, None)))


def _integer(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished cycle that no longer needs its profiler.

    ``finish()`` makes the Trace, once. ``background`` says that it may do so in another thread while the training and
    the next cycle go on; else it is finished before the training goes on.
    """

    finish: Callable[[], Trace]
    background: bool = True

    def then(self, change: Callable[[Trace], Trace]) -> Taken:
        """The same, with ``change`` made to the Trace."""
        return Taken(lambda: change(self.finish()), self.background)


__all__ = ["INCOMPLETE_MARK", "CycleWriter", "Place", "Taken", "environment_place", "logger", "without_gc"]

Profiler = TypeVar("Profiler")
Take = Callable[[Profiler, Place], Taken]
"""The adapter's half: the profiler's last cycle, so that it can be finished without the profiler; its rows have the
rank of the place. Called in the training's thread."""


class CycleWriter(Generic[Profiler]):
    """The framework-independent half of a trace handler; an instance handles all cycles of one process.

    ``take`` is the adapter's half (:data:`Take`). Finishing and writing happen in the background where the adapter
    allows it; :meth:`flush` waits for that, and so do the end of the process and whoever reads the folder in it.
    ``also`` are further callbacks that get the profiler after us, each guarded like ourselves. Whether the folder
    can be written is tried at once; where it cannot, that is logged in one line, and nothing raised. SIGTERM ends the
    process as ``sys.exit`` does from now on (:mod:`perfkit_core.recording.signals`). A relative folder is meant
    from where the process is now. ``warn_uncalled``: log a warning where no cycle ever comes
    (:mod:`perfkit_core.recording.uncalled`).
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
            failures.tell(f"{run_dir} cannot be written ({reason}): {failures.outlook(self.run_dir)}")
        background.shared()
        signals.install()
        self._uncalled = uncalled.watch(self, self.run_dir) if warn_uncalled else None

    def __call__(self, profiler: Profiler) -> None:
        """What the profiler calls at the end of a cycle."""
        if self._uncalled is not None:
            self._uncalled.detach()
        with signals.held(profiler):
            self._keep(profiler)
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
        self._pid, self._recording, self._cycle = os.getpid(), new_recording(), 0
        self._forked_ns: int | None = None
        self._written: list[Path] = []

    def _keep(self, profiler: Profiler) -> None:
        cycle = self._next_cycle()
        try:
            taken, facts = self._taken(profiler, cycle)
        except BaseException as error:
            self._lost(cycle, error)
            return
        if taken.background and not (cycle == 0 and self._forked_ns):
            background.shared().submit(self.run_dir, lambda: self._write(taken, cycle, facts))
        else:
            without_gc(lambda: self._write(taken, cycle, facts))

    def _taken(self, profiler: Profiler, cycle: int) -> tuple[Taken, dict[str, Any]]:
        place = self._place()
        facts = {
            "ranks": () if place.rank is None else (place.rank,),
            "world_size": place.world_size,
            "hostname": socket.gethostname(),
            "recording": self._recording,
            "cycle": cycle,
            "recorded_at_ns": time.time_ns(),
        }
        return without_gc(lambda: self._take(profiler, place)), facts

    def _write(self, taken: Taken, cycle: int, facts: dict[str, Any]) -> None:
        try:
            trace = taken.finish()
            if self._is_parents(trace):
                self._cycle = cycle
                return
            meta = msgspec.structs.replace(trace.meta, **facts)
            self._written.append(write_cycle(Trace(trace.events, meta, trace.quality), self.run_dir))
        except BaseException as error:
            self._lost(cycle, error)

    def _is_parents(self, trace: Trace) -> bool:
        """Whether it began before this process was forked: then the parent writes it. Such a cycle is the first one."""
        window = trace.meta.window_ns if trace.meta.clock == "epoch" else None
        return bool(self._forked_ns and window and window[0] < self._forked_ns)

    def _lost(self, cycle: int, error: BaseException) -> None:
        """Tell it. Raises what is no Exception: the user's interrupt."""
        store.mark_incomplete(self.run_dir, cycle, error)
        if not isinstance(error, Exception):
            raise error
        failures.log("a cycle is missing in the run folder, training goes on", error)

    def _next_cycle(self) -> int:
        self._follow_fork()
        self._cycle += 1
        return self._cycle - 1

    def _follow_fork(self) -> None:
        """A forked child is a recording of its own."""
        if self._pid != os.getpid():
            self._begin()
            self._forked_ns = background.shared().forked_ns
            self.run_dir = as_path(self.run_dir)  # a connection to a store is the parent's
            signals.install()
