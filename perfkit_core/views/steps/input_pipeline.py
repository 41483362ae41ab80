"""Does a step wait for its input, and is the copy of the input to the device hidden?

Waiting is what the thread that runs the step spends in the data loader, whatever the devices do meanwhile (the part
that nothing hides is ``input_wait`` in the view ``partition``). The name of the loader, as recorded, tells a loader in
this process from one with worker processes. Neither the workers nor the queue between them are recorded by any profiler
read here. Copies are those from host to device launched in the step; hidden is what computation on a device covers.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, intervals, nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import DUR, RANK, count, duration, key, share, size, text
from perfkit_core.model.schema import MEMCPY
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.steps.activity import Activities, activities, covered_ns
from perfkit_core.views.steps.step_rows import chosen_steps, position, step_frame, step_rows

TO_DEVICE = "HtoD"
"""Copies whose kind begins with it bring input to a device."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """A row a step; see :data:`COLUMNS`. NA: no loader was recorded at all, or copies do not tell their size."""
    steps = chosen_steps(trace, request)
    acts = activities(trace)
    loads, copies = _loads(trace, acts), _copies(trace)
    if not (loads.any() or copies.any()):
        steps = steps[:0]
    result = step_frame(trace, steps)
    _add_loading(result, trace, *_in_step(trace, steps, loads), bool(loads.any()))
    _add_copies(result, trace, *_in_step(trace, steps, copies), acts)
    return result


def _in_step(trace: Trace, steps: IntArray, events: BoolArray) -> tuple[IntArray, IntArray]:
    """The rows of those of the events that are in one of the steps, and the position of that."""
    rows = np.flatnonzero(events)
    step = position(trace, steps, trace.ints("rank")[rows], trace.ints("step")[rows])
    return rows[step >= 0], step[step >= 0]


def _loads(trace: Trace, acts: Activities) -> BoolArray:
    """Outermost calls of the data loader on the thread of the steps."""
    calls: BoolArray = acts.loading & ~nesting.lies_in(trace.ints("parent"), acts.loading)
    return calls


def _copies(trace: Trace) -> BoolArray:
    kinds = trace.codes("copy_kind")
    towards = np.array([value.startswith(TO_DEVICE) for value in kinds.values], np.bool_)
    found: BoolArray = trace.rows("kind", MEMCPY) & kinds.lookup(towards, False)
    return found


def _add_loading(result: pd.DataFrame, trace: Trace, rows: IntArray, step: IntArray, known: bool) -> None:
    count = len(result)
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    wait = intervals.union_length_by(step, count, start, end)
    unknown = np.full(count, not known)
    result["loader"] = _names(trace, rows, step, count)
    result["loads"] = pd.arrays.IntegerArray(np.bincount(step, minlength=count).astype(np.int64), unknown)
    result["input_wait_ns"] = pd.arrays.IntegerArray(wait, unknown)
    duration = np.maximum(result["dur_ns"].to_numpy(np.int64), 1)
    result["input_ratio"] = pd.arrays.FloatingArray(wait / duration, unknown)


def _names(trace: Trace, rows: IntArray, step: IntArray, count: int) -> pd.Series[str]:
    codes = trace.codes("name")
    pairs = np.unique(np.stack([step, codes.codes[rows]]), axis=1)
    names: list[list[str]] = [[] for _ in range(count)]
    for at, code in pairs.T.tolist():
        names[at].append(codes.values[code])
    return pd.Series([", ".join(sorted(some)) or pd.NA for some in names], dtype=object)


def _add_copies(result: pd.DataFrame, trace: Trace, rows: IntArray, at: IntArray, acts: Activities) -> None:
    count = len(result)
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    moved = trace.ints("bytes", -1)[rows]
    told, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(told, at, moved >= 0)
    np.add.at(size, at, np.maximum(moved, 0))
    calls = np.bincount(at, minlength=count).astype(np.int64)
    result["copies"] = calls
    result["copied_bytes"] = pd.arrays.IntegerArray(size, (told == 0) & (calls > 0))
    result["copy_ns"] = intervals.union_length_by(at, count, start, end)
    result["hidden_copy_ns"] = _hidden(trace, acts, rows, at, count)


def _hidden(trace: Trace, acts: Activities, rows: IntArray, step: IntArray, count: int) -> IntArray:
    """Of the union of the copies of each step, what a kernel of its rank covers."""
    of_step, start, end = intervals.union_by(step, count, trace.ints("start_ns")[rows], trace.end_ns[rows])
    rank = np.zeros(count, np.int64)
    rank[step] = trace.ints("rank")[rows]
    ranks, code = np.unique(rank[of_step], return_inverse=True)
    hidden = np.zeros(count, np.int64)
    for one, mine in zip(ranks.tolist(), groupby.parts(code, len(ranks)), strict=True):
        np.add.at(hidden, of_step[mine], covered_ns(acts.of(one).compute, start[mine], end[mine]))
    return hidden


def _why_empty(trace: Trace) -> Text:
    if not len(step_rows(trace)):
        return message(
            "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
        )
    return message("neither a data loader nor copies from the host to a device were recorded")


COLUMNS = (
    RANK,
    key("step", "Step"),
    DUR,
    text("loader", "Loader", description="its name; several are separated by commas"),
    count("loads", "Loads", description="calls of the loader"),
    duration("input_wait_ns", "Input wait"),
    share("input_ratio", "Input", description="of the step"),
    count("copies", "Copies"),
    size("copied_bytes", "Copied"),
    duration("copy_ns", "Copy", description="union"),
    duration("hidden_copy_ns", "Hidden copy", description="the part that computation covers"),
)

VIEW = View(
    name="input_pipeline",
    title="Input of the steps",
    description="time that each step waits for the data loader, and copies of its input to the device",
    table=table,
    columns=COLUMNS,
    explain_empty=_why_empty,
)
