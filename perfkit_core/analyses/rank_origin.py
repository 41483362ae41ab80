"""Times since the first event of the rank: clocks differ between ranks, and an epoch says nothing to a reader."""

from __future__ import annotations

import numpy as np

from perfkit_core.analyses.span import rank_codes
from perfkit_core.trace import IntArray, Trace


def since_first_event(trace: Trace, rows: IntArray) -> IntArray:
    """start_ns of some events since the first event of their rank, shape (len(rows),)."""
    rank, count = rank_codes(trace)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, rank, trace.ints("start_ns"))
    since: IntArray = trace.ints("start_ns")[rows] - first[rank[rows]]
    return since
