"""Recording of a section of a program in memory, with the lines of code that called its operators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from perfkit_core.recording import signals
from perfkit_core.recording.step_recording import profiler_arguments
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.user_code import SEPARATOR
from perfkit_torch import framework
from perfkit_torch.on_trace_ready import job_rank, take
from perfkit_torch.record import OPTIONS

Frame = tuple[str, int, str]
"""File, line and function."""


def start(options: Mapping[str, bool]) -> Callable[[], Trace]:
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
