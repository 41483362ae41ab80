"""What had been given to a stream by a certain time, and which of it ended last?"""

from __future__ import annotations

import itertools

import numpy as np

from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.trace import IntArray, Trace


class Queued:
    """Device work by stream in the order of its launches. Work is told by its position in ``DeviceWork``."""

    def __init__(self, trace: Trace, work: DeviceWork) -> None:
        launched_by, start = trace.ints("launched_by")[work.row], trace.ints("start_ns")
        self.launch_ns: IntArray = np.where(launched_by >= 0, start[launched_by], start[work.row])
        self.end_ns: IntArray = trace.end_ns[work.row]
        self.rank: IntArray = trace.ints("rank")[work.row]
        first = np.searchsorted(work.lane, np.arange(work.lanes + 1))
        self._orders = [
            low + np.argsort(self.launch_ns[low:high], kind="stable") for low, high in itertools.pairwise(first)
        ]
        self._times = [self.launch_ns[order] for order in self._orders]
        self._latest = [_latest(order, self.end_ns[order]) for order in self._orders]

    def __len__(self) -> int:
        return len(self._orders)

    def rank_of(self, lane: int) -> int:
        """Rank of a stream."""
        return int(self.rank[self._orders[lane][0]])

    def ends_last(self, lane: int, before_ns: IntArray) -> IntArray:
        """Of the work launched on a stream before each time: that which ends last, -1 where there is none."""
        found = np.searchsorted(self._times[lane], before_ns) - 1
        return np.where(found >= 0, self._latest[lane][np.maximum(found, 0)], -1)

    def next_after(self, lane: int, time_ns: IntArray) -> IntArray:
        """The first work launched on a stream at or after each time, -1 where there is none."""
        at, order = np.searchsorted(self._times[lane], time_ns), self._orders[lane]
        return np.where(at < len(order), order[np.minimum(at, len(order) - 1)], -1)


def _latest(order: IntArray, end_ns: IntArray) -> IntArray:
    """Of each beginning of a queue the work that ends last."""
    most = np.maximum.accumulate(end_ns)
    at = np.maximum.accumulate(np.where(end_ns == most, np.arange(len(order)), 0))
    return order[at]
