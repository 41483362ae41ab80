"""Recording of an unmodified script (``perfkit record``), for the recorders of all frameworks.

The profiler starts when the framework was imported, and records the start of the script until the script makes an
optimizer. A step ends with an update of the first optimizer, or with what the user names. The window of the steps
begins at the first end. When a step is complete, the start is dropped. If none is complete at the end of the script,
the longer of the start and of what follows the only end is kept. Between them lies the first step, which is not
recorded: in one recording, it would be a gap."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from perfkit_core.base.language.messages import Text, message
from perfkit_core.base.system.processes import watch_forks
from perfkit_core.plugins.frameworks import Recorded
from perfkit_core.recording import signals, step_calls
from perfkit_core.recording.between_steps import BetweenSteps
from perfkit_core.recording.schedule import StepWindow
from perfkit_core.recording.step_clock import SHORT_NS, FrameSampler
from perfkit_core.recording.step_recording import (
    Ending,
    Held,
    StepProfiler,
    StepRecording,
    leave_to_parent,
    stop_those_of_parent,
)
from perfkit_core.recording.window_limit import Checks
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage import background

_EVER: Final = 1 << 40
_ENOUGH_CALLS: Final = 100
"""If a script makes no steps, its recording ends after so many calls of the model."""
_CHECKS: Final = 10
"""Calls are counted at one check of so many."""
_TOGETHER: Final = 16
"""Number of short steps that are ended together."""
_FAILED: Final = "recording failed, the script continues"


class Hooks(Protocol):
    """Hooks that an adapter has set on the framework."""

    def end(self) -> None: ...


class AfterCalls:
    """Calls ``after`` after each call of the function ``name`` of a module or class."""

    def __init__(self, owner: Any, name: str, after: Callable[[], None]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            after()
            return result

        setattr(owner, name, call)
        self.end = functools.partial(setattr, owner, name, original)


class ModeSwitches:
    """Calls ``switched(training)`` when a module of the script begins or ends to train. ``base``: the framework's class
    of modules, with the methods ``train`` and ``eval`` and the attribute ``training``."""

    def __init__(self, base: type, switched: Callable[[bool], None]) -> None:
        self._base, self._originals = base, {name: getattr(base, name) for name in ("train", "eval")}
        for name, original in self._originals.items():
            setattr(base, name, self._watched(original, switched))

    @staticmethod
    def _watched(original: Callable[..., Any], switched: Callable[[bool], None]) -> Callable[..., Any]:
        @functools.wraps(original)
        def switch(module: Any, *args: Any, **kwargs: Any) -> Any:
            before = module.training
            result = original(module, *args, **kwargs)
            if module.training != before:
                switched(module.training)
            return result

        return switch

    def end(self) -> None:
        for name, original in self._originals.items():
            setattr(self._base, name, original)


@dataclass(frozen=True, slots=True)
class Script:
    """What an adapter provides for :class:`ScriptRecording`.

    - ``profiler()``: makes the profiler. It sets handlers of signals
    - ``updates(after, made)``: hooks after each update of the first optimizer, and when the script makes an optimizer.
      Attributes: ``optimizers``, how many it has made, and ``fixed``: no other takes the place of a deleted one.
      ``restart()``: another optimizer becomes the first
    - ``ranges(name, after, before)``: hooks around each range of this name
    - ``passes(after)``: hooks after each backward pass
    - ``modules``: the class of modules (:class:`ModeSwitches`)
    - ``other(end)``: calls ``end`` before the script starts a profiler of its own"""

    profiler: Callable[[], StepProfiler]
    updates: Callable[..., Any]
    ranges: Callable[..., Hooks]
    passes: Callable[[Callable[[], None]], Hooks]
    modules: type
    other: Callable[[Callable[[], bool]], signals.OtherProfilerPatch]


def flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the profiler, without those of the recording."""
    return {name: value for name, value in options.items() if name not in step_calls.OPTIONS}


def enough_calls(sampler: FrameSampler) -> Text | None:
    """Return why a recording without steps has enough calls of a model, or None."""
    for _, code, calls in sampler.repeated():
        if code.co_name == "forward" and calls >= _ENOUGH_CALLS:
            return message("{function} ran more than {count} times", function=code.co_qualname, count=_ENOUGH_CALLS)
    return None


class ScriptRecording:
    """``steps``: number of steps after which the recording ends, or None. ``options``: those of the recorder. The
    methods never raise, except :meth:`finish`.

    torch must not record while a label is open that began in an earlier recording. So a window never begins within the
    call in which the start of the script has ended."""

    def __init__(self, script: Script, steps: int | None, options: Mapping[str, Any]) -> None:
        self._script, self._step_on = script, options.get(step_calls.OPTION)
        self._profiler: StepProfiler | None = None
        self._job = options.get(step_calls.JOB)
        self._ends = 0
        self._between, self._counts = BetweenSteps(), False
        self._short, self._at_ns = False, 0  # whether short steps are ended together; the end of the last step
        self._pending: list[int] = []  # ends of steps, as of time.perf_counter_ns
        self._begun = False  # whether the window has begun
        self._write_start: Held | None = None
        self._checked = 0
        self._start_ns = time.perf_counter_ns()  # when the start of the script began, then how long it was
        self._start_cut: Text | None = None  # why the start of the script ended early
        self._recording = StepRecording(StepWindow(0, 0, steps or _EVER), self._made)
        self._recording.most_events = options.get(step_calls.LIMIT)
        self._in_start = not options.get(step_calls.CHILD)
        self._sampler = FrameSampler(count_calls=True)
        self._checks: Checks | None = None
        if self._in_start:  # before the hooks, which would stay if this raised
            self._made().start(None)
            if not options.get("stacks"):  # they would contain the sampler
                self._sampler.start()
            self._checks = Checks(self._check)
        self._hooks: list[Hooks] = [ModeSwitches(script.modules, self._switched)]
        self._updates: Any = None
        if self._step_on is None:
            self._updates = script.updates(self._ended, self._end_start)
            self._hooks += [self._updates, script.passes(self._passed)]
        elif isinstance(self._step_on, step_calls.StepCalls):
            self._hooks.append(self._step_on.watch(self._ended, self._end_start))
        else:
            self._hooks.append(script.ranges(self._step_on, self._ended, self._end_start))
        self._other = script.other(self._other_starts)
        watch_forks(self)

    def forked(self) -> None:
        """In a forked child, leave what is recorded to the parent. The child is recorded if it makes steps."""
        if self._in_start and self._profiler is not None:
            leave_to_parent(self._profiler)
        self._recording.forked()
        self._in_start = self._begun = self._short = False
        self._pending = []
        self._profiler = self._checks = self._write_start = self._start_cut = None
        self._ends = 0
        self._between = BetweenSteps()  # another thread of the parent may hold the lock of the old one
        if self._updates is not None:
            self._updates.restart()
        self.finish_at_exit()

    def finish_at_exit(self) -> None:
        """Finish the recording when this process ends. Processes that it forks finish their own."""
        pid = os.getpid()

        def finish() -> None:
            if os.getpid() == pid:
                with contextlib.suppress(Exception):  # the script started a profiler of its own
                    self.finish()

        atexit.register(finish)

    def finish(self, alone: bool = True) -> Recorded:
        """End the recording and write it. If no step is complete, the start of the script is kept only if no other
        process recorded (``alone``). Raises CaptureError if the script started a profiler of its own."""
        self._stop(alone)
        for hooks in self._hooks:
            hooks.end()
        if self._profiler is None:
            return Recorded(0)
        writer = self._profiler.writer
        writer.withdraw()
        files = len(writer.written)
        self._other.check()
        if alone:
            repeated = self._sampler.repeated() if self._ends < 2 else ()  # takes 0.1 s if the start has many samples
            step_calls.warn_without_steps(self._ends, self._step_on, repeated)
        steps = self._recording.complete
        cut = self._recording.cut or (None if steps else self._start_cut)
        timed = self._profiler.clock.times().with_threads(writer.threads)
        return Recorded(files, steps, timed, cut, statistics.median(writer.steps_ns) if writer.steps_ns else None)

    def _made(self) -> StepProfiler:
        if self._profiler is None:
            self._profiler = self._script.profiler()
            self._profiler.writer.job = self._job
            self._profiler.clock.between = self._between.found
        return self._profiler

    def _ended(self) -> None:
        """A step has ended. After the window, short steps are ended together: the work for each would fill the caches,
        and make the next step up to a fifth longer."""
        at_ns, before_ns = time.perf_counter_ns(), self._at_ns
        self._at_ns = at_ns
        self._pending.append(at_ns)
        if not self._short or at_ns - before_ns >= SHORT_NS or len(self._pending) == _TOGETHER:
            self._end_pending()

    def _end_pending(self) -> None:
        """End the steps whose end was only noted."""
        pending, self._pending = self._pending, []
        for at_ns in pending:
            self._end_step(at_ns)
            clock = self._made().clock
            counts = self._recording.complete > 0 and not self._recording.recording
            self._short = counts and self._counts and background.idle_since() is not None
            after, self._counts = self._counts, counts  # the profiler stops within the first step after a window
            self._between.step(at_ns, clock.own_ns if counts and after else None)
        if pending:
            clock.leave_out()
            self._between.leave_out(time.perf_counter_ns() - at_ns, clock.own_ns)

    def _switched(self, training: bool) -> None:
        self._end_pending()
        self._between.switched(training)

    def _end_step(self, at_ns: int) -> None:
        self._ends += 1
        if self._recording.recording and not self._made().may_stop():  # this thread trains from now on
            self._recording.forget()
            self._profiler, self._begun = None, False  # torch would crash if its profiler were stopped later
        if not self._begun:
            self._sampler.stop()
            with signals.guarded(_FAILED):
                self._made().writer.announce()
        if self._in_start:  # the optimizer was made before, as in an earlier cell of a notebook
            self._leave_start()
            self._recording.begin(self._ends, recording=True)
        elif self._begun:
            self._recording.step_ended(at_ns)
            if self._recording.complete or self._recording.cut:
                self._write_start = None  # its events take memory
        else:
            self._recording.begin(self._ends)
        self._begun = True
        if self._updates is not None:  # a window may contain steps of several trainings; the steps after it do not
            self._updates.fixed = not self._recording.recording

    def _passed(self) -> None:
        """A backward pass has ended. It ends a step if the script updates its parameters without an optimizer."""
        if self._updates.optimizers:
            return
        if self._in_start:
            self._end_start()  # the next pass begins a step
            self._ends += 1
        else:
            self._ended()

    def _check(self) -> None:
        """End the start of the script early if it has too many events, or if it infers and enough is recorded."""
        if not self._in_start:
            return
        with signals.guarded(_FAILED):  # the script's own code is running
            estimate, most_events = self._made().estimate(), self._recording.most_events
            self._start_cut = estimate.reason(most_events or estimate.most_events)
            self._checked += 1
            if self._start_cut is None and most_events is None and self._checked % _CHECKS == 0:
                self._start_cut = enough_calls(self._sampler)
        if self._start_cut is not None:
            self._sampler.stop()
            self._end_start()

    def _end_start(self) -> None:
        if not self._in_start:
            return
        self._leave_start()
        self._start_ns = time.perf_counter_ns() - self._start_ns
        with signals.guarded(_FAILED):
            self._write_start = self._made().hold(Ending.NOT_BEGUN)

    def _other_starts(self) -> bool:
        """End the recording because a profiler starts, unless it is perfkit's."""
        if self._recording.inside or (self._begun and not self._recording.recording):  # ours, or ours has ended
            return False
        stop_those_of_parent()
        self._stop()
        return True

    def _leave_start(self) -> None:
        self._in_start = False
        if self._checks is not None:
            self._checks.end()

    def _stop(self, keep_start: bool = True) -> None:
        """End the recording. Without a complete step, keep the start of the script (not without ``keep_start``) or what
        follows the only end of a step."""
        self._other.restore()
        self._end_pending()
        self._sampler.stop()
        self._between.stop()
        self._end_start()
        if self._recording.complete:
            self._recording.finish()
            return
        write, self._write_start = self._write_start, None
        rest_ns = time.perf_counter_ns() - self._at_ns if self._recording.recording else 0
        if write is None or not keep_start or rest_ns > self._start_ns:
            self._recording.abort()
            return
        self._recording.abort(keep=False)
        if self._recording.cut is None:
            cut = self._start_cut
            text = None if cut is None else message("recording ended early, because {reason}", reason=cut)
            with signals.guarded(_FAILED):
                write(*([] if text is None else [Finding("window-ended-early", text)]))
