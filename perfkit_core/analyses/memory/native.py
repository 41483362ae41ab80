"""How a native memory summary counts: for more than one host event, so that its rows sum to more than there was.

Every host event has a row with what happened directly in it; an operator also takes what happened in its direct
children, except that the parts that frameworks call inner have no row of their own. Only recordings that tell what each
memory event was have such a summary. What lies outside every host event is in no row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.analyses.memory.events import MemoryEvents
from perfkit_core.analyses.step.step_rows import cut_off_rows
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

ALLOCATIONS: Final = ("Allocate", "ReservedAllocate")
"""Categories of memory events, where the recording tells them."""
OPERATOR: Final = "Operator"
INNER: Final = "OperatorInner"


def exists(trace: Trace) -> bool:
    """Whether the framework of this recording has such a summary."""
    return bool(trace.rows("category", *ALLOCATIONS).any())


def owned(trace: Trace, found: MemoryEvents) -> tuple[IntArray, IntArray]:
    """Positions of memory events, and the row of the host event that each counts for; some twice."""
    parent, category = trace.ints("parent"), trace.codes("category")
    nearest = _in_cut_off_steps(trace, found.row, parent[found.row])
    above = np.append(parent, NO_ROW)[nearest]
    own = np.flatnonzero((nearest != NO_ROW) & ~np.append(category.rows(INNER), False)[nearest])
    lent = np.flatnonzero(np.append(category.rows(OPERATOR), False)[above] & (above != NO_ROW))
    return np.concatenate([own, lent]), np.concatenate([nearest[own], above[lent]])


def _in_cut_off_steps(trace: Trace, rows: IntArray, nearest: IntArray) -> IntArray:
    """The same, with the last step in which nothing was computed: it is no step of ours, so nothing lies in it."""
    start, end = trace.ints("start_ns"), trace.end_ns
    for step in np.flatnonzero(cut_off_rows(trace)):
        inside = (nearest == NO_ROW) & (start[rows] >= start[step]) & (start[rows] <= end[step])
        for column in ("rank", "pid", "tid"):
            inside &= trace.ints(column)[rows] == trace.ints(column)[step]
        nearest = np.where(inside, step, nearest)
    return nearest
