"""The time of host threads, cut into segments. Within a segment, the innermost event of the thread stays the same.

The segments of a thread follow each other without gaps. Time outside all events is a segment, too. If two events
overlap without nesting, the time that they share belongs to the event that began last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.causes.segments import innermost_events, nested_rows
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of host threads, sorted by thread and time, shape (segments,). The last segment of a thread is empty."""

    start_ns: IntArray
    end_ns: IntArray
    row: IntArray  # row of the innermost event, -1 if none
    thread: IntArray
    threads: int  # number of threads
    first: IntArray  # segment that starts when each event starts, -1 for events on no host thread, shape (rows,)
    after: IntArray  # segment that starts when each event ends, -1 for events on no host thread, shape (rows,)

    def __len__(self) -> int:
        return len(self.row)


def host_segments(trace: Trace) -> Segments:
    """Cut each thread where its events begin and end."""
    rows, of_trace = nested_rows(trace, np.ones(len(trace), np.bool_)), threads(trace)
    begin, finish, event = innermost_events(trace)[1]
    code, number = groupby.by_appearance(of_trace.code[rows], len(of_trace))
    renumbered = np.empty(len(of_trace), np.int64)
    renumbered[of_trace.code[rows]] = code
    of_piece = renumbered[of_trace.code[event]]
    time = np.concatenate([trace.ints("start_ns")[rows], trace.end_ns[rows], begin, finish])
    thread = np.concatenate([code, code, of_piece, of_piece])
    order = np.argsort(time, kind="stable")
    order = order[groupby.stable_order(thread[order], len(number))]
    time, thread = time[order], thread[order]
    differs = np.append(True, (time[1:] != time[:-1]) | (thread[1:] != thread[:-1]))[: len(order)]
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(differs) - 1  # the segment that starts at each time
    time, thread = time[differs], thread[differs]
    first, after = np.full(len(trace), NO_ROW), np.full(len(trace), NO_ROW)
    first[rows], after[rows], since, until = np.split(at, np.cumsum([len(rows), len(rows), len(event)]))

    piece, segment = np.full(len(time), NO_ROW), np.arange(len(time))
    piece[since] = np.arange(len(event))
    piece = piece[np.maximum.accumulate(np.where(piece >= 0, segment, 0))]  # the piece that began last
    covered = segment < np.append(until, 0)[piece]
    following = np.where(np.append(thread[1:] == thread[:-1], False)[: len(time)], np.roll(time, -1), time)
    owner = np.where(covered, np.append(event, NO_ROW)[piece], NO_ROW)
    return Segments(time, following, owner, thread, len(number), first, after)


def matching(trace: Trace, column: str, test: Callable[[str], object]) -> BoolArray:
    """Return the mask of the events whose text in ``column`` passes ``test``, shape (rows,). Events without a text do
    not pass. The test runs once for each distinct text."""
    codes = trace.codes(column)
    mask: BoolArray = codes.lookup(np.array([bool(test(text)) for text in codes.values], np.bool_), False)
    return mask
