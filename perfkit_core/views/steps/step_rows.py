"""Event rows of the steps, shares of the step time, and the tables of views that divide steps into parts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.plugins.contracts import Reduced, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import (
    DUR,
    MAX,
    MIN,
    RANK,
    RATIO,
    Average,
    Column,
    Share,
    by_name,
    count,
    duration,
    key,
)
from perfkit_core.trace.model.schema import DEVICE_WORK, OTHER, STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, select
from perfkit_core.views.tables import concat, ratio, rounded_division

Floats = npt.NDArray[np.float64]


@once
def step_rows(trace: Trace) -> IntArray:
    return np.flatnonzero(trace.host & trace.rows("kind", STEP))


def chosen_steps(trace: Trace, request: ViewRequest) -> IntArray:
    """Return the event rows of the requested steps, sorted by rank, step number and start. Raises UsageError."""
    rows = step_rows(trace)
    rows = rows[select.in_steps(trace, request)[rows]]
    rank, step, start = (trace.ints(name)[rows] for name in ("rank", "step", "start_ns"))
    ordered: IntArray = rows[np.lexsort((start, step, rank))]
    return ordered


def step_frame(trace: Trace, steps: IntArray) -> pd.DataFrame:
    """Return one row per step, in the order of ``steps``. Columns: rank (NA if unknown), step, dur_ns."""
    rank = trace.ints("rank")[steps]
    unknown = pd.arrays.IntegerArray(rank, rank < 0)
    return pd.DataFrame({"rank": unknown, "step": trace.ints("step")[steps], "dur_ns": trace.ints("dur_ns")[steps]})


@once
def cut_off_rows(trace: Trace) -> BoolArray:
    """Return the mask of the steps that perfkit leaves out: partial steps, and a last step without work. These are host
    events of kind ``other``. Their names equal a step's name except for the number (``ProfileStep#9``)."""
    names = trace.codes("name")
    unnumbered = [re.sub(r"\d+", "", name) for name in names.values]
    step_names = {unnumbered[code] for code in np.unique(names.codes[step_rows(trace)])}
    alike: BoolArray = names.lookup(np.array([name in step_names for name in unnumbered], np.bool_), False)
    return alike & trace.host & trace.rows("kind", OTHER)


def native_steps(trace: Trace, chosen: BoolArray) -> BoolArray:
    """Return the mask of the events that Paddle's own tables count as steps, shape (rows,). Steps outside ``chosen``
    are left out. If all events are chosen, the mask includes :func:`cut_off_rows`, because Paddle counts these, too."""
    mask = select.marked(trace, step_rows(trace)) & chosen
    return mask | cut_off_rows(trace) if chosen.all() else mask


def position(trace: Trace, steps: IntArray, rank: IntArray, step: IntArray) -> IntArray:
    """Find the step with rank ``rank[i]`` and number ``step[i]`` for each i. Return the index of the first match in
    ``steps`` (event rows of steps), -1 if none, shape (len(step),)."""
    ranks, code = np.unique(trace.ints("rank")[steps], return_inverse=True)
    number = trace.ints("step")[steps]
    low, high = int(number.min(initial=0)), int(number.max(initial=0))
    width = high - low + 1
    if not groupby.is_dense(len(ranks) * width, len(step) + len(steps)):
        # Few pairs of rank and step number occur. A dense array of all pairs would be much too large.
        index = pd.MultiIndex.from_arrays([trace.ints("rank")[steps], number])
        unique = np.flatnonzero(~index.duplicated())
        at = index[unique].get_indexer(pd.MultiIndex.from_arrays([rank, step]))
        return np.where(at >= 0, np.append(unique, -1)[at], -1)
    first = groupby.first_rows(code * width + number - low, len(ranks) * width)
    table = np.where(first < len(steps), first, -1)
    indices = np.empty(len(step), np.int64)
    _look_up(table.reshape(len(ranks), width), ranks, low, rank, step, indices)
    return indices


@compiled
def _look_up(
    table: Annotated[IntArray, 2], ranks: IntArray, low: int, rank: IntArray, step: IntArray, indices: Out[IntArray]
) -> None:
    """Set each ``indices[i]`` to the item of ``table`` for ``rank[i]`` and ``step[i]``, or to -1 if there is none.
    ``table`` has a row per rank of ``ranks`` and a column per step number, from ``low`` upwards."""
    at = 0
    for i in range(len(step)):
        if at == len(ranks) or ranks[at] != rank[i]:
            at = np.searchsorted(ranks, rank[i])
        column = step[i] - low
        in_table = 0 <= column < table.shape[1] and at < len(ranks) and ranks[at] == rank[i]
        indices[i] = table[at, column] if in_table else -1


def ratios(
    trace: Trace, request: ViewRequest, cpu_ns: npt.ArrayLike, device_ns: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Return host and device times as shares of the chosen steps (or of all events if no step was recorded).

    Device shares are NaN if no device work was recorded, and 0 in native tables. In native tables, the steps include
    :func:`cut_off_rows`, and device times are divided by the device work that was launched on the threads of the steps.
    """
    host_total, device_total = _denominators(trace, request)
    device = ratio(device_ns, device_total)
    if not request.native and not trace.rows("kind", *DEVICE_WORK).any():
        device = np.full(np.shape(device), np.nan)
    return ratio(cpu_ns, host_total), device


def host_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    return _denominators(trace, request)[0]


def device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    return _denominators(trace, request)[1]


def _denominators(trace: Trace, request: ViewRequest) -> tuple[int, int]:
    chosen = select.in_steps(trace, request)
    if request.native:
        steps = (cut_off_rows(trace) | select.marked(trace, step_rows(trace))) & chosen
        return select.union_ns(trace, steps), int(attribution.total_device_ns(trace)[steps].sum())
    counted = trace.rows("kind", *DEVICE_WORK) & chosen
    if len(step_rows(trace)):
        counted &= trace.ints("step", NO_ROW) >= 0
    return select.span_ns(trace, chosen), int(trace.ints("dur_ns")[counted].sum())


GROUPINGS: Final = ("step", "rank")
OVER_STEPS: Final = (
    count("steps", "Steps", "number of steps with a value", exact=True),
    duration("total_ns", "Total", over="steps"),
    duration("avg_ns", "Avg", "average time of a step", merge=Average("total_ns")),
    duration("min_ns", "Min", merge=MIN, over="capture"),
    duration("max_ns", "Max", merge=MAX, over="capture"),
    replace(RATIO, merge=Share("total_ns"), description="share of the time of those steps in which the part is known"),
)
OF_STEP: Final = (RANK, key("step", "Step", thing="step"), DUR)
"""Columns of :func:`step_frame`."""
BY_STEP: Final = (
    replace(RANK, by=("rank", "step")),
    key("step", "Step", by=("step",)),
    replace(DUR, by=("step",)),
)

Table = Callable[[Trace, ViewRequest], pd.DataFrame]


def over_steps(
    divide: Table, part: str, parts: Sequence[Column], in_parts: Callable[[Trace], Any] | None = None
) -> Reduced:
    """Return the table of a view that divides steps into parts, such as ``idle``.

    ``divide(trace, request)`` returns one row per step. The columns are those of :func:`step_frame`, and for each part
    a column ``{name}_ns`` of ``parts`` with its time (NA if unknown). It may leave out some of the ``parts``, and may
    have further columns. The rows of the table depend on the requested groupings:

    - grouped by step: the rows of ``divide``,
    - grouped by rank: one row per rank and part,
    - not grouped: one row per part.

    ``part`` is the name of the column that contains the names of the parts. The columns OVER_STEPS come after it.
    """

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        all_steps = concat(partials)
        if "step" in request.by:
            return all_steps
        groups: list[tuple[object, pd.DataFrame]] = [(None, all_steps)]
        if "rank" in request.by:
            # No groupby: pandas 2 cannot group by a nullable column that has only NA. Unknown ranks come last.
            ranks, unknown = sorted(all_steps["rank"].dropna().unique()), all_steps[all_steps["rank"].isna()]
            groups = [(rank, all_steps[(all_steps["rank"] == rank).fillna(False)]) for rank in ranks]
            groups += [(pd.NA, unknown)] if len(unknown) else []
        names = [name for name in map(str, all_steps.columns) if name in by_name(parts)]
        rows = []
        for (rank, steps), name in itertools.product(groups, names):
            steps = steps[steps[name].notna()]
            times = steps[name].to_numpy(np.int64)
            if len(times):
                total, step_time = int(times.sum()), int(steps["dur_ns"].sum())
                numbers = (total, int(rounded_division(total, len(times))), int(times.min()), int(times.max()))
                rows.append((rank, name.removesuffix("_ns"), len(times), *numbers, float(ratio(total, step_time))))
        result = pd.DataFrame(rows, columns=["rank", part, "steps", "total_ns", "avg_ns", "min_ns", "max_ns", "ratio"])
        return result.astype({"rank": "Int64"}) if "rank" in request.by else result.drop(columns="rank")

    return Reduced(divide, merge, in_parts=in_parts)
