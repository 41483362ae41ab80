"""Ends of Python frames whose return was not recorded.

Profilers give such a frame the end of the recording, so that all later frames of its thread lie in it. If the source
numbers its frames and records the caller of each, the missing return shows: the caller called another frame before the
first one ended. The frame then ended at that time, or earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, copied, first_match, to_int64
from perfkit_core.base.language.messages import plural
from perfkit_core.base.runtime.compiled import Out, Strided, compiled
from perfkit_core.trace.assembly.draft import CALLER, FRAME
from perfkit_core.trace.model.meta import Finding

_MOST_ROOTS: Final = 64
"""Number of threads that the fast check can tell apart."""
_DENSE: Final = 8
"""The fast check is used if the numbers of frames are at most this many times the number of events."""
_ROUNDING_NS: Final = 1000
"""A frame may end after its caller by this time, because some files store times in whole microseconds."""


def ended(
    columns: Mapping[str, pa.ChunkedArray], start_ns: IntArray, dur_ns: IntArray, order: IntArray | None
) -> tuple[IntArray | None, tuple[Finding, ...]]:
    """Return the durations of all rows with frames cut off where they must have ended, and findings. None instead of
    the durations if no frame is cut off. ``order`` sorts the rows by time; None if they are sorted."""
    count = len(start_ns)
    if not {FRAME, CALLER, "pid", "tid"} <= columns.keys() or columns[CALLER].null_count == count:
        return None, ()
    frame, caller, pid, tid = (to_int64(columns[name].chunks, count, NO_ROW) for name in (FRAME, CALLER, "pid", "tid"))
    highest = max(int(frame.max()), int(caller.max()))
    if highest <= _DENSE * count:
        ends = np.full((2, highest + 1), NO_ROW)
        roots = np.empty((3, _MOST_ROOTS), np.int64)
        in_order = np.empty(0, np.int64) if order is None else order
        if _returned(frame, caller, pid, tid, start_ns, dur_ns, in_order, ends, roots):
            return None, ()
    rows = np.flatnonzero(frame != NO_ROW) if order is None else order[frame[order] != NO_ROW]
    frame, caller, pid, tid = frame[rows], caller[rows], pid[rows], tid[rows]
    start, end = start_ns[rows], start_ns[rows] + dur_ns[rows]
    root = caller == NO_ROW
    if (pid != pid[:1]).any():  # processes use the same numbers
        process = np.unique(pid, return_inverse=True)[1] * (highest + 1)
        frame, caller = frame + process, np.where(root, NO_ROW, caller + process)
    above = first_match(caller, frame, np.arange(len(rows)))
    same_thread = (pid[above] == pid) & (tid[above] == tid) & (above < np.arange(len(rows)))
    tops = np.flatnonzero((above == NO_ROW) | ~same_thread)
    threads, thread = np.unique(np.stack([pid[tops], tid[tops]]), axis=1, return_inverse=True)
    above[tops] = len(rows) + thread.ravel()
    states = root.copy()
    states[above < len(rows)] = True
    cut_end, last = copied(end), np.full(len(rows) + threads.shape[1], NO_ROW, np.int64)
    contradictions = _cut(above, states, start, cut_end, last, np.full_like(last, NO_ROW))
    _cut_below(above, start, end, cut_end)
    cut = cut_end != end
    findings = []
    if contradictions:
        text = plural(
            "the recorded caller of 1 Python frame is not the frame that encloses it: it is nested by its time",
            "the recorded callers of {n} Python frames are not the frames that enclose them: they are nested by their "
            "times",
            contradictions,
        )
        findings.append(Finding("python-callers-differ", text, note=True))
    if not cut.any():
        return None, tuple(findings)
    text = plural(
        "the return of 1 Python frame was not recorded: it is cut off where its caller called the next frame or ended, "
        "so its time is an upper bound",
        "the returns of {n} Python frames were not recorded: they are cut off where their callers called the next "
        "frame or ended, so their times are upper bounds",
        int(cut.sum()),
    )
    durations = copied(dur_ns)
    durations[rows[cut]] = cut_end[cut] - start[cut]
    return durations, (*findings, Finding("python-returns-lost", text))


@compiled
def _returned(
    frame: IntArray, caller: IntArray, pid: Strided[IntArray], tid: Strided[IntArray], start: IntArray,
    duration: IntArray, order: IntArray, ends: Out[Annotated[IntArray, 2]], roots: Out[Annotated[IntArray, 2]],
) -> bool:  # fmt: skip
    """Return whether each frame ended before its caller ended or called the next frame, as nearly all recordings say.
    False if there may be another one. ``ends`` and ``roots`` are memory: for each number of a frame, its end and the
    end of the last frame that it called; the threads and the ends of the last frames without a caller."""
    count = 0
    for i in range(len(frame)):
        row = order[i] if len(order) else i
        number, above, begin = frame[row], caller[row], start[row]
        if number < 0:
            continue
        end, before = begin + duration[row], begin
        if above >= 0 and ends[0, above] != NO_ROW:
            if begin < ends[0, above] and end > ends[0, above] + _ROUNDING_NS:
                return False
            before, ends[1, above] = ends[1, above], end
        elif above < 0:
            at = 0
            while at < count and (roots[0, at] != pid[row] or roots[1, at] != tid[row]):
                at += 1
            if at == roots.shape[1]:
                return False
            if at < count:
                before = roots[2, at]
            else:
                count += 1
            roots[0, at], roots[1, at], roots[2, at] = pid[row], tid[row], end
        if begin < before and end <= before:
            return False
        ends[0, number] = end
    return True


@compiled
def _cut(
    above: IntArray, states: BoolArray, start: IntArray, end: Out[IntArray], last: Out[IntArray],
    previous: Out[IntArray],
) -> int:  # fmt: skip
    """Cut off frames that last to the end of their thread, where their caller called the next frame. Return the number
    of frames that lie in another frame of the same caller, which has other signs of a return.

    ``above`` has the caller of each frame, or for frames without a caller the item of ``last`` that stands for their
    thread. ``states`` is true for frames whose caller is known, or which have none."""
    frames = len(start)
    for i in range(frames):
        last[i] = i
    for i in range(frames - 1, -1, -1):  # the last frame that each frame called, directly or not
        last[above[i]] = max(last[above[i]], last[i])
    contradictions = 0
    for i in range(frames):
        if not states[i]:
            continue
        p = previous[above[i]]
        if p < 0 or start[i] >= end[p] or end[i] > end[p]:
            previous[above[i]] = i
            continue
        thread = above[i]
        while thread < frames:
            thread = above[thread]
        if last[p] < i and start[last[thread]] <= end[p]:
            end[p] = start[i]
            previous[above[i]] = i
        else:
            contradictions += 1
    return contradictions


@compiled
def _cut_below(above: IntArray, start: IntArray, recorded: IntArray, end: Out[IntArray]) -> None:
    """Cut off frames that last longer than their callers."""
    for i in range(len(start)):
        p = above[i]
        if p >= len(start) or start[i] >= recorded[p]:
            continue
        if end[i] > end[p] + (_ROUNDING_NS if end[p] == recorded[p] else 0):
            end[i] = max(start[i], end[p])
