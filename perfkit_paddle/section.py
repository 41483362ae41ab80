"""Recording of a section of a program in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfkit_core.recording import signals
from perfkit_core.recording.step_recording import profiler_arguments
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import framework
from perfkit_paddle.on_trace_ready import job_rank, take
from perfkit_paddle.record import INSTEAD, OPTIONS


def start(options: Mapping[str, bool]) -> Callable[[], Trace]:
    """Begin to record this process as step 1, and return the function that ends the recording and returns its Trace.
    Raises CaptureError without Paddle or if another Profiler exists, and UsageError for an unknown option."""
    arguments = profiler_arguments(options, OPTIONS, "paddle", INSTEAD)
    recording = framework.profiler().ProfilerState.RECORD
    # without a callback, Paddle writes a file into the current folder
    profiler = framework.only_profiler(scheduler=lambda _: recording, on_trace_ready=lambda _: None, **arguments)
    profiler.step_num = 1
    profiler.start()

    def stop() -> None:
        profiler.step_num = 2  # otherwise take() reports the running step as partial
        profiler.stop()
        profiler.profiler = None  # Paddle creates no other profiler while this is set

    other = signals.OtherProfilerPatch(type(profiler), "__init__", stop)

    def finish() -> Trace:
        other.restore()
        other.check_section()
        stop()
        return take(profiler, job_rank()).finish()

    return finish
