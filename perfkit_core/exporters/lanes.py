"""Lanes: the rows of a timeline in a viewer.

- Each thread has a row. On request, it has two: one for Python and one for C++.
- Each stream has a row, and another one for the labels of its device work.
- Events that overlap without nesting get additional rows. Viewers draw a row as a stack of boxes. Many of them, such as
  chrome://tracing and Perfetto before version 57, truncate or drop such events."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.schema import Int64, Rank
from perfkit_core.trace.model.trace import Trace

THREAD, PYTHON, CPP, STREAM, LABELS = range(5)
"""Groups of lanes: complete threads, Python parts of threads, C++ parts, streams, and labels of device work."""

_SUFFIX: Final = {THREAD: "", PYTHON: " (Python)", CPP: " (C++)", STREAM: "", LABELS: " (annotations)"}

PYTHON_KINDS: Final = (schema.STEP, schema.DATALOADER, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.PYTHON,
                       schema.ANNOTATION)  # fmt: skip
"""Kinds of events in the Python part of a thread. All other kinds are in the C++ part."""

INSTANT_KINDS: Final = (schema.MEMORY, schema.COUNTER)
"""Events of these kinds are instants if their duration is 0. An instant needs no row of its own."""


class Lane(msgspec.Struct, frozen=True):
    """One row of the timeline. ``process`` and ``thread`` are numbers for the viewer, unique over all ranks. ``pid``
    and ``tid`` are the numbers of the operating system."""

    process: int
    thread: int
    process_name: str
    name: str
    rank: Rank | None
    pid: Int64 | None
    tid: Int64 | None
    device: str | None
    stream: Int64 | None

    @property
    def host(self) -> bool:
        return self.device == schema.CPU


class Lanes(msgspec.Struct, frozen=True):
    """All lanes of a trace. ``lane`` contains each event's index into ``lanes``, shape (rows,)."""

    lane: IntArray
    lanes: list[Lane]


def lanes(trace: Trace, split_python: bool, spread: bool = True) -> Lanes:
    """Return the lanes of a trace. If ``split_python`` is set, Python and C++ have separate rows. If ``spread`` is set,
    events that overlap without nesting get additional rows."""
    label = trace.rows("kind", *PYTHON_KINDS)
    thread = trace.host | (trace.ints("tid", NO_ROW) != NO_ROW)  # memory events of a device belong to a thread, too
    host = np.where(label, PYTHON, CPP) if split_python else np.full(len(trace), THREAD)
    group = np.where(thread, host, np.where(label, LABELS, STREAM)).astype(np.int64)

    # Events with equal values in all these columns are on the same track. Tracks are sorted by these values.
    names = trace.codes("device")
    rank_in_name = np.argsort(np.argsort(np.array(names.values, dtype=object))).astype(np.int64)
    device = np.where(thread, -1, names.lookup(rank_in_name, -1))
    columns = [trace.ints("rank"), ~thread, device, trace.ints("pid"), trace.ints("tid"), trace.ints("stream"), group]
    track, first = filled(len(trace), 0), np.zeros(0, np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        track, first = _numbered(track * max(len(values), 1) + code)

    level = filled(len(trace), 0)  # number of an additional row of the same track; 0 for the first row
    if spread:
        spans = np.flatnonzero(~instants(trace))
        start, end = trace.ints("start_ns")[spans], trace.end_ns[spans]
        order = np.lexsort((-end, start, track[spans]))
        below, top, row = filled(len(spans), -1), filled(len(spans), -1), np.empty(len(spans), np.int64)
        _first_that_nests(track[spans][order], start[order], end[order], below, top, row)
        level[spans[order]] = row
    key, example = _numbered(track * (int(level.max(initial=0)) + 1) + level)
    return Lanes(key, described(trace, first[track[example]], group, level[example]))


def _numbered(key: IntArray) -> tuple[IntArray, IntArray]:
    """Return two arrays: each key's index in the sorted distinct keys, and each distinct key's first row."""
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return number.astype(np.int64), first.astype(np.int64)


@compiled
def _first_that_nests(
    track: IntArray, start: IntArray, end: IntArray, below: Out[IntArray], top: Out[IntArray], level: Out[IntArray]
) -> None:
    """Set ``level`` to the row of each event. ``below`` holds the event around each event in its row, and ``top`` holds
    the innermost event of each row that has not ended. Both must be -1 at first."""
    used = 0
    for i in range(len(track)):
        if i and track[i] != track[i - 1]:
            top[:used] = -1
            used = 0
        at = 0
        while at < used:
            while top[at] >= 0 and end[top[at]] <= start[i]:
                top[at] = below[top[at]]
            if top[at] < 0 or end[top[at]] >= end[i]:
                break
            at += 1
        used = max(used, at + 1)
        below[i] = top[at]
        top[at] = i
        level[i] = at


def described(trace: Trace, rows: IntArray, group: IntArray, level: IntArray) -> list[Lane]:
    """Return the lanes. ``rows`` contains the row of each lane's first event. ``level`` numbers the lanes of one thread
    or stream from 0. ``group`` contains the group (THREAD, STREAM, …) of each event of the trace."""
    several, thread_names = len(trace.meta.ranks) > 1, trace.meta.thread_names
    products = {device.id: device.name for device in trace.meta.devices}
    processes: dict[Any, int] = {}
    result = []
    for thread, (row, nth) in enumerate(zip(rows.tolist(), level.tolist(), strict=True), start=1):
        rank, pid, tid, stream = (trace.events[name][row].as_py() for name in ("rank", "pid", "tid", "stream"))
        device = trace.events["device"][row].as_py()
        host = group[row] in (THREAD, PYTHON, CPP)
        process = processes.setdefault((rank, pid if host else device, host), len(processes) + 1)
        if not host:
            name = "no stream" if stream is None else f"stream {stream}"
        elif tid is None:
            name = "no thread"
        else:
            thread_name = thread_names.get(f"{rank}:{pid}:{tid}") or thread_names.get(f"-:{pid}:{tid}") or ""
            name = thread_name if str(tid) in thread_name else f"{tid} {thread_name}".strip()
        name += _SUFFIX[int(group[row])] + (f" {nth + 1}" if nth else "")
        if host:
            process_name = "host" if pid is None else f"process {pid}"
        else:
            process_name = f"{device} {products[device]}" if products.get(device) else device or "no device"
        if several:
            process_name = f"rank {rank}: {process_name}"
        result.append(Lane(process, thread, process_name, name, rank, pid, tid, schema.CPU if host else device, stream))
    return result


def instants(trace: Trace) -> BoolArray:
    points: BoolArray = trace.rows("kind", *INSTANT_KINDS) & (trace.ints("dur_ns") == 0)
    return points
