"""View ``stragglers``: the ranks that other ranks wait for.

The view uses collectives that no rank can leave before the last rank has arrived. On aligned clocks, it measures how
late each rank arrives, how long each rank waits for the last rank, and how long the last rank makes the others wait. A
wait lasts from the rank's start to the last rank's start, but at most to the rank's end. The transfer follows the wait.

If several ranks start last at the same time, the collective is tied: none of them is the last rank, and no rank has
caused the waits of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, filled
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import MAX, MIN, RANK, count, duration, key, share, text
from perfkit_core.trace.model.side_tables import AWAITED_RANKS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import clock_model, instances
from perfkit_core.views.tables import lower_median, no_rows, rounded_division

GROUPINGS: Final = ("rank", "step")
_UNTIED: Final = message("no collectives of several ranks could be matched and aligned (--view clocks shows why)")
_NUMBERS: Final = {"collectives": "int64", "tied": "int64", "last": "int64", "last_ratio": "Float64",
                   "late_p50_ns": "Int64", "late_max_ns": "Int64", "waited_ns": "Int64", "caused_wait_ns": "Int64",
                   "doubtful_ns": "Int64", "incomplete": "int64"}  # fmt: skip
_OF_STEP: Final = {"step": "Int64", "min_step_ns": "Int64", "max_step_ns": "Int64", "collectives": "int64",
                   "skew_p50_ns": "Int64", "skew_max_ns": "Int64", "waited_ns": "Int64", "last_rank": "Int64",
                   "incomplete": "int64"}  # fmt: skip
_OF_RANK: Final = {"rank": "Int64", "steps": "Int64", "avg_step_ns": "Int64", **_NUMBERS}
_OF_RANK_AND_STEP: Final = {"rank": "Int64", "step": "int64", "dur_ns": "Int64", **_NUMBERS}


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank, sorted by the waits that the rank causes. Grouped by step, return one row per step.
    Grouped by rank and step, return one row per rank and step. The waits of ``incomplete`` collectives are lower
    bounds, because the missing rank may have been last."""
    if len(instances.all_ranks(partials)) < 2:
        return no_rows(_types(request))
    calls = arrivals(partials)
    for caused, time in (("caused_ns", "wait_ns"), ("doubtful_ns", "doubt_ns")):
        waited = calls[time].groupby(calls["meeting"]).transform("sum")
        calls[caused] = waited.where(calls["latest"] & calls["wait_ns"].notna())
    calls = calls[calls["chosen"].astype(bool) & calls["late_ns"].notna()]
    steps = instances.together(partials, "steps")
    steps = steps[steps["chosen"].astype(bool)]
    if calls.empty:
        steps = steps.iloc[:0]
    return _of_steps(calls, steps) if request.by == ("step",) else _of_ranks(calls, steps, request)


def _types(request: ViewRequest) -> dict[str, str]:
    if request.by == ("step",):
        return _OF_STEP
    return _OF_RANK_AND_STEP if "step" in request.by else _OF_RANK


def _of_ranks(calls: pd.DataFrame, steps: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    by_step = "step" in request.by
    keys = ["rank", "step"] if by_step else ["rank"]
    time = steps.groupby(keys)["dur_ns"]
    total, size = time.sum(), time.size()
    average = pd.Series(rounded_division(total, size), total.index)
    durations = {"dur_ns": time.first()} if by_step else {"steps": size, "avg_step_ns": average}
    caused = ["caused_ns", "doubtful_ns"]
    grouped = calls.assign(**calls[caused].where(calls["last"])).groupby(keys)
    tied, last = grouped["tied"].sum(), grouped["last"].sum()
    decided = (grouped.size() - tied).astype("Float64")
    columns = {
        "collectives": grouped.size(), "tied": tied, "last": last, "last_ratio": last / decided.where(decided > 0),
        "late_p50_ns": grouped["late_ns"].agg(lower_median), "late_max_ns": grouped["late_ns"].max(),
        "waited_ns": grouped["wait_ns"].sum(), "caused_wait_ns": grouped["caused_ns"].sum(),
        "doubtful_ns": grouped["doubtful_ns"].sum(), "incomplete": grouped["incomplete"].sum(),
    }  # fmt: skip
    result = pd.DataFrame({**durations, **columns}).reset_index()
    result = result.fillna({"collectives": 0, "tied": 0, "last": 0, "incomplete": 0})
    result = result.astype(_types(request))
    order = ["step", "rank"] if by_step else ["caused_wait_ns", "rank"]
    return result.sort_values(order, ascending=by_step, kind="stable", ignore_index=True)


def _of_steps(calls: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    time = steps.groupby("step")["dur_ns"]
    caused = calls[calls["last"]].groupby(["step", "rank"])["caused_ns"].sum().reset_index()
    caused = caused.sort_values(["caused_ns", "rank"], ascending=[False, True], kind="stable")
    by_step = calls[calls["latest"]].groupby("step")  # one row per collective
    columns = {
        "min_step_ns": time.min(), "max_step_ns": time.max(), "collectives": by_step["match"].nunique(),
        "skew_p50_ns": by_step["skew_ns"].agg(lower_median), "skew_max_ns": by_step["skew_ns"].max(),
        "waited_ns": by_step["caused_ns"].sum(),
        "last_rank": caused.drop_duplicates("step").set_index("step")["rank"],
        "incomplete": calls[calls["incomplete"]].groupby("step")["match"].nunique(),
    }  # fmt: skip
    result = pd.DataFrame(columns).rename_axis("step").reset_index().fillna({"collectives": 0, "incomplete": 0})
    return result.astype(_OF_STEP)


class Awaited(NamedTuple):
    """The wait of each collective for the rank that its device waits for last, as the device recorded it. Arrays have
    shape (rows,); the rank is -1, and the times are 0, for events without such a wait."""

    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray


@once
def awaited(trace: Trace) -> Awaited:
    rank, start, end = filled(len(trace), NO_ROW), filled(len(trace), 0), filled(len(trace), 0)
    table = trace.tables[AWAITED_RANKS]
    if len(table):
        cells = {name: table[name].to_numpy() for name in table.column_names}
        rows = cells["row"]
        rank[rows], start[rows] = cells["awaited"], trace.ints("start_ns")[rows] + cells["after_ns"]
        end[rows] = np.minimum(start[rows] + cells["wait_ns"], trace.end_ns[rows])
    return Awaited(rank, start, end)


_TIMES: Final = ("late_ns", "wait_ns", "doubt_ns", "skew_ns", "meeting")


def arrivals(partials: Sequence[instances.Partial]) -> pd.DataFrame:
    """Return the collectives of all ranks (:func:`matched`) with columns about the arrivals of the ranks, on one clock.

    The columns have values for synchronous collectives that several aligned ranks recorded. All other collectives have
    NA or False in these columns:

    - ``meeting``: number of the collective, equal on all aligned ranks.
    - ``late_ns``: start less the first rank's start. ``skew_ns``: last start less first start.
    - ``wait_ns``: wait for the last rank. ``doubt_ns``: part of the wait that clock errors could explain.
    - ``tied``: whether several ranks started last at the same time. ``last``: whether this rank alone started last.
    - ``latest``: marks one row per meeting: that of the rank that started last. If tied, it is the lowest such rank.
    - ``incomplete``: whether a rank of the group is missing. The missing rank may have started last.
    - ``complete``: as in :func:`matched`, but False if a clock is not aligned. Then ``incomplete`` may be False too."""
    collectives = instances.all_collectives(partials)
    clocks = clock_model.clock_offsets(collectives)
    meeting = clock_model.meetings(collectives, clocks)
    rank, dur = collectives["rank"][meeting.index].astype("int64"), collectives["dur_ns"][meeting.index]
    met = pd.DataFrame({"meeting": meeting, "rank": rank, "start": collectives["start_ns"][meeting.index]})
    met["end"] = met["start"] + dur
    for edge in ("start", "end"):
        met[edge] -= clock_model.ahead_ns(clocks, met["rank"].to_numpy(np.int64), met[edge].to_numpy())
    by_meeting = met.groupby("meeting")
    first, last = by_meeting["start"].transform("min"), by_meeting["start"].transform("max")
    starts_last = met["start"] == last
    latest = met[starts_last].sort_values("rank").drop_duplicates("meeting")
    tied = met.index[starts_last.groupby(met["meeting"]).transform("sum") > 1]
    wait = (last - met["start"]).clip(upper=dur)

    # `error` is the largest of the clock uncertainty (`crossing`) of this rank, that of the last rank, and `ends`.
    # `ends` is the difference between the ends of both ranks, plus the duration of the last rank less the shortest
    # duration. With exact clocks, `ends` is 0: all ranks end together, and the last rank has the shortest duration.
    took, crossing = met["end"] - met["start"], clock_model.crossing_ns(clocks)
    of_last = latest.set_index("meeting")
    itself = of_last["end"] - of_last["start"] - took.groupby(met["meeting"]).min()
    of_last = of_last.assign(itself=itself, crossing=of_last["rank"].map(crossing)).loc[met["meeting"]]
    of_last = of_last.set_axis(met.index)
    ends = (met["end"] - of_last["end"]).abs() + of_last["itself"]
    error = pd.concat([ends, of_last["crossing"], met["rank"].map(crossing)], axis=1).max(axis=1)
    times = (met["start"] - first, wait, wait.clip(upper=error), last - first, met["meeting"])
    columns = {name: time.reindex(collectives.index).astype("Int64") for name, time in zip(_TIMES, times, strict=True)}

    # If the group size is unknown, assume that all ranks whose recordings were not read belong to the group.
    present = by_meeting["start"].transform("size").reindex(collectives.index, fill_value=0)
    world = max((partial["world_size"] or 0 for partial in partials), default=0)
    unread = max(world - len(instances.all_ranks(partials)), 0)
    expected = collectives["group_size"].fillna(collectives["of_ranks"] + unread)
    return collectives.assign(
        **columns,
        latest=collectives.index.isin(latest.index),
        tied=collectives.index.isin(tied),
        last=collectives.index.isin(latest.index.difference(tied)),
        complete=collectives["complete"] & (present == collectives["of_ranks"]),
        incomplete=(present > 0) & (present < expected),
    )


def transfer_ns(calls: pd.DataFrame) -> pd.Series[int]:
    """Return the transfer time of each row of :func:`arrivals`: the duration less the wait for the last rank. The
    transfer time is NA if a rank of the group is missing, or if the time is implausible because of clock errors."""
    time = calls["dur_ns"] - calls["wait_ns"]
    least = calls.groupby("match")["dur_ns"].transform("min")
    return time.where(calls["complete"] & ((time > 0) & (2 * (time - least).abs() <= time)).fillna(False))


COLUMNS: Final = (
    RANK,
    key("step", "Step", by=("step",)),
    duration("dur_ns", "Duration", by=("rank", "step")),
    count("steps", "Steps", exact=True),
    duration("avg_step_ns", "Avg step"),
    duration("min_step_ns", "Min step", "shortest step of any rank", merge=MIN, over="capture", by=("step",)),
    duration("max_step_ns", "Max step", merge=MAX, over="capture", by=("step",)),
    count("collectives", "Collectives", over="steps"),
    count("tied", "Tied for last", "collectives at which several ranks came last at the same time", over="steps"),
    count("last", "Last", "how often the rank alone came last", over="steps"),
    share("last_ratio", "Last", description="share of the collectives that are not tied"),
    duration("skew_p50_ns", "Skew p50", "last rank's start less first rank's start", by=("step",)),
    duration("skew_max_ns", "Skew max", over="capture", by=("step",)),
    duration("late_p50_ns", "Late p50", "rank's start less first rank's start"),
    duration("late_max_ns", "Late max", over="capture"),
    duration("waited_ns", "Waited", over="steps"),
    duration("caused_wait_ns", "Caused wait", "waits of the other ranks for this rank", over="steps"),
    duration("doubtful_ns", "Doubtful", "part of the caused wait that clock errors could explain", over="steps"),
    text("last_rank", "Last rank", "rank that caused the longest waits", by=("step",)),
    count("incomplete", "Incomplete", "collectives in which a rank is missing", over="steps"),
)

VIEW = View(
    name="stragglers",
    title="Stragglers",
    description="ranks that arrive last at collectives, and how long the other ranks wait for them",
    table=instances.compared(
        instances.reduce_each, merge, lambda partials: instances.needs_several_ranks(len(partials), _UNTIED)
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: instances.needs_several_ranks(len(trace.meta.ranks), _UNTIED),
)
