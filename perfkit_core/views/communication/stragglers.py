"""Which rank keeps the others waiting?

At each collective that nobody leaves before the last rank has come, on aligned clocks (``arrivals``): how late a rank
comes after the first, how long it waits for the last, and how long all others wait for it when it is the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import MAX, MIN, RANK, count, duration, key, share, text
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.communication.arrivals import arrivals
from perfkit_core.views.communication.partials import Partial, one_rank_only, reduce, reduce_each, together
from perfkit_core.views.tables import lower_median, rounded_division

GROUPINGS: Final = ("rank", "step")
_UNTIED: Final = message(
    "no collectives were recorded on several ranks that could be matched and aligned (--view clocks tells why)"
)
_NUMBERS: Final = {"collectives": "int64", "last": "int64", "last_ratio": "Float64", "late_p50_ns": "Int64",
                   "late_max_ns": "Int64", "waited_ns": "Int64", "caused_wait_ns": "Int64",
                   "doubtful_ns": "Int64", "incomplete": "int64"}  # fmt: skip
_OF_STEP: Final = {"collectives": "int64", "skew_p50_ns": "Int64", "skew_max_ns": "Int64", "waited_ns": "Int64",
                   "last_rank": "Int64", "incomplete": "int64"}  # fmt: skip


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a rank, by what it makes the others wait; see :data:`COLUMNS`. Where something is ``incomplete``, all
    waits are at least as long as told there, and another rank may have come last. By rank and step a row each, by step
    a row a step."""
    return merge(reduce_each(trace, request), request)


def merge(partials: Sequence[Partial], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks; without rows where no collective of several of them was recorded."""
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"{VIEW.name} cannot be grouped by {sorted(unknown)[0]!r}", "known: rank, step")
    found = arrivals(partials)
    found = found.assign(caused_ns=_caused(found, "wait_ns"), doubtful_ns=_caused(found, "doubt_ns"))
    found = found[found["chosen"].astype(bool) & found["late_ns"].notna()]
    steps = together(partials, "steps")
    steps = steps[steps["chosen"].astype(bool)]
    if found.empty:
        steps = steps.iloc[:0]
    return _of_steps(found, steps) if request.by == ("step",) else _of_ranks(found, steps, "step" in request.by)


def _caused(found: pd.DataFrame, time: str) -> pd.Series[int]:
    """What the others waited, or may not have waited, at the collectives at which this rank came last."""
    waited = found[time].groupby(found["meeting"]).transform("sum")
    return waited.where(found["last"] & found["wait_ns"].notna())


def _of_ranks(found: pd.DataFrame, steps: pd.DataFrame, by_step: bool) -> pd.DataFrame:
    keys = ["rank", "step"] if by_step else ["rank"]
    of_step = steps.groupby(keys)["dur_ns"]
    durations = {"dur_ns": of_step.first()} if by_step else {"steps": of_step.size(), "avg_step_ns": _average(of_step)}
    grouped = found.groupby(keys)
    columns = {
        "collectives": grouped.size(), "last": grouped["last"].sum(), "last_ratio": grouped["last"].mean(),
        "late_p50_ns": grouped["late_ns"].agg(lower_median), "late_max_ns": grouped["late_ns"].max(),
        "waited_ns": grouped["wait_ns"].sum(), "caused_wait_ns": grouped["caused_ns"].sum(),
        "doubtful_ns": grouped["doubtful_ns"].sum(), "incomplete": grouped["incomplete"].sum(),
    }  # fmt: skip
    result = pd.DataFrame({**durations, **columns}).reset_index()
    for name in ("collectives", "last", "incomplete"):
        result[name] = result[name].fillna(0)
    result = result.astype({"rank": "Int64", **dict.fromkeys(durations, "Int64"), **_NUMBERS})
    order = ["step", "rank"] if by_step else ["caused_wait_ns", "rank"]
    return result.sort_values(order, ascending=by_step, kind="stable", ignore_index=True)


def _of_steps(found: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """One arrival a collective, that of the last rank, tells its skew."""
    once, by_step = found[found["last"]].groupby("step"), steps.groupby("step")["dur_ns"]
    columns = {
        "min_step_ns": by_step.min(), "max_step_ns": by_step.max(), "collectives": once["match"].nunique(),
        "skew_p50_ns": once["skew_ns"].agg(lower_median), "skew_max_ns": once["skew_ns"].max(),
        "waited_ns": once["caused_ns"].sum(), "last_rank": _most_waited_for(found),
        "incomplete": found[found["incomplete"]].groupby("step")["match"].nunique(),
    }  # fmt: skip
    result = pd.DataFrame(columns).rename_axis("step").reset_index()
    for name in ("collectives", "incomplete"):
        result[name] = result[name].fillna(0)
    return result.astype({"step": "Int64", "min_step_ns": "Int64", "max_step_ns": "Int64", **_OF_STEP})


def _most_waited_for(found: pd.DataFrame) -> pd.Series[int]:
    caused = found[found["last"]].groupby(["step", "rank"])["caused_ns"].sum().reset_index()
    caused = caused.sort_values(["caused_ns", "rank"], ascending=[False, True], kind="stable")
    return caused.drop_duplicates("step").set_index("step")["rank"]


def _average(grouped: pd.api.typing.SeriesGroupBy[Any, Any]) -> pd.Series[int]:
    total = grouped.sum()
    return pd.Series(rounded_division(total, grouped.size()), total.index)


def _explain(trace: Trace) -> Text:
    if len(trace.meta.ranks) < 2:
        return one_rank_only()
    return _UNTIED


def _explain_merged(partials: Sequence[Partial]) -> Text:
    return _UNTIED if len(partials) > 1 else one_rank_only()


COLUMNS: Final = (
    RANK,
    key("step", "Step", by=("step",)),
    duration("dur_ns", "Duration", by=("rank", "step")),
    count("steps", "Steps", exact=True),
    duration("avg_step_ns", "Avg step"),
    duration("min_step_ns", "Min step", merge=MIN, of_capture=True, by=("step",), description="over the ranks"),
    duration("max_step_ns", "Max step", merge=MAX, of_capture=True, by=("step",)),
    count("collectives", "Collectives", per_step=True),
    count("last", "Last", per_step=True, description="how often it came last"),
    share("last_ratio", "Last"),
    duration("skew_p50_ns", "Skew p50", by=("step",), description="last arrival less first"),
    duration("skew_max_ns", "Skew max", of_capture=True, by=("step",)),
    duration("late_p50_ns", "Late p50", description="after the first rank"),
    duration("late_max_ns", "Late max", of_capture=True),
    duration("waited_ns", "Waited", per_step=True),
    duration("caused_wait_ns", "Caused wait", per_step=True, description="of the others, where it came last"),
    duration("doubtful_ns", "Doubtful", per_step=True, description="of that within what clocks contradict each other"),
    text("last_rank", "Last rank", by=("step",), description="that caused most of the waits"),
    count("incomplete", "Incomplete", per_step=True, description="collectives without the clock or events of a rank"),
)

VIEW = View(
    name="stragglers",
    title="Stragglers",
    description="which rank comes last to the collectives, and how long the others wait for it",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=_explain,
    reduction=Reduction(reduce, merge, _explain_merged),
)
