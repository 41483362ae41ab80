"""How much of the time in operators is computation, and how much is the framework's own?

Operator time is the union of the outermost operators of each thread, and that of the device work launched in them on
each stream, added. What of it is computation says :mod:`perfkit_core.analyses.fluid.computing`; the rest is overhead:
dispatch, inference of shapes, preparation of data, calls into the device's runtime. Never negative, as computation
lies inside the operators.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import intervals, nesting
from perfkit_core.analyses.fluid import scope
from perfkit_core.analyses.fluid.computing import computing
from perfkit_core.analyses.fluid.threads import thread_numbers
from perfkit_core.analyses.tables import ratio
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import NO_ROW, RUNTIME, SYNC
from perfkit_core.trace import IntArray, Trace

ROWS = ("total time", "computation", "framework overhead")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name (of ROWS), total_ns (cpu + device), cpu_ns, device_ns, ratio (to the total time). Computation and
    overhead add up to the total, exactly. No rows where no operators were recorded."""
    root = scope.outermost(trace, request)
    count = len(ROWS) if (root != NO_ROW).any() else 0
    cpu = _rows(_operator_ns(trace, root), _computing_ns(trace, root))
    device = _rows(*_device_ns(trace, root))
    result = pd.DataFrame({"name": ROWS, "total_ns": cpu + device, "cpu_ns": cpu, "device_ns": device})
    result["ratio"] = ratio(result["total_ns"], int(result["total_ns"].iloc[0]))
    return result.head(count)


def total_time(trace: Trace, request: ViewRequest) -> int:
    """The total time of all operators in the steps of a request, ns."""
    root = scope.outermost(trace, ViewRequest(steps=request.steps))
    return _operator_ns(trace, root) + _device_ns(trace, root)[0]


def _rows(total: int, computation: int) -> IntArray:
    return np.array([total, computation, total - computation], np.int64)


def _operator_ns(trace: Trace, root: IntArray) -> int:
    return _covered(trace, root, np.flatnonzero(root == np.arange(len(trace))))


def _computing_ns(trace: Trace, root: IntArray) -> int:
    """Union of what computes less the calls into the runtime in it."""
    computes = computing(trace)
    inside = nesting.nearest_on_path(trace.ints("parent"), computes)
    calls = trace.rows("kind", RUNTIME, SYNC) & (inside != NO_ROW) & (root != NO_ROW)
    within = _covered(trace, root, np.flatnonzero(calls), inside[calls])
    return _covered(trace, root, np.flatnonzero(computes & (root != NO_ROW))) - within


def _covered(trace: Trace, root: IntArray, rows: IntArray, around: IntArray | None = None) -> int:
    """Union of the rows for each thread, summed; cut where they stick out of their operator (or what is ``around``)."""
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    for outer in (root[rows],) if around is None else (root[rows], around):
        start, end = np.maximum(start, trace.ints("start_ns")[outer]), np.minimum(end, trace.end_ns[outer])
    thread, first = thread_numbers(trace)
    return int(intervals.union_length_by(thread[root[rows]], len(first), start, end).sum())


def _device_ns(trace: Trace, root: IntArray) -> tuple[int, int]:
    """Of the device work launched in operators: its union for each stream, summed, and that of what computes."""
    inside = nesting.nearest_on_path(trace.ints("parent"), computing(trace))
    work = scope.launches(trace)
    work = work[root[trace.ints("launched_by")[work]] != NO_ROW]
    computed = work[inside[trace.ints("launched_by")[work]] != NO_ROW]
    return _occupied(trace, work), _occupied(trace, computed)


def _occupied(trace: Trace, work: IntArray) -> int:
    queue = [trace.ints("rank")[work], trace.codes("device").codes[work], trace.ints("stream")[work]]
    streams, stream = np.unique(np.stack(queue, axis=1), axis=0, return_inverse=True)
    start, end = trace.ints("start_ns")[work], trace.end_ns[work]
    return int(intervals.union_length_by(stream.reshape(-1), len(streams), start, end).sum())


VIEW = View(
    name="fluid_overhead",
    title="Overhead Summary",
    description="computation and framework overhead in the operators, on the host and of the device work they launched",
    table=table,
    explain_empty=lambda trace: "no operators were recorded",
    group=scope.GROUP,
    per_step=("total_ns", "cpu_ns", "device_ns"),
)
