"""View ``causes``: the account of the devices in each step, and the host events that hold them back."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.causes.account import HOST, WORDS, device_segments
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import DEPTH, Share, duration, key, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import check_groupings
from perfkit_core.views.steps import step_rows
from perfkit_core.views.tables import ratio

GROUPINGS: Final = ("step", "device", "rank")
_NOTHING: Final = "(nothing recorded)"
_GROUP: Final = ("rank", "device", "step")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return a tree: each word of the account with its time, and below ``host`` the innermost host events. Without
    steps, the recording is one window. Columns: depth, cause, total_ns, ratio, and those of the groupings."""
    check_groupings("causes", request, GROUPINGS)
    work = trace.rows("kind", *schema.DEVICE_WORK)
    devices = np.unique(np.stack([trace.ints("rank")[work], trace.codes("device").codes[work]], axis=1), axis=0)
    parts = [_of_device(trace, request, *pair) for pair in devices.tolist()]
    by: list[str] = [name for name in _GROUP if name in request.by]
    names = ["cause", "place", *by]
    leaves = pd.concat([_EMPTY, *parts], ignore_index=True).groupby(names, sort=False, dropna=False)["total_ns"].sum()
    rows: list[dict[str, Any]] = []
    for group, of_group in _groups(leaves.reset_index(), by):
        for cause, of_cause in of_group.groupby("cause", sort=False):
            rows.append({"depth": 0, "cause": cause, "total_ns": int(of_cause["total_ns"].sum()), **group})
            if cause == HOST:
                rows += [{"depth": 1, "cause": place, "total_ns": int(time), **group}
                         for place, time in zip(of_cause["place"], of_cause["total_ns"], strict=True)]  # fmt: skip
    result = pd.DataFrame(rows, columns=["depth", "cause", *by, "total_ns"])
    whole_ns = result.loc[result["depth"] == 0, "total_ns"].sum()
    types = {name: "Int64" for name in ("rank", "step") if name in by}
    return result.astype({"total_ns": np.int64, **types}).assign(ratio=ratio(result["total_ns"], whole_ns))


_EMPTY: Final = pd.DataFrame({"cause": [], "place": [], "rank": [], "device": [], "step": [], "total_ns": []}).astype(
    {"cause": object, "place": object, "device": object, "rank": "Int64", "step": "Int64", "total_ns": np.int64}
)


def _groups(leaves: pd.DataFrame, by: list[str]) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    if not by:
        return [({}, leaves)]
    return [
        (dict(zip(by, values if isinstance(values, tuple) else (values,), strict=True)), part)
        for values, part in leaves.groupby(by, sort=False, dropna=False)
    ]


def _of_device(trace: Trace, request: ViewRequest, rank: int, device: int) -> pd.DataFrame:
    """Return the times of a device by step, word and place."""
    segments = device_segments(trace, rank, device)
    steps = step_rows.chosen_steps(trace, request)
    steps = steps[trace.ints("rank")[steps] == rank]
    begin, end, number = trace.ints("start_ns")[steps], trace.end_ns[steps], trace.ints("step")[steps]
    if not len(step_rows.step_rows(trace)):
        begin, end, number = segments.start[:1], segments.end[-1:], np.array([NO_ROW])
    window, at, width = _inside(segments.start, segments.end, begin, end)
    cells = {"step": number[window], "word": segments.word[at], "place": segments.place[at], "total_ns": width}
    missing = end - begin - np.bincount(window, width, len(begin)).astype(np.int64)  # outside of all recorded events
    outside = {"step": number, "word": np.full(len(begin), len(WORDS) - 1), "place": np.full(len(begin), NO_ROW),
               "total_ns": missing}  # fmt: skip
    found = pd.concat([pd.DataFrame(cells), pd.DataFrame(outside)], ignore_index=True)
    found = found[found["total_ns"] > 0]
    names = trace.codes("name")
    codes = np.where(found["place"] >= 0, names.codes[found["place"]], NO_ROW)
    values = np.array([*names.values, _NOTHING], object)
    numbers = found["step"].to_numpy(np.int64)
    return pd.DataFrame(
        {
            "cause": np.array(WORDS, object)[found["word"]],
            "place": values[codes],
            "rank": pd.array([None if rank < 0 else rank] * len(found), "Int64"),
            "device": trace.codes("device").values[device],
            "step": pd.arrays.IntegerArray(numbers, numbers < 0),
            "total_ns": found["total_ns"].to_numpy(np.int64),
        }
    )


def _inside(start: IntArray, end: IntArray, begin: IntArray, finish: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return which of the disjoint segments [start, end) lie in which windows [begin, finish): (window, segment, width
    of the overlap)."""
    first, last = np.searchsorted(end, begin, side="right"), np.searchsorted(start, finish)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(len(begin)), count)
    at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[window]
    return window, at, np.minimum(end[at], finish[window]) - np.maximum(start[at], begin[window])


COLUMNS: Final = (
    DEPTH,
    key("cause", "Cause", thing="cause"),
    *columns.added_by(GROUPINGS),
    duration("total_ns", "Total", over="steps"),
    share("ratio", "Share", Share("total_ns"), description="share of the time of the devices in these steps"),
)

VIEW = View(
    name="causes",
    title="Where the time of the devices went",
    description="every nanosecond of the steps of each device: what runs, or why nothing runs, and the host events "
    "that hold the device back",
    table=Merged(table, siblings=("total_ns",)),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: message("no device work was recorded"),
    report="",
)
