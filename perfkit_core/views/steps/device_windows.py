"""When a device works on each step, where the host only enqueues its work: servers, replayed graphs, slow devices.

A step ends when its range and the device work that it launched have ended. It begins when its range has begun and the
device work that was launched before has ended. If no such work was recorded, it begins with its own device work.

    host    | step 0 | step 1 |
    device     |   work of 0   |   work of 1   |
    windows |<---- 0 --------->|<----- 1 ----->|
"""

from __future__ import annotations

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, FloatArray, IntArray
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import step_rows


def late_ratio(trace: Trace, rows: IntArray) -> FloatArray:
    """Return how much later the device work of each step ends than the step, as a ratio of the step. ``rows`` are the
    rows of the steps, shape (steps,). The result is 0 for a step without device work, and empty if no step has any."""
    step, work = _launched(trace, rows)
    if not len(work):
        return np.empty(0)
    _, last = groupby.extremes(step, len(rows), trace.end_ns[work])
    late = np.where(np.bincount(step, minlength=len(rows)) > 0, last - trace.end_ns[rows], 0)
    ratio: FloatArray = late / np.maximum(trace.ints("dur_ns")[rows], 1)
    return ratio


def _launched(trace: Trace, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the device work that the steps launched, and for each the index of its step in ``rows``."""
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK))
    step = step_rows.position(trace, rows, trace.ints("rank")[work], trace.ints("step")[work])
    return step[step >= 0], work[step >= 0]


def device_windows(trace: Trace, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the begin and the end of each step on the devices of its rank in ns. ``rows`` are the rows of all steps,
    shape (steps,)."""
    begin, end, rank = trace.ints("start_ns")[rows].copy(), trace.end_ns[rows].copy(), trace.ints("rank")
    step, own = _launched(trace, rows)
    first, _ = groupby.extremes(step, len(rows), trace.ints("start_ns")[own])
    works = np.bincount(step, minlength=len(rows)) > 0
    last = np.where(works, groupby.extremes(step, len(rows), trace.end_ns[own])[1], end)
    work, launch = np.flatnonzero(trace.rows("kind", *DEVICE_WORK)), trace.ints("launched_by")
    launched = launch[work] != NO_ROW
    at = np.where(launched, trace.ints("start_ns")[launch[work]], trace.ints("start_ns")[work])
    for number in np.unique(rank[rows]).tolist():
        of_rank = np.flatnonzero(rank[rows] == number)
        limits = []
        for mask, until in ((launched, begin), (~launched, np.where(works, first, begin))):
            mine = np.flatnonzero(mask & (rank[work] == number))
            mine = mine[np.argsort(at[mine], kind="stable")]
            ended = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, trace.end_ns[work[mine]]))
            limits.append(ended[np.searchsorted(at[mine], until[of_rank], side="left")])
        before = np.maximum(*limits)
        unknown = (before == np.iinfo(np.int64).min) & works[of_rank]
        begin[of_rank] = np.where(unknown, first[of_rank], np.maximum(begin[of_rank], before))
    end = np.maximum(np.where(works, last, end), begin)
    described, steps = serving_steps(trace)  # The time of a server's step includes the gap before it.
    for row, served in zip(described.tolist(), steps, strict=True):
        if served.time_ns is not None:
            begin[rows == row] = end[rows == row] - served.time_ns
    return begin, end
