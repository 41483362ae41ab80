"""View ``overview``: calls and covered time of each kind of event.

Time is a union over threads and streams; rows of different kinds overlap. For chosen steps, calls and time are those of
the events that the steps start and launch. The share is of wall time: it counts only what runs in the steps and is at
most 1. ``by=("category",)`` counts the framework's own event types. With ``native`` the table is Paddle's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import arrays, groupby, intervals
from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, CATEGORY, KIND, PLACE, RATIO, Share, duration
from perfkit_core.model.schema import COMMUNICATION, DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import select
from perfkit_core.views.attribution import native_counted
from perfkit_core.views.communication.distributed import distinct, native_communication
from perfkit_core.views.steps.activity import covered_ns
from perfkit_core.views.steps.step_phases import phase_rows
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import ratio

GROUPINGS: Final = ("category",)
RUNNING_NS: Final = "running_ns"
"""Column of :func:`measured`: the time in the steps in which an event of the row runs."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    return measured(trace, request).drop(columns=RUNNING_NS)


def measured(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the table with RUNNING_NS, the numerator of the ratio."""
    select.check_groupings("overview", request, GROUPINGS)
    if request.native:
        result = _native_table(trace, request)
        return result.assign(**{RUNNING_NS: result["time_ns"]})
    column = "category" if request.by else "kind"
    chosen, here = select.selected(trace, request), select.in_steps(trace, request)
    codes = trace.codes(column)
    kinds = len(codes.values)
    group = codes.codes + ~trace.host * np.int32(kinds)  # the kinds on the host, then those on devices
    group[codes.codes < 0] = -1
    counted = np.where(chosen, group, -1)
    result = pd.DataFrame({
        column: pd.Series(codes.values * 2, dtype=object),
        "place": ["host"] * kinds + ["device"] * kinds,
        "calls": groupby.sums(counted, 2 * kinds, np.ones(len(group), np.bool_)),
        "time_ns": _covered_ns(trace, counted, 2 * kinds),
    })  # fmt: skip

    # of events of any step: the part within the span of each rank
    rank, ranks = select.rank_codes(trace)
    group = _by_rank(np.where(select.accounted(trace, request), group, -1), rank, ranks)
    group, start, end = intervals.union_by(group, 2 * kinds * ranks, trace.ints("start_ns"), trace.end_ns)
    of_rank, first, last = select.spans(trace, here)
    of_rank, first, last = intervals.union_by(of_rank, ranks, first, last)
    running = np.zeros(2 * kinds, np.int64)
    for number, rows in enumerate(groupby.parts(group % ranks, ranks)):
        mine = of_rank == number
        np.add.at(running, group[rows] // ranks, covered_ns((first[mine], last[mine]), start[rows], end[rows]))
    result[RUNNING_NS] = running
    result["ratio"] = ratio(running, select.span_ns(trace, here))
    return result[result["calls"] > 0].reset_index(drop=True)


def _covered_ns(trace: Trace, group: arrays.IntArray, count: int) -> arrays.IntArray:
    """Return the time that the events of each group cover: unions within each rank, summed; shape (count,)."""
    rank, ranks = select.rank_codes(trace)
    group = _by_rank(group, rank, ranks)
    time = intervals.union_length_by(group, count * ranks, trace.ints("start_ns"), trace.end_ns)
    total: arrays.IntArray = time.reshape(count, ranks).sum(axis=1)
    return total


def _by_rank(group: arrays.IntArray, rank: arrays.IntArray, ranks: int) -> arrays.IntArray:
    """Return a number for each pair of group and rank; -1 stays."""
    return group if ranks == 1 else np.where(group < 0, -1, group * np.int64(ranks) + rank)


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the table of Paddle's ``summary()``, by the framework's own event types.

    Time is the union over threads or streams of what counts natively (see ``attribution``), with two exceptions: phases
    have the calls and sums of the table of phases; communication is that of the distributed summary, on the host and on
    the device. Shares are of the step time.
    """
    chosen, here = select.selected(trace, request), select.in_steps(trace, request)
    categories, kinds = trace.codes("category"), trace.codes("kind")
    # categories of each kind of host event that have no other kind
    pairs = np.unique(np.stack([categories.codes[trace.host], kinds.codes[trace.host]]), axis=1)
    single = np.bincount(pairs[0][pairs[0] >= 0], minlength=len(categories.values)) == 1
    of_kind: dict[str, list[int]] = {}
    for category, kind in pairs.T.tolist():
        if category >= 0 and single[category]:
            of_kind.setdefault(kinds.values[kind], []).append(category)
    of_communication = of_kind.get(COMMUNICATION, [])

    counts = chosen & native_counted(trace) & ~np.isin(categories.codes, of_communication)
    phases = {category: row for row in phase_rows(trace, here) for category in of_kind.get(row["phase"], [])}
    rows = []
    for place, mask in (("host", counts & trace.host), ("device", counts & trace.rows("kind", *DEVICE_WORK))):
        group = np.where(mask, categories.codes, -1)
        calls = groupby.sums(group, len(categories.values), np.ones(len(group), np.bool_))
        time = _covered_ns(trace, group, len(categories.values))
        for category in np.flatnonzero(calls).tolist():
            numbers = (int(calls[category]), int(time[category]))
            if category in phases:
                numbers = (phases[category]["calls"], phases[category]["total_cpu_ns"])
            rows.append((categories.values[category], place, *numbers))
    name = categories.values[of_communication[0]] if of_communication else COMMUNICATION.capitalize()
    on_host, on_device, _ = native_communication(trace)
    for place, mask in (("host", chosen & on_host), ("device", chosen & on_device)):
        if mask.any():
            rows.append((name, place, distinct(trace, mask), select.union_ns(trace, mask)))
    result = pd.DataFrame(rows, columns=["category", "place", "calls", "time_ns"])
    return result.assign(ratio=ratio(result["time_ns"], select.union_ns(trace, native_steps(trace, here))))


def _span_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    here = select.in_steps(trace, request)
    return select.union_ns(trace, native_steps(trace, here)) if request.native else select.span_ns(trace, here)


COLUMNS: Final = (
    KIND,
    replace(CATEGORY, by=("category",), device_values=("device_compute", "exposed_copy")),
    PLACE,
    CALLS,
    duration("time_ns", "Time", per_step=True),
    replace(RATIO, merge=Share(RUNNING_NS, whole=_span_ns), description="the part of the step time in which one runs"),
)

VIEW = View(
    name="overview",
    title="Overview by kind of event",
    description="calls and covered time of each kind of event (with --step, of those that these steps launch); "
    "the share is the part of the step time in which one runs",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="time_ns",
    explain_empty=lambda trace: message("no events were recorded"),
    native=True,
    reduction=MergedRows(
        partial=measured,
        columns=(duration(RUNNING_NS, RUNNING_NS),),
        finish=lambda table, request: table.drop(columns=RUNNING_NS),
    ),
)
