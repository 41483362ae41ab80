"""View ``causes``: the account of the devices in each step, as a tree of causes with their places.

Below each word of the account are its causes, and below some of them the parts of the cause:

- ``compute``: the operator that launched the kernel, or without one the kernel; its kernels. Kernels without an
  operator that only convert the memory layout are one cause.
- ``communication``: the collective. ``copy``: the direction; the operator that copies.
- ``host``: what the host does (:mod:`perfkit_core.causes.host_work`); the innermost host event.
- ``in_flight``: the call that launched the work. ``unlaunched``: the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import mark, message
from perfkit_core.causes.account import device_segments, host_segments, work_of
from perfkit_core.causes.drained import drained_by, earlier_waits, earlier_work
from perfkit_core.causes.host_work import HOST_WORK, RANGES, UNRECORDED
from perfkit_core.causes.labels import EARLIER, LAYOUT, OTHER_STEPS, RECOMPUTED, Labels
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    IN_FLIGHT,
    LATENCY,
    TAIL,
    UNLAUNCHED,
    WORDS,
    Segments,
    in_windows,
)
from perfkit_core.causes.tree import CELLS, CauseTree
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.assembly.first_launches import cold_steps
from perfkit_core.trace.assembly.lost_records import incomplete_steps
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import CALLS, DEPTH, FIRST, Share, duration, key, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import check_groupings
from perfkit_core.views.steps import step_rows
from perfkit_core.views.steps.device_windows import device_windows, late_ratio
from perfkit_core.views.tables import integers, ratio

GROUPINGS: Final = ("step", "device", "rank")
INCOMPLETE: Final = "incomplete"
NOT_OF_STEPS: Final = (EARLIER, OTHER_STEPS)
"""Causes that take time in the steps, but belong to what ran before."""
INNER: Final = (HOST, COMMUNICATION)
"""Words of which the parts of causes are causes of their own: what the host does, and the ranks that are waited for."""
_NO_DEVICE: Final = -1
_LAGS: Final = 0.1
"""A device lags behind if it ends the work of most steps later than the steps by more than this share of a step."""
_LONGER: Final = 1 + _LAGS
"""The devices determine the time of the steps if they take this multiple of it for the work of the steps."""
_LEAST: Final = 0.005
"""Minimum share of the table's time of a row for which the place is looked up."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the tree, with :data:`COLUMNS`. Without steps, the recording is one window. A cause without a step of its
    own, or of an unknown rank, has NA there. If steps are neither chosen nor told apart, those that are not like the
    others have rows of their own, with 1 in the column :data:`INCOMPLETE`."""
    check_groupings("causes", request, GROUPINGS)
    labels = Labels(trace)
    leaves = parts_in_steps(trace, request, labels)
    together = request.steps is None and "step" not in request.by
    by = [*([INCOMPLETE] if together else ()), *(name for name in ("rank", "device", "step") if name in request.by)]
    tree = CauseTree(leaves, by, labels)
    whole_ns = int(leaves["time_ns"].sum())
    result = pd.DataFrame({"depth": tree.depth, "cause": tree.texts})
    for name in by:
        code = tree.groups[name]
        result[name] = list(map(labels.device, code)) if name == "device" else integers(code, code >= 0)
    result["calls"], result["total_ns"] = tree.calls, tree.time_ns
    result["launched_ns"] = tree.launched_ns
    result["ratio"] = ratio(tree.time_ns, whole_ns)
    result["place"] = tree.places(trace, _LEAST * whole_ns)
    result["drained_by"] = tree.waits()
    return result


def parts_in_steps(trace: Trace, request: ViewRequest, labels: Labels) -> dict[str, IntArray]:
    """Return the parts of the segments of all devices that lie in the chosen steps: :data:`CELLS`, and
    :data:`INCOMPLETE`, which is 1 in steps in which device work was not recorded, and in cold steps. Shape
    (parts,)."""
    parts = [_of_device(trace, request, labels, *pair) for pair in _devices(trace)]
    if len(parts) == 1:
        return parts[0]
    names = (*CELLS, INCOMPLETE)
    return {name: np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in names}


def _devices(trace: Trace) -> list[tuple[int, int]]:
    """Return the pairs of a rank and one of its devices. Without any device work, the device is -1, the host."""
    work, rank = trace.rows("kind", *schema.DEVICE_WORK), trace.ints("rank")
    if not work.any():
        return [(number, _NO_DEVICE) for number in np.unique(rank[trace.operators & trace.host]).tolist()]
    rank, device = rank[work], trace.codes("device").codes[work]
    _, first = groupby.distinct([rank, device], len(rank))
    return sorted(zip(rank[first].tolist(), device[first].tolist(), strict=True))


def _of_device(trace: Trace, request: ViewRequest, labels: Labels, rank: int, device: int) -> dict[str, IntArray]:
    """Return the parts of segments that lie in steps, :data:`CELLS`. If the device lags behind the steps, the parts in
    the windows in which it does the work of the steps follow."""
    segments = host_segments(trace, rank) if device == _NO_DEVICE else device_segments(trace, rank, device)
    steps = step_rows.chosen_steps(trace, request)
    steps = steps[trace.ints("rank")[steps] == rank]
    windows = (trace.ints("start_ns")[steps], trace.end_ns[steps])
    apart = (incomplete_steps(trace) | cold_steps(trace))[steps]
    of_step = {"step": trace.ints("step")[steps], INCOMPLETE: apart.astype(np.int64)}
    if not len(step_rows.step_rows(trace)):
        windows = segments.start[:1], segments.end[-1:]
        of_step = {"step": np.array([NO_ROW]), INCOMPLETE: np.array([0])}
    work = work_of(trace, rank, device) if device != _NO_DEVICE else None
    earlier, others = np.full(len(segments.word), NO_ROW), dict[str, BoolArray]()
    lags = work is not None and _lags(trace, steps)
    if work is not None:
        earlier = earlier_waits(trace, segments, work, rank)
    if work is not None and len(steps) and not lags:
        counted = of_step["step"][of_step[INCOMPLETE] == 0]
        counted = counted if len(counted) else of_step["step"]
        others = dict(zip((EARLIER, OTHER_STEPS), earlier_work(trace, segments, work, counted), strict=True))
    own = np.logical_and.reduce([earlier == NO_ROW, *(~runs for runs in others.values())])
    codes = {
        "word": segments.word,
        **dict(zip(("cause", "part", "call", "row"), labels.of(segments, earlier, others), strict=True)),
        "own": own.astype(np.int64),
        "event": segments.event,
        "wait": labels.waits(_drained_by(trace, segments, rank, work)),
        "start_ns": segments.start,
    }
    parts = _in_windows(segments, *windows, codes, of_step)
    parts["launched_ns"] = parts["time_ns"]
    if lags:
        rows = step_rows.step_rows(trace)
        begin, end = (edges[np.searchsorted(rows, steps)] for edges in device_windows(trace, rows))
        later = _in_windows(segments, begin, end, codes, of_step)
        nothing = np.zeros(len(later["time_ns"]), np.int64)
        launched_ns = np.where(later["own"] == 0, 0, later["time_ns"])
        later.update(launched_ns=launched_ns, time_ns=nothing, call=nothing + NO_ROW)  # calls count once
        parts["launched_ns"] = np.zeros(len(parts["time_ns"]), np.int64)
        parts = {name: np.append(cells, later[name]) for name, cells in parts.items()}
    count = len(parts["word"])
    return {"rank": np.full(count, rank), "device": np.full(count, device), **parts}


def _lags(trace: Trace, steps: IntArray) -> bool:
    """Return whether the device ends the work of most steps (rows of one rank) long after the steps."""
    late = late_ratio(trace, steps)
    return bool(len(late) and np.median(late) > _LAGS)


def _in_windows(
    segments: Segments, begin: IntArray, end: IntArray, codes: Mapping[str, IntArray], of_window: Mapping[str, IntArray]
) -> dict[str, IntArray]:
    """Return the parts of the segments in windows [begin, end): their ``codes``, ``time_ns`` and the values of their
    windows. The time before or after all events is after the last work."""
    window, at, word, width = in_windows(segments, begin, end)
    cells = {name: np.append(values, NO_ROW)[at] for name, values in codes.items()}
    cells["start_ns"] = np.where(at == NO_ROW, NO_ROW, np.maximum(cells["start_ns"], begin[window]))
    return cells | {name: values[window] for name, values in of_window.items()} | {"word": word, "time_ns": width}


def _drained_by(trace: Trace, segments: Segments, rank: int, work: IntArray | None) -> IntArray:
    if work is None:
        return np.full(len(segments.start), NO_ROW)
    wait = drained_by(trace, segments, work, rank)
    return np.where(segments.word == WORDS.index(HOST), wait, NO_ROW)


def _finished(rows: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the tree without incomplete and cold steps if there are others, without the parts of causes that have only
    one, and without waits or times by launch if there are none. Parts of ``host`` stay: they say what it does. Shares
    are of the times in :func:`time_column`."""
    if INCOMPLETE in rows:
        incomplete = rows[INCOMPLETE].to_numpy(np.int64) > 0
        if incomplete.any() and not incomplete.all():
            rows = rows[~incomplete].reset_index(drop=True)
        rows = rows.drop(columns=INCOMPLETE)
    time_ns = rows[time_column(rows)].to_numpy(np.int64)
    rows["ratio"] = ratio(time_ns, int(time_ns[rows["depth"] == 0].sum()))
    depth = rows["depth"].to_numpy(np.int64)
    word = rows["cause"].where(depth == 0).ffill()
    single = (depth == 2) & np.append(depth[1:] != 2, True) & (np.append(0, depth[:-1]) == 1) & ~word.isin(INNER)
    single &= ~rows["cause"].shift().isin((*NOT_OF_STEPS, RECOMPUTED))
    rows = rows[~single.to_numpy(np.bool_)].reset_index(drop=True)
    if rows["launched_ns"].equals(rows["total_ns"]):
        rows = rows.drop(columns="launched_ns")
    return rows if rows["drained_by"].notna().any() else rows.drop(columns="drained_by")


def time_column(tree: pd.DataFrame) -> str:
    """Return the column of the view's table whose times have the shares: those by launch if the devices take much
    longer for the work of the steps than the host takes for the steps, as in servers that replay graphs. Work of other
    steps, and the wait for work from before the recording, do not count."""
    if "launched_ns" not in tree:
        return "total_ns"
    total_ns, launched_ns = (int(tree.loc[tree["depth"] == 0, name].sum()) for name in ("total_ns", "launched_ns"))
    total_ns -= int(tree.loc[(tree["depth"] == 1) & tree["cause"].isin(NOT_OF_STEPS), "total_ns"].sum())
    return "launched_ns" if launched_ns >= _LONGER * total_ns else "total_ns"


PHRASES: Final = (
    (COMPUTE, mark("Computing")),
    (COMMUNICATION, mark("Only communicating")),
    (COPY, mark("Only copying")),
    (HOST, mark("Host work between kernels or operators")),
    (LATENCY, mark("Launch latency")),
    (IN_FLIGHT, mark("Launched, but not started (cause unknown)")),
    (UNLAUNCHED, mark("Before work without a recorded launch")),
    (TAIL, mark("After the last work")),
    (UNRECORDED, mark("code that was not recorded")),
    (RANGES, mark("code in ranges, outside of operators")),
    (EARLIER, EARLIER),
    (OTHER_STEPS, OTHER_STEPS),
    (LAYOUT, LAYOUT),
    (RECOMPUTED, RECOMPUTED),
    *((work, work) for work in HOST_WORK if work not in (UNRECORDED, RANGES)),
)
"""How texts show the words of the account and the kinds of host work."""

COLUMNS: Final = (
    DEPTH,
    key("cause", "Cause", thing="cause", words=PHRASES),
    *columns.added_by(GROUPINGS),
    CALLS,
    duration("total_ns", "Total", over="steps"),
    duration(
        "launched_ns",
        "By launch",
        "time while the devices do the work of these steps, if they lag behind by more than a tenth of a step",
    ),
    share(
        "ratio",
        "Share",
        Share("total_ns"),
        description="share of the time of the devices in these steps, or by launch if that is a tenth longer",
    ),
    columns.text(
        "place",
        "Where",
        "deepest frame or range that covers at least 80% of the time, an estimate if samples show it",
        merge=FIRST,
    ),
    columns.text(
        "drained_by",
        "After wait",
        "wait of the host since which the device has had no queued work, in at least half of the time",
        merge=FIRST,
    ),
)

VIEW = View(
    name="causes",
    title="Where the time went",
    description="every nanosecond of the steps of each device: what runs, or why nothing runs, and what the host does "
    "until it launches the next work; without a device, operators take the place of kernels",
    table=Merged(table, _finished, columns=(key(INCOMPLETE, "Incomplete"),), siblings=("total_ns",)),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="ratio",
    explain_empty=lambda trace: message("neither device work nor operators were recorded"),
)
