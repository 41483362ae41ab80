"""Calls that load code to a device: first launches of kernels, and calls that load modules and libraries.

Runtimes load the code of a kernel when a process launches it for the first time. The call then takes hundreds of
microseconds to seconds, instead of a few microseconds. A call counts if it is the first launch of a kernel in the
recording, takes at least :data:`_LONG_NS`, and :data:`_TIMES` times as long as quick launches of its rank. A launch
that waits because the queue is full does so while the device works, and this time does not count.

A step is *cold* if such calls take at least :data:`_SHARE` of it while no device of the rank works. It shows how a
program starts, not how long its other steps take.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.base.language.messages import message, plural
from perfkit_core.trace.assembly import server_steps
from perfkit_core.trace.assembly.graph_capture import calls_named
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace

COLD: Final = "first-launches"
ONLY_COLD: Final = "only-first-launches"
"""Codes of the findings that some steps, or all that was recorded, contain such calls."""
_RUNTIME: Final = r"(?:cuda|hip|cu|mu|musa|xpu|ze|acl|aclrt)_?"
_LAUNCH: Final = re.compile(rf"{_RUNTIME}\w*(?:Launch\w*Kernel|KernelLaunch)")
_LOADS: Final = re.compile(rf"{_RUNTIME}(?:(?:Module|Library)(?:Load|GetFunction|GetKernel)|Link|BinaryLoad)")
_LONG_NS: Final = 100_000
_TIMES: Final = 20
_QUICK: Final = 0.1
"""Quantile of the launches that are quick. In a short recording, many launches may load code."""
_SHARE: Final = 0.2


@once
def loading_calls(trace: Trace) -> BoolArray:
    """Return the mask of the calls that load code to a device, shape (rows,)."""
    mask, launched_by, rank = calls_named(trace, _LOADS), trace.ints("launched_by"), trace.ints("rank")
    launches = calls_named(trace, _LAUNCH)
    kernels = np.flatnonzero(trace.rows("kind", schema.KERNEL) & (launched_by != NO_ROW))
    kernels = kernels[launches[launched_by[kernels]]]
    kernels = kernels[np.argsort(launched_by[kernels], kind="stable")]
    for number in np.unique(rank[kernels]).tolist():
        mine = kernels[rank[kernels] == number]
        first = launched_by[mine[np.unique(trace.codes("name").codes[mine], return_index=True)[1]]]
        took_ns = trace.ints("dur_ns")[first]
        quick_ns = np.quantile(trace.ints("dur_ns")[launches & (rank == number)], _QUICK)
        mask[first[(took_ns >= _LONG_NS) & (took_ns >= _TIMES * quick_ns)]] = True
    return mask


@once
def loading_times(trace: Trace, rank: int) -> Intervals:
    """Return when calls of a rank load code, and no device of the rank works."""
    start, end, of_rank = trace.ints("start_ns"), trace.end_ns, trace.ints("rank") == rank
    loading = intervals.union_of(np.flatnonzero(loading_calls(trace) & of_rank), start, end)
    if not len(loading[0]):
        return loading
    work = np.flatnonzero(of_rank & trace.rows("kind", *schema.DEVICE_WORK))
    return intervals.subtract(loading, intervals.union_of(work, start, end))


@once
def cold_steps(trace: Trace) -> BoolArray:
    """Return the mask of the steps that are long because code is loaded in them, shape (rows,)."""
    mask, steps = np.zeros(len(trace), np.bool_), np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    for rank in np.unique(trace.ints("rank")[steps]).tolist():
        mine = steps[trace.ints("rank")[steps] == rank]
        begin, end = trace.ints("start_ns")[mine], trace.end_ns[mine]
        mask[mine] = intervals.covered_ns(loading_times(trace, rank), begin, end) >= _SHARE * np.maximum(end - begin, 1)
    return mask


def warm_only(trace: Trace) -> Trace:
    """Return the trace without its cold steps, whose events then belong to no step. If all are cold, return it
    unchanged."""
    steps, cold = trace.host & trace.rows("kind", schema.STEP), cold_steps(trace)
    some = cold.any() and (steps & ~cold).any()
    return server_steps.without_steps(trace, np.flatnonzero(cold)) if some else trace


def findings(trace: Trace) -> tuple[Finding, ...]:
    """Return a note on the cold steps of a trace of one rank, a warning if there are no others. Without steps, warn if
    the recording is cold as a whole."""
    loading = loading_calls(trace)
    if not loading.any():
        return ()
    steps = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    cold = steps[cold_steps(trace)[steps]]
    times = loading_times(trace, int(trace.ints("rank")[loading.argmax()]))
    edges = trace.ints("start_ns").min(keepdims=True), trace.end_ns.max(keepdims=True)
    if len(steps):
        edges = trace.ints("start_ns")[cold], trace.end_ns[cold]
    time_ns, whole_ns = int(intervals.covered_ns(times, *edges).sum()), int((edges[1] - edges[0]).sum())
    values = {"time": time_ns, "share": time_ns / max(whole_ns, 1), "calls": _longest(trace, loading)}
    if len(steps) and len(cold) < len(steps):
        numbers = np.unique(trace.ints("step")[cold]).tolist()
        text = plural(
            "step {numbers:and} is not steady: for {time:ns} of it ({share:ratio}), calls load kernels that run for "
            "the first time ({calls})",
            "steps {numbers:and} are not steady: for {time:ns} of them ({share:ratio}), calls load kernels that run "
            "for the first time ({calls})",
            len(numbers), numbers=[str(number) for number in numbers], **values,
        )  # fmt: skip
        return (Finding(COLD, text, note=True),) if len(numbers) else ()
    if time_ns < _SHARE * whole_ns:
        return ()
    text = message(
        "all times include first launches: for {time:ns} ({share:ratio}), calls load kernels that run for the first "
        "time ({calls}). These times show how the program starts: record later steps, after a warm-up",
        **values,
    )
    return (Finding(ONLY_COLD, text),)


def _longest(trace: Trace, loading: BoolArray) -> str:
    """Return the name of the calls that take most of the time."""
    rows, names = np.flatnonzero(loading), trace.codes("name")
    time_ns: IntArray = np.bincount(names.codes[rows], trace.ints("dur_ns")[rows]).astype(np.int64)
    return str(names.values[int(time_ns.argmax())])
