"""The events that a request selects, the ranks and threads of a trace, and the time of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray, matches
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace

THREAD_KEY = ("rank", "pid", "tid")
"""Columns that identify a thread."""

_LATEST, _EARLIEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def check_groupings(view: str, request: ViewRequest, groupings: Sequence[str]) -> None:
    """Raise UsageError if the request has a grouping that is not in ``groupings``."""
    for name, _ in map(split_grouping, request.by):
        if name not in groupings:
            hint = f"known groupings: {', '.join(groupings) or 'none'}"
            raise UsageError(f"{view} cannot be grouped by {name!r}", hint)


def selected(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of events in the requested steps that match all patterns, shape (rows,). Raises UsageError."""
    return in_steps(trace, request) & accounted(trace, request)


def accounted(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of the events that match all patterns of the request, in any step. Raises UsageError."""
    mask = _matching(trace, "name", request.pattern) & _matching(trace, "device", request.device)
    if request.kind is not None:
        mask &= _matching(trace, "kind", request.kind) | _matching(trace, "category", request.kind)
    return mask


def _matching(trace: Trace, column: str, pattern: str | None) -> BoolArray:
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    codes = trace.codes(column)
    mask: BoolArray = codes.lookup(matches(codes.values, pattern), False)
    return mask


def marked(trace: Trace, rows: IntArray) -> BoolArray:
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    return mask


def in_steps(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of the events in the requested steps, or of all events if the request names no steps. Raises
    UsageError for a step that was not recorded."""
    if request.steps is None:
        return np.ones(len(trace), np.bool_)
    check_steps(request, step_numbers(trace))
    return np.isin(trace.ints("step"), request.steps)


def check_steps(request: ViewRequest, recorded: Sequence[int]) -> None:
    """Raise UsageError if the request names a step that was not recorded."""
    missing = sorted(set(request.steps or ()) - set(recorded))
    if missing:
        shown = ", ".join(map(str, recorded[:20])) or "none"
        raise UsageError(f"step {missing[0]} was not recorded", f"recorded steps: {shown}")


@once
def step_numbers(trace: Trace) -> tuple[int, ...]:
    """Return the sorted numbers of the steps that were completely recorded."""
    return tuple(np.unique(trace.ints("step")[trace.host & trace.rows("kind", STEP)]).tolist())


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a trace, sorted by rank, process and thread."""

    code: IntArray  # thread number of each event, including device work, shape (rows,)
    first: IntArray  # first row of each thread, shape (threads,)

    def __len__(self) -> int:
        return len(self.first)


@once
def threads(trace: Trace) -> Threads:
    groups = groupby.distinct_in_blocks(trace.blocks(*THREAD_KEY), len(trace), len(THREAD_KEY))
    return Threads(*groupby.in_order(*groups))


def rank_codes(trace: Trace) -> tuple[IntArray, int]:
    """Return the index of each event's rank in the sorted ranks, and the number of ranks, including -1 (unknown)."""
    code, distinct = _ranks(trace)
    return code, len(distinct)


def ranks(trace: Trace) -> IntArray:
    return _ranks(trace)[1]


@once
def _ranks(trace: Trace) -> tuple[IntArray, IntArray]:
    code, first, (rank,) = groupby.distinct_in_blocks(trace.blocks("rank"), len(trace), 1)
    return groupby.in_order(code, first, [rank])[0], np.sort(rank)


def rows_of_rank(trace: Trace, rank: int) -> IntArray | slice:
    """Return the rows of a rank in ascending order, as an array or a slice. Rank -1 is unknown."""
    distinct, order, bounds = _rows_by_rank(trace)
    at = int(np.searchsorted(distinct, rank))
    if at == len(distinct) or distinct[at] != rank:
        return slice(0)
    return slice(None) if len(distinct) == 1 else order[bounds[at] : bounds[at + 1]]


@once
def _rows_by_rank(trace: Trace) -> tuple[IntArray, IntArray, IntArray]:
    """Return ``(ranks, rows, bounds)``. ``rows[bounds[i] : bounds[i + 1]]`` are the event rows of ``ranks[i]``. If all
    events belong to one rank, ``rows`` is empty to save memory."""
    code, count = rank_codes(trace)
    order = groupby.stable_order(code, count) if count > 1 else np.empty(0, np.int64)
    bounds = np.append(0, np.cumsum(np.bincount(code, minlength=count)))
    return ranks(trace), order, bounds


def since_first_event(trace: Trace, rows: IntArray) -> IntArray:
    """Return the start of each row as the time since the first event of its rank, in ns, shape (len(rows),)."""
    rank, count = rank_codes(trace)
    start = trace.ints("start_ns")
    first = groupby.extremes(rank, count, start)[0]
    since: IntArray = start[rows] - first[rank[rows]]
    return since


def span(trace: Trace, chosen: BoolArray) -> intervals.Intervals:
    """Return the union of the chosen steps. Without chosen steps, return the range from the first start to the last end
    of the chosen events. The events should belong to one rank, as the clocks of ranks differ."""
    start, end = trace.ints("start_ns"), trace.end_ns
    steps = chosen & trace.rows("kind", STEP) & trace.host
    if steps.any():
        return intervals.union(start[steps], end[steps])
    if not chosen.any():
        return intervals.EMPTY
    return intervals.union(start[chosen].min(keepdims=True), end[chosen].max(keepdims=True))


def spans(trace: Trace, chosen: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the intervals that make up the :func:`span` of each rank, as three arrays: rank index, start, end."""
    rank, count = rank_codes(trace)
    rows = np.flatnonzero(chosen & trace.rows("kind", STEP) & trace.host)
    without = np.ones(count, np.bool_)
    without[rank[rows]] = False
    start, end = trace.ints("start_ns"), trace.end_ns
    if not without.any():
        return rank[rows], start[rows], end[rows]
    stepless = np.flatnonzero(chosen & without[rank])
    first, last = np.full(count, _LATEST), np.full(count, _EARLIEST)
    np.minimum.at(first, rank[stepless], start[stepless])
    np.maximum.at(last, rank[stepless], end[stepless])
    used = np.flatnonzero(last >= first)
    return np.append(rank[rows], used), np.append(start[rows], first[used]), np.append(end[rows], last[used])


def spans_of_ranks(trace: Trace, chosen: BoolArray) -> list[intervals.Intervals]:
    """Return the :func:`span` of each rank as an interval set, in the order of :func:`ranks`."""
    count = len(ranks(trace))
    rank, first, last = spans(trace, chosen)
    rank, first, last = intervals.union_by(rank, count, first, last)
    cuts = np.searchsorted(rank, np.arange(1, count))
    return list(zip(np.split(first, cuts), np.split(last, cuts), strict=True))


def span_ns(trace: Trace, chosen: BoolArray) -> int:
    group, start, end = spans(trace, chosen)
    return int(intervals.union_length_by(group, rank_codes(trace)[1], start, end).sum())


def union_ns(trace: Trace, chosen: BoolArray) -> int:
    """Return the time that the chosen events cover, in ns: the union on each rank, summed over ranks."""
    rank, count = rank_codes(trace)
    start, end = trace.ints("start_ns")[chosen], trace.end_ns[chosen]
    return int(intervals.union_length_by(rank[chosen], count, start, end).sum())
