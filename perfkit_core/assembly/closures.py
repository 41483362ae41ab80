"""What of an optimizer's span is not the optimizer's? The closure that it calls: forward and backward.

Some training loops hand the whole step to the optimizer as a closure, and LBFGS calls one several times. Such a span
has backward work of its process in its time, on its own thread or on one of autograd's. Then only what starts after the
last of it is the optimizer's; spans that lie in the closure keep their own phase.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfkit_core import nesting
from perfkit_core.arrays import picked, to_int64
from perfkit_core.schema import BACKWARD, OPTIMIZER, PHASES
from perfkit_core.trace import IntArray, Trace

PhaseArray = npt.NDArray[np.int8]
"""Indexes schema.PHASES, -1: none. As small as can be, because there is one for each event."""

_BACKWARD, _OPTIMIZER = PHASES.index(BACKWARD), PHASES.index(OPTIMIZER)


def without_closures(trace: Trace, phase: PhaseArray) -> PhaseArray:
    """``phase``, shape (rows,), indexes schema.PHASES where an event marks one. The same with the marks of optimizer
    spans around a closure moved to those of their children that come after it."""
    spans = _outermost(trace, phase, _OPTIMIZER)
    closure_end = _last_backward(trace, spans, np.flatnonzero(trace.host & (phase == _BACKWARD)))
    spans, closure_end = spans[closure_end >= 0], closure_end[closure_end >= 0]
    if not len(spans):
        return phase
    result = phase.copy()
    result[spans] = -1
    ends = np.full(len(trace) + 1, np.iinfo(np.int64).max)
    ends[spans] = closure_end
    update = (trace.ints("start_ns") >= ends[trace.ints("parent")]) & (result < 0)
    result[update] = _OPTIMIZER
    return result


def _outermost(trace: Trace, phase: PhaseArray, wanted: int) -> IntArray:
    """Rows that mark ``wanted`` and lie in no other marked event."""
    found = np.flatnonzero(trace.host & (phase == wanted))
    if not len(found):
        return found
    rows: IntArray = found[~nesting.lies_in(trace.ints("parent"), phase >= 0)[found]]
    return rows


def _last_backward(trace: Trace, spans: IntArray, backward: IntArray) -> IntArray:
    """For each span the end of the last backward event of its process that starts in it, -1 without one."""
    last = np.full(len(spans), -1, np.int64)
    start, end = trace.ints("start_ns"), trace.end_ns
    of_spans, of_backward = (np.stack([_ranks(trace, at), trace.ints("pid")[at]]) for at in (spans, backward))
    for key in np.unique(of_spans, axis=1).T:
        mine = np.flatnonzero((of_spans == key[:, None]).all(axis=0))
        inner = backward[(of_backward == key[:, None]).all(axis=0)]
        at = np.searchsorted(start[spans[mine]], start[inner], side="right") - 1
        inside = (at >= 0) & (start[inner] < end[spans[mine]][at])
        np.maximum.at(last, mine[at[inside]], end[inner[inside]])
    return last


def _ranks(trace: Trace, rows: IntArray) -> IntArray:
    """Of some rows, which ascend. As a rule all have the same: nothing in the assembly needs it of every row."""
    return to_int64([picked(trace.column("rank"), rows)], len(rows), -1)
