"""Recording of unmodified Paddle scripts, of selected training steps and of sections, and the demo training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.packages import later
from perfkit_core.errors import CaptureError
from perfkit_core.plugins.frameworks import Demo, Recorder
from perfkit_core.recording import environment, signals, step_calls, writer
from perfkit_core.recording.step_clock import Action, StepClock
from perfkit_core.recording.step_recording import CallbackRecording, Ending, profiler_arguments
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import findings, framework
from perfkit_paddle.on_trace_ready import job_rank, take

OPTIONS: Final = {"shapes": "record_shapes", "memory": "profile_memory"}
"""Option of ``perfkit record`` → argument of Paddle's profiler. Stacks are not an option: Paddle always records them,
but only for static programs. FLOPs are not an option: ``with_flops`` of Paddle's profiler has no effect."""
INSTEAD: Final = {
    "stacks": message(
        "Paddle's profiler records Python stacks of static programs only: perfkit.paddle.annotate(model) labels the "
        "layers (view modules), and advice names lines of code if steps were recorded with perfkit's make_scheduler"
    ),
    "flops": message(
        "Paddle's profiler records no FLOPs: perfkit.paddle.annotate(model) computes those of the layers (view modules)"
    ),
}
"""Option of ``perfkit record`` that Paddle's profiler does not support → sentence on the alternative."""


class ScriptRecording:
    """The profiler of an unmodified script. A step ends with each update of the first optimizer, or with what the
    option ``step_on`` names. Iterations are numbered from 0. The first iteration, which contains the start of the
    script, and events after the last end of a step belong to no step. Raises CaptureError if Paddle or its profiler
    cannot run, and UsageError for options that Paddle cannot record."""

    def __init__(self, run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> None:
        flags = {name: value for name, value in options.items() if name != step_calls.OPTION}
        arguments = profiler_arguments(flags, OPTIONS, "paddle", INSTEAD)
        profiling = framework.profiler()  # importing Paddle sets a handler of SIGTERM, which the writer replaces
        self._writer: writer.CycleWriter[Any] = writer.CycleWriter(run_dir, self._take, process_rank=job_rank)
        state = profiling.ProfilerState

        def schedule(step: int) -> Any:  # Paddle's make_scheduler would warn that there is no warm-up
            if steps is None or step < steps:
                return state.RECORD
            return state.RECORD_AND_RETURN if step == steps else state.CLOSED

        self._profiler = profiling.Profiler(
            scheduler=None if steps is None else schedule, on_trace_ready=self._writer, **arguments
        )
        try:
            with framework.without_benchmark():
                self._profiler.start()
        except AttributeError:
            hint = "record a script that does not profile itself, or use perfkit.paddle.trace_handler"
            raise CaptureError("paddle.profiler cannot start: another Profiler exists in this process", hint) from None
        self._left = None if steps is None else steps + 1  # the first update only begins step 1
        self._running = True
        self._step, self._clock = 0, StepClock()
        self._other = signals.OtherProfilerPatch(type(self._profiler), "__init__", self._stop)
        self._step_on = options.get(step_calls.OPTION)
        self._updates = step_calls.watched(self._step_on, framework.Updates, framework.Ranges, self._updated)

    def finish(self) -> int:
        """End the recording and return the number of written files. Raises CaptureError if it ended early."""
        self._stop()
        self._updates.end()
        step_calls.warn_without_steps(self._step, self._step_on)
        written = len(self._writer.written)
        self._other.check()
        return written

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        """Read the recorded cycle. Step 0 and the last step are not complete iterations."""
        cycle = take(profiler, job_rank, no_steps=frozenset({0, int(profiler.step_num)}))
        return replace(cycle, clock=self._clock)

    def _stop(self) -> None:
        if not self._running:
            return
        with signals.shared().delayed():
            self._running = False
            self._other.restore()
            with (
                signals.guarded("Paddle's profiler could not be stopped; the files written before remain"),
                framework.without_benchmark(),
            ):
                self._profiler.stop()
            self._profiler.profiler = None  # Paddle creates no other profiler while this is set

    def _updated(self) -> None:
        self._step += 1
        self._clock.begins(self._step, Action.RECORD if self._running and self._left != 1 else Action.OFF)
        if not self._running:
            return
        stepped = False
        with (
            signals.guarded("Paddle's profiler failed at a step: recording ends, training continues"),
            framework.without_benchmark(),
        ):
            self._profiler.step()
            stepped = True
        self._running = stepped
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._stop()


class PaddleRecording(CallbackRecording):
    """Recording for callbacks, with Paddle's profiler. ``options`` are arguments of paddle.profiler.Profiler."""

    def profiler_class(self) -> Callable[..., Any]:
        profiler: Callable[..., Any] = framework.profiler().Profiler
        return profiler

    def step_profiler(self) -> PaddleStepProfiler:
        return PaddleStepProfiler(self)


class PaddleStepProfiler:
    """The StepProfiler for Paddle. Each cycle has a new Profiler. The old one is freed first: only one per process."""

    def __init__(self, recording: PaddleRecording) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(
            recording.run_dir, self._take, recording.also, job_rank, demand=recording.demand
        )
        self.clock = StepClock()
        self._options = recording.options
        self._profiler: Any = None
        self._state: Any = None
        self._cut_off: frozenset[int] = frozenset()
        self._ending = Ending.ENDED
        self._keep = False

    def warm_up(self, step: int) -> None:
        self._begin(framework.profiler().ProfilerState.READY, step)

    def start(self, step: int) -> None:
        recording = framework.profiler().ProfilerState.RECORD
        if self._profiler is None:
            self._begin(recording, step)
        else:
            self._state = recording
            self.next(step)

    def next(self, step: int) -> None:
        self._profiler.step_num = step - 1
        with framework.without_benchmark():
            self._profiler.step()

    def stop(self, ending: Ending) -> None:
        running = self._profiler.step_num
        self._ending = ending
        self._cut_off = frozenset() if ending is Ending.ENDED else frozenset({running})
        self._profiler.step_num = running + 1  # otherwise take() reports the running step as partial
        self._keep = True
        self._stop()

    def cancel(self) -> None:
        """Stop without writing. Suppress Paddle's warning about a warm-up without recording."""
        self._keep = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._stop()

    def _begin(self, state: Any, step: int) -> None:
        self._state = state

        def ready(profiler: Any) -> None:
            if self._keep:
                self.writer(profiler)

        profiler = framework.only_profiler(scheduler=lambda _: self._state, on_trace_ready=ready, **self._options)
        profiler.step_num = step
        with framework.without_benchmark():
            profiler.start()
        self._profiler = profiler

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        with framework.without_benchmark():
            profiler.stop()

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        interrupted = self._cut_off if self._ending is Ending.INTERRUPTED else ()
        partial = tuple(map(findings.partial_step, interrupted))
        cycle = take(profiler, job_rank, no_steps=self._cut_off).then(lambda trace: trace.with_findings(*partial))
        return replace(cycle, clock=self.clock)


def start_section(options: Mapping[str, bool]) -> Callable[[], Trace]:
    """Begin to record this process as step 1, and return the function that ends the recording and returns its Trace.
    Raises CaptureError without Paddle or if another Profiler exists, and UsageError for an unknown option."""
    arguments = profiler_arguments(options, OPTIONS, "paddle", INSTEAD)
    recording = framework.profiler().ProfilerState.RECORD
    # without a callback, Paddle writes a file into the current folder
    profiler = framework.only_profiler(scheduler=lambda _: recording, on_trace_ready=lambda _: None, **arguments)
    profiler.step_num = 1
    with framework.without_benchmark():
        profiler.start()

    def stop() -> None:
        profiler.step_num = 2  # otherwise take() reports the running step as partial
        with framework.without_benchmark():
            profiler.stop()
        profiler.profiler = None  # Paddle creates no other profiler while this is set

    other = signals.OtherProfilerPatch(type(profiler), "__init__", stop)

    def finish() -> Trace:
        other.restore()
        other.check_section()
        stop()
        return take(profiler, job_rank()).finish()

    return finish


DEMO: Final = Demo(
    Path(__file__).with_name("demo_training.py"),
    fix={
        "LOG_EVERY = 1": "LOG_EVERY = 100",
        "    labels = ": '    images = np.array(images, "float32") / 255\n    labels = ',
        "paddle.to_tensor([[pixel / 255 for pixel in image] for image in images[chosen]])":
            "paddle.to_tensor(images[chosen])",
    },
    rules=("tensors-from-lists", "save-each-step"),
)  # fmt: skip
RECORDER: Final = Recorder(
    ScriptRecording,
    DEMO,
    INSTEAD,
    section=start_section,
    timer=later("perfkit_paddle.throughput", "timer"),
    loop=PaddleRecording,
)
