"""View ``overview``: calls and covered time of each kind of event.

Time is a union over threads and streams. Rows of different kinds can overlap. The share is the part of the step time
during which an event of the row runs, so it is at most 1. Steps in which device work was not recorded do not count.

If steps are chosen, calls and time count the events that start in these steps, and the device work launched there.
Grouped by category, the table has one row per event type of the framework. The native table is Paddle's overview.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import arrays, groupby, intervals
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.assembly import lost_records
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import CALLS, CATEGORY, KIND, PLACE, RATIO, Share, duration
from perfkit_core.trace.model.schema import COMMUNICATION, DEVICE_WORK, KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.attribution import native_counted
from perfkit_core.views.communication.distributed import distinct, native_communication
from perfkit_core.views.steps.step_phases import phase_rows
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import ratio

GROUPINGS: Final = ("category",)
RUNNING_NS: Final = "running_ns"
"""Column of :func:`measured`: the part of the step time during which an event of the row runs."""


def _finished(rows: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return one row per kind (or category) and place, with :data:`COLUMNS`: the rows that have calls,
    those of the host first, sorted by kind or category."""
    table = rows[rows["calls"] > 0].drop(columns=RUNNING_NS).reset_index(drop=True)
    if request.native or table.empty:
        return table
    names = table.iloc[:, 0]
    names = names.map(KINDS.index) if names.name == "kind" else names
    return table.iloc[np.lexsort((names.to_numpy(), table["place"] == "device"))].reset_index(drop=True)


def measured(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the table with an additional column RUNNING_NS, the numerator of the column ``ratio``. It also has rows
    without calls, for work of other steps that runs in the chosen steps."""
    if request.native:
        result = _native_table(trace, request)
        return result.assign(**{RUNNING_NS: result["time_ns"]})
    column = "category" if request.by else "kind"
    kinds = trace.codes(column).values
    counted = _groups(trace, column, request)
    result = pd.DataFrame({
        column: pd.Series(kinds * 2, dtype=object),
        "place": ["host"] * len(kinds) + ["device"] * len(kinds),
        "calls": groupby.sums(counted, 2 * len(kinds), np.ones(len(counted), np.bool_)),
        "time_ns": _covered_ns(trace, counted, 2 * len(kinds)),
    })  # fmt: skip
    del counted  # to save memory

    result[RUNNING_NS] = _running_ns(trace, request, column)
    step_ns = _step_time_ns(trace, request, result)
    result["ratio"] = ratio(result[RUNNING_NS], step_ns) if step_ns or lost_records.is_measured(trace) else np.nan
    return result[(result["calls"] > 0) | (result[RUNNING_NS] > 0)].reset_index(drop=True)


def _running_ns(trace: Trace, request: ViewRequest, column: str) -> arrays.IntArray:
    """Return the part of the step time during which events of each group run. All events count, also those that started
    in other steps, but only their time inside the chosen steps. Shape (groups,)."""
    steps = select.spans_of_ranks(trace, select.in_steps(trace, request) & lost_records.measured(trace))
    group = _by_rank(trace, _groups(trace, column, replace(request, steps=None)))
    count = 2 * len(trace.codes(column).values)
    of_rank = intervals.length_inside(group, count * len(steps), trace.ints("start_ns"), trace.end_ns, steps)
    running: arrays.IntArray = of_rank.reshape(count, len(steps)).sum(axis=1)
    return running


@once
def _groups(trace: Trace, column: str, request: ViewRequest) -> npt.NDArray[np.int32]:
    """Return the group of each selected event: the code of its ``column``, with a different number for events on
    devices; -1 for other events. Shape (rows,)."""
    codes = trace.codes(column)
    group = codes.codes.copy()
    np.add(group, np.int32(len(codes.values)), out=group, where=~trace.host)  # in place, to save memory
    group[(codes.codes < 0) | ~select.selected(trace, request)] = -1
    return group


def _covered_ns(trace: Trace, group: npt.NDArray[Any], count: int) -> arrays.IntArray:
    """Return the time that the events of each group cover: the unions on each rank, summed over the ranks."""
    ranks = len(select.ranks(trace))
    time = intervals.union_length_by(_by_rank(trace, group), count * ranks, trace.ints("start_ns"), trace.end_ns)
    total: arrays.IntArray = time.reshape(count, ranks).sum(axis=1)
    return total


def _by_rank(trace: Trace, group: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return for each event a number that is unique to its pair of group and rank, or -1 if the group is -1."""
    rank, ranks = select.rank_codes(trace)
    return group if ranks == 1 else np.where(group < 0, -1, group * np.int64(ranks) + rank)


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the overview of Paddle's ``summary()``: one row per combination of event type and place (host or device).

    Time is the union of the events that Paddle counts (see ``attribution``). There are two exceptions.
    Phases have the calls and times of Paddle's Model Summary. Communication has those of the Distribution Summary.
    """
    chosen, in_steps = select.selected(trace, request), select.in_steps(trace, request)
    categories, kinds = trace.codes("category"), trace.codes("kind")
    # A category belongs to a kind if all its host events have this kind.
    pairs = np.unique(np.stack([categories.codes[trace.host], kinds.codes[trace.host]]), axis=1)
    single = np.bincount(pairs[0][pairs[0] >= 0], minlength=len(categories.values)) == 1
    by_kind: dict[str, list[int]] = {}
    for category, kind in pairs.T.tolist():
        if category >= 0 and single[category]:
            by_kind.setdefault(kinds.values[kind], []).append(category)
    communication = by_kind.get(COMMUNICATION, [])

    counts = chosen & native_counted(trace) & ~np.isin(categories.codes, communication)
    phases = {category: row for row in phase_rows(trace, in_steps) for category in by_kind.get(row["phase"], [])}
    rows = []
    for side, mask in (("host", counts & trace.host), ("device", counts & trace.rows("kind", *DEVICE_WORK))):
        group = np.where(mask, categories.codes, -1)
        calls = groupby.sums(group, len(categories.values), np.ones(len(group), np.bool_))
        time = _covered_ns(trace, group, len(categories.values))
        for category in np.flatnonzero(calls).tolist():
            numbers = (int(calls[category]), int(time[category]))
            if category in phases:
                numbers = (phases[category]["calls"], phases[category]["total_cpu_ns"])
            rows.append((categories.values[category], side, *numbers))
    name = categories.values[communication[0]] if communication else COMMUNICATION.capitalize()
    on_host, on_device, _ = native_communication(trace)
    for side, mask in (("host", chosen & on_host), ("device", chosen & on_device)):
        if mask.any():
            rows.append((name, side, distinct(trace, mask), select.union_ns(trace, mask)))
    result = pd.DataFrame(rows, columns=["category", "place", "calls", "time_ns"])
    return result.assign(ratio=ratio(result["time_ns"], _step_time_ns(trace, request, result)))


def _step_time_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    chosen = select.in_steps(trace, request)
    if request.native:
        return select.union_ns(trace, native_steps(trace, chosen))
    return select.span_ns(trace, chosen & lost_records.measured(trace))


COLUMNS: Final = (
    KIND,
    replace(CATEGORY, by=("category",), place=("device_compute", "exposed_copy")),
    PLACE,
    CALLS,
    duration("time_ns", "Time", over="steps"),
    replace(RATIO, merge=Share(RUNNING_NS, whole=_step_time_ns), description="share of the step time"),
)

VIEW = View(
    name="overview",
    title="Overview by kind of event",
    description="calls and time of each kind of event (overlapping time counts once); the share is the part of the "
    "step time in which such events run; with --step, calls and time are those of the host events of the selected "
    "steps and of the device work launched in these steps",
    table=Merged(
        measured,
        _finished,
        columns=(duration(RUNNING_NS, RUNNING_NS),),
        native=True,
        in_parts=lambda trace: (),
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="time_ns",
    explain_empty=lambda trace: message("no events were recorded"),
)
