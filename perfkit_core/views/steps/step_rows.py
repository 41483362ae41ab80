"""The rows of the steps, and which of them a rank and step number mean."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import OTHER, STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views.select import in_steps


@once
def step_rows(trace: Trace) -> IntArray:
    """Rows of the step events."""
    return np.flatnonzero(trace.host & trace.rows("kind", STEP))


def chosen_steps(trace: Trace, request: ViewRequest) -> IntArray:
    """Rows of the step events that are asked for, by rank, step and start. Raises UsageError."""
    rows = step_rows(trace)
    rows = rows[in_steps(trace, request)[rows]]
    rank, step, start = (trace.ints(name)[rows] for name in ("rank", "step", "start_ns"))
    ordered: IntArray = rows[np.lexsort((start, step, rank))]
    return ordered


def step_frame(trace: Trace, steps: IntArray) -> pd.DataFrame:
    """Columns rank (null where unknown), step, dur_ns of step rows, in their order."""
    rank = trace.ints("rank")[steps]
    frame = pd.DataFrame({"rank": pd.arrays.IntegerArray(rank, rank < 0)})
    return frame.assign(step=trace.ints("step")[steps], dur_ns=trace.ints("dur_ns")[steps])


@once
def cut_off_rows(trace: Trace) -> BoolArray:
    """True for host events that were recorded as a step but are none: named like the steps but for the number."""
    names, steps = trace.codes("name"), step_rows(trace)
    known = {_unnumbered(names.values[code]) for code in np.unique(names.codes[steps])}
    alike = np.array([_unnumbered(name) in known for name in names.values], np.bool_)
    same: BoolArray = names.lookup(alike, False)
    return same & trace.host & trace.rows("kind", OTHER)


def position(trace: Trace, steps: IntArray, rank: IntArray, step: IntArray) -> IntArray:
    """Index into ``steps`` of each (rank, step number), -1 where there is none. Repeated numbers: the first of them."""
    ranks, of_step = np.unique(trace.ints("rank")[steps], return_inverse=True)
    number = trace.ints("step")[steps]
    low, high = int(number.min(initial=0)), int(number.max(initial=0))
    width = high - low + 1
    if not groupby.is_dense(len(ranks) * width, len(step) + len(steps)):
        return _hashed(trace, steps, rank, step)
    first = groupby.first_rows(of_step * width + number - low, len(ranks) * width)
    table = np.where(first < len(steps), first, -1)
    found = np.empty(len(step), np.int64)
    _look_up(table.reshape(len(ranks), width), ranks, low, rank, step, found)
    return found


@compiled
def _look_up(table, ranks, low, rank, step, found):  # type: ignore[no-untyped-def]
    """``table`` has a row for each of the ``ranks``, and a column for each number from ``low`` on."""
    at = 0
    for i in range(len(step)):
        if at == len(ranks) or ranks[at] != rank[i]:
            at = np.searchsorted(ranks, rank[i])
        column = step[i] - low
        known = 0 <= column < table.shape[1] and at < len(ranks) and ranks[at] == rank[i]
        found[i] = table[at, column] if known else -1


def _hashed(trace: Trace, steps: IntArray, rank: IntArray, step: IntArray) -> IntArray:
    index = pd.MultiIndex.from_arrays([trace.ints("rank")[steps], trace.ints("step")[steps]])
    first = np.flatnonzero(~index.duplicated())
    found = index[first].get_indexer(pd.MultiIndex.from_arrays([rank, step]))
    return np.where(found >= 0, np.append(first, -1)[found], -1)


def _unnumbered(name: str) -> str:
    return re.sub(r"\d+", "", name)
