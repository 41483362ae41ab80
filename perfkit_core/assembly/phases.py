"""Which phase of a step each event belongs to: dataloader, forward, backward, optimizer, other.

Recorded phases win: a dataloader, forward, backward or optimizer span (or an operator that its adapter marked) gives
its phase to everything below it; of nested ones the outermost counts, but what an optimizer's closure computes is not
the optimizer's. Where no forward span was recorded (labels of single layers are none), operators
outside every phase are forward when the trace proves it: a sequence number ties an operator of the same run of
operators, at or after them in the step, to a backward node. Device work has the phase of its launch.

What of an optimizer's span is not the optimizer's? The closure that it calls: forward and backward.

Some training loops hand the whole step to the optimizer as a closure, and LBFGS calls one several times. Such a span
has backward work of its process in its time, on its own thread or on one of autograd's. Then only what starts after the
last of it is the optimizer's; spans that lie in the closure keep their own phase.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray, picked, texts, to_int64
from perfkit_core.assembly.threads import thread_numbers
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Finding
from perfkit_core.model.schema import ANNOTATION, BACKWARD, FORWARD, OPERATOR_KINDS, OPTIMIZER, OTHER, PHASES
from perfkit_core.model.trace import Trace

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


_FORWARD, _BACKWARD_PHASES, _OTHER = PHASES.index(FORWARD), PHASES.index(BACKWARD), PHASES.index(OTHER)


def assign(trace: Trace) -> tuple[pa.ChunkedArray, tuple[Finding, ...]]:
    """The phase column (dictionary, shape (rows,)); null for events outside every host thread."""
    phase = without_closures(trace, _recorded(trace))
    inferred = np.zeros(0, np.int64)
    spans, labels = phase == _FORWARD, trace.rows("kind", ANNOTATION)
    labelled = bool((spans & labels).any())  # labelled layers leave out what is between them
    if not (spans & ~labels).any() and (phase == _BACKWARD_PHASES).any():
        inferred = _forward_roots(trace, phase)
        phase[inferred] = _FORWARD
    parent = trace.ints("parent")
    phase = nesting.first_on_path(parent, phase)
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    phase[launched] = phase[launched_by[launched]]
    told = (phase >= 0).any()
    nested = (trace.ints("self_ns") >= 0) | launched
    phase[nested & (phase < 0)] = _OTHER if told else -1
    return texts(phase.astype(np.int32), PHASES), _findings(phase, inferred, labelled)


def _recorded(trace: Trace) -> PhaseArray:
    """Index into PHASES of each event that marks a phase, -1 for the others."""
    codes = trace.codes("phase")
    wanted = np.array([PHASES.index(value) if value in PHASES else -1 for value in codes.values], np.int8)
    return codes.lookup(wanted, -1)


def _forward_roots(trace: Trace, phase: PhaseArray) -> IntArray:
    """Operators at the top, outside every phase, that a later operator of their run proves to be forward."""
    parent = trace.ints("parent")
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    around = nesting.last_on_path(parent, phase)
    inside = around >= 0
    counts = operator | (phase >= 0)
    top = np.flatnonzero(counts & ~nesting.lies_in(parent, counts))
    proof = np.zeros(len(trace), np.bool_)
    proof[_proven(trace, around)] = True
    proof &= operator
    return _up_to_last_proof(trace, top, inside, proof | nesting.holds(parent, proof))


def _proven(trace: Trace, around: PhaseArray) -> IntArray:
    """Rows of the events outside every phase that made a node of the backward pass: of those of a thread with its
    number the last one, unless that lies in a phase (a labelled layer). What computes no gradient before it has the
    number of the node that comes next. ``around``: the phase of the innermost event around each that marks one."""
    sequence = trace.ints("sequence")
    numbered = np.flatnonzero(sequence >= 0)
    number, node = sequence[numbered], around[numbered] == _BACKWARD_PHASES
    made = ~node & np.isin(number, number[node])
    rows = numbered[made][::-1]
    _, first = groupby.distinct([thread_numbers(trace, rows), number[made][::-1]], len(rows))
    last = rows[first]
    return last[around[last] < 0]


def _up_to_last_proof(trace: Trace, rows: IntArray, inside: BoolArray, proves: BoolArray) -> IntArray:
    """Of each run of top-level operators between two marked events of a thread, and within a step: those up to the last
    proof."""
    thread = thread_numbers(trace, rows)
    by_thread = groupby.stable_order(thread, int(thread.max(initial=-1)) + 1)
    order, thread = rows[by_thread], thread[by_thread]
    step = trace.ints("step")[order]
    edge = inside[order] | np.append(True, (thread[1:] != thread[:-1]) | (step[1:] != step[:-1]))
    run = np.cumsum(edge)
    last = np.full(len(order) + 1, -1, np.int64)
    at = np.flatnonzero(proves[order])
    np.maximum.at(last, run[at], at)
    chosen = (np.arange(len(order)) <= last[run]) & ~inside[order]
    return order[chosen]


def _findings(phase: PhaseArray, inferred: IntArray, labelled: bool) -> tuple[Finding, ...]:
    if len(inferred):
        text = message("no forward spans were recorded: forward is what sequence numbers tie to the backward pass")
        if labelled:
            text = message("outside of the labelled layers forward is what sequence numbers tie to the backward pass")
        return (Finding("forward-inferred", text),)
    if not (phase >= 0).any():
        text = message("neither data loading, forward, backward nor optimizer spans were recorded")
        return (Finding("no-phases", text),)
    return ()
