"""Recording of unmodified torch scripts, of selected training steps and of sections, and the demo training."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.frameworks import Demo, Recorder
from perfkit_core.recording import environment, script_recording, signals, writer
from perfkit_core.recording.script_recording import ScriptRecording
from perfkit_core.recording.step_clock import StepClock
from perfkit_core.recording.step_recording import CallbackRecording, Ending, Held, Target, profiler_arguments
from perfkit_core.recording.window_limit import EventEstimate
from perfkit_core.trace.assembly.steps import EMPTY, PARTIAL
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.user_code import SEPARATOR
from perfkit_torch import framework
from perfkit_torch.on_trace_ready import job_rank, take

OPTIONS: Final = {
    "shapes": "record_shapes", "memory": "profile_memory", "stacks": "with_stack", "flops": "with_flops"
}  # fmt: skip
EVENTS: Final = (400, 2500, 1_250_000)
"""Bytes that torch's profiler needs for an event with shapes: while it records, and more when it stops; most events."""
EVENTS_OF_OPERATOR: Final = 10
"""Events of a differentiable operator: of itself, of the operators that it calls, and of its backward pass."""
_WITH_ALLOCATIONS: Final = 1.4
"""Factor of the events if allocations and frees are recorded."""
_STACKS: Final = 2
"""Factor of the memory at the end if stacks are recorded: perfkit's reading needs the rest."""


def record_script(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> ScriptRecording:
    """Begin to record an unmodified script. Iterations are numbered from 0. The first iteration, which contains the
    start of the script, and events after the last end of a step belong to no step. Raises CaptureError if torch cannot
    be imported, and UsageError for options that torch cannot record."""
    torch = framework.torch()
    arguments = profiler_arguments(script_recording.flags(options), OPTIONS, "torch")
    script = script_recording.Script(
        lambda: TorchStepProfiler(Target(run_dir, arguments)),
        framework.Updates,
        framework.Ranges,
        lambda after: script_recording.AfterCalls(torch.autograd, "backward", after),
        torch.nn.Module,
        # all of torch's profilers use this class
        lambda end: signals.OtherProfilerPatch(torch.autograd.profiler.profile, "_prepare_trace", end),
    )
    return ScriptRecording(script, steps, options)


class TorchRecording(CallbackRecording):
    """Records steps with ``torch.profiler.profile(**options)``, for perfkit's Lightning and Transformers callbacks."""

    def profiler_class(self) -> Callable[..., Any]:
        profile: Callable[..., Any] = framework.torch().profiler.profile
        return profile

    def step_profiler(self, target: Target) -> TorchStepProfiler:
        return TorchStepProfiler(target)


class TorchStepProfiler:
    """The :class:`perfkit_core.recording.step_recording.StepProfiler` of torch. It starts and stops torch's profiler,
    and labels the steps. The schedule of torch.profiler is not used, because it counts steps from 0. A resumed training
    begins with a later step."""

    def __init__(self, target: Target) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(
            target.run_dir, self._take, target.also, job_rank, demand=target.demand
        )
        self.clock = StepClock()
        self._torch = framework.torch()
        self._options = target.options
        self._profiler: Any = None
        self._recording = False
        self._thread: int | None = None  # the only thread that can stop the profiler
        self._label: Any = None
        self._wait: Any = None
        self._ending, self._findings = Ending.ENDED, tuple[Finding, ...]()
        self._updates = framework.update_events()
        self._estimate = EventEstimate(*EVENTS)

    def warm_up(self, step: int) -> None:
        """Start tracing the device, which is slow the first time. Raises CaptureError if another profiler runs."""
        self._prepare(threading.current_thread() is not threading.main_thread())

    def _prepare(self, all_threads: bool) -> None:
        """``all_threads``: record the other threads, too, and let any thread stop the profiler. torch then records no
        allocations."""
        framework.refuse_second_profiler()
        every = framework.all_threads() if all_threads and not self._options.get("profile_memory") else {}
        self._thread = None if every else threading.get_ident()
        self._profiler = self._torch.profiler.profile(**{**every, **self._options})
        with framework.quiet_start():
            self._profiler.prepare_trace()

    def may_stop(self) -> bool:
        return self._thread in (None, threading.get_ident())

    def start(self, step: int | None) -> None:
        if self._profiler is None:  # after the start of the script, it may train in any thread
            self._prepare(step is None or threading.current_thread() is not threading.main_thread())
        self._profiler.start_trace()
        self._recording = True
        sequence, updates = self._torch._C._autograd._get_sequence_nr, self._updates
        begun, updates.total, updates.counts = sequence(), 0, True
        factor = _WITH_ALLOCATIONS if self._options.get("profile_memory") else 1

        def counted() -> int:
            return int(factor * (EVENTS_OF_OPERATOR * (sequence() - begun) + updates.total))

        recording, stop, most = EVENTS
        stop *= _STACKS if self._options.get("with_stack") else 1
        self._estimate = EventEstimate(recording, stop, most, counted)
        if step is not None:
            self._open(step)

    def next(self, step: int) -> None:
        self._close()
        self._open(step)

    def hold(self, ending: Ending) -> Held:
        """Stop. If the last step has not ended, its label stays open. torch then records a partial step."""
        if ending is Ending.ENDED:
            self._close()
        profiler = self._stopped = self._stop()

        def write(*findings: Finding) -> None:
            self._ending, self._findings = ending, findings
            self.writer(profiler)

        return write

    def records_waits(self, source: Any) -> bool:
        data = self._torch.utils.data.dataloader
        return isinstance(source, (data.DataLoader, data._BaseDataLoaderIter))

    def begin_wait(self, label: str) -> None:
        self._wait = self._torch.profiler.record_function(label)
        self._wait.__enter__()

    def end_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.__exit__(None, None, None)

    def estimate(self) -> EventEstimate:
        return self._estimate

    def events(self) -> int | None:
        return len(self._stopped.profiler.kineto_results.events())

    def cancel(self) -> None:
        """Stop without writing. A profiler in its warm-up is first started, because torch cannot stop it otherwise."""
        if not self._recording:
            self._profiler.start_trace()
        self._torch._C._autograd._enable_record_function(True)
        self._stop()

    def forked(self) -> None:
        self._torch._C._autograd._enable_record_function(False)
        if self._options.get("with_stack"):
            sys.setprofile(None)
        if self._options.get("profile_memory"):  # only stopping ends the recording of allocations
            self.cancel()

    def _stop(self) -> Any:
        self.end_wait()
        profiler, self._profiler, self._recording = self._profiler, None, False
        self._updates.counts = False
        try:
            profiler.stop_trace()
        finally:
            self._close()
        return profiler

    def _take(self, profiler: Any, job_rank: environment.ProcessRank) -> writer.DetachedCycle:
        self._stopped = None
        findings = self._findings
        cycle = take(profiler, job_rank, self.clock).then(lambda trace: trace.with_findings(*findings))
        if self._ending is Ending.INTERRUPTED:
            return cycle

        def without_partial_step(trace: Trace) -> Trace:  # the last label may be of a step that has not begun
            return replace(trace, quality=tuple(f for f in trace.quality if f.code not in (PARTIAL, EMPTY)))

        return cycle.then(without_partial_step)

    def _open(self, step: int) -> None:
        self._label = self._torch.profiler.record_function(f"ProfilerStep#{step}")
        self._label.__enter__()

    def _close(self) -> None:
        """Close the label of the step. A label must never outlive its recording: torch writes the end of a label into
        the memory of the recording in which it began. If a later recording runs, that memory may already be freed."""
        label, self._label = self._label, None
        if label is not None:
            label.__exit__(None, None, None)


Frame = tuple[str, int, str]
"""File, line and function."""


def start_section(options: Mapping[str, bool]) -> Callable[[], Trace]:
    """Begin to record this process as step 1, and return the function that ends the recording and returns its Trace.
    Raises CaptureError without torch or if another profiler runs, and UsageError for an unknown option."""
    torch = framework.torch()
    arguments = profiler_arguments(options, OPTIONS, "torch")
    framework.refuse_second_profiler()
    profiler = torch.profiler.profile(**arguments)
    with framework.quiet_start():
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
    record_script,
    DEMO,
    section=start_section,
    timer=later("perfkit_torch.throughput", "timer"),
    loop=TorchRecording,
)
