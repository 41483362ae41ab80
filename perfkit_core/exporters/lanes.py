"""The rows of a timeline: which process and row each event is drawn in, so that what overlaps never shares a row.

Host events have a row for each thread, on request one for Python and one for C++. Device events have a row for each
stream, ranges that only label others one of their own. Events that overlap without nesting are spread over as many
rows as they need: a viewer draws a row as a stack of boxes, and would cut or drop them.

What a row of the timeline is called, and where its events ran.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model import schema
from perfkit_core.model.schema import CPU
from perfkit_core.model.trace import Trace
from perfkit_core.runtime.compile import compiled

THREAD, PYTHON, CPP, STREAM, LABELS = range(5)
"""Groups of rows: a thread, the two halves of one, a stream, and what only labels its work."""

_SUFFIX: Final = {THREAD: "", PYTHON: " (Python)", CPP: " (C++)", STREAM: "", LABELS: " (annotations)"}


class Lane(msgspec.Struct, frozen=True):
    """One row of the timeline: where its events ran, and how the viewer calls it.

    ``process`` and ``thread`` are numbers of the viewer, unique over all ranks; ``pid`` and ``tid`` the system's.
    """

    process: int
    thread: int
    process_name: str
    name: str
    rank: int | None
    pid: int | None
    tid: int | None
    device: str
    stream: int | None

    @property
    def host(self) -> bool:
        """Whether this is a thread."""
        return self.device == CPU


def described(trace: Trace, rows: IntArray, group: IntArray, level: IntArray) -> list[Lane]:
    """The lanes with these example rows; ``group`` of each event, ``level``: the how-manieth row of its place it is."""
    several = len(trace.meta.ranks) > 1
    processes: dict[Any, int] = {}
    found = []
    for thread, (row, nth) in enumerate(zip(rows.tolist(), level.tolist(), strict=True), start=1):
        rank, pid, tid, stream = (_integer(trace, name, row) for name in ("rank", "pid", "tid", "stream"))
        device = trace.events["device"][row].as_py()
        host = group[row] in (THREAD, PYTHON, CPP)
        process = processes.setdefault((rank, pid if host else device, host), len(processes) + 1)
        name = _thread_name(trace, rank, pid, tid) if host else _stream_name(stream)
        name += _SUFFIX[int(group[row])] + (f" {nth + 1}" if nth else "")
        of_rank = f"rank {rank}: " if several else ""
        what = of_rank + (f"process {pid}" if host and pid is not None else "host" if host else _product(trace, device))
        found.append(Lane(process, thread, what, name, rank, pid, tid, CPU if host else device, stream))
    return found


def _integer(trace: Trace, column: str, row: int) -> int | None:
    value: int | None = trace.events[column][row].as_py()
    return value


def _thread_name(trace: Trace, rank: int | None, pid: int | None, tid: int | None) -> str:
    if tid is None:
        return "no thread"
    known = trace.meta.thread_names
    name = known.get(f"{rank}:{pid}:{tid}") or known.get(f"-:{pid}:{tid}") or ""
    return name if str(tid) in name else f"{tid} {name}".strip()


def _stream_name(stream: int | None) -> str:
    return "no stream" if stream is None else f"stream {stream}"


def _product(trace: Trace, device: str) -> str:
    names = {one.id: one.name for one in trace.meta.devices}
    return f"{device} {names[device]}" if names.get(device) else device


PYTHON_KINDS: Final = (schema.STEP, schema.DATALOADER, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.PYTHON,
                       schema.ANNOTATION)  # fmt: skip
"""Kinds that user code and Python frames make; the rest of a thread is C++."""

INSTANT_KINDS: Final = (schema.MEMORY, schema.COUNTER)
"""Kinds that are points in time when they have no duration: they share a row with what is around them."""


class Lanes(msgspec.Struct, frozen=True):
    """``lane`` is the index into ``lanes`` of each event, shape (rows,)."""

    lane: IntArray
    lanes: list[Lane]


def lanes(trace: Trace, apart: bool, spread: bool = True) -> Lanes:
    """Rows for all events of a trace.

    ``apart``: Python and C++ of a thread in rows of their own; ``spread``: more where events overlap and do not nest.
    """
    place, first = _places(trace, _groups(trace, apart))
    level = _levels(trace, place) if spread else np.zeros(len(trace), np.int64)
    key, example = _numbered(place * (int(level.max(initial=0)) + 1) + level)
    return Lanes(key, described(trace, first[place[example]], _groups(trace, apart), level[example]))


def on_thread(trace: Trace) -> BoolArray:
    """True for events on a host thread, memory events of a device included."""
    inside: BoolArray = trace.host | (trace.ints("tid", NO_ROW) != NO_ROW)
    return inside


def instants(trace: Trace) -> BoolArray:
    """True for points in time."""
    points: BoolArray = trace.rows("kind", *INSTANT_KINDS) & (trace.ints("dur_ns") == 0)
    return points


def _groups(trace: Trace, apart: bool) -> IntArray:
    label = trace.rows("kind", *PYTHON_KINDS)
    host = np.where(label, PYTHON, CPP) if apart else np.full(len(trace), THREAD)
    return np.where(on_thread(trace), host, np.where(label, LABELS, STREAM)).astype(np.int64)


def _places(trace: Trace, group: IntArray) -> tuple[IntArray, IntArray]:
    """A number for each rank, process, thread, device, stream and group, ascending in that order; a row of each."""
    thread = on_thread(trace)
    names = trace.codes("device")
    rank_in_name = np.argsort(np.argsort(np.array(names.values, dtype=object))).astype(np.int64)
    device = np.where(thread, -1, names.lookup(rank_in_name, -1))
    columns = [trace.ints("rank"), ~thread, device, trace.ints("pid"), trace.ints("tid"), trace.ints("stream"), group]
    key, first = np.zeros(len(trace), np.int64), np.zeros(0, np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        key, first = _numbered(key * max(len(values), 1) + code)
    return key, first


def _numbered(key: IntArray) -> tuple[IntArray, IntArray]:
    """Keys as numbers from 0 in their order, and a row of each."""
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return number.astype(np.int64), first.astype(np.int64)


def _levels(trace: Trace, place: IntArray) -> IntArray:
    """0 for what nests in the first row of its place, 1 for what needs a second one, …"""
    spans = np.flatnonzero(~instants(trace))
    start, end = trace.ints("start_ns")[spans], trace.end_ns[spans]
    order = np.lexsort((-end, start, place[spans]))
    level = np.zeros(len(trace), np.int64)
    level[spans[order]] = _first_that_nests(place[spans][order], start[order], end[order])
    return level


@compiled
def _first_that_nests(place, start, end):  # type: ignore[no-untyped-def]
    count = len(place)
    level = np.zeros(count, np.int64)
    below = np.full(count, -1, np.int64)  # the event under each in its row
    top = np.full(max(count, 1), -1, np.int64)  # the innermost open event of each row
    used = 0
    for i in range(count):
        if i and place[i] != place[i - 1]:
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
    return level
