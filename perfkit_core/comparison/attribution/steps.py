"""Which stretches of a run stand for its step?

The difference that is taken apart is that of the median steps, as single steps can be far out. A median cannot be taken
apart, a mean can: so the parts are those of the *middle steps*, as many around the median (at most half of them) as
have a mean within 0.25 % of it. What their mean still lies beside the median is a part of its own. Where not both runs
have steps, each rank's recording is one stretch, from its first to its last event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import grouped
from perfkit_core.analyses.span import rank_codes, ranks
from perfkit_core.analyses.step.activity import activities
from perfkit_core.analyses.step.step_rows import step_rows
from perfkit_core.trace import IntArray, Trace

WITHIN: Final = 400
"""One part in so many: a quarter of a percent, below what steps of one run differ by."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches [start, end) of ranks, shape (windows,), and the time ``typical_ns`` that they stand for."""

    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    typical_ns: int

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def mean_ns(self) -> int:
        """Mean length, to the nearest nanosecond."""
        return rounded_mean(int((self.end_ns - self.start_ns).sum()), len(self))

    def starts_in(self, rank: IntArray, time_ns: IntArray) -> IntArray:
        """The rows (of arrays of one shape) that start in a window of their rank, ascending."""
        found = [np.flatnonzero(self._inside(one, rank, time_ns)) for one in np.unique(self.rank).tolist()]
        return np.sort(np.concatenate([np.empty(0, np.int64), *found]))

    def _inside(self, one: int, rank: IntArray, time_ns: IntArray) -> np.ndarray:
        mine = self.rank == one
        begun = np.searchsorted(np.sort(self.start_ns[mine]), time_ns, side="right")
        over = np.searchsorted(np.sort(self.end_ns[mine]), time_ns, side="right")
        inside: np.ndarray = (rank == one) & (begun > over)
        return inside


def middle_steps(trace: Trace) -> Windows:
    """The middle steps, and the median of all."""
    rows, dur = step_rows(trace), trace.ints("dur_ns")
    order = rows[np.argsort(dur[rows], kind="stable")]
    median = _median(dur[order])
    left_out = len(order) // 4
    while left_out < (len(order) - 1) // 2 and _beside(dur[order], left_out, median) > median // WITHIN:
        left_out += 1
    return _windows(trace, np.sort(order[left_out : len(order) - left_out]), median)


def whole_run(trace: Trace) -> Windows:
    """From the first to the last event of each rank, and the mean of that over the ranks."""
    activity = activities(trace)
    rows = np.flatnonzero(activity.host | activity.compute | activity.communication | activity.copy)
    code, count = rank_codes(trace)
    first, _ = grouped.extremes(code[rows], count, trace.ints("start_ns")[rows])
    _, last = grouped.extremes(code[rows], count, trace.end_ns[rows])
    some = np.flatnonzero(last > first)
    found = Windows(ranks(trace)[some], first[some], last[some], 0)
    return Windows(found.rank, found.start_ns, found.end_ns, found.mean_ns)


def _beside(ascending: IntArray, left_out: int, median: int) -> int:
    """How far the mean lies from the median without so many at each end."""
    middle = ascending[left_out : len(ascending) - left_out]
    return abs(rounded_mean(int(middle.sum()), len(middle)) - median)


def rounded_mean(total: int, count: int) -> int:
    """total / count to the nearest integer; 0 of nothing."""
    return (2 * total + count) // (2 * count) if count else 0


def _windows(trace: Trace, steps: IntArray, typical_ns: int) -> Windows:
    return Windows(trace.ints("rank")[steps], trace.ints("start_ns")[steps], trace.end_ns[steps], typical_ns)


def _median(ascending: IntArray) -> int:
    """The middle, or the mean of the two in the middle without what is below a nanosecond."""
    count = len(ascending)
    return (int(ascending[(count - 1) // 2]) + int(ascending[count // 2])) // 2 if count else 0
