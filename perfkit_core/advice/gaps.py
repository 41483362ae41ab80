"""Gaps: time within steps in which no thread of a rank runs recorded work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.model import schema

_WORK: Final = (
    schema.OPERATOR, schema.OPERATOR_DETAIL, schema.RUNTIME, schema.SYNC, schema.COMMUNICATION, schema.DATALOADER,
    schema.OVERHEAD,
)  # fmt: skip

Gaps = dict[int, Intervals]
"""The gaps of each rank, disjoint and sorted by time."""


def idle_gaps(facts: Facts) -> Gaps:
    """Return the gaps in all steps. Python code and waits fill them, and so does the profiler itself."""
    trace, gaps = facts.trace, Gaps()
    for rank in facts.ranks:
        here = trace.host & (trace.ints("rank") == rank)
        work = here & trace.rows("kind", *_WORK)
        steps = here & trace.rows("kind", schema.STEP) & (facts.replay.first >= 0)
        gaps[rank] = intervals.subtract(
            *(intervals.union_of(np.flatnonzero(part), trace.ints("start_ns"), trace.end_ns) for part in (steps, work))
        )
    return gaps
