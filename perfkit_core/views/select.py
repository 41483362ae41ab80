"""Which events a view counts, their ranks and threads, and the time that ratios are divided by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms import groupby, intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray, matches
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import ViewRequest


def selected(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps that match every pattern, shape (rows,). Raises UsageError."""
    return in_steps(trace, request) & accounted(trace, request)


def accounted(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events that match the patterns of the request, whatever their step. Raises UsageError."""
    chosen = _matching(trace, "name", request.pattern) & _matching(trace, "device", request.device)
    if request.kind is not None:
        chosen &= _matching(trace, "kind", request.kind) | _matching(trace, "category", request.kind)
    return chosen


def marked(trace: Trace, rows: IntArray) -> BoolArray:
    """True for the events of these rows."""
    found = np.zeros(len(trace), np.bool_)
    found[rows] = True
    return found


def in_steps(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps; all when none are named. Raises UsageError for a step that is not there."""
    if request.steps is None:
        return np.ones(len(trace), np.bool_)
    recorded = step_numbers(trace)
    missing = sorted(set(request.steps) - set(recorded))
    if missing:
        known = ", ".join(map(str, recorded[:20])) or "none"
        raise UsageError(f"step {missing[0]} was not recorded", f"recorded steps: {known}")
    return np.isin(trace.ints("step"), request.steps)


@once
def step_numbers(trace: Trace) -> tuple[int, ...]:
    """The numbers of the steps that were recorded as a whole, ascending."""
    return tuple(np.unique(trace.ints("step")[trace.host & trace.rows("kind", STEP)]).tolist())


def _matching(trace: Trace, column: str, pattern: str | None) -> BoolArray:
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    codes = trace.codes(column)
    found: BoolArray = codes.lookup(matches(codes.values, pattern), False)
    return found


def rank_codes(trace: Trace) -> tuple[IntArray, int]:
    """A group number for each event's rank (unknown ranks are one), and how many there are."""
    code, found = _coded(trace)
    return code, len(found)


def ranks(trace: Trace) -> IntArray:
    """The distinct ranks as in the column (-1: unknown), ascending."""
    return _coded(trace)[1]


@once
def _coded(trace: Trace) -> tuple[IntArray, IntArray]:
    code, first = groupby.sorted_codes([trace.ints("rank")], len(trace))
    return code, trace.ints("rank")[first]


def rows_of_rank(trace: Trace, rank: int) -> IntArray | slice:
    """The rows of a rank, as in the column (-1: unknown), in their order: what an array of all rows is indexed by."""
    ranks, order, bounds = _by_rank(trace)
    at = int(np.searchsorted(ranks, rank))
    if at == len(ranks) or ranks[at] != rank:
        return slice(0)
    return slice(None) if len(ranks) == 1 else order[bounds[at] : bounds[at + 1]]


@once
def _by_rank(trace: Trace) -> tuple[IntArray, IntArray, IntArray]:
    """The ranks, the rows sorted by them (none where there is one rank), and where those of each begin and end."""
    code, count = rank_codes(trace)
    order = groupby.stable_order(code, count) if count > 1 else np.empty(0, np.int64)
    bounds = np.append(0, np.cumsum(np.bincount(code, minlength=count)))
    return ranks(trace), order, bounds


def span(trace: Trace, chosen: BoolArray) -> intervals.Intervals:
    """Union of the chosen steps; from the first start to the last end of the chosen events when there is no step.

    The events should be of one rank, as clocks differ between ranks.
    """
    start, end = trace.ints("start_ns"), trace.end_ns
    steps = chosen & trace.rows("kind", STEP) & trace.host
    if steps.any():
        return intervals.union(start[steps], end[steps])
    if not chosen.any():
        return intervals.EMPTY
    return intervals.union(start[chosen].min(keepdims=True), end[chosen].max(keepdims=True))


def spans(trace: Trace, chosen: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
    """Of each rank what its :func:`span` is the union of: group number of the rank, start and end of each interval."""
    rank, count = rank_codes(trace)
    rows = np.flatnonzero(chosen & trace.rows("kind", STEP) & trace.host)
    without = np.ones(count, np.bool_)
    without[rank[rows]] = False
    start, end = trace.ints("start_ns"), trace.end_ns
    if not without.any():
        return rank[rows], start[rows], end[rows]
    others = np.flatnonzero(chosen & without[rank])
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, rank[others], start[others])
    np.maximum.at(last, rank[others], end[others])
    some = np.flatnonzero(last >= first)
    return np.append(rank[rows], some), np.append(start[rows], first[some]), np.append(end[rows], last[some])


def span_ns(trace: Trace, chosen: BoolArray) -> int:
    """Length of the :func:`span` of each rank, summed over ranks."""
    group, start, end = spans(trace, chosen)
    return int(intervals.union_length_by(group, rank_codes(trace)[1], start, end).sum())


def union_ns(trace: Trace, chosen: BoolArray) -> int:
    """Time covered by the chosen events: a union within each rank, summed over ranks (their clocks differ)."""
    rank, count = rank_codes(trace)
    start, end = trace.ints("start_ns")[chosen], trace.end_ns[chosen]
    return int(intervals.union_length_by(rank[chosen], count, start, end).sum())


def since_first_event(trace: Trace, rows: IntArray) -> IntArray:
    """start_ns of some events since the first event of their rank, shape (len(rows),)."""
    since: IntArray = trace.ints("start_ns")[rows] - _origins(trace)[rank_codes(trace)[0][rows]]
    return since


@once
def _origins(trace: Trace) -> IntArray:
    rank, count = rank_codes(trace)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, rank, trace.ints("start_ns"))
    return first


IDENTITY = ("rank", "pid", "tid")


@dataclass(frozen=True, slots=True)
class Threads:
    """``code``: number of the thread of each event, shape (rows,); ``first``: its first row, shape (threads,). Threads
    are in the order of rank, process and thread; what is on none (device work) has numbers, too."""

    code: IntArray
    first: IntArray

    def __len__(self) -> int:
        return len(self.first)


@once
def threads(trace: Trace) -> Threads:
    """The threads of a trace."""
    return Threads(*groupby.sorted_codes([trace.ints(name) for name in IDENTITY], len(trace)))
