"""How long did each step take, and what was it made of?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.segments import Segments, segments
from perfkit_core.analyses.select import in_steps
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, OTHER, PHASES, STEP
from perfkit_core.trace import IntArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns rank (null where unknown), step, start_ns (since the first step of the rank), dur_ns, then for each phase
    ``{phase}_ns`` (union of its segments on the host; null where the recording knows no phases) and device_busy_ns
    (union of the device work launched in the step)."""
    chosen = in_steps(trace, request)
    rows = np.flatnonzero(chosen & trace.host & trace.rows("kind", STEP))
    rank, step, start = (trace.ints(name)[rows] for name in ("rank", "step", "start_ns"))
    result = pd.DataFrame({"rank": pd.array(rank, "Int64"), "step": step, "start_ns": start - _origins(rank, start)})
    result.loc[rank < 0, "rank"] = pd.NA
    result["dur_ns"] = trace.ints("dur_ns")[rows]
    found = segments(trace, chosen)
    key, count = _keys(rank, step, found)
    for index, name in enumerate(PHASES):
        if name != OTHER:
            result[f"{name}_ns"] = _phase_ns(found, index, key, count)
    result["device_busy_ns"] = _device_busy(trace, rank, step)
    return result.sort_values(["rank", "step", "start_ns"], ignore_index=True)


def _origins(rank: IntArray, start: IntArray) -> IntArray:
    _, group = np.unique(rank, return_inverse=True)
    first = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, start)
    return first[group]


def _keys(rank: IntArray, step: IntArray, found: Segments) -> tuple[IntArray, int]:
    """Position of the step row of each segment, -1 where it is in none."""
    return _position(rank, step, found.rank, found.step), len(step)


def _position(rank: IntArray, step: IntArray, of_rank: IntArray, of_step: IntArray) -> IntArray:
    index = pd.MultiIndex.from_arrays([rank, step])
    if not index.is_unique:  # repeated numbers: the first row of each takes all
        first = ~index.duplicated()
        position = np.flatnonzero(first)[index[first].get_indexer(pd.MultiIndex.from_arrays([of_rank, of_step]))]
        known = index[first].get_indexer(pd.MultiIndex.from_arrays([of_rank, of_step])) >= 0
        return np.where(known, position, -1)
    return np.asarray(index.get_indexer(pd.MultiIndex.from_arrays([of_rank, of_step])), np.int64)


def _phase_ns(found: Segments, phase: int, key: IntArray, count: int) -> pd.Series[int]:
    mine = found.phase == phase
    time = intervals.union_length_by(key[mine], count, found.start_ns[mine], found.end_ns[mine])
    return pd.Series(pd.arrays.IntegerArray(time, np.full(count, not len(found.phase))))


def _device_busy(trace: Trace, rank: IntArray, step: IntArray) -> IntArray:
    work = trace.rows("kind", *DEVICE_WORK) & (trace.ints("step") >= 0)
    key = _position(rank, step, trace.ints("rank")[work], trace.ints("step")[work])
    return intervals.union_length_by(key, len(step), trace.ints("start_ns")[work], trace.end_ns[work])


VIEW = View(
    name="steps",
    title="Steps",
    description="duration of each step, its phases and the busy time of the device",
    table=table,
    explain_empty=lambda trace: "no training steps were recorded: call the profiler's step() after each iteration",
)
