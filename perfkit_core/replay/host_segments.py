"""The time of host threads, cut into segments. Within a segment, the innermost event of the thread stays the same.

The segments of a thread follow each other without gaps. Time outside all events is a segment, too. If two events
overlap without nesting, the time that they share belongs to the event that began last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.model.schema import NESTED_KINDS
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
    rows = np.flatnonzero(trace.host & trace.rows("kind", *NESTED_KINDS) & (trace.ints("self_ns") >= 0))
    of_trace = threads(trace)
    code, number = groupby.by_appearance(of_trace.code[rows], len(of_trace))
    order = groupby.stable_order(code, len(number))
    rows, code = rows[order], code[order]
    room = 2 * len(rows) + 2 * len(number) + 2
    start, end, owner, thread = (np.empty(room, np.int64) for _ in range(4))
    first, after = np.full(len(trace), -1, np.int64), np.full(len(trace), -1, np.int64)
    stack, least = (np.empty(len(rows) + 1, np.int64) for _ in range(2))
    start_ns, end_ns = trace.ints("start_ns"), trace.end_ns
    count = _cut(rows, code, start_ns, end_ns, stack, least, start, end, owner, thread, first, after)
    return Segments(start[:count], end[:count], owner[:count], thread[:count], len(number), first, after)


@compiled
def _cut(
    rows: IntArray, code: IntArray, start_ns: IntArray, end_ns: IntArray, stack: Out[IntArray], least: Out[IntArray],
    start: Out[IntArray], end: Out[IntArray], owner: Out[IntArray], thread: Out[IntArray], first: Out[IntArray],
    after: Out[IntArray],
) -> int:  # fmt: skip
    """Fill the segment arrays. Return the number of segments. ``rows`` must be sorted by thread, then by position.
    ``stack`` and ``least`` are working memory (see :func:`_close`)."""
    count, depth, now = 0, 0, 0
    for k in range(len(rows)):
        i = rows[k]
        if k == 0 or code[k] != code[k - 1]:
            now = start_ns[i]
        count, depth, now = _close(
            stack, least, depth, now, start_ns[i], end_ns, code[k], count, start, end, owner, thread, after
        )
        if start_ns[i] > now:
            start[count], end[count], thread[count] = now, start_ns[i], code[k]
            owner[count] = stack[depth - 1] if depth else -1
            count, now = count + 1, start_ns[i]
        first[i] = count
        stack[depth] = i
        least[depth] = min(end_ns[i], least[depth - 1]) if depth else end_ns[i]
        depth += 1
        if k + 1 == len(rows) or code[k + 1] != code[k]:
            last = np.iinfo(np.int64).max
            count, depth, now = _close(
                stack, least, depth, now, last, end_ns, code[k], count, start, end, owner, thread, after
            )
            start[count], end[count], owner[count], thread[count] = now, now, -1, code[k]
            count += 1
    return count


@compiled
def _close(stack, least, depth, now, until, end_ns, code, count, start, end, owner, thread, after):  # type: ignore[no-untyped-def]
    """Close the open events that end by ``until``. ``stack`` holds the open events. ``least[k]`` is the earliest end of
    the events ``stack[: k + 1]``."""
    while depth and least[depth - 1] <= until:
        over = least[depth - 1]
        if over > now:
            start[count], end[count], owner[count], thread[count] = now, over, stack[depth - 1], code
            count, now = count + 1, over
        at = depth - 1
        while end_ns[stack[at]] > over:
            at -= 1
        after[stack[at]] = count
        depth -= 1
        for k in range(at, depth):
            stack[k] = stack[k + 1]
            least[k] = min(end_ns[stack[k]], least[k - 1]) if k else end_ns[stack[k]]
    return count, depth, now


def matching(trace: Trace, column: str, test: Callable[[str], object]) -> BoolArray:
    """Return the mask of the events whose text in ``column`` passes ``test``, shape (rows,). Events without a text do
    not pass. The test runs once for each distinct text."""
    codes = trace.codes(column)
    mask: BoolArray = codes.lookup(np.array([bool(test(text)) for text in codes.values], np.bool_), False)
    return mask
