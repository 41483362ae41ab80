"""Calls, time, device work, memory and FLOPs of host events, by name: what the tables of operators and labels share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.columns import CALLS, CPU, DEVICE, FLOPS, HOST, ON_DEVICE, SELF_CPU, SELF_DEVICE, size
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views import attribution, grouping
from perfkit_core.views.attribution import shapes_as_printed
from perfkit_core.views.operators import operator_memory, overloads, own_time, worked_on
from perfkit_core.views.operators.own_time import survivors
from perfkit_core.views.select import selected
from perfkit_core.views.tables import Groups, group, integers, plain, ratio, texts

__all__ = ["GROUPINGS", "MEASURES", "SPAN_COLUMNS", "chosen", "keys", "span_table", "survivors"]

GROUPINGS: Final = ("shape", "stack", "overload", "thread", "label", "scope", "module", "phase", "step", "device",
                    "rank")  # fmt: skip
SPAN_COLUMNS: Final = (
    CALLS,
    SELF_CPU,
    *CPU,
    SELF_DEVICE,
    *ON_DEVICE,
    size("self_cpu_bytes", "Self CPU memory", place=HOST, per_step=True, description="allocated less freed"),
    size("total_cpu_bytes", "Total CPU memory", place=HOST, per_step=True),
    size("self_device_bytes", "Self device memory", place=DEVICE, per_step=True),
    size("total_device_bytes", "Total device memory", place=DEVICE, per_step=True),
    FLOPS,
)
"""What both tables have, but for shares. Times are of a call with all inside."""
MEASURES: Final = (
    "calls", "self_cpu_ns", "self_cpu_ratio", "total_cpu_ns", "total_cpu_ratio", "avg_cpu_ns", "self_device_ns",
    "self_device_ratio", "total_device_ns", "avg_device_ns", "self_cpu_bytes", "total_cpu_bytes", "self_device_bytes",
    "total_device_bytes", "flops", "min_cpu_ns", "max_cpu_ns", "min_device_ns", "max_device_ns",
)  # fmt: skip
"""Columns of the table after its keys, the most asked for first."""


def span_table(trace: Trace, request: ViewRequest, counted: BoolArray, what: str) -> pd.DataFrame:
    """One row for each name among the ``counted`` events and each value of the groupings: columns name, the groupings,
    the text column ``what``, and MEASURES, of which device statistics, bytes and flops are NA where none was recorded.
    self_cpu_ratio is to the self time of all rows, total_cpu_ratio to the time of the rows that lie in no other one,
    natively both to the self time of all host events. Raises UsageError."""
    rows = np.flatnonzero(counted & own_time.is_call(trace) & chosen(trace, request))
    groups = group(keys(trace, request, rows) | {what: texts(trace.codes(what), rows)})
    columns = _times(trace, request, groups, rows, counted) | _memory(trace, request, groups, rows)
    columns["flops"] = _flops(trace, groups, rows)
    result = pd.concat([groups.keys, pd.DataFrame(columns, index=groups.keys.index)], axis=1)
    return plain(result[[*groups.keys, *MEASURES]])


def chosen(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events that the request counts; a device means the one that an event's work ran on, too."""
    return selected(trace, replace(request, device=None)) & worked_on.on_device(trace, request.device)


def keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    """The columns by which rows are told apart: name (without overload) and the groupings. Raises UsageError."""
    found: dict[str, Any] = {"name": texts(overloads.operator_names(trace), rows)}
    found |= grouping.keys(trace, request, rows, GROUPINGS, {"device": ("device", worked_on.key)})
    if request.native and "shapes" in found:
        found["shapes"] = shapes_as_printed(found["shapes"])
    return found


def _times(trace: Trace, request: ViewRequest, groups: Groups, rows: IntArray, counted: BoolArray) -> dict[str, Any]:
    self_cpu_ns = groups.sum(own_time.self_cpu_ns(trace, request.native)[rows])
    self_device_ns = groups.sum(own_time.self_device_ns(trace, counted)[rows])
    cpu = groups.statistics(trace.ints("dur_ns")[rows], "cpu")
    device = groups.statistics(attribution.total_device_ns(trace)[rows], "device")
    known = np.full(len(groups), trace.rows("kind", *DEVICE_WORK).any())
    wholes = (int(self_cpu_ns.sum()), _covered(trace, rows))
    if request.native:
        wholes = (own_time.whole_native_ns(trace),) * 2
    share = ratio(self_device_ns, int(self_device_ns.sum()))
    return (
        {"calls": groups.calls(), "self_cpu_ns": self_cpu_ns, "self_device_ns": self_device_ns}
        | {"self_cpu_ratio": ratio(self_cpu_ns, wholes[0]), "total_cpu_ratio": ratio(cpu["total_cpu_ns"], wholes[1])}
        | {"self_device_ratio": np.where(known, share, np.nan), "total_device_ns": device.pop("total_device_ns")}
        | cpu
        | {name: integers(values, known) for name, values in device.items()}
    )


def _covered(trace: Trace, rows: IntArray) -> int:
    """Time of those rows that lie in none of the others."""
    mine = np.zeros(len(trace), np.bool_)
    mine[rows] = True
    mine &= ~nesting.lies_in(trace.ints("parent"), mine)
    return int(trace.ints("dur_ns")[mine].sum())


def _memory(trace: Trace, request: ViewRequest, groups: Groups, rows: IntArray) -> dict[str, pd.arrays.IntegerArray]:
    names = ("self_cpu_bytes", "total_cpu_bytes", "self_device_bytes", "total_device_bytes")
    if not operator_memory.recorded(trace):
        return {name: integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_)) for name in names}
    found = operator_memory.host_bytes(trace, request.native)
    known = np.full(len(rows), True)
    arrays = (own_time.gathered(trace, found.self_cpu), found.total_cpu,
              own_time.gathered(trace, found.self_device), found.total_device)  # fmt: skip
    return {name: groups.known_sum(values[rows], known) for name, values in zip(names, arrays, strict=True)}


def _flops(trace: Trace, groups: Groups, rows: IntArray) -> pd.arrays.IntegerArray:
    if not trace.known("flops"):
        return integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    flops = trace.ints("flops", _UNKNOWN)[rows]
    return groups.known_sum(flops, flops != _UNKNOWN)


_UNKNOWN: Final = int(np.iinfo(np.int64).min)
