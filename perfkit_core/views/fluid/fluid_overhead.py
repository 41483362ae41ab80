"""How much of the time in operators is computation, and how much is the framework's own?

Operator time is the union of the outermost operators of each thread, and that of the device work launched in them on
each stream, added. Computation are the host events that compute (:func:`computing`) without their
calls into the device's runtime, kernels, and the copies and fills that computing events launched. The rest is
overhead: dispatch, inference of shapes, preparation of data, launches. Never negative, as it lies in the operators too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, intervals, nesting, regex
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEPTH, DEVICE, HOST, NAME, RATIO, Share, duration
from perfkit_core.model.schema import KERNEL, OPERATOR_DETAIL, RUNTIME, SYNC
from perfkit_core.model.trace import Trace, once
from perfkit_core.operators.names import CANONICAL, GRADIENT_SUFFIX
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views.fluid import scope
from perfkit_core.views.fluid.scope import thread_numbers
from perfkit_core.views.merging import in_order_of
from perfkit_core.views.tables import ratio

OVERHEAD: Final = ("total time", "computation", "framework overhead", "calls into the device's runtime")
"""Names of the rows."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Computation and framework overhead add up to the total, exactly; the calls are part of the overhead, and left out
    where none were recorded. No rows without operators. See :data:`COLUMNS`."""
    root = scope.outermost(trace, request)
    inside = nesting.nearest_on_path(trace.ints("parent"), computing(trace))
    cpu, device = _host_rows(trace, root, inside), _device_rows(trace, root, inside)
    result = pd.DataFrame({"depth": [0, 0, 0, 1], "name": OVERHEAD, "total_ns": cpu + device, "cpu_ns": cpu,
                           "device_ns": device})  # fmt: skip
    result["ratio"] = ratio(result["total_ns"], int(cpu[0] + device[0]))
    calls = trace.rows("kind", RUNTIME, SYNC).any()
    return result.head((4 if calls else 3) if (root != NO_ROW).any() else 0)


def total_time(trace: Trace, request: ViewRequest) -> int:
    """The total time of all operators in the steps of a request, ns."""
    root = scope.outermost(trace, ViewRequest(steps=request.steps))
    return _covered(trace, thread_numbers(trace)[0], root, _outermost(root)) + _occupied(trace, _launched(trace, root))


def _host_rows(trace: Trace, root: IntArray, inside: IntArray) -> IntArray:
    """What computes is its union less the calls into the runtime in it."""
    threads, counted = thread_numbers(trace)[0], root != NO_ROW
    calls = trace.rows("kind", RUNTIME, SYNC) & counted
    computes, computing_calls = computing(trace) & counted, calls & (inside != NO_ROW)
    total = _covered(trace, threads, root, _outermost(root))
    runtime = _covered(trace, threads, root, np.flatnonzero(calls))
    within = _covered(trace, threads, root, np.flatnonzero(computing_calls), inside)
    computation = _covered(trace, threads, root, np.flatnonzero(computes)) - within
    return np.array([total, computation, total - computation, runtime], np.int64)


def _device_rows(trace: Trace, root: IntArray, inside: IntArray) -> IntArray:
    """Kernels compute, and the copies and fills launched by what computes."""
    work = _launched(trace, root)
    computes = trace.rows("kind", KERNEL)[work] | (inside[trace.ints("launched_by")[work]] != NO_ROW)
    total, computation = _occupied(trace, work), _occupied(trace, work[computes])
    return np.array([total, computation, total - computation, 0], np.int64)


def _outermost(root: IntArray) -> IntArray:
    return np.flatnonzero(nesting.is_own(root))


def _launched(trace: Trace, root: IntArray) -> IntArray:
    """Device work launched in the operators."""
    work = scope.launches(trace)
    inside: IntArray = work[root[trace.ints("launched_by")[work]] != NO_ROW]
    return inside


def _covered(trace: Trace, threads: IntArray, root: IntArray, rows: IntArray, around: IntArray | None = None) -> int:
    """Union of the rows for each thread, summed; cut where they stick out of their operator (or what is ``around``)."""
    start, end, thread = (np.empty(len(rows), np.int64) for _ in range(3))
    around = root if around is None else around
    _cut(rows, trace.ints("start_ns"), trace.end_ns, threads, root, around, start, end, thread)
    return int(intervals.union_length_by(thread, int(thread.max(initial=-1)) + 1, start, end).sum())


@compiled
def _cut(rows, starts, ends, threads, root, around, start, end, thread):  # type: ignore[no-untyped-def]
    for k in range(len(rows)):
        i = rows[k]
        top, outer = root[i], around[i]
        start[k] = max(starts[i], starts[top], starts[outer])
        end[k] = min(ends[i], ends[top], ends[outer])
        thread[k] = threads[top]


def _occupied(trace: Trace, work: IntArray) -> int:
    """Union of device work on each stream, summed."""
    device = trace.codes("device").codes[work]
    stream, first = groupby.distinct([trace.ints("rank")[work], device, trace.ints("stream")[work]], len(work))
    start, end = trace.ints("start_ns")[work], trace.end_ns[work]
    return int(intervals.union_length_by(stream, len(first), start, end).sum())


def _in_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """The rows in the order of the view, with their share of the first."""
    table = in_order_of(table, "name", OVERHEAD)
    return table.assign(ratio=ratio(table["total_ns"], int(table["total_ns"].iloc[0])))


_COMPUTES: Final = "(?i)compute$|kernel ?launch$"
_NO_ARITHMETIC: Final = frozenset(
    {"reshape", "transpose", "expand", "concat", "split", "stack", "slice", "gather", "index", "tile", "flip", "roll",
     "alias", "diagonal", "copy", "cast", "contiguous", "fill", "arange", "assign", "item", "fetch", "metadata",
     "wait_event", "wait_collective", "collective_call", "accumulate_grad", "optimizer_update"}
)  # fmt: skip
"""Canonical names of movement and creation, and of what stands for many operators: what is inside of them computes."""


@once
def computing(trace: Trace) -> BoolArray:
    """True for the host events that compute, rather than dispatch, infer shapes or prepare data, shape (rows,). They
    can lie in each other: take their union.

    - a detail of an operator whose name says so (``conv2d compute``, ``conv2d kernel launch``),
    - the innermost operator that works, where no details were recorded in it: its canonical name stands for arithmetic,
      or it has none and is no leaf. What ``aten::addmm`` calls to allocate, copy or view belongs to it.
    - a leaf: an operator in which no operator and no detail was recorded.
    """
    operators, details = trace.operators, trace.host & trace.rows("kind", OPERATOR_DETAIL)
    name = trace.codes("name")
    says = details & name.lookup(regex.matches(name.values, _COMPUTES), False)
    leaf = operators & ~_holds(trace, operators | details)
    arithmetic, unnamed = _by_name(trace)
    works = operators & (arithmetic | (unnamed & ~leaf))
    found: BoolArray = says | leaf | (works & ~_holds(trace, works) & ~_holds(trace, details))
    return found


def _by_name(trace: Trace) -> tuple[BoolArray, BoolArray]:
    """Where the canonical name stands for arithmetic, and where there is none."""
    codes = trace.codes("op_name")
    known = [name.removesuffix(GRADIENT_SUFFIX) in CANONICAL - _NO_ARITHMETIC for name in codes.values]
    arithmetic: BoolArray = codes.lookup(np.array(known, np.bool_), False)
    return arithmetic, codes.codes < 0


def _holds(trace: Trace, events: BoolArray) -> BoolArray:
    """True for rows with one of the events strictly inside."""
    return nesting.holds(trace.ints("parent"), events)


COLUMNS: Final = (
    DEPTH,
    replace(NAME, words=OVERHEAD),
    duration("total_ns", "Total", per_step=True, description="CPU + device"),
    duration("cpu_ns", "CPU", per_step=True, place=HOST),
    duration("device_ns", "Device", per_step=True, place=DEVICE),
    replace(RATIO, merge=Share("total_ns"), description="of the total time"),
)

VIEW = View(
    name="fluid_overhead",
    title="Overhead Summary",
    description="computation and framework overhead in the operators, on the host and of the device work they launched",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message("no operators were recorded"),
    group=scope.GROUP,
    reduction=MergedRows(finish=_in_order),
)
