"""A trace of several ranks as a trace for each of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

_REFERENCES = ("parent", "launched_by")


def split(trace: Trace) -> list[Trace]:
    """The ranks of a trace, in order, those without events too; events of unknown rank are the first. Row references
    lie within a rank, and count in its own rows."""
    if len(trace.meta.ranks) < 2 or not len(trace):
        return [trace]
    rank = trace.ints("rank")
    ranks = sorted({*np.unique(rank).tolist(), *trace.meta.ranks})
    return [_of_rank(trace, np.flatnonzero(rank == one), one) for one in ranks]


def _of_rank(trace: Trace, rows: IntArray, rank: int) -> Trace:
    position = np.full(len(trace) + 1, NO_ROW, np.int64)
    position[rows] = np.arange(len(rows))
    references = {name: pa.array(position[trace.ints(name)[rows]]) for name in _REFERENCES}
    some = Trace(trace.events.take(pa.array(rows)), trace.meta, trace.quality)
    return some.with_columns(**references).with_meta(ranks=() if rank < 0 else (rank,))
