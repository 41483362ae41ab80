"""The rows of the steps, and which of them a rank and step number mean."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.schema import STEP
from perfkit_core.trace import IntArray, Trace


def step_rows(trace: Trace) -> IntArray:
    """Rows of the step events."""
    return np.flatnonzero(trace.host & trace.rows("kind", STEP))


def position(trace: Trace, steps: IntArray, rank: IntArray, step: IntArray) -> IntArray:
    """Index into ``steps`` of each (rank, step number), -1 where there is none. Repeated numbers: the first of them."""
    index = pd.MultiIndex.from_arrays([trace.ints("rank")[steps], trace.ints("step")[steps]])
    first = np.flatnonzero(~index.duplicated())
    found = index[first].get_indexer(pd.MultiIndex.from_arrays([rank, step]))
    return np.where(found >= 0, np.append(first, -1)[found], -1)
