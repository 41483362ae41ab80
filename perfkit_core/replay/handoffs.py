"""Which host threads wait for each other? A thread that begins to work inside one stretch of another's time was woken
by it; when it is done before that stretch ends, and shortly before, the other waited for it.

So autograd's threads work while the thread that called ``backward`` waits, whatever either of them recorded meanwhile.
Threads that work on beyond the stretch run beside it and are waited for by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.replay.host_segments import Segments
from perfkit_core.trace import BoolArray, IntArray

RETURN_NS: Final = 200_000
"""A thread that waited goes on at most so long after the other was done, or after ``RETURN_SHARE`` of its wait."""
RETURN_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Bursts of work of one thread inside a segment of another, arrays of shape (bursts,).

    ``waiter`` is the segment of the other thread, ``first`` and ``last`` the segments of the burst (all of Segments),
    ``idle`` the segment before it, in which its thread had nothing to do (-1: none). ``returns``: the waiter goes on
    when the burst is over.
    """

    waiter: IntArray
    first: IntArray
    last: IntArray
    idle: IntArray
    returns: BoolArray

    def __len__(self) -> int:
        return len(self.waiter)


def handoffs(segments: Segments, leaders: BoolArray, rank: IntArray, batches: IntArray) -> Handoffs:
    """Bursts of other threads inside segments of the ``leaders`` (threads that run the steps) of the same ``rank``, in
    the order of the waiters and of time. ``batches``: segments that wait for a batch, which nobody begins to make
    because of that."""
    found = [
        _inside(segments, leader, other)
        for leader in np.flatnonzero(leaders).tolist()
        for other in range(segments.threads)
        if not leaders[other] and rank[leader] == rank[other]
    ]
    nothing = np.empty(0, np.int64)
    whole = [np.concatenate([nothing, *(part[i] for part in found)]) for i in range(5)]
    order = np.lexsort((segments.start_ns[whole[1]], whole[0]))
    order = order[~np.isin(whole[0][order], batches)]
    waiter, first, last, idle, returns = (part[order] for part in whole)
    return Handoffs(waiter, first, last, idle, returns.astype(np.bool_))


def _inside(segments: Segments, leader: int, other: int) -> tuple[IntArray, ...]:
    """Fields of Handoffs for the bursts of one thread in the segments of another."""
    theirs, own = (np.searchsorted(segments.thread, [thread, thread + 1]) for thread in (leader, other))
    low, high = int(own[0]), int(own[1]) - 1  # without the empty one at the end
    at = np.arange(low, high)
    idle = (segments.row[at] < 0) & (segments.end_ns[at] > segments.start_ns[at])
    begins = np.unique(np.append(at[idle] + 1, low))
    begins = begins[begins < high]
    if not len(begins):
        return tuple(np.empty(0, np.int64) for _ in range(5))
    leads = slice(int(theirs[0]), int(theirs[1]) - 1)
    waiter = leads.start + np.searchsorted(segments.start_ns[leads], segments.start_ns[begins], side="right") - 1
    within = (waiter >= leads.start) & (segments.end_ns[np.maximum(waiter, 0)] > segments.start_ns[begins])
    idle_since = np.where(begins > low, segments.start_ns[np.maximum(begins - 1, low)], np.iinfo(np.int64).min)
    woken = within & (idle_since <= segments.start_ns[np.maximum(waiter, 0)])
    begins, waiter = begins[woken], waiter[woken]
    last = _last_in(segments, low, high, waiter, begins)
    until = segments.end_ns[waiter]
    runs_on = segments.end_ns[np.minimum(last + 1, high)] > until  # the segment behind the last one reaches beyond
    runs_on &= segments.row[np.minimum(last + 1, high)] >= 0
    left = until - segments.end_ns[last]
    short = np.maximum(RETURN_NS, ((until - segments.start_ns[waiter]) * RETURN_SHARE).astype(np.int64))
    idle_segment = np.where(begins > low, begins - 1, -1)
    return waiter, begins, last, idle_segment, (~runs_on & (left >= 0) & (left <= short)).astype(np.int64)


def _last_in(segments: Segments, low: int, high: int, waiter: IntArray, begins: IntArray) -> IntArray:
    """The last segment with work of the thread low..high that ends within each waiter."""
    last = low + np.searchsorted(segments.end_ns[low:high], segments.end_ns[waiter], side="right") - 1
    work = np.where(segments.row[low:high] >= 0, np.arange(low, high), -1)
    latest = np.maximum.accumulate(work)
    return np.maximum(latest[np.maximum(last - low, 0)], begins)
