"""Recording of unmodified Paddle scripts, of selected training steps and of sections, and the demo training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.packages import later
from perfkit_core.plugins.frameworks import Demo, Recorder
from perfkit_core.recording import environment, script_recording, signals, writer
from perfkit_core.recording.script_recording import ScriptRecording
from perfkit_core.recording.step_clock import StepClock
from perfkit_core.recording.step_recording import CallbackRecording, Ending, Held, Target, profiler_arguments
from perfkit_core.recording.window_limit import EventEstimate
from perfkit_core.trace.model.meta import Finding
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
EVENTS: Final = (40, 700, 4_000_000)
"""Bytes that Paddle's profiler needs at least for an event while it records, and more at the end of a cycle; most
events."""
_WITH_MEMORY: Final = 1_000_000
"""Most events if allocations are recorded. Paddle then needs 18 s at the end, four times as long for twice as many."""


def record_script(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> ScriptRecording:
    """Begin to record an unmodified script. A step ends with each update of the first optimizer, or with each run of
    the first static program. Raises CaptureError if Paddle or its profiler cannot run, and UsageError for options that
    Paddle cannot record."""
    arguments = profiler_arguments(script_recording.flags(options), OPTIONS, "paddle", INSTEAD)
    profiling = framework.profiler()  # importing Paddle sets a handler of SIGTERM, which the writer replaces
    # The first Profiler labels the updates of optimizers. A step must end after this label, so the hooks come later.
    profiling.utils.wrap_optimizers()
    script = script_recording.Script(
        lambda: PaddleStepProfiler(Target(run_dir, arguments), of_script=True),
        framework.Updates,
        framework.Ranges,
        lambda after: script_recording.AfterCalls(framework.paddle().Tensor, "backward", after),
        framework.paddle().nn.Layer,
        lambda end: signals.OtherProfilerPatch(profiling.Profiler, "__init__", end),
    )
    return ScriptRecording(script, steps, options)


class PaddleRecording(CallbackRecording):
    """Recording for callbacks, with Paddle's profiler. ``options`` are arguments of paddle.profiler.Profiler."""

    def profiler_class(self) -> Callable[..., Any]:
        profiler: Callable[..., Any] = framework.profiler().Profiler
        return profiler

    def step_profiler(self, target: Target) -> PaddleStepProfiler:
        return PaddleStepProfiler(target)


class PaddleStepProfiler:
    """The StepProfiler for Paddle. Each cycle has a new Profiler. The old one is freed first: only one per process."""

    def __init__(self, target: Target, of_script: bool = False) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(
            target.run_dir, self._take, target.also, job_rank, demand=target.demand
        )
        self.clock = StepClock()
        self._options = target.options
        self._of_script = of_script
        self._profiler: Any = None
        self._state: Any = None
        self._wait: Any = None
        self._before: frozenset[int] = frozenset()  # number of what was recorded before the first step
        self._no_steps: frozenset[int] = frozenset()
        self._findings = tuple[Finding, ...]()
        self._estimate = EventEstimate(*EVENTS)

    def warm_up(self, step: int) -> None:
        self._begin(framework.profiler().ProfilerState.READY, step)

    def start(self, step: int | None) -> None:
        recording = framework.profiler().ProfilerState.RECORD
        self._before = frozenset({0} if step is None else ())
        if self._profiler is None:
            self._begin(recording, step or 0)
        else:
            self._state = recording
            self.next(step or 0)
        recording, stop, most = EVENTS
        most = _WITH_MEMORY if self._options.get("profile_memory") else most
        self._estimate = EventEstimate(recording, stop, most)

    def next(self, step: int) -> None:
        self._profiler.step_num = step - 1
        with framework.without_benchmark():
            self._profiler.step()

    def hold(self, ending: Ending) -> Held:
        running, before = self._profiler.step_num, self._before
        partial = tuple(map(findings.partial_step, (running,))) if ending is Ending.INTERRUPTED else ()
        self._profiler.step_num = running + 1  # otherwise take() reports the running step as partial
        profiler = self._stop()

        def write(*more: Finding) -> None:
            self._no_steps = before if ending is Ending.ENDED else before | {running}
            self._findings = (*partial, *more)
            self.writer(profiler)

        return write

    def records_waits(self, source: Any) -> bool:
        loading = framework.paddle().io.dataloader.dataloader_iter
        return isinstance(source, (framework.paddle().io.DataLoader, loading._DataLoaderIterBase))

    def begin_wait(self, label: str) -> None:
        profiling = framework.profiler()
        self._wait = profiling.RecordEvent(label, profiling.TracerEventType.Dataloader)
        self._wait.begin()

    def end_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end()

    def estimate(self) -> EventEstimate:
        return self._estimate

    def events(self) -> int | None:
        return None

    def cancel(self) -> None:
        """Stop without writing. Suppress Paddle's warning about a warm-up without recording."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._stop()

    def may_stop(self) -> bool:
        return True

    def forked(self) -> None:
        """Do nothing: workers of Paddle's data loaders run hardly any operators."""

    def _begin(self, state: Any, step: int) -> None:
        self._state = state
        # without a callback, Paddle writes a file into the current folder
        profiler = framework.only_profiler(
            self._of_script, scheduler=lambda _: self._state, on_trace_ready=lambda _: None, **self._options
        )
        profiler.step_num = step
        with framework.without_benchmark():
            profiler.start()
        self._profiler = profiler

    def _stop(self) -> Any:
        self.end_wait()
        profiler, self._profiler = self._profiler, None
        with framework.without_benchmark():
            profiler.stop()
        profiler.profiler = None  # Paddle creates no other profiler while this is set
        return profiler

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        more = self._findings
        cycle = take(profiler, job_rank, no_steps=self._no_steps).then(lambda trace: trace.with_findings(*more))
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
    record_script,
    DEMO,
    INSTEAD,
    section=start_section,
    timer=later("perfkit_paddle.throughput", "timer"),
    loop=PaddleRecording,
)
