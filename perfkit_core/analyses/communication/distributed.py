"""How much of the time do the processes talk to each other, and how much of that does computation hide?

Communication (see ``collectives``) and computation (see ``activity``) are unions over the threads, streams and devices
of a rank; overlap is what both have in common, exposed communication the rest of the communication. Where steps were
recorded, what runs within them counts, whenever it was launched, as in the view ``partition``. Ranks are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.communication import distributed_native
from perfkit_core.analyses.communication.collectives import Communication, communication
from perfkit_core.analyses.communication.distributed_rows import PARTS, Measured, part_table, total
from perfkit_core.analyses.communication.instances import instances
from perfkit_core.analyses.select import accounted, in_steps
from perfkit_core.analyses.span import ranks, span
from perfkit_core.analyses.step.activity import Activities, activities
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.errors import UsageError
from perfkit_core.intervals import Intervals
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.schema import NO_ROW
from perfkit_core.table_columns import DEVICE, RATIO, added_by, count, duration, size, words
from perfkit_core.trace import BoolArray, IntArray, Trace

GROUPINGS = ("rank",)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns [rank,] part, host_calls, device_calls, time_ns, ratio (to the steps; without steps, to the extent of the
    events), bytes (messages; null where unknown). Rows: step, communication, computation, overlap,
    exposed_communication; none where nothing communicates. ``host_calls`` of communication are the outermost
    ones; of computation there are device_calls, or host_calls where no device work was recorded."""
    return _table(_measure(trace, request), request)


def reduce(trace: Trace, request: ViewRequest) -> list[dict[str, Any]]:
    """The numbers of one rank, as plain values."""
    return [{"rank": rank, **asdict(one)} for rank, one in _measure(trace, request).items()]


def merge(partials: Sequence[list[dict[str, Any]]], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks."""
    rows = [dict(row) for partial in partials for row in partial]
    return _table({row.pop("rank"): Measured(**row) for row in rows}, request)


def _measure(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    return (distributed_native.measured if request.native else _measured)(trace, request)


def _table(ranks: dict[int | None, Measured], request: ViewRequest) -> pd.DataFrame:
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"{VIEW.name} cannot be grouped by {sorted(unknown)[0]!r}", "known: rank")
    if not any(rank.communicates for rank in ranks.values()):
        return part_table({}, by_rank="rank" in request.by)
    return part_table(ranks if "rank" in request.by else {None: total(list(ranks.values()))}, "rank" in request.by)


def _measured(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    chosen, here, rank = accounted(trace, request), in_steps(trace, request), trace.ints("rank")
    talk, acts = communication(trace), activities(trace)
    return {one: _of_rank(acts, talk, chosen, span(trace, here & (rank == one)), one) for one in ranks(trace).tolist()}


def _of_rank(acts: Activities, talk: Communication, chosen: BoolArray, steps: Intervals, rank: int) -> Measured:
    trace = acts.trace
    sets = acts.of(rank, chosen)
    talking, computing = (intervals.intersect(some, steps) for some in (sets.communication, sets.compute))
    overlap, exposed = intervals.intersect(talking, computing), intervals.subtract(talking, computing)
    rows = np.flatnonzero(chosen & (talk.calls | talk.device | acts.compute))
    rows = rows[trace.ints("rank")[rows] == rank]
    rows = rows[covered_ns(steps, trace.ints("start_ns")[rows], trace.end_ns[rows]) > 0]
    host = {"communication": _count(talk.calls[rows])}
    on_device = {"communication": _count(talk.device[rows])}
    (on_device if acts.on_device else host)["computation"] = _count(acts.compute[rows])
    times = map(intervals.length, (steps, talking, computing, overlap, exposed))
    here = chosen & (trace.ints("rank") == rank)
    return Measured(host, on_device, dict(zip(PARTS, times, strict=True)), _bytes(trace, rows, talk, here, steps))


def _bytes(trace: Trace, rows: IntArray, talk: Communication, here: BoolArray, steps: Intervals) -> int | None:
    """The message of each collective once; of other communication what its events tell. None where nothing does."""
    sized = instances(trace)
    sized = sized[sized["bytes"].notna()]
    at = sized["row"].to_numpy(np.int64)
    start = sized["start_ns"].to_numpy(np.int64)
    counted = here[at] & (covered_ns(steps, start, start + sized["dur_ns"].to_numpy(np.int64)) > 0)
    others = rows[(talk.device | talk.host)[rows] & ~np.isin(rows, at)]
    calls = talk.call[at]
    others = others[~np.isin(talk.call[others], calls[calls != NO_ROW])]
    own = trace.ints("bytes", -1)[others]
    moved = np.concatenate([sized["bytes"].to_numpy(np.int64)[counted], own[own >= 0]])
    return int(moved.sum()) if len(moved) else None


def _count(mask: BoolArray) -> int:
    return int(mask.sum())


COLUMNS = (
    *added_by(GROUPINGS),
    words("part", "Part"),
    count("host_calls", "Host calls", exact=True, per_step=True, description="of communication the outermost ones"),
    count("device_calls", "Device calls", exact=True, per_step=True, place=DEVICE),
    duration("time_ns", "Time", per_step=True),
    replace(RATIO, description="of the steps; without steps, of the extent of the events"),
    size("bytes", "Size", per_step=True, description="of the messages"),
)

VIEW = View(
    name="distributed",
    title="Communication and computation",
    description="time of communication between processes, of computation, and of both at once",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: in_english("no communication between processes was recorded"),
    native=True,
    reduction=Reduction(reduce, merge),
)
