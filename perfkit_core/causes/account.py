"""The account of a device's time. Each nanosecond belongs to one word:

- ``compute``, ``communication``, ``copy``: a stream runs something, in this order of precedence.
- ``host``: no stream runs anything, and the call that launches the work that ends this gap has not returned.
- ``latency``: that call has returned during the gap, and the work starts within :data:`LATENCY_NS`.
- ``in_flight``: the work was launched and does not start: a dependency, a node of a graph, another clock, or records
  that were lost. Nothing says that the host is at fault, or that the device is idle.
- ``unlaunched``: the work that ends the gap has no recorded launch.
- ``tail``: no device work follows.

A gap is a time in which no stream of the device runs anything. The parts of ``host`` are the innermost host events of
the thread that launches the work, or of the thread that runs the steps where the launching thread has none.

         |<- kernel ->|<------ host ------>|<- latency ->|<- kernel ->|
    launching thread:    …  aten::mul  …  cudaLaunchKernel
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import threads

BUSY: Final = ("compute", "communication", "copy")
HOST: Final = "host"
WORDS: Final = (*BUSY, HOST, "latency", "in_flight", "unlaunched", "tail")
LATENCY_NS: Final = 100_000
"""Longest time between a launch and the start of its work that is the device's own."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Consecutive times of a device, sorted and disjoint. Arrays have shape (segments,)."""

    start: IntArray
    end: IntArray
    word: IntArray  # index of WORDS
    place: IntArray  # ``host``: row of the innermost host event, -1 if none was recorded


def device_segments(trace: Trace, rank: int, device: int) -> Segments:
    """Return the account of a device from the first to the last event of its rank. ``device`` is a code of the column
    ``device``."""
    of_rank = trace.ints("rank") == rank
    work = np.flatnonzero(of_rank & trace.rows("kind", *schema.DEVICE_WORK) & (trace.codes("device").codes == device))
    work = work[np.lexsort((trace.end_ns[work], trace.ints("start_ns")[work]))]
    host = np.flatnonzero(of_rank & trace.host & trace.rows("kind", *schema.NESTED_KINDS))
    start, end = trace.ints("start_ns"), trace.end_ns
    rows = np.concatenate([work, host])
    first, last = int(start[rows].min()), int(end[rows].max())
    busy = _busy(trace, work)
    covered = intervals.union(*(np.concatenate(edges) for edges in zip(*busy, strict=True)))
    gaps = intervals.subtract((np.array([first]), np.array([last])), covered)
    parts: list[tuple[IntArray, ...]] = [
        (*layer, np.full(len(layer[0]), word), np.full(len(layer[0]), NO_ROW)) for word, layer in enumerate(busy)
    ]
    parts += _gaps(trace, gaps, work, of_rank)
    joined = [np.concatenate(cells) for cells in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return Segments(*(cells[order] for cells in joined))


def _busy(trace: Trace, work: IntArray) -> list[Intervals]:
    """Return when the device computes, when it only communicates, and when it only copies."""
    start, end = trace.ints("start_ns"), trace.end_ns
    kernel, talks = trace.rows("kind", schema.KERNEL)[work], communication(trace).device[work]
    layers: list[Intervals] = []
    before = intervals.EMPTY
    for mask in (kernel & ~talks, kernel & talks, ~kernel):
        layer = intervals.union(start[work[mask]], end[work[mask]])
        layers.append(intervals.subtract(layer, before))
        before = intervals.union(*(np.concatenate(edges) for edges in zip(before, layer, strict=True)))
    return layers


def _gaps(trace: Trace, gaps: Intervals, work: IntArray, of_rank: BoolArray) -> list[tuple[IntArray, ...]]:
    """Return the segments of gaps, as (start, end, word, place), by what the work that ends each of them waits for."""
    begin, finish = gaps
    start, end = trace.ints("start_ns"), trace.end_ns
    at = np.searchsorted(start[work], finish)
    follows = at < len(work)
    launch = trace.ints("launched_by")[work[np.minimum(at, len(work) - 1)]]
    launched = follows & (launch != NO_ROW)
    returned = np.where(launched, end[launch], 0)
    gate = np.clip(returned, begin, finish)

    def segment(word: str, mask: BoolArray, first: IntArray, last: IntArray) -> tuple[IntArray, ...]:
        mask = mask & (last > first)
        count = int(mask.sum())
        return first[mask], last[mask], np.full(count, WORDS.index(word)), np.full(count, NO_ROW)

    wait = launched & (gate > begin)
    late = finish - gate > LATENCY_NS
    held = wait & (gate > begin)
    return [
        segment("tail", ~follows, begin, finish),
        segment("unlaunched", follows & ~launched, begin, finish),
        segment("in_flight", launched & ~wait, begin, finish),
        segment("latency", wait & ~late, gate, finish),
        segment("in_flight", wait & late, gate, finish),
        *_held_by_host(trace, begin[held], gate[held], launch[held], of_rank),
    ]


def _held_by_host(
    trace: Trace, begin: IntArray, end: IntArray, launch: IntArray, of_rank: BoolArray
) -> list[tuple[IntArray, ...]]:
    """Return the segments of ``host``: the times [begin, end), cut by the innermost event of the launching thread."""
    code = threads(trace).code
    main = _main_thread(trace, of_rank)
    parts: list[tuple[IntArray, ...]] = []
    for thread in np.unique(code[launch]).tolist():
        here = code[launch] == thread
        pieces = _overlaps(begin[here], end[here], *_innermost(trace, thread))
        unknown = pieces[2] == NO_ROW
        if thread != main and unknown.any():
            more = _overlaps(pieces[0][unknown], pieces[1][unknown], *_innermost(trace, main))
            pieces = tuple(np.concatenate([mine[~unknown], other]) for mine, other in zip(pieces, more, strict=True))
        first, last, place = pieces
        parts.append((first, last, np.full(len(first), WORDS.index(HOST)), place))
    return parts


def _main_thread(trace: Trace, of_rank: BoolArray) -> int:
    """Return the code of the thread that runs the steps, or else of the one with the most events."""
    code = threads(trace).code
    steps = np.flatnonzero(of_rank & trace.host & trace.rows("kind", schema.STEP))
    if len(steps):
        return int(code[steps[0]])
    host = np.flatnonzero(of_rank & trace.host & trace.rows("kind", *schema.NESTED_KINDS))
    return int(np.bincount(code[host]).argmax()) if len(host) else NO_ROW


def _innermost(trace: Trace, thread: int) -> tuple[IntArray, IntArray]:
    """Return times of changes, ascending, and the row of the innermost event of a thread from each of them on, or
    -1."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", *schema.NESTED_KINDS) & (threads(trace).code == thread))
    begin, finish, event = nesting.innermost(trace.ints("start_ns")[rows], trace.end_ns[rows])
    blank = np.append(begin[1:], np.iinfo(np.int64).max) > finish  # nothing follows at once
    times, inner = np.concatenate([begin, finish[blank]]), np.append(rows[event], np.full(int(blank.sum()), NO_ROW))
    order = np.argsort(times, kind="stable")
    return times[order], inner[order]


def _overlaps(begin: IntArray, end: IntArray, times: IntArray, inner: IntArray) -> tuple[IntArray, ...]:
    """Cut the disjoint intervals [begin, end) at ``times``. Return (start, end, row of the innermost event)."""
    if not len(times):
        return begin, end, np.full(len(begin), NO_ROW)
    first, last = np.searchsorted(times, begin, side="right"), np.searchsorted(times, end, side="left")
    count = last - first + 1
    of = np.repeat(np.arange(len(begin)), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    index = first[of] + within  # the piece before times[index]
    starts = np.where(within == 0, begin[of], times[np.maximum(index - 1, 0)])
    ends = np.where(within == count[of] - 1, end[of], times[np.minimum(index, len(times) - 1)])
    place = np.where(index > 0, inner[np.maximum(index - 1, 0)], NO_ROW)
    return starts, ends, place
