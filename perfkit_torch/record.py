"""Recording of unmodified torch scripts, of selected training steps and of sections, and the demo training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.frameworks import Demo, Recorder
from perfkit_core.recording import environment, signals, step_calls, writer
from perfkit_core.recording.step_clock import Action, StepClock
from perfkit_core.recording.step_recording import CallbackRecording, Ending, profiler_arguments
from perfkit_core.trace.assembly.steps import EMPTY, PARTIAL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.user_code import SEPARATOR
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


Frame = tuple[str, int, str]
"""File, line and function."""


def start_section(options: Mapping[str, bool]) -> Callable[[], Trace]:
    """Begin to record this process as step 1, and return the function that ends the recording and returns its Trace.
    Raises CaptureError without torch or if another profiler runs, and UsageError for an unknown option."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler prints a line whenever it starts or stops
    torch = framework.torch()
    arguments = profiler_arguments(options, OPTIONS, "torch")
    framework.refuse_second_profiler()
    profiler = torch.profiler.profile(**arguments)
    with framework.no_warning_about_cycles():
        profiler.start()
    label = torch.profiler.record_function("ProfilerStep#1")
    label.__enter__()

    def stop() -> None:
        label.__exit__(None, None, None)
        profiler.stop()

    autograd = torch.autograd.profiler.profile  # all of torch's profilers use this class
    other = signals.OtherProfilerPatch(autograd, "_prepare_trace", stop)

    def finish() -> Trace:
        other.restore()
        other.check_section()
        stop()
        trace = take(profiler, job_rank()).finish()
        return with_calling_lines(trace, profiler.profiler.kineto_results) if options.get("stacks") else trace

    return finish


def with_calling_lines(trace: Trace, results: Any) -> Trace:
    """Return the trace with the stack of each operator that Python called. The line of a frame is the line of the call.
    If an operator of Python's syntax called it, as in ``float(tensor)``, torch does not record the line of the
    innermost frame. Its line is then the first line of the function."""
    stacks = dict(_stacks(results.experimental_event_tree()))
    names, start = trace.codes("name"), trace.ints("start_ns").tolist()
    operators = trace.operators.tolist()
    texts = [
        stacks.get((start[row], names.values[code])) if operators[row] else None
        for row, code in enumerate(names.codes.tolist())
    ]
    return trace.with_columns(stack=pa.array(texts, pa.string()).cast(trace.events.schema.field("stack").type))


def _stacks(roots: list[Any]) -> Iterator[tuple[tuple[int, str], str | None]]:
    """Yield the start in ns and the name of each operator in torch's tree of events, and its stack."""
    nodes: list[tuple[Any, tuple[Frame, ...]]] = [(root, ()) for root in roots]
    while nodes:
        node, frames = nodes.pop()
        fields = node.extra_fields
        caller, called = getattr(fields, "caller", None), getattr(fields, "callsite", None)
        if caller is not None and frames:
            frames = ((frames[0][0], caller.line_number, frames[0][2]), *frames[1:])
        if called is not None:
            frames = ((called.file_name, called.line_number, called.function_name), *frames)
        if caller is None:
            text = SEPARATOR.join(f"{file}({line}): {function}" for file, line, function in frames)
            yield (node.start_time_ns, node.name), text or None
        nodes += [(child, frames) for child in node.children]


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
    section=start_section,
    timer=later("perfkit_torch.throughput", "timer"),
    loop=TorchRecording,
)
