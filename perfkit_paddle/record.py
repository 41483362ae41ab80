"""Recording of an unmodified script: Paddle's profiler around it, a step after each step of its optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording import failures
from perfkit_core.recording.capture import CycleWriter, Place, Taken
from perfkit_core.recording.profiler_options import asked
from perfkit_paddle import framework
from perfkit_paddle.capture import take

_OPTIONS: Final = {"shapes": "record_shapes", "memory": "profile_memory"}
"""Its profiler has ``with_flops`` too, which records nothing; stacks of static programs need no asking."""
_STEPPING: Final = ("step", "minimize")
"""Methods that update the parameters once."""


def start(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> OptimizerRecording:
    """Begin recording in this process.

    Raises CaptureError when Paddle or its profiler cannot run, UsageError for unknown options.
    """
    wanted = asked(options, _OPTIONS, "paddle")
    writer: CycleWriter[Any] = CycleWriter(run_dir, _take)
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
        self._optimizer: Any = None
        self._inside = False
        self._undo: list[Callable[[], None]] = []
        self._base = framework.paddle().optimizer.Optimizer
        self._watch_new_optimizers()
        for cls in _family(self._base):
            self._wrap(cls)

    def finish(self) -> int:
        """Stop, and give the optimizers their methods back. Returns the number of files written."""
        self._stop()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        return len(self._writer.written)

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        try:
            self._profiler.stop()
        except Exception as error:
            failures.log("Paddle's profiler could not be stopped, what was written stays", error)

    def _stepped(self, optimizer: Any) -> None:
        """Called after each outermost update."""
        if self._optimizer is None:
            self._optimizer = optimizer
        if not self._running or optimizer is not self._optimizer:
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

    def _watch_new_optimizers(self) -> None:
        """Classes that a script defines later are wrapped when their first object is made."""
        original = self._base.__init__

        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:
                if issubclass(cls, self._base):
                    self._wrap(cls)
            original(optimizer, *args, **kwargs)

        self._replace(self._base, "__init__", init)

    def _wrap(self, cls: type) -> None:
        for name in _STEPPING:
            method = vars(cls).get(name)
            if callable(method) and not getattr(method, "_perfkit", False):
                self._replace(cls, name, self._counting(method))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            outermost, self._inside = not self._inside, True
            try:
                return method(optimizer, *args, **kwargs)
            finally:
                if outermost:
                    self._inside = False
                    if framework.paddle().in_dynamic_mode():  # in a static graph, minimize() only adds operators
                        self._stepped(optimizer)

        counted._perfkit = True  # type: ignore[attr-defined]
        return counted

    def _replace(self, cls: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        setattr(cls, name, value)


def _family(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for child in children:
        yield from _family(child)
