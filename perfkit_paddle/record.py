"""Recording of an unmodified script: Paddle's profiler around it, a step after each step of its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording.environment import Place
from perfkit_core.recording.signals import GivingWay
from perfkit_core.recording.step_recording import asked
from perfkit_core.recording.writer import CycleWriter, Taken
from perfkit_core.system import failures
from perfkit_paddle import framework
from perfkit_paddle.capture import place, take
from perfkit_paddle.updates import Updates

_OPTIONS: Final = {"shapes": "record_shapes", "memory": "profile_memory"}
"""Its profiler has ``with_flops`` too, which records nothing; stacks of static programs need no asking."""


def start(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> OptimizerRecording:
    """Begin recording in this process.

    Raises CaptureError when Paddle or its profiler cannot run, UsageError for unknown options.
    """
    wanted = asked(options, _OPTIONS, "paddle")
    writer: CycleWriter[Any] = CycleWriter(run_dir, _take, place=place)
    profiling = framework.profiler()
    schedule = None if steps is None else _schedule(profiling.ProfilerState, steps)
    profiler = profiling.Profiler(scheduler=schedule, on_trace_ready=writer, **wanted)
    try:
        profiler.start()
    except AttributeError:
        text = "paddle.profiler cannot start: another Profiler exists in this process"
        raise CaptureError(
            text, "record a script that does not profile itself, or use perfkit_paddle.trace_handler"
        ) from None
    return OptimizerRecording(profiler, writer, steps)


def _schedule(state: Any, last: int) -> Callable[[int], Any]:
    """Record from the beginning to the end of step ``last``. Paddle's own would warn that nothing warms up."""

    def schedule(step: int) -> Any:
        if step > last:
            return state.CLOSED
        return state.RECORD if step < last else state.RECORD_AND_RETURN

    return schedule


def _take(profiler: Any, place: Place) -> Taken:
    """Iterations are what lies between two optimizer steps: neither what comes before the first nor after the last."""
    return take(profiler, place, no_steps=frozenset({0, int(profiler.step_num)}))


class OptimizerRecording:
    """A running recording. Steps are those of the first optimizer that steps; nested calls count once."""

    def __init__(self, profiler: Any, writer: CycleWriter[Any], steps: int | None) -> None:
        self._profiler = profiler
        self._writer = writer
        self._left = None if steps is None else steps + 1  # the first update only opens step 1
        self._running = True
        self._other = GivingWay(type(profiler), "__init__", self._stop)
        self._updates = Updates(self._updated)

    def finish(self) -> int:
        """Stop, and give the optimizers their methods back. Returns the number of files written.

        Raises CaptureError where recording had to end for a profiler of the script.
        """
        self._stop()
        self._updates.end()
        written = len(self._writer.written)
        self._other.check()
        return written

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        self._other.over()
        try:
            self._profiler.stop()
        except Exception as error:
            failures.log("Paddle's profiler could not be stopped, what was written stays", error)
        self._profiler.profiler = None  # as long as it is there, Paddle makes no other

    def _updated(self) -> None:
        if not self._running:
            return
        try:
            self._profiler.step()
        except Exception as error:
            failures.log("Paddle's profiler failed at a step, recording ends, training goes on", error)
            self._running = False
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._stop()
