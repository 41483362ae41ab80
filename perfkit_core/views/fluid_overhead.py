"""View ``fluid_overhead``: computation and framework overhead in operators. Also helpers of all ``fluid`` views.

Operator time is host time plus device time. The host time is the union of the outermost operators on each thread. The
device time is the union, on each stream, of the device work that these operators launched. The view splits both:

- Computation on the host: the events that compute (:func:`computing`), without their runtime calls.
- Computation on the device: kernels, and memcpy and memset launched by host events that compute.
- Framework overhead: the rest, such as dispatch, shape inference, data preparation and launches. It is never negative,
  because host events are cut to the operator around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, matches
from perfkit_core.base.language.messages import message
from perfkit_core.base.operators.names import CANONICAL, GRADIENT_SUFFIX
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import DEPTH, DEVICE, HOST, NAME, RATIO, Share, duration
from perfkit_core.trace.model.schema import DEVICE_WORK, KERNEL, NESTED_KINDS, OPERATOR_DETAIL, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import calls
from perfkit_core.views.select import selected, threads
from perfkit_core.views.tables import in_order_of, ratio

GROUP: Final = "fluid"
THREAD: Final = "thread"
INSTANCE: Final = "instance"
GROUPINGS: Final = (THREAD, INSTANCE)

DIRECTIONS: Final = {"HtoD": "CPU->GPU", "DtoH": "GPU->CPU", "DtoD": "GPU->GPU same device",
                     "PtoP": "GPU->GPU other device", "HtoH": "CPU->CPU"}  # fmt: skip
UNKNOWN_DIRECTION: Final = "direction not recorded"

OVERHEAD: Final = ("total time", "computation", "framework overhead", "calls into the device's runtime")

_COMPUTES: Final = "(?i)compute$|kernel ?launch$"
_NO_ARITHMETIC: Final = frozenset(
    {"reshape", "transpose", "expand", "concat", "split", "stack", "slice", "gather", "index", "tile", "flip", "roll",
     "alias", "diagonal", "copy", "cast", "contiguous", "fill", "arange", "assign", "item", "fetch", "metadata",
     "wait_event", "wait_collective", "collective_call", "accumulate_grad", "optimizer_update"}
)  # fmt: skip
"""Canonical operators that do no arithmetic: they move or create data, or they contain the operators that compute."""


def outermost(trace: Trace, request: ViewRequest) -> IntArray:
    """For each event, return the row of the outermost selected operator that contains or is the event, -1 if none."""
    chosen = selected(trace, request)
    if chosen.all():
        return calls.outermost(trace)
    return nesting.outermost(trace.ints("parent"), trace.operators & chosen)


def launches(trace: Trace, *kinds: str) -> IntArray:
    """Return the rows of the device work whose launch was recorded. By default all kinds of device work count."""
    return np.flatnonzero(trace.rows("kind", *(kinds or DEVICE_WORK)) & (trace.ints("launched_by") != NO_ROW))


def direction(copy_kind: str, word: str) -> str:
    """Return the name in Paddle 1.x ("CPU->GPU") of a recorded copy kind ("HtoD pinned"), with a device's word."""
    text = DIRECTIONS.get(copy_kind.split(" ")[0], copy_kind) if copy_kind else UNKNOWN_DIRECTION
    return text.replace("GPU", word)


def device_word(trace: Trace) -> str:
    """Return the word for the devices with work: GPU, or for example NPU."""
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0)]).tolist()
    backends = {codes.values[code].partition(":")[0] for code in used} or {"cuda"}
    return "/".join(sorted("GPU" if backend == "cuda" else backend.upper() for backend in backends))


@once
def thread_numbers(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return two arrays: the thread number of each event (-1 outside host threads), and the first row of each thread.
    Threads are numbered in the order of their first events."""
    every = threads(trace)
    key = np.where(trace.host & trace.rows("kind", *NESTED_KINDS), every.code, -1)
    return groupby.by_appearance(key, len(every))


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the rows :data:`OVERHEAD`, with :data:`COLUMNS`. The table is empty if there are no operators. Computation
    and framework overhead sum exactly to the total. The row of runtime calls is a part of the overhead. This row is
    left out if no runtime calls were recorded."""
    root = outermost(trace, request)
    computes = computing(trace)
    inside = nesting.nearest_on_path(trace.ints("parent"), computes)
    runtime_calls = trace.rows("kind", RUNTIME, SYNC)
    in_operators = root != NO_ROW

    total = _operators_ns(trace, root)
    runtime = _covered(trace, root, np.flatnonzero(runtime_calls & in_operators))
    rows = np.flatnonzero(runtime_calls & in_operators & (inside != NO_ROW))
    runtime_in_computation = _covered(trace, root, rows, inside)
    computation = _covered(trace, root, np.flatnonzero(computes & in_operators)) - runtime_in_computation
    cpu = np.array([total, computation, total - computation, runtime], np.int64)

    work = _launched(trace, root)
    work_computes = trace.rows("kind", KERNEL)[work] | (inside[trace.ints("launched_by")[work]] != NO_ROW)
    total, computation = _occupied(trace, work), _occupied(trace, work[work_computes])
    device = np.array([total, computation, total - computation, 0], np.int64)

    result = pd.DataFrame({"depth": [0, 0, 0, 1], "name": OVERHEAD, "total_ns": cpu + device, "cpu_ns": cpu,
                           "device_ns": device})  # fmt: skip
    result["ratio"] = ratio(result["total_ns"], int(cpu[0] + device[0]))
    return result.head((4 if runtime_calls.any() else 3) if in_operators.any() else 0)


def total_time(trace: Trace, request: ViewRequest) -> int:
    root = outermost(trace, ViewRequest(steps=request.steps))
    return _operators_ns(trace, root) + _occupied(trace, _launched(trace, root))


def _operators_ns(trace: Trace, root: IntArray) -> int:
    return _covered(trace, root, np.flatnonzero(nesting.is_own(root)))


def _launched(trace: Trace, root: IntArray) -> IntArray:
    work = launches(trace)
    inside: IntArray = work[root[trace.ints("launched_by")[work]] != NO_ROW]
    return inside


def _covered(trace: Trace, root: IntArray, rows: IntArray, around: IntArray | None = None) -> int:
    """Return the time that the events ``rows`` cover, summed over threads. Of event i, only the time inside the
    operator ``root[i]`` counts. With ``around``, this time must also be inside the event ``around[i]``."""
    start, end, thread = (np.empty(len(rows), np.int64) for _ in range(3))
    outer = root if around is None else around
    _cut(rows, trace.ints("start_ns"), trace.end_ns, thread_numbers(trace)[0], root, outer, start, end, thread)
    return int(intervals.union_length_by(thread, int(thread.max(initial=-1)) + 1, start, end).sum())


@compiled
def _cut(
    rows: IntArray, starts: IntArray, ends: IntArray, threads: IntArray, root: IntArray, around: IntArray,
    start: Out[IntArray], end: Out[IntArray], thread: Out[IntArray],
) -> None:  # fmt: skip
    for k in range(len(rows)):
        i = rows[k]
        top, outer = root[i], around[i]
        start[k] = max(starts[i], starts[top], starts[outer])
        end[k] = min(ends[i], ends[top], ends[outer])
        thread[k] = threads[top]


def _occupied(trace: Trace, work: IntArray) -> int:
    device = trace.codes("device").codes[work]
    stream, first = groupby.distinct([trace.ints("rank")[work], device, trace.ints("stream")[work]], len(work))
    start, end = trace.ints("start_ns")[work], trace.end_ns[work]
    return int(intervals.union_length_by(stream, len(first), start, end).sum())


@once
def computing(trace: Trace) -> BoolArray:
    """Return the mask of the host events that compute, shape (rows,). They may nest, so take the union of their times.

    Other host events dispatch, infer shapes or prepare data. These events compute:

    - operator details with names such as ``conv2d compute`` and ``conv2d kernel launch``,
    - operators that contain no operators and no details,
    - arithmetic operators, such as ``aten::addmm``, that contain no details and no other arithmetic operators. Their
      time includes the allocations and copies inside them.

    Operators that contain other operators and have no canonical name count as arithmetic, too."""
    parent, operators = trace.ints("parent"), trace.operators
    details = trace.host & trace.rows("kind", OPERATOR_DETAIL)
    names, canonical = trace.codes("name"), trace.codes("op_name")
    named = details & names.lookup(matches(names.values, _COMPUTES), False)
    leaf = operators & ~nesting.holds(parent, operators | details)
    does = [name.removesuffix(GRADIENT_SUFFIX) in CANONICAL - _NO_ARITHMETIC for name in canonical.values]
    arithmetic = canonical.lookup(np.array(does, np.bool_), False)
    works = operators & (arithmetic | ((canonical.codes < 0) & ~leaf))
    mask: BoolArray = named | leaf | (works & ~nesting.holds(parent, works) & ~nesting.holds(parent, details))
    return mask


def _finish(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    if table.empty:
        return table
    table = in_order_of(table, "name", OVERHEAD)
    return table.assign(ratio=ratio(table["total_ns"], int(table["total_ns"].iloc[0])))


COLUMNS: Final = (
    DEPTH,
    replace(NAME, words=OVERHEAD),
    duration("total_ns", "Total", "CPU time plus device time", over="steps"),
    duration("cpu_ns", "CPU", over="steps", place=HOST),
    duration("device_ns", "Device", over="steps", place=DEVICE),
    replace(RATIO, merge=Share("total_ns"), description="share of the total time"),
)

VIEW = View(
    name="fluid_overhead",
    title="Overhead Summary",
    description="computation and framework overhead of operators, on the host and in the device work they launched",
    table=Merged(table, _finish),
    columns=COLUMNS,
    explain_empty=lambda trace: message("no operators were recorded"),
    report=GROUP,
)
