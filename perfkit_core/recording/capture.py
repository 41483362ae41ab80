"""What every framework's handler does around its own extraction: guard, number, name, write.

A handler runs inside someone's training. It never raises into it: an error is logged with its reason, what has been
recorded so far stays on disk, and the run is marked as incomplete. A folder that cannot be written is told when the
handler is made, not when the recording is over.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from perfkit_core.recording import failures
from perfkit_core.recording.failures import logger
from perfkit_core.store import new_recording, write_cycle
from perfkit_core.trace import Trace

__all__ = ["INCOMPLETE_MARK", "CycleWriter", "Place", "environment_place", "logger", "without_gc"]

Profiler = TypeVar("Profiler")

INCOMPLETE_MARK: Final = "INCOMPLETE"
"""A file of this name in a run folder says that at least one cycle is missing; its text says which and why."""

_RANK_VARIABLES: Final = ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_WORLD_VARIABLES: Final = ("WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in a distributed job; None where the job does not say."""

    rank: int | None
    world_size: int | None


def environment_place() -> Place:
    """Rank and world size from the launcher's environment variables."""
    return Place(_first_integer(_RANK_VARIABLES), _first_integer(_WORLD_VARIABLES))


def _first_integer(variables: Iterable[str]) -> int | None:
    for name in variables:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


class CycleWriter(Generic[Profiler]):
    """The framework-independent half of a trace handler; an instance handles all cycles of one process.

    ``extract(profiler, place)`` is the adapter's half: it returns the cycle's Trace, its rows already with the rank.
    ``also`` are further callbacks that get the profiler after us, each guarded like ourselves. Whether the folder
    can be written is tried at once; where it cannot, that is logged in one line, and nothing raised.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        extract: Callable[[Profiler, Place], Trace],
        also: Iterable[Callable[[Profiler], Any]] = (),
        place: Callable[[], Place] = environment_place,
    ) -> None:
        self.run_dir = Path(run_dir)
        self.written: list[Path] = []
        self._extract = extract
        self._also = tuple(also)
        self._place = place
        self._cycle = 0
        self._recording = new_recording()
        self._pid = os.getpid()
        reason = failures.why_unwritable(self.run_dir)
        if reason is not None:
            logger.error("perfkit: %s cannot be written (%s): nothing will be kept of the recording", run_dir, reason)

    def __call__(self, profiler: Profiler) -> None:
        """What the profiler calls at the end of a cycle."""
        try:
            self._write(profiler)
        except Exception as error:
            failures.log("the recorded cycle could not be kept, training goes on", error)
            self.mark_incomplete(error)
        for callback in self._also:
            try:
                callback(profiler)
            except Exception as error:
                failures.log(f"the callback {callback!r} failed, training goes on", error)

    def _write(self, profiler: Profiler) -> None:
        cycle = self._next_cycle()
        place = self._place()
        trace = without_gc(lambda: self._extract(profiler, place))
        meta = msgspec.structs.replace(
            trace.meta,
            ranks=() if place.rank is None else (place.rank,),
            world_size=place.world_size,
            hostname=socket.gethostname(),
            recording=self._recording,
            cycle=cycle,
            recorded_at_ns=time.time_ns(),
        )
        self.written.append(write_cycle(Trace(trace.events, meta, trace.quality), self.run_dir))

    def _next_cycle(self) -> int:
        if self._pid != os.getpid():  # forked: the child is a recording of its own
            self._pid, self._recording, self._cycle = os.getpid(), new_recording(), 0
        self._cycle += 1
        return self._cycle - 1

    def mark_incomplete(self, error: Exception) -> None:
        """Say in the run folder that a cycle of this process is missing, and why. Never raises."""
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            with (self.run_dir / INCOMPLETE_MARK).open("a", encoding="utf-8") as file:
                file.write(f"process {os.getpid()}, cycle {max(self._cycle - 1, 0)}: {failures.told(error)}\n")
        except OSError as failure:
            logger.debug("perfkit: %s cannot be written: %s", self.run_dir, failure)


Result = TypeVar("Result")


def without_gc(action: Callable[[], Result]) -> Result:
    """Run with the garbage collector off: it would scan the millions of objects that an extraction makes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return action()
    finally:
        if was_on:
            gc.enable()
