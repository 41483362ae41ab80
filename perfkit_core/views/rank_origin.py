"""Times since the first event of the rank: clocks differ between ranks, and an epoch says nothing to a reader."""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.trace import Trace, once
from perfkit_core.views.span import rank_codes


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
