"""Segments of time, each with one word of the account and the event that has this time, and how they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, first_match
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads

COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPY: Final = "copy"
HOST: Final = "host"
LATENCY: Final = "latency"
IN_FLIGHT: Final = "in_flight"
UNLAUNCHED: Final = "unlaunched"
TAIL: Final = "tail"
WORDS: Final = (COMPUTE, COMMUNICATION, COPY, HOST, LATENCY, IN_FLIGHT, UNLAUNCHED, TAIL)

LATENCY_NS: Final = 100_000
"""Longest time between a launch and the start of its work that is the device's own."""

Pieces = tuple[IntArray, IntArray, IntArray]
"""Disjoint times: start, end, row of the event that has this time, or -1. Arrays have shape (pieces,)."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Consecutive times of a device or thread, sorted and disjoint. Arrays have shape (segments,).

    ``event`` is a row, or -1: while a device works, the work that runs (of several, the one that began first); in
    ``host``, the innermost host event; in other gaps, the work that ends the gap."""

    start: IntArray
    end: IntArray
    word: IntArray  # index of WORDS
    event: IntArray


def in_order(parts: Sequence[tuple[str, Pieces]]) -> Segments:
    """Return the pieces of all words, sorted by time."""
    words = [np.full(len(pieces[0]), WORDS.index(word)) for word, pieces in parts]
    start, end, event = (np.concatenate(cells) for cells in zip(*(pieces for _, pieces in parts), strict=True))
    order = np.argsort(start, kind="stable")
    return Segments(start[order], end[order], np.concatenate(words)[order], event[order])


def recorded(trace: Trace, of_rank: BoolArray) -> Intervals:
    """Return the time from the first to the last event of a rank, as an interval set."""
    rows = np.flatnonzero(of_rank & ~trace.rows("kind", schema.IMPLAUSIBLE))
    return trace.ints("start_ns")[rows].min(keepdims=True), trace.end_ns[rows].max(keepdims=True)


def nested_rows(trace: Trace, chosen: BoolArray) -> IntArray:
    """Return the chosen rows of host events that occupy their thread."""
    return np.flatnonzero(chosen & trace.host & trace.rows("kind", *schema.NESTED_KINDS))


def main_thread(trace: Trace, of_rank: BoolArray) -> int:
    """Return the code of the thread that runs the steps, or else of the one with the most events; -1 without host
    events."""
    code = threads(trace).code
    steps = np.flatnonzero(of_rank & trace.host & trace.rows("kind", schema.STEP))
    if len(steps):
        return int(code[steps[0]])
    host = nested_rows(trace, of_rank)
    return int(np.bincount(code[host]).argmax()) if len(host) else NO_ROW


@once
def innermost_events(trace: Trace) -> tuple[IntArray, Pieces]:
    """Return the times of all threads in which events were recorded, sorted by thread and time: the code of the thread,
    and the innermost event of each time."""
    of_trace = threads(trace)
    rows = nested_rows(trace, np.ones(len(trace), np.bool_))
    rows = rows[groupby.stable_order(of_trace.code[rows], len(of_trace))]
    code = of_trace.code[rows]
    begin, finish, event = nesting.innermost(code, trace.ints("start_ns")[rows], trace.end_ns[rows])
    return code[event], (begin, finish, rows[event])


def innermost(trace: Trace, thread: int) -> Pieces:
    """Return the times of a thread in which events were recorded, with the innermost event of each."""
    code, pieces = innermost_events(trace)
    begin, finish, event = (cells[slice(*np.searchsorted(code, [thread, thread + 1]))] for cells in pieces)
    return begin, finish, event


@once
def launching_calls(trace: Trace) -> IntArray:
    """Return the host call that launches each event, shape (rows,), -1 if there is none. Where an operator only hands a
    call over to another thread, as to a task queue, this is the later call with the correlation id of the work."""
    launch, correlation = trace.ints("launched_by").copy(), trace.ints("correlation")
    calls = np.flatnonzero(trace.host & trace.rows("kind", schema.RUNTIME, schema.SYNC) & (correlation != NO_ROW))
    work = np.flatnonzero((launch != NO_ROW) & ~trace.rows("kind", schema.RUNTIME, schema.SYNC)[launch])
    for rank in np.unique(trace.ints("rank")[work]).tolist():
        mine, of_rank = (rows[trace.ints("rank")[rows] == rank] for rows in (work, calls))
        call = first_match(correlation[mine], correlation[of_rank], of_rank)
        later = (call != NO_ROW) & (trace.ints("start_ns")[call] >= trace.ints("start_ns")[launch[mine]])
        launch[mine[later]] = call[later]
    return launch


def overlaps(begin: IntArray, end: IntArray, pieces: Pieces) -> Pieces:
    """Cut the disjoint intervals [begin, end) at the edges of the sorted ``pieces``. The times between pieces have the
    event -1. Intervals of no length are left out."""
    start, finish, event = pieces
    begin, end = begin[end > begin], end[end > begin]
    if not len(start):
        return begin, end, np.full(len(begin), NO_ROW)
    blank = np.append(start[1:], np.iinfo(np.int64).max) > finish  # nothing follows at once
    times, inner = np.concatenate([start, finish[blank]]), np.append(event, np.full(int(blank.sum()), NO_ROW))
    order = np.argsort(times, kind="stable")
    times, inner = times[order], inner[order]
    first, last = np.searchsorted(times, begin, side="right"), np.searchsorted(times, end, side="left")
    count = last - first + 1
    of = np.repeat(np.arange(len(begin)), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    index = first[of] + within  # the piece before times[index]
    starts = np.where(within == 0, begin[of], times[np.maximum(index - 1, 0)])
    ends = np.where(within == count[of] - 1, end[of], times[np.minimum(index, len(times) - 1)])
    return starts, ends, np.where(index > 0, inner[np.maximum(index - 1, 0)], NO_ROW)


def earliest(start: IntArray, end: IntArray, event: IntArray) -> Pieces:
    """Return the times that the intervals cover. At each time, the interval that began first has it: of those that
    began together, the first one. Intervals are sorted by start.

        event 1  |-----------|
        event 2      |-----------------|
        result   |---- 1 ----|--- 2 ---|
    """
    covered = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    begin = np.maximum(start, covered)
    later = end > begin
    return begin[later], end[later], event[later]


def inside(pieces: Pieces, windows: Intervals) -> Pieces:
    """Return the parts of sorted pieces in disjoint, sorted windows."""
    begin, end, event = overlaps(*windows, pieces)
    recorded = event != NO_ROW
    return begin[recorded], end[recorded], event[recorded]


def layers(trace: Trace, works: Sequence[IntArray]) -> list[Pieces]:
    """Return when the work of each set of rows has the device, in order of precedence: a set has only the times in
    which no work of the sets before it runs. Rows are sorted by start."""
    start, end = trace.ints("start_ns"), trace.end_ns
    result: list[Pieces] = []
    before = intervals.EMPTY
    for rows in works:
        layer = intervals.union(start[rows], end[rows])
        result.append(inside(earliest(start[rows], end[rows], rows), intervals.subtract(layer, before)))
        before = intervals.union(*(np.concatenate(edges) for edges in zip(before, layer, strict=True)))
    return result


def in_windows(segments: Segments, begin: IntArray, finish: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut windows [begin, finish) into (window, segment, word, width). Time beyond all segments is last: -1, TAIL."""
    start, end = segments.start, segments.end
    first, last = np.searchsorted(end, begin, side="right"), np.searchsorted(start, finish)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(len(begin)), count)
    at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[window]
    width = np.minimum(end[at], finish[window]) - np.maximum(start[at], begin[window])
    beyond = finish - begin - np.bincount(window, width, len(begin)).astype(np.int64)
    outside = np.flatnonzero(beyond)
    word = np.append(segments.word[at], np.full(len(outside), WORDS.index(TAIL)))
    at = np.append(at, np.full(len(outside), NO_ROW))
    return np.append(window, outside), at, word, np.append(width, beyond[outside])
