"""What kinds of events are there, and how much time do they cover?

Time is a union over threads and streams, so nothing is counted twice within a row; rows of different kinds overlap.
Calls and time of chosen steps are of what they start and launch; the share is of wall time, and so counts all that
runs in the steps, and nothing that runs outside of them: it is never above 1.
``by=("category",)`` counts the framework's own event types. With ``native`` the table is Paddle's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, CATEGORY, KIND, PLACE, RATIO, Share, duration
from perfkit_core.model.schema import COMMUNICATION, DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.attribution import native_counted
from perfkit_core.views.communication.distributed import distinct, native_communication
from perfkit_core.views.select import accounted, in_steps, rank_codes, selected, span_ns, spans, union_ns
from perfkit_core.views.steps.activity import covered_ns
from perfkit_core.views.steps.step_phases import phase_rows
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import ratio

GROUPINGS = ("category",)


RUNNING_NS: Final = "running_ns"
"""Column of :func:`measured`: the time in the steps in which something of the row runs."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a kind and place; see :data:`COLUMNS`."""
    return measured(trace, request).drop(columns=RUNNING_NS)


def measured(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The table with the column RUNNING_NS, whose share the ratio is."""
    column = _column(request)
    if request.native:
        found = _native_table(trace, request)
        return found.assign(**{RUNNING_NS: found["time_ns"]})
    chosen, here = selected(trace, request), in_steps(trace, request)
    codes = trace.codes(column)
    group = codes.codes + ~trace.host * np.int32(len(codes.values))
    group[codes.codes < 0] = -1
    counted = np.where(chosen, group, -1)
    result = pd.DataFrame(
        {
            column: pd.Series(codes.values * 2, dtype=object),
            "place": ["host"] * len(codes.values) + ["device"] * len(codes.values),
            "calls": groupby.sums(counted, 2 * len(codes.values), np.ones(len(group), np.bool_)),
            "time_ns": _covered_ns(trace, counted, 2 * len(codes.values)),
        }
    )
    running = np.where(accounted(trace, request), group, -1)
    result[RUNNING_NS] = _running_ns(trace, running, 2 * len(codes.values), spans(trace, here))
    result["ratio"] = ratio(result[RUNNING_NS], span_ns(trace, here))
    return result[result["calls"] > 0].reset_index(drop=True)


def _covered_ns(trace: Trace, group: IntArray, count: int) -> IntArray:
    """Time that the events of each group cover: a union within each rank, summed over ranks; shape (count,)."""
    rank, ranks = rank_codes(trace)
    time = intervals.union_length_by(_apart(group, rank, ranks), count * ranks, trace.ints("start_ns"), trace.end_ns)
    total: IntArray = time.reshape(count, ranks).sum(axis=1)
    return total


def _running_ns(trace: Trace, group: IntArray, count: int, within: tuple[IntArray, IntArray, IntArray]) -> IntArray:
    """As :func:`_covered_ns`, only what lies ``within`` intervals of each rank: number of the rank, start, end."""
    rank, ranks = rank_codes(trace)
    of_rank, first, last = intervals.union_by(within[0], ranks, *within[1:])
    parts = intervals.union_by(_apart(group, rank, ranks), count * ranks, trace.ints("start_ns"), trace.end_ns)
    total = np.zeros(count, np.int64)
    for number, rows in enumerate(groupby.parts(parts[0] % ranks, ranks)):
        there = of_rank == number
        time = covered_ns((first[there], last[there]), parts[1][rows], parts[2][rows])
        np.add.at(total, parts[0][rows] // ranks, time)
    return total


def _span(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The union of the steps of a rank."""
    here = in_steps(trace, request)
    return union_ns(trace, native_steps(trace, here)) if request.native else span_ns(trace, here)


def _apart(group: IntArray, rank: IntArray, ranks: int) -> IntArray:
    """Groups of each rank apart; -1 stays."""
    return group if ranks == 1 else np.where(group < 0, -1, group * np.int64(ranks) + rank)


def _column(request: ViewRequest) -> str:
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"the overview cannot be grouped by {sorted(unknown)[0]!r}", f"known: {', '.join(GROUPINGS)}")
    return "category" if request.by else "kind"


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """As Paddle's ``summary()`` has it, by the framework's own event types.

    Time is the union over threads or streams of what counts (see ``attribution``), with two exceptions: phases have
    the calls and the sums of the table of phases; communication is that of the distributed summary, on the host and
    once more on the device. Shares are of the step time.
    """
    chosen, here = selected(trace, request), in_steps(trace, request)
    codes = trace.codes("category")
    types = _kinds_alone(trace)
    rows = list(_unions(trace, chosen & native_counted(trace) & ~np.isin(codes.codes, types.get(COMMUNICATION, []))))
    phases = {codes.values[code]: row for row in phase_rows(trace, here) for code in types.get(row["phase"], [])}
    rows = [row | _as_phase(phases[row["category"]]) if row["category"] in phases else row for row in rows]
    name = next((codes.values[code] for code in types.get(COMMUNICATION, [])), COMMUNICATION.capitalize())
    rows += _communication(trace, chosen, name)
    result = pd.DataFrame(rows, columns=["category", "place", "calls", "time_ns"])
    return result.assign(ratio=ratio(result["time_ns"], union_ns(trace, native_steps(trace, here))))


def _kinds_alone(trace: Trace) -> dict[str, list[int]]:
    """For each kind of host event the categories that hold nothing else."""
    kinds, categories = trace.codes("kind"), trace.codes("category")
    pairs = np.unique(np.stack([categories.codes[trace.host], kinds.codes[trace.host]]), axis=1)
    single = np.bincount(pairs[0][pairs[0] >= 0], minlength=len(categories.values)) == 1
    found: dict[str, list[int]] = {}
    for category, kind in pairs.T.tolist():
        if category >= 0 and single[category]:
            found.setdefault(kinds.values[kind], []).append(category)
    return found


def _unions(trace: Trace, counts: BoolArray) -> Iterator[dict[str, Any]]:
    codes = trace.codes("category")
    rank, ranks = rank_codes(trace)
    for place, mask in (("host", counts & trace.host), ("device", counts & trace.rows("kind", *DEVICE_WORK))):
        rows = np.flatnonzero(mask & (codes.codes >= 0))
        calls = np.bincount(codes.codes[rows], minlength=len(codes.values))
        group = codes.codes[rows].astype(np.int64) * ranks + rank[rows]
        start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
        time = intervals.union_length_by(group, len(codes.values) * ranks, start, end).reshape(-1, ranks).sum(axis=1)
        for code in np.flatnonzero(calls).tolist():
            yield _native_row(codes.values[code], place, int(calls[code]), int(time[code]))


def _communication(trace: Trace, chosen: BoolArray, category: str) -> Iterator[dict[str, Any]]:
    talk = native_communication(trace)
    for place, mask in (("host", chosen & talk.host), ("device", chosen & talk.device)):
        if mask.any():
            yield _native_row(category, place, distinct(trace, mask), union_ns(trace, mask))


def _as_phase(phase: dict[str, Any]) -> dict[str, Any]:
    return {"calls": phase["calls"], "time_ns": phase["total_cpu_ns"]}


def _native_row(category: str, place: str, calls: int, time_ns: int) -> dict[str, Any]:
    return {"category": category, "place": place, "calls": calls, "time_ns": time_ns}


COLUMNS: Final = (
    KIND,
    replace(CATEGORY, by=("category",), device_values=("device_compute", "exposed_copy")),
    PLACE,
    CALLS,
    duration("time_ns", "Time", per_step=True),
    replace(RATIO, merge=Share(RUNNING_NS, whole=_span), description="the part of the steps in which one runs"),
)

VIEW = View(
    name="overview",
    title="Overview by kind of event",
    description="calls and covered time of each kind of event, with --step of what these steps launch; the share is "
    "the part of the step time in which one runs",
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
