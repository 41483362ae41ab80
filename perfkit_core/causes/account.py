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

Without a device, operators take the place of kernels. ``compute`` and ``communication`` are then the innermost
operators of the thread that runs the steps. Where this thread is in no operator, loader or wait, operators of other
threads count, such as those of a backward pass. The rest is ``host``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    IN_FLIGHT,
    LATENCY,
    LATENCY_NS,
    TAIL,
    UNLAUNCHED,
    Pieces,
    Segments,
    earliest,
    in_order,
    innermost,
    launching_calls,
    layers,
    main_thread,
    overlaps,
    recorded,
)
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.communication.stragglers import awaited
from perfkit_core.views.select import threads
from perfkit_core.views.steps.activity import activities


def device_segments(trace: Trace, rank: int, device: int | None) -> Segments:
    """Return the account of a device from the first to the last event of its rank. ``device`` is a code of the column
    ``device``, or None for all devices of the rank as one."""
    of_rank = trace.ints("rank") == rank
    start, end, work = trace.ints("start_ns"), trace.end_ns, work_of(trace, rank, device)
    kernel, talks = trace.rows("kind", schema.KERNEL)[work], communication(trace).device[work]
    busy = layers(trace, [np.sort(work[mask]) for mask in (kernel & ~talks, kernel & talks, ~kernel)])
    busy[1] = _cut_at_waits(trace, busy[1])
    covered = intervals.union(start[work], end[work])
    gaps = intervals.subtract(recorded(trace, of_rank), covered)
    return in_order([*zip((COMPUTE, COMMUNICATION, COPY), busy, strict=True), *_gaps(trace, gaps, work, of_rank)])


def _cut_at_waits(trace: Trace, pieces: Pieces) -> Pieces:
    """Return the pieces of collectives, cut where recorded waits for another rank begin and end."""
    begin, end, event = pieces
    waits = awaited(trace)
    inner = (np.clip(times[event], begin, end) for times in (waits.start_ns, waits.end_ns))
    edges = np.stack([begin, *inner, end], axis=1)
    start, finish = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    lasts = finish > start
    return start[lasts], finish[lasts], np.repeat(event, 3)[lasts]


def work_of(trace: Trace, rank: int, device: int | None) -> IntArray:
    """Return the rows of a device's work (None: of all devices of the rank), sorted by start, then end."""
    of_device = (trace.ints("rank") == rank) & (device is None or trace.codes("device").codes == device)
    work = np.flatnonzero(of_device & trace.rows("kind", *schema.DEVICE_WORK))
    return work[np.lexsort((trace.end_ns[work], trace.ints("start_ns")[work]))]


def _gaps(trace: Trace, gaps: Intervals, work: IntArray, of_rank: BoolArray) -> list[tuple[str, Pieces]]:
    """Return the pieces of gaps by what the work that ends each of them waits for."""
    begin, finish = gaps
    at = np.searchsorted(trace.ints("start_ns")[work], finish)
    follows = at < len(work)
    event = np.where(follows, work[np.minimum(at, len(work) - 1)], NO_ROW)
    launch = np.where(follows, launching_calls(trace)[event], NO_ROW)
    launched = launch != NO_ROW
    gate = np.clip(np.where(launched, trace.end_ns[launch], 0), begin, finish)  # when the call has returned

    def piece(mask: BoolArray, first: IntArray, last: IntArray) -> Pieces:
        mask = mask & (last > first)
        return first[mask], last[mask], event[mask]

    held = launched & (gate > begin)
    late = finish - gate > LATENCY_NS
    return [
        (TAIL, piece(~follows, begin, finish)),
        (UNLAUNCHED, piece(follows & ~launched, begin, finish)),
        (IN_FLIGHT, piece(launched & ~held, begin, finish)),
        (LATENCY, piece(held & ~late, gate, finish)),
        (IN_FLIGHT, piece(held & late, gate, finish)),
        *((HOST, pieces) for pieces in _held_by_host(trace, begin[held], gate[held], launch[held], of_rank)),
    ]


def _held_by_host(trace: Trace, begin: IntArray, end: IntArray, launch: IntArray, of_rank: BoolArray) -> list[Pieces]:
    """Return the times [begin, end), cut by the innermost event of the launching thread."""
    code = threads(trace).code
    main = main_thread(trace, of_rank)
    parts: list[Pieces] = []
    for thread in np.unique(code[launch]).tolist():
        here = code[launch] == thread
        pieces = overlaps(begin[here], end[here], innermost(trace, thread))
        unknown = pieces[2] == NO_ROW
        if thread != main and unknown.any():
            parts.append(overlaps(pieces[0][unknown], pieces[1][unknown], innermost(trace, main)))
            pieces = (pieces[0][~unknown], pieces[1][~unknown], pieces[2][~unknown])
        parts.append(pieces)
    return parts


_WAITS: Final = (schema.SYNC, schema.COMMUNICATION, schema.DATALOADER)


def host_segments(trace: Trace, rank: int) -> Segments:
    """Return the account of the thread that runs the steps of a rank, from the first to the last event of the rank."""
    of_rank = trace.ints("rank") == rank
    main = main_thread(trace, of_rank)
    of_main = overlaps(*recorded(trace, of_rank), innermost(trace, main))
    acts, talk = activities(trace), communication(trace)
    loading = nesting.lies_in(trace.ints("parent"), acts.loading) | acts.loading
    operates = nesting.nearest_on_path(trace.ints("parent"), trace.operators) != NO_ROW
    waits = loading | trace.rows("kind", *_WAITS)
    works = (of_main[2] != NO_ROW) & (operates & ~loading)[of_main[2]]
    free = ~works & ((of_main[2] == NO_ROW) | ~waits[of_main[2]])
    elsewhere = _operators_elsewhere(trace, of_rank & operates & ~loading, main)
    beside = overlaps(of_main[0][free], of_main[1][free], elsewhere)
    taken = beside[2] != NO_ROW
    held = ~works & ~free
    main_again = overlaps(beside[0][~taken], beside[1][~taken], of_main)
    talks = talk.call != NO_ROW
    busy = [tuple(cells[works] for cells in of_main), tuple(cells[taken] for cells in beside)]
    return in_order(
        [
            *(
                (word, tuple(cells[talks[part[2]] == communicates] for cells in part))
                for part in busy
                for word, communicates in ((COMPUTE, False), (COMMUNICATION, True))
            ),
            (HOST, tuple(cells[held] for cells in of_main)),
            (HOST, main_again),
        ]
    )


def _operators_elsewhere(trace: Trace, operates: BoolArray, main: int) -> Pieces:
    """Return when operators run in threads other than ``main``, with the innermost one of the thread that began
    first."""
    parts = []
    for thread in np.unique(threads(trace).code[operates]).tolist():
        if thread != main:
            begin, end, event = innermost(trace, thread)
            works = operates[event]
            parts.append((begin[works], end[works], event[works]))
    if not parts:
        return (np.empty(0, np.int64),) * 3
    begin, end, event = (np.concatenate(cells) for cells in zip(*parts, strict=True))
    order = np.argsort(begin, kind="stable")
    return earliest(begin[order], end[order], event[order])
