"""Recording of unmodified torch scripts, recording of selected training steps, and the demo training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.frameworks import Demo, Recorder
from perfkit_core.recording import environment, signals, step_calls, writer
from perfkit_core.recording.step_clock import Action, StepClock
from perfkit_core.recording.step_recording import CallbackRecording, Ending, profiler_arguments
from perfkit_core.trace.assembly.steps import EMPTY, PARTIAL
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import framework
from perfkit_torch.on_trace_ready import job_rank, take

OPTIONS: Final = {
    "shapes": "record_shapes", "memory": "profile_memory", "stacks": "with_stack", "flops": "with_flops"
}  # fmt: skip
_FAILED: Final = "recording failed, the script continues"


class ScriptRecording:
    """The profiler of an unmodified script. A step ends when ``step()`` of the first optimizer returns, or with what
    the option ``step_on`` names. Iterations are numbered from 0. The first iteration, which contains the start of the
    script, and events after the last end of a step belong to no step. Raises CaptureError if torch cannot be
    imported, and UsageError for options that torch cannot record."""

    def __init__(self, run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> None:
        torch = framework.torch()
        self._handler: writer.CycleWriter[Any] = writer.CycleWriter(run_dir, self._take, process_rank=job_rank)
        flags = {name: value for name, value in options.items() if name != step_calls.OPTION}
        arguments = profiler_arguments(flags, OPTIONS, "torch")
        self._profiler = torch.profiler.profile(on_trace_ready=self._handler, **arguments)
        self._label = torch.profiler.record_function
        self._open: Any = None
        self._last_step = steps
        self._step = 0  # which belongs to no step
        self._running = True
        self._clock = StepClock()
        self._step_on, hooks = options.get(step_calls.OPTION), (self._after_update, self._before_update)
        self._updates = step_calls.watched(self._step_on, framework.Updates, framework.Ranges, *hooks)
        with framework.no_warning_about_cycles():
            self._profiler.start()
        autograd = torch.autograd.profiler.profile  # all of torch's profilers use this class
        self._other = signals.OtherProfilerPatch(autograd, "_prepare_trace", self._stop_safely)

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        return take(profiler, job_rank, self._clock)

    def _before_update(self) -> None:
        if self._last_step is not None and self._step > self._last_step:
            self._stop_safely()  # stopping within the last step would make that step longer

    def _after_update(self) -> None:
        self._step += 1
        records = self._running and (self._last_step is None or self._step <= self._last_step)
        self._clock.begins(self._step, Action.RECORD if records else Action.OFF)
        if not self._running:
            return
        with signals.guarded(_FAILED):
            self._close()
            if records:
                self._open = self._label(f"ProfilerStep#{self._step}")
                self._open.__enter__()

    def _stop_safely(self) -> None:
        with signals.guarded(_FAILED):
            self._stop()

    def _stop(self) -> None:
        with signals.shared().delayed():
            if self._running:
                self._running = False
                self._other.restore()
                try:
                    self._profiler.stop()
                finally:
                    self._close()

    def _close(self) -> None:
        """Close the label of the step. A label must never outlive its recording: torch writes the end of a label into
        the memory of the recording in which it began. If a later recording runs, that memory may already be freed."""
        label, self._open = self._open, None
        if label is not None:
            label.__exit__(None, None, None)

    def finish(self) -> int:
        """End the recording and return the number of written files. Raises CaptureError if it ended early."""
        self._stop()
        self._updates.end()
        step_calls.warn_without_steps(self._step, self._step_on)
        written = len(self._handler.written)
        self._other.check()
        return written


class TorchRecording(CallbackRecording):
    """Records steps with ``torch.profiler.profile(**options)``, for perfkit's Lightning and Transformers callbacks."""

    def profiler_class(self) -> Callable[..., Any]:
        profile: Callable[..., Any] = framework.torch().profiler.profile
        return profile

    def step_profiler(self) -> TorchStepProfiler:
        return TorchStepProfiler(self)


class TorchStepProfiler:
    """The :class:`perfkit_core.recording.step_recording.StepProfiler` of torch. It starts and stops torch's profiler,
    and labels the steps. The schedule of torch.profiler is not used, because it counts steps from 0. A resumed training
    begins with a later step."""

    def __init__(self, recording: TorchRecording) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(
            recording.run_dir, self._take, recording.also, job_rank, demand=recording.demand
        )
        self.clock = StepClock()
        self._torch = framework.torch()
        self._options = recording.options
        self._profiler: Any = None
        self._recording = False
        self._label: Any = None
        self._ending = Ending.ENDED

    def warm_up(self, step: int) -> None:
        """Start tracing the device, which is slow the first time. Raises CaptureError if another profiler runs."""
        framework.refuse_second_profiler()
        self._profiler = self._torch.profiler.profile(**self._options)
        with framework.no_warning_about_cycles():
            self._profiler.prepare_trace()

    def start(self, step: int) -> None:
        if self._profiler is None:
            self.warm_up(step)
        self._profiler.start_trace()
        self._recording = True
        self._open(step)

    def next(self, step: int) -> None:
        self._close()
        self._open(step)

    def stop(self, ending: Ending) -> None:
        """Write the cycle. If the last step has not ended, its label stays open. torch then records a partial step."""
        if ending is Ending.ENDED:
            self._close()
        self._ending = ending
        self.writer(self._stop())

    def cancel(self) -> None:
        """Stop without writing. A profiler in its warm-up is first started, because torch cannot stop it otherwise."""
        if not self._recording:
            self._profiler.start_trace()
        self._stop()

    def _stop(self) -> Any:
        profiler, self._profiler, self._recording = self._profiler, None, False
        try:
            profiler.stop_trace()
        finally:
            self._close()
        return profiler

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        cycle = take(profiler, job_rank, self.clock)
        if self._ending is Ending.INTERRUPTED:
            return cycle

        def without_partial_step(trace: Trace) -> Trace:  # the last label may be of a step that has not begun
            return replace(trace, quality=tuple(f for f in trace.quality if f.code not in (PARTIAL, EMPTY)))

        return cycle.then(without_partial_step)

    def _open(self, step: int) -> None:
        self._label = self._torch.profiler.record_function(f"ProfilerStep#{step}")
        self._label.__enter__()

    def _close(self) -> None:  # for the reason see ScriptRecording._close
        label, self._label = self._label, None
        if label is not None:
            label.__exit__(None, None, None)


DEMO: Final = Demo(
    Path(__file__).with_name("demo_training.py"),
    fix={
        "LOG_EVERY = 1": "LOG_EVERY = 100",
        "    labels = ": '    images = np.array(images, "float32") / 255\n    labels = ',
        "torch.tensor([[pixel / 255 for pixel in image] for image in images[chosen]])":
            "torch.from_numpy(images[chosen])",
    },
    rules=("tensors-from-lists", "save-each-step"),
)  # fmt: skip
RECORDER: Final = Recorder(
    ScriptRecording,
    DEMO,
    section=later("perfkit_torch.section", "start"),
    timer=later("perfkit_torch.throughput", "timer"),
    loop=TorchRecording,
)
