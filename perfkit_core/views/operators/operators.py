"""View ``operators``: host time, device time, memory and FLOPs by operator name and groupings (shape, stack, thread …).

``total`` sums the calls including nested ones; ``self`` excludes what was called inside. Device work that no operator
owns has separate rows, so self device times add up to all device work. A memory event belongs to the innermost host
event of its thread; natively to every event of any thread whose time contains it, and a separate row has the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import intervals, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model import columns, schema
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import attribution, grouping, select
from perfkit_core.views.memory.events import counted_bytes, memory_events
from perfkit_core.views.operators import calls
from perfkit_core.views.tables import Groups, group, integers, plain, ratio, texts

GROUPINGS: Final = ("shape", "stack", "overload", "thread", "label", "scope", "module", "phase", "step", "device",
                    "rank")  # fmt: skip
SPAN_COLUMNS: Final = (
    columns.CALLS,
    columns.SELF_CPU,
    *columns.CPU,
    columns.SELF_DEVICE,
    *columns.ON_DEVICE,
    columns.size(
        "self_cpu_bytes",
        "Self CPU memory",
        place=columns.HOST,
        per_step=True,
        description="allocated less freed",
    ),
    columns.size("total_cpu_bytes", "Total CPU memory", place=columns.HOST, per_step=True),
    columns.size("self_device_bytes", "Self device memory", place=columns.DEVICE, per_step=True),
    columns.size("total_device_bytes", "Total device memory", place=columns.DEVICE, per_step=True),
    columns.FLOPS,
)
"""Columns of a span table without its shares. Times are of a call with everything inside."""
MEASURES: Final = (
    "calls", "self_cpu_ns", "self_cpu_ratio", "total_cpu_ns", "total_cpu_ratio", "avg_cpu_ns", "self_device_ns",
    "self_device_ratio", "total_device_ns", "avg_device_ns", "self_cpu_bytes", "total_cpu_bytes", "self_device_bytes",
    "total_device_bytes", "flops", "min_cpu_ns", "max_cpu_ns", "min_device_ns", "max_device_ns",
)  # fmt: skip
"""Columns of a span table after its keys, the most requested ones first."""
MEMORY_ROW: Final = "[memory]"
UNKNOWN_FLOPS: Final = int(np.iinfo(np.int64).min)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per name and value of the groupings, with :data:`COLUMNS`. NA: not recorded. Raises UsageError."""
    operators = span_table(trace, request, trace.host & trace.rows("kind", *schema.OPERATOR_KINDS), "op_name")
    parts = []
    for name, rows in unowned(trace, request).items():
        groups = named_groups(trace, request, name, rows)
        device = integers(groups.sum(trace.ints("dur_ns")[rows]), np.ones(len(groups), np.bool_))
        parts.append(_filled(groups, {"self_device_ns": device, "total_device_ns": device}))
    if request.native and trace.rows("kind", schema.MEMORY).any():
        rows = np.flatnonzero(uncovered(trace) & chosen(trace, request))
        groups = named_groups(trace, request, MEMORY_ROW, rows)
        zero, one = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        change, host = trace.ints("bytes", 0)[rows], trace.host[rows]
        values = dict.fromkeys(("self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"), zero)
        values |= dict.fromkeys(("self_cpu_bytes", "total_cpu_bytes"), np.where(host, change, 0))
        values |= dict.fromkeys(("self_device_bytes", "total_device_bytes"), np.where(host, 0, change)) | {"calls": one}
        parts.append(_filled(groups, {name: groups.known_sum(each, one) for name, each in values.items()}))
    parts = [part for part in parts if len(part)]
    if not parts:
        return operators
    result = pd.concat([operators, *parts], ignore_index=True)
    device_ns = result["self_device_ns"].to_numpy(np.int64)
    return result.assign(self_device_ratio=ratio(device_ns, int(device_ns.sum()))) if device_ns.any() else result


def _filled(groups: Groups, values: dict[str, Any]) -> pd.DataFrame:
    """Return all columns of the view, NA where unknown."""
    missing = integers(np.zeros(len(groups), np.int64), np.zeros(len(groups), np.bool_))
    keys = groups.keys.assign(op_name=pd.Series(pd.NA, groups.keys.index, dtype=object))
    ratios = {name: np.full(len(groups), np.nan) for name in MEASURES if name.endswith("_ratio")}
    return plain(keys.assign(**{name: ratios.get(name, values.get(name, missing)) for name in MEASURES}))


def span_table(trace: Trace, request: ViewRequest, counted: BoolArray, what: str) -> pd.DataFrame:
    """Return one row per name of the ``counted`` events and value of the groupings.

    Columns: name, the groupings, the text column ``what``, and MEASURES; device statistics, bytes and flops are NA if
    not recorded. The denominator of self_cpu_ratio is the self time of all rows, that of total_cpu_ratio the time of
    the outermost rows; natively both are the self time of all host events. Raises UsageError.
    """
    rows = np.flatnonzero(counted & calls.is_call(trace) & chosen(trace, request))
    groups = group(keys(trace, request, rows) | {what: texts(trace.codes(what), rows)})
    nothing = integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    self_cpu_ns = groups.sum(calls.self_cpu_ns(trace, request.native)[rows])
    self_device_ns = groups.sum(calls.self_device_ns(trace, counted)[rows])
    cpu = groups.statistics(trace.ints("dur_ns")[rows], "cpu")
    device = groups.statistics(attribution.total_device_ns(trace)[rows], "device")
    has_device_work = np.full(len(groups), trace.rows("kind", *schema.DEVICE_WORK).any())
    if request.native:
        self_whole = total_whole = calls.whole_native_ns(trace)
    else:
        outer = select.marked(trace, rows)
        outer &= ~nesting.lies_in(trace.ints("parent"), outer)
        self_whole, total_whole = int(self_cpu_ns.sum()), int(trace.ints("dur_ns")[outer].sum())
    device_share = ratio(self_device_ns, int(self_device_ns.sum()))
    cells: dict[str, Any] = {"calls": groups.calls(), "self_cpu_ns": self_cpu_ns, "self_device_ns": self_device_ns}
    cells["self_cpu_ratio"] = ratio(self_cpu_ns, self_whole)
    cells["total_cpu_ratio"] = ratio(cpu["total_cpu_ns"], total_whole)
    cells["self_device_ratio"] = np.where(has_device_work, device_share, np.nan)
    cells["total_device_ns"] = device.pop("total_device_ns")
    cells |= cpu | {name: integers(values, has_device_work) for name, values in device.items()}

    cells |= dict.fromkeys((*_BYTES, "flops"), nothing)
    if trace.rows("kind", schema.MEMORY).any():
        for name, values in zip(_BYTES, host_bytes(trace, request.native), strict=True):
            own = calls.gathered(trace, values) if name.startswith("self_") else values
            cells[name] = groups.known_sum(own[rows], np.ones(len(rows), np.bool_))
    if trace.known("flops"):
        flops = trace.ints("flops", UNKNOWN_FLOPS)[rows]
        cells["flops"] = groups.known_sum(flops, flops != UNKNOWN_FLOPS)
    return plain(groups.keys.assign(**{name: cells[name] for name in MEASURES}))


def chosen(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of events that the request counts; a device also matches the device of the work they launched."""
    return select.selected(trace, replace(request, device=None)) & calls.on_device(trace, request.device)


def keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    """Return the key columns of a span table: name (without overload) and the groupings. Raises UsageError."""
    own = {"device": ("device", lambda trace, rows, argument: texts(calls.worked_on(trace), rows))}
    cells: dict[str, Any] = {"name": texts(calls.operator_names(trace), rows)}
    cells |= grouping.keys(trace, request, rows, GROUPINGS, own)
    if request.native and "shapes" in cells:
        cells["shapes"] = attribution.shapes_as_printed(cells["shapes"])
    return cells


NO_LAUNCH: Final = "(no launch recorded)"
OUTSIDE: Final = "(launched outside operators)"


def unowned(trace: Trace, request: ViewRequest) -> dict[str, IntArray]:
    """Return the rows of the chosen device work that no operator owns, by the name of the reason. Empty if the request
    filters by name, as some operators have no remainder."""
    if request.native or request.pattern is not None or request.kind is not None:
        return {}
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & select.selected(trace, request))
    launched_by = trace.ints("launched_by")[work]
    launched = launched_by != NO_ROW
    reasons = {NO_LAUNCH: ~launched, OUTSIDE: launched & (calls.outermost(trace)[launched_by] == NO_ROW)}
    return {name: work[mask] for name, mask in reasons.items() if mask.any()}


def named_groups(trace: Trace, request: ViewRequest, name: str, rows: IntArray) -> Groups:
    return group({"name": np.full(len(rows), name, object)} | grouping.keys(trace, request, rows, GROUPINGS))


_BYTES: Final = ("self_cpu_bytes", "total_cpu_bytes", "self_device_bytes", "total_device_bytes")


@once
def host_bytes(trace: Trace, native: bool = False) -> tuple[IntArray, ...]:
    """Return allocated less freed bytes of each host event: self and total on the host, then on devices, shape (rows,)
    each. ``native`` assigns by time, over all threads."""
    parent, start = trace.ints("parent"), trace.ints("start_ns")
    rank, count = select.rank_codes(trace)
    nested = calls.is_nested(trace)
    results: list[IntArray] = []
    for on_host in (True, False):
        change = _changes(trace, on_host)
        if not native:
            inside, own = (change != 0) & (parent != NO_ROW), np.zeros(len(trace), np.int64)
            np.add.at(own, parent[inside], change[inside])
            results += own, nesting.sum_up(parent, own)
            continue
        total = np.zeros(len(trace), np.int64)
        for code in range(count):
            events = np.flatnonzero((change != 0) & (rank == code))  # searchsorted: rows are sorted by start
            sums = np.append(0, np.cumsum(change[events]))
            rows = np.flatnonzero(nested & (rank == code))
            # The ends of an event are inclusive.
            first = np.searchsorted(start[events], start[rows], side="left")
            last = np.searchsorted(start[events], trace.end_ns[rows], side="right")
            total[rows] = sums[last] - sums[first]
        own = total.copy()
        children = np.flatnonzero(nested & (parent != NO_ROW))
        np.subtract.at(own, parent[children], total[children])
        results += own, total
    return tuple(results)


def uncovered(trace: Trace) -> BoolArray:
    """Return the mask of memory events in the time of no host event of their rank, shape (rows,)."""
    rank, count = select.rank_codes(trace)
    nested = calls.is_nested(trace)
    mask: BoolArray = trace.rows("kind", schema.MEMORY) & (_changes(trace, True) + _changes(trace, False) != 0)
    start, end = trace.ints("start_ns"), trace.end_ns
    for code in range(count):
        mine = nested & (rank == code)
        starts, ends = intervals.union(start[mine], end[mine] + 1)
        rows = np.flatnonzero(mask & (rank == code))
        before = np.searchsorted(starts, start[rows], side="right") - 1
        mask[rows] = (before < 0) | (start[rows] >= np.append(ends, 0)[before])
    return mask


def _changes(trace: Trace, on_host: bool) -> IntArray:
    """Return the bytes of the memory events of the host or of all devices, 0 elsewhere, shape (rows,)."""
    events = memory_events(trace)
    change = np.zeros(len(trace), np.int64)
    change[events.row] = counted_bytes(events)
    change[trace.host != on_host] = 0
    return change


def _self_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int | None:
    """Return the denominator of native self times (all host events), or None for that of all rows."""
    return calls.whole_native_ns(trace) if request.native else None


def _outermost_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """Return the time of the outermost operators; natively the self time of all host events."""
    if request.native:
        return calls.whole_native_ns(trace)
    part, shares = table["total_cpu_ns"], table["total_cpu_ratio"]
    known = (shares > 0).fillna(False) & part.notna()
    if not known.any():
        return 0
    # exact below 2^51 (26 days in ns), as the roundings of the division and its inverse sum to less than 0.5
    ratios = shares[known].to_numpy(np.float64)
    return round(int(part[known].iloc[ratios.argmax()]) / float(ratios.max()))


COLUMNS: Final = (
    columns.NAME,
    *columns.added_by(GROUPINGS),
    columns.OP_NAME,
    *SPAN_COLUMNS,
    columns.share("self_cpu_ratio", "Self CPU", columns.Share("self_cpu_ns", whole=_self_ns), place=columns.HOST),
    columns.share(
        "total_cpu_ratio", "Total CPU", columns.Share("total_cpu_ns", whole=_outermost_ns), place=columns.HOST
    ),
    columns.share("self_device_ratio", "Self device", columns.Share("self_device_ns"), place=columns.DEVICE),
)

VIEW = View(
    name="operators",
    title="Operators",
    description="time of each operator on the host and of the device work it launched, memory and FLOPs",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="self_cpu_ns",
    explain_empty=lambda trace: message("no operators were recorded"),
    native=True,
    reduction=MergedRows(),
)
