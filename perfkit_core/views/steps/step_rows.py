"""Rows of the steps, shares of step time, and the reduction of views that divide steps into parts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DUR, MAX, MIN, RANK, RATIO, Average, Share, count, duration, key
from perfkit_core.model.schema import DEVICE_WORK, OTHER, STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import Reduction, ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution, select
from perfkit_core.views.tables import ratio, rounded_division, stacked

Floats = npt.NDArray[np.float64]

NO_STEPS: Final = message(
    "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
)


@once
def step_rows(trace: Trace) -> IntArray:
    return np.flatnonzero(trace.host & trace.rows("kind", STEP))


def chosen_steps(trace: Trace, request: ViewRequest) -> IntArray:
    """Return the rows of the requested step events, by rank, step and start. Raises UsageError."""
    rows = step_rows(trace)
    rows = rows[select.in_steps(trace, request)[rows]]
    rank, step, start = (trace.ints(name)[rows] for name in ("rank", "step", "start_ns"))
    ordered: IntArray = rows[np.lexsort((start, step, rank))]
    return ordered


def step_frame(trace: Trace, steps: IntArray) -> pd.DataFrame:
    """Return the columns rank (null: unknown), step and dur_ns of step rows, in order."""
    rank = trace.ints("rank")[steps]
    frame = pd.DataFrame({"rank": pd.arrays.IntegerArray(rank, rank < 0)})
    return frame.assign(step=trace.ints("step")[steps], dur_ns=trace.ints("dur_ns")[steps])


@once
def cut_off_rows(trace: Trace) -> BoolArray:
    """Return the mask of partial steps: host events named like the steps but for the number."""
    names, steps = trace.codes("name"), step_rows(trace)
    unnumbered = [re.sub(r"\d+", "", name) for name in names.values]
    of_steps = {unnumbered[code] for code in np.unique(names.codes[steps])}
    alike: BoolArray = names.lookup(np.array([name in of_steps for name in unnumbered], np.bool_), False)
    return alike & trace.host & trace.rows("kind", OTHER)


def native_steps(trace: Trace, chosen: BoolArray) -> BoolArray:
    """Return the mask of Paddle's steps, including a partial one (if all events are chosen) and an empty last one,
    shape (rows,). Paddle's step time is their union."""
    mask = np.zeros(len(trace), np.bool_)
    mask[step_rows(trace)] = True
    mask &= chosen
    return mask | cut_off_rows(trace) if chosen.all() else mask


def position(trace: Trace, steps: IntArray, rank: IntArray, step: IntArray) -> IntArray:
    """Return the index into ``steps`` of each (rank, step number), -1 for none, the first of repeated numbers."""
    ranks, of_step = np.unique(trace.ints("rank")[steps], return_inverse=True)
    number = trace.ints("step")[steps]
    low, high = int(number.min(initial=0)), int(number.max(initial=0))
    width = high - low + 1
    if not groupby.is_dense(len(ranks) * width, len(step) + len(steps)):
        # a table of all numbers would be much larger than the trace
        index = pd.MultiIndex.from_arrays([trace.ints("rank")[steps], number])
        unique = np.flatnonzero(~index.duplicated())
        at = index[unique].get_indexer(pd.MultiIndex.from_arrays([rank, step]))
        return np.where(at >= 0, np.append(unique, -1)[at], -1)
    first = groupby.first_rows(of_step * width + number - low, len(ranks) * width)
    table = np.where(first < len(steps), first, -1)
    result = np.empty(len(step), np.int64)
    _look_up(table.reshape(len(ranks), width), ranks, low, rank, step, result)
    return result


@compiled
def _look_up(table, ranks, low, rank, step, found):  # type: ignore[no-untyped-def]
    """``table`` has a row per rank and a column per number from ``low``."""
    at = 0
    for i in range(len(step)):
        if at == len(ranks) or ranks[at] != rank[i]:
            at = np.searchsorted(ranks, rank[i])
        column = step[i] - low
        known = 0 <= column < table.shape[1] and at < len(ranks) and ranks[at] == rank[i]
        found[i] = table[at, column] if known else -1


def ratios(
    trace: Trace, request: ViewRequest, cpu_ns: npt.ArrayLike, device_ns: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Return the shares of host and device times in the chosen steps (without steps: in the whole recording). NaN on
    the device if no device work was recorded. Native shares also count empty last steps, and only device work launched
    on the thread of the steps."""
    work = trace.rows("kind", *DEVICE_WORK)
    if request.native:
        steps = cut_off_rows(trace).copy()
        steps[step_rows(trace)] = True
        steps &= select.in_steps(trace, request)
        whole, device_whole = select.union_ns(trace, steps), int(attribution.total_device_ns(trace)[steps].sum())
    else:
        counted = work & select.in_steps(trace, request)
        if len(step_rows(trace)):
            counted &= trace.ints("step", NO_ROW) >= 0
        whole = select.span_ns(trace, select.in_steps(trace, request))
        device_whole = int(trace.ints("dur_ns")[counted].sum())
    device = ratio(device_ns, device_whole)
    return ratio(cpu_ns, whole), device if work.any() else np.full(np.shape(device), np.nan)


def host_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    return _denominator(ratios(trace, request, 1, 1)[0])


def device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    return _denominator(ratios(trace, request, 1, 1)[1])


def _denominator(share_of_one: Floats) -> int:
    value = float(share_of_one)
    return round(1 / value) if value > 0 else 0


GROUPINGS: Final = ("step", "rank")
OVER_STEPS: Final = (
    count("steps", "Steps", exact=True, description="with a value"),
    duration("total_ns", "Total", per_step=True),
    duration("avg_ns", "Avg", merge=Average("total_ns"), description="of a step"),
    duration("min_ns", "Min", merge=MIN, of_capture=True),
    duration("max_ns", "Max", merge=MAX, of_capture=True),
    replace(RATIO, merge=Share("total_ns"), description="of the duration of the steps"),
)
OF_STEP: Final = (RANK, key("step", "Step"), DUR)
"""Columns of :func:`step_frame`."""
BY_STEP: Final = (
    replace(RANK, by=("rank", "step")),
    key("step", "Step", by=("step",)),
    replace(DUR, by=("step",)),
)


def over_steps(view: str, divide: Callable[[Trace, ViewRequest], pd.DataFrame], part: str) -> Reduction:
    """Return the reduction of a view that divides steps: ranks are reduced to their steps, which are summed in the end.

    ``divide`` returns a row per step: :func:`step_frame` and ``{name}_ns`` of each part, null if a step has no value.
    Merged by step, that is the table. Otherwise it has a row per part: [rank,] ``part``, steps (with a value),
    total/avg/min/max_ns of a step, ratio to their duration. Raises UsageError for a grouping not in GROUPINGS.
    """

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        select.check_groupings(view, request, GROUPINGS)
        return divide(trace, request)

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        wide = stacked(partials)
        if "step" in request.by:
            return wide
        groups: list[tuple[object, pd.DataFrame]] = [(None, wide)]
        if "rank" in request.by:
            # pandas 2 cannot group by a nullable column that has only NA; unknown ranks come last
            ranks, unknown = sorted(wide["rank"].dropna().unique()), wide[wide["rank"].isna()]
            groups = [(rank, wide[(wide["rank"] == rank).fillna(False)]) for rank in ranks]
            groups += [(pd.NA, unknown)] if len(unknown) else []
        names = [str(name) for name in wide.columns if str(name).endswith("_ns") and name != "dur_ns"]
        rows = []
        for (rank, steps), name in itertools.product(groups, names):
            known = steps[steps[name].notna()]
            times = known[name].to_numpy(np.int64)
            if len(times):
                total, whole = int(times.sum()), int(known["dur_ns"].sum())
                numbers = (total, int(rounded_division(total, len(times))), int(times.min()), int(times.max()))
                rows.append((rank, name.removesuffix("_ns"), len(times), *numbers, float(ratio(total, whole))))
        result = pd.DataFrame(rows, columns=["rank", part, "steps", "total_ns", "avg_ns", "min_ns", "max_ns", "ratio"])
        return result.astype({"rank": "Int64"}) if "rank" in request.by else result.drop(columns="rank")

    return Reduction(reduce, merge)
