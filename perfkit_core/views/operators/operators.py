"""View ``operators``: host time, device time, memory and FLOPs by operator name and groupings (shape, stack, thread …).

Totals are sums over all calls and include nested operators. Self values exclude nested operators. Device work that no
operator launched has separate rows, so the self device times add up to all device work.

A memory event counts for the innermost host event around it on its thread. The native table counts a memory event for
every host event that runs at this time, on any thread. Memory events outside host events have their own row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled, spread
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.plugins.frameworks import NativeTables
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import DEVICE, HOST, Share, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping, select
from perfkit_core.views.memory.events import counted_bytes, memory_events
from perfkit_core.views.operators import calls
from perfkit_core.views.operators.operator_work import UNKNOWN, operator_flops, operator_work
from perfkit_core.views.tables import Groups, group, integers, ratio, texts, with_columns, without_categoricals

GROUPINGS: Final = ("shape", "stack", "overload", "thread", "label", "scope", "module", "phase", "step", "device",
                    "rank")  # fmt: skip
SPAN_COLUMNS: Final = (
    columns.CALLS,
    columns.SELF_CPU,
    replace(columns.CPU[0], own="self_cpu_ns"),
    *columns.CPU[1:],
    columns.SELF_DEVICE,
    replace(columns.ON_DEVICE[0], own="self_device_ns"),
    *columns.ON_DEVICE[1:],
    size("self_cpu_bytes", "Self CPU memory", place=HOST, over="steps", heading="complete"),
    size("total_cpu_bytes", "Total CPU memory", place=HOST, over="steps", heading="complete", own="self_cpu_bytes"),
    size("self_device_bytes", "Self device memory", place=DEVICE, over="steps", heading="complete"),
    size(
        "total_device_bytes",
        "Total device memory",
        place=DEVICE,
        over="steps",
        heading="complete",
        own="self_device_bytes",
    ),
    columns.FLOPS,
)
"""Columns of :func:`span_table` without its keys and shares. A size is the bytes allocated less the bytes freed."""
MEASURES: Final = (
    "calls", "self_cpu_ns", "self_cpu_ratio", "total_cpu_ns", "total_cpu_ratio", "avg_cpu_ns", "self_device_ns",
    "self_device_ratio", "total_device_ns", "avg_device_ns", "self_cpu_bytes", "total_cpu_bytes", "self_device_bytes",
    "total_device_bytes", "flops", "min_cpu_ns", "max_cpu_ns", "min_device_ns", "max_device_ns",
)  # fmt: skip
"""All columns of :func:`span_table` except the keys, the most important first."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of name and groupings, with :data:`COLUMNS`. Unrecorded values are NA."""
    rules, counted = native_tables(trace, request), trace.operators
    if rules and rules.operators:
        counted = counted & trace.rows("category", *rules.operators)
    operators = span_table(trace, request, counted, "op_name")
    parts = []
    for name, rows in unowned(trace, request).items():
        groups = named_groups(trace, request, name, rows)
        device = integers(groups.sum(trace.ints("dur_ns")[rows]), np.ones(len(groups), np.bool_))
        parts.append(_filled(groups, {"self_device_ns": device, "total_device_ns": device}))
    if rules and not rules.totals_only and trace.rows("kind", schema.MEMORY).any():
        rows = np.flatnonzero(uncovered(trace) & chosen(trace, request))
        groups = named_groups(trace, request, "[memory]", rows)
        zeros, ones = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        change, host = trace.ints("bytes", 0)[rows], trace.host[rows]
        values = dict.fromkeys(("self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"), zeros)
        values |= dict.fromkeys(_BYTES[:2], np.where(host, change, 0))
        values |= dict.fromkeys(_BYTES[2:], np.where(host, 0, change)) | {"calls": ones}
        parts.append(_filled(groups, {name: groups.known_sum(column, ones) for name, column in values.items()}))
    parts = [part for part in parts if len(part)]
    if not parts:
        return operators
    result = pd.concat([operators, *parts], ignore_index=True)
    device_ns = result["self_device_ns"].to_numpy(np.int64)
    return result.assign(self_device_ratio=ratio(device_ns, int(device_ns.sum()))) if device_ns.any() else result


def _filled(groups: Groups, values: dict[str, Any]) -> pd.DataFrame:
    """Return a table with all columns of the view. Columns that are not in ``values`` are NA."""
    missing = integers(np.zeros(len(groups), np.int64), np.zeros(len(groups), np.bool_))
    keys = groups.keys.assign(op_name=pd.Series(pd.NA, groups.keys.index, dtype=object))
    ratios = {name: np.full(len(groups), np.nan) for name in MEASURES if name.endswith("_ratio")}
    return without_categoricals(keys.assign(**{name: ratios.get(name, values.get(name, missing)) for name in MEASURES}))


def span_table(trace: Trace, request: ViewRequest, counted: BoolArray, what: str) -> pd.DataFrame:
    """Return sums over the ``counted`` events, by name, groupings and the column that ``what`` names.

    The other columns are MEASURES. Device times, bytes and FLOPs are NA if not recorded. ``self_cpu_ratio`` is a share
    of the self time of all rows. ``total_cpu_ratio`` is a share of the time of the outermost counted events. In a
    native table, shares are as :class:`~perfkit_core.plugins.contracts.NativeTables` says, and missing numbers are 0.
    """
    rules = native_tables(trace, request)
    totals_only, summed = rules is not None and rules.totals_only, rules is not None and not rules.totals_only
    rows = np.flatnonzero(counted & (totals_only or calls.is_call(trace)) & chosen(trace, request))
    groups = group(keys(trace, request, rows) | {what: texts(trace.codes(what), rows)})
    nothing = integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    self_cpu_ns = groups.sum(spread(calls.self_cpu_ns(trace, summed), rows))
    self_device_ns = groups.sum(spread(calls.self_device_ns(trace, counted), rows))
    # A call inside a call of the same group is a part of it: it adds nothing to the totals.
    outer = calls.outermost_alike(trace, rows, groups.code) if rules is None else np.ones(len(rows), np.bool_)
    cpu = groups.statistics(spread(trace.ints("dur_ns"), rows), "cpu", outer)
    device = groups.statistics(spread(attribution.total_device_ns(trace), rows), "device", outer)
    has_device_work = trace.rows("kind", *schema.DEVICE_WORK).any()
    known_on_device = np.full(len(groups), request.native or has_device_work)
    self_sum = int(self_cpu_ns.sum())
    if summed:
        self_sum = outermost_sum = calls.native_self_sum_ns(trace)
    elif totals_only:
        outermost_sum = int(cpu["total_cpu_ns"].sum())
    else:
        outermost = select.marked(trace, rows)
        outermost &= ~nesting.lies_in(trace.ints("parent"), outermost)
        outermost_sum = int(trace.ints("dur_ns")[outermost].sum())
    device_share = ratio(self_device_ns, int(self_device_ns.sum()))
    cells: dict[str, Any] = {"calls": groups.calls(), "self_cpu_ns": self_cpu_ns, "self_device_ns": self_device_ns}
    cells["self_cpu_ratio"] = ratio(self_cpu_ns, self_sum)
    cells["total_cpu_ratio"] = ratio(cpu["total_cpu_ns"], outermost_sum)
    cells["self_device_ratio"] = device_share if has_device_work or totals_only else np.nan
    cells["total_device_ns"] = device.pop("total_device_ns")
    cells |= cpu | {name: integers(values, known_on_device) for name, values in device.items()}

    cells |= dict.fromkeys(_BYTES, nothing)
    if trace.rows("kind", schema.MEMORY).any():
        for name, values in zip(_BYTES, host_bytes(trace, summed), strict=True):
            if name.startswith("self_"):
                values = values.copy()
                calls.gather(trace, values)
            values = spread(values, rows)
            if name.startswith("total_"):
                values[~outer] = 0
            cells[name] = groups.known_sum(values, np.ones(len(rows), np.bool_))
    flops = spread(trace.ints("flops") if request.native else operator_flops(trace), rows)
    has_flops = flops != UNKNOWN
    flops[~has_flops] = 0
    cells["flops"] = groups.known_sum(flops, has_flops | request.native)
    return without_categoricals(with_columns(groups.keys, {name: cells[name] for name in MEASURES}))


def native_tables(trace: Trace, request: ViewRequest) -> NativeTables | None:
    """Return how the framework's profiler makes its tables, or None if the request asks for perfkit's numbers."""
    tables = get_plugins().framework(trace.meta.framework).native_tables() or NativeTables()
    return tables if request.native else None


def chosen(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of requested events. The device filter also selects host events that launched work there."""
    return select.selected(trace, replace(request, device=None)) & calls.on_device(trace, request.device)


def keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    """Return the key columns of :func:`span_table`: name (without overload) and the groupings. Raises UsageError."""
    by_work = {"device": ("device", lambda trace, rows, argument: texts(calls.worked_on(trace), rows))}
    cells: dict[str, Any] = {"name": texts(calls.operator_names(trace), rows)}
    cells |= grouping.keys(trace, request, rows, GROUPINGS, by_work)
    if request.native and "shapes" in cells:
        cells["shapes"] = attribution.shapes_as_printed(cells["shapes"])
    return cells


def unowned(trace: Trace, request: ViewRequest) -> dict[str, IntArray]:
    """Return the selected device work that no operator launched: {name of a table row: rows of events}. One of the
    names is ``(no launch recorded)``. The dictionary is empty with ``--native`` and with filters of names or kinds."""
    if request.native or request.pattern is not None or request.kind is not None:
        return {}
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & select.selected(trace, request))
    launched_by = trace.ints("launched_by")[work]
    launched = launched_by != NO_ROW
    outside = launched & (calls.outermost(trace)[launched_by] == NO_ROW)
    reasons = {calls.NO_LAUNCH: ~launched, calls.OUTSIDE: outside}
    return {name: work[mask] for name, mask in reasons.items() if mask.any()}


def named_groups(trace: Trace, request: ViewRequest, name: str, rows: IntArray) -> Groups:
    return group({"name": np.full(len(rows), name, object)} | grouping.keys(trace, request, rows, GROUPINGS))


_BYTES: Final = ("self_cpu_bytes", "total_cpu_bytes", "self_device_bytes", "total_device_bytes")


@once
def host_bytes(trace: Trace, native: bool = False) -> tuple[IntArray, ...]:
    """Return the bytes allocated less the bytes freed in each host event, as four arrays of shape (rows,) in the order
    of ``_BYTES``. If ``native``, a memory event counts for all host events of its rank during which it occurs."""
    parent, start = trace.ints("parent"), trace.ints("start_ns")
    rank, count = select.rank_codes(trace)
    nested = calls.is_nested(trace)
    results: list[IntArray] = []
    for on_host in (True, False):
        change = _changes(trace, on_host)
        if not native:
            inside, self_bytes = (change != 0) & (parent != NO_ROW), filled(len(trace), 0)
            np.add.at(self_bytes, parent[inside], change[inside])
            results += self_bytes, nesting.sum_up(parent, self_bytes)
            continue
        total = filled(len(trace), 0)
        for code in range(count):
            events = np.flatnonzero((change != 0) & (rank == code))  # in order of time, as searchsorted needs
            sums = np.append(0, np.cumsum(change[events]))
            rows = np.flatnonzero(nested & (rank == code))
            # A memory event exactly at the start or end of a host event lies inside the host event.
            first = np.searchsorted(start[events], start[rows], side="left")
            last = np.searchsorted(start[events], trace.end_ns[rows], side="right")
            total[rows] = sums[last] - sums[first]
        self_bytes = total.copy()
        children = np.flatnonzero(nested & (parent != NO_ROW))
        np.subtract.at(self_bytes, parent[children], total[children])
        results += self_bytes, total
    return tuple(results)


def uncovered(trace: Trace) -> BoolArray:
    """Return the mask of memory events during which no host event of their rank runs, shape (rows,)."""
    rank, count = select.rank_codes(trace)
    nested = calls.is_nested(trace)
    mask: BoolArray = trace.rows("kind", schema.MEMORY) & (_changes(trace, True) + _changes(trace, False) != 0)
    start, end = trace.ints("start_ns"), trace.end_ns
    for code in range(count):
        in_rank, rows = nested & (rank == code), np.flatnonzero(mask & (rank == code))
        begun = np.searchsorted(start[in_rank], start[rows], side="right")
        ended = np.searchsorted(np.sort(end[in_rank]), start[rows], side="left")
        mask[rows] = begun == ended
    return mask


def _changes(trace: Trace, on_host: bool) -> IntArray:
    """Return the change in allocated bytes of each event: on the host if ``on_host``, else on devices."""
    events = memory_events(trace)
    change = filled(len(trace), 0)
    change[events.row] = counted_bytes(events)
    change[trace.host != on_host] = 0
    return change


def _native_self_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int | None:
    rules = native_tables(trace, request)
    return calls.native_self_sum_ns(trace) if rules and not rules.totals_only else None


def _outermost_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """Return the denominator of total_cpu_ratio: the time of the row with the largest share, divided by this share."""
    rules = native_tables(trace, request)
    if rules:
        return int(table["total_cpu_ns"].sum()) if rules.totals_only else calls.native_self_sum_ns(trace)
    shares = table["total_cpu_ratio"].to_numpy(np.float64, na_value=0)
    if not shares.max(initial=0):
        return 0
    # The result is exact below 2^51 ns (26 days): the two rounding errors sum to less than 0.5.
    return round(int(table["total_cpu_ns"].iloc[shares.argmax()]) / float(shares.max()))


def _unowned_last(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the merged table with the device work that no operator launched below the operators, as :func:`table`."""
    names = ("", calls.NO_LAUNCH, calls.OUTSIDE)
    position = [names.index(name) if name in names else 0 for name in table["name"]]
    return table.iloc[np.argsort(position, kind="stable")]


def _of_whole(trace: Trace) -> tuple[bool, ...]:
    """Return on what the cells of a table depend: whether there is work of a device, also of more than 0 ns, and memory
    events, and whether FLOPs are computed from arguments."""
    work = trace.rows("kind", *schema.DEVICE_WORK)
    computed = not trace.has_values("flops") or len(operator_work(trace).row) > 0
    memory = trace.rows("kind", schema.MEMORY)
    return bool(work.any()), bool(trace.ints("dur_ns")[work].any()), bool(memory.any()), computed


COLUMNS: Final = (
    columns.OPERATOR_NAME,
    *columns.added_by(GROUPINGS),
    columns.OP_NAME,
    *SPAN_COLUMNS,
    columns.share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", whole=_native_self_ns), place=HOST),
    columns.share(
        "total_cpu_ratio", "Total CPU", Share("total_cpu_ns", whole=_outermost_ns), place=HOST, own="self_cpu_ratio"
    ),
    columns.share("self_device_ratio", "Self device", Share("self_device_ns"), place=DEVICE),
)

VIEW = View(
    name="operators",
    title="Operators",
    description="host time of each operator, time of the device work that it launched, memory and FLOPs",
    table=Merged(table, _unowned_last, native=True, in_parts=_of_whole),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("self_device_ns", "self_cpu_ns"),
    explain_empty=lambda trace: message("no operators were recorded"),
)
