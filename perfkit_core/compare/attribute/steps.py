"""Which stretches of a run stand for its step?

The difference that is taken apart is that of the median steps, as single steps can be far out. A median cannot be taken
apart, a mean can: so the parts are those of the *middle steps*, the half of them (rounded up, at least two) that is
nearest to the median. Fewer may have a mean that is nearer still, but what one or two of many steps are made of is
chance. What their mean lies beside the median is a part of its own. Where not both runs have steps, each rank's
recording is one stretch, from its first to its last event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.trace import Trace
from perfkit_core.views.select import rank_codes, ranks
from perfkit_core.views.steps.activity import activities
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

_FEWEST: Final = 2
"""Of an even number of steps, the median is the mean of two."""


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
        return int(rounded_division((self.end_ns - self.start_ns).sum(), len(self)))

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
    median = _median(np.sort(trace.ints("dur_ns")[step_rows(trace)]))
    return _windows(trace, middle_rows(trace), median)


def middle_rows(trace: Trace) -> IntArray:
    """The rows of the middle steps."""
    rows, dur = step_rows(trace), trace.ints("dur_ns")
    order = rows[np.argsort(dur[rows], kind="stable")]
    count = len(order)
    middle = order[(count - 1) // 2 : count // 2 + 1]
    beside = np.abs(len(middle) * dur[order] - dur[middle].sum())
    return np.sort(order[np.argsort(beside, kind="stable")][: max(_FEWEST, (count + 1) // 2)])


def whole_run(trace: Trace) -> Windows:
    """From the first to the last event of each rank, and the mean of that over the ranks."""
    activity = activities(trace)
    rows = np.flatnonzero(activity.host | activity.compute | activity.communication | activity.copy)
    code, count = rank_codes(trace)
    first, _ = groupby.extremes(code[rows], count, trace.ints("start_ns")[rows])
    _, last = groupby.extremes(code[rows], count, trace.end_ns[rows])
    some = np.flatnonzero(last > first)
    found = Windows(ranks(trace)[some], first[some], last[some], 0)
    return Windows(found.rank, found.start_ns, found.end_ns, found.mean_ns)


def _windows(trace: Trace, steps: IntArray, typical_ns: int) -> Windows:
    return Windows(trace.ints("rank")[steps], trace.ints("start_ns")[steps], trace.end_ns[steps], typical_ns)


def _median(ascending: IntArray) -> int:
    """The middle, or the mean of the two in the middle without what is below a nanosecond."""
    count = len(ascending)
    return (int(ascending[(count - 1) // 2]) + int(ascending[count // 2])) // 2 if count else 0
