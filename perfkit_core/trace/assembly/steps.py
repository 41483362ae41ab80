"""Assignment of events to training steps and phases.

Steps are the events of kind ``step``. A host or memory event belongs to the step in which it starts, on any thread of
the process. Device work belongs to the step and phase of its launch, even if it runs later.

Phases are dataloader, forward, backward, optimizer and other. A recorded span of a phase, or an operator that an
adapter marked, sets the phase of all events inside. If such spans are nested, the outermost span counts. There is one
exception: the closure of an optimizer has its own phases.

Without recorded forward spans, the forward phase is inferred. Sequence numbers link forward operators to backward
nodes. In a series of operators outside all phases, those from the first to the last linked one are forward, and from
an earlier operator of a layer on, if it ran with gradients enabled. Labels of layers do not count as forward spans.
Without recorded optimizer spans, the operators that update parameters are the optimizer phase, if the recording has
backward work or their names are those of optimizers.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, ByteArray, IntArray, picked, texts, to_int64
from perfkit_core.base.language.messages import message, plural
from perfkit_core.base.operators.names import GRADIENT_SUFFIX, PRODUCT_FAMILIES, family
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import TableColumns
from perfkit_core.trace.model.meta import Finding, united
from perfkit_core.trace.model.schema import OPERATOR_KINDS, PHASES
from perfkit_core.trace.model.trace import Trace

NO_STEPS: Final = "no-steps"
NO_PHASES: Final = "no-phases"
PARTIAL: Final = "partial-step"
WARM_UP: Final = "warm-up-work"
EMPTY: Final = "empty-last-step"
WITHOUT_DURATION: Final = "steps-without-duration"
"""Codes of data-quality warnings. EMPTY is harmless: a call of step() after the last iteration opens an empty step."""

WITHOUT_STEPS: Final = message(
    "no training steps were recorded: choose a range with --step-on RANGE, or give the profiler a schedule and call "
    "its step() after each iteration"
)

PhaseArray = ByteArray
"""Indexes of schema.PHASES, or -1 for no phase. 8 bits save memory, because there is one index per event."""
_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = (
    PHASES.index(name) for name in (schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.OTHER)
)
_ROUNDING_NS: Final = 1000
"""Some files store times in whole microseconds."""
_MOST_PROFILERS: Final = 8
"""If more steps than this overlap, they are not steps of several profilers."""
_LAYERS: Final = (*PRODUCT_FAMILIES, "normalization", "embedding")
"""Families of operators of layers, which are forward also where their parameters are frozen."""
_OPTIMIZERS: Final = re.compile(r"ada(?:m|grad|delta)|sgd|momentum|lamb|lars|rms_?prop|rprop|ftrl|lion", re.IGNORECASE)
"""Names of optimizers in the names of operators."""


def assign_steps(trace: Trace) -> tuple[IntArray, tuple[Finding, ...]]:
    """Return the step number of each event (-1 outside steps), shape (rows,), and data-quality warnings."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    findings = _partial_steps(trace)
    if not len(rows):
        text = WITHOUT_STEPS
        operators = trace.host & trace.rows("kind", *OPERATOR_KINDS)
        if not operators.any() and trace.rows("kind", *schema.DEVICE_WORK).any():
            text = message(
                "only device work was recorded, neither operators nor training steps: add the CPU to the activities "
                "or targets of the profiler"
            )
        return np.full(len(trace), -1, np.int64), (*findings, Finding(NO_STEPS, text))
    number = trace.ints("step")[rows]
    if not (number >= 0).all():  # the names of the steps have no numbers
        number = np.arange(len(rows), dtype=np.int64)
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    step = _step_at(trace.ints("start_ns"), start, end, number)
    step[~trace.host & ~trace.rows("kind", schema.MEMORY)] = -1
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    step[launched] = step[launched_by[launched]]
    step[rows] = number
    if (start[1:] < end[:-1]).any():
        text = message("some steps overlap: an event counts in the step that began last")
        findings += (Finding("overlapping-steps", text),)
    if len(np.unique(number)) < len(number):
        text = message("some step numbers occur more than once in one recording")
        findings += (Finding("repeated-step-numbers", text),)
    return step, findings


def assign_steps_of_ranks(trace: Trace) -> tuple[IntArray, tuple[Finding, ...]]:
    """Return the same as :func:`assign_steps` for a trace of several ranks."""
    step, found, rank = (
        np.full(len(trace), -1, np.int64),
        list[tuple[tuple[int, ...], tuple[Finding, ...]]](),
        trace.ints("rank"),
    )
    for number in np.unique(rank).tolist():
        rows = np.flatnonzero(rank == number)
        step[rows], findings = assign_steps(_part(trace, rows))
        found.append(((number,), findings))
    return step, united(found)


def _part(trace: Trace, rows: IntArray) -> Trace:
    """Return the rows of one rank, with the columns that the assignment of steps reads."""
    new_row = np.full(len(trace) + 1, NO_ROW, np.int64)
    new_row[rows] = np.arange(len(rows))
    columns = {name: trace.pick(name, rows) for name in ("kind", "device", "start_ns", "dur_ns", "step")}
    columns["launched_by"] = pa.array(new_row[trace.ints("launched_by")[rows]])
    return Trace(TableColumns(pa.table(columns)), trace.meta)


def _step_at(time: IntArray, start: IntArray, end: IntArray, number: IntArray) -> IntArray:
    """Return for each time the number of the step that began last, or -1 if this step has ended. Times are sorted."""
    begun = np.append(np.searchsorted(time, start), len(time))
    ended = np.clip(np.searchsorted(time, end), begun[:-1], begun[1:])
    edges = np.stack([begun[:-1], ended], axis=1).ravel()
    counts = np.diff(edges, prepend=0, append=len(time))
    inside = np.stack([np.full(len(number), -1), number], axis=1).ravel()
    return np.repeat(np.append(inside, -1), counts)


def no_steps(trace: Trace) -> IntArray:
    """Return the rows of recorded steps that are no steps: those without a duration, and an empty last step."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    without_duration = rows[trace.ints("dur_ns")[rows] <= 0]
    return np.union1d(without_duration, empty_last_step(trace))


def empty_last_step(trace: Trace) -> IntArray:
    """Return the row of the last step, shape (1,), if nothing was computed in it. Otherwise return no row, shape (0,).
    A call of step() after the last iteration opens such a step. The step may load data. If the step before has no work
    either, the recording does not contain work, and no row is returned."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))[-2:]
    worked = _worked_in(trace, rows)
    if len(rows) == 2 and not worked[0]:  # the steps of this recording only load data
        worked = _worked_in(trace, rows, loading=True)
    if len(rows) == 2 and not worked.any():
        return rows[:0]
    return rows[-1:][~worked[-1:]]


def steps_of_other_profilers(trace: Trace) -> tuple[IntArray, tuple[Finding, ...]]:
    """Return the rows of the steps that another profiler marked, and a data-quality warning. Steps of one profiler
    follow each other. If steps overlap by more than half of the shorter one, each series of steps is a profiler, and
    the one whose steps take the most time is kept."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    pid, number = trace.ints("pid")[rows], trace.ints("step")[rows]
    start = trace.ints("start_ns")[rows]
    end = start + trace.ints("dur_ns")[rows]
    shared = 2 * (np.minimum(end[:-1], end[1:]) - start[1:])
    if not (shared > np.minimum(end - start, np.roll(end - start, -1))[:-1]).any():
        return rows[:0], ()
    if (pid != pid[0]).any() or (number < 0).any():  # steps of several processes, or of a server
        return rows[:0], ()
    if (np.diff(number) > 0).all():  # one profiler, whose times are wrong
        return rows[:0], ()
    series: list[list[int]] = []
    for step in range(len(rows)):
        free = [steps for steps in series if end[steps[-1]] <= start[step] + _ROUNDING_NS]
        following = [steps for steps in free if number[steps[-1]] + 1 == number[step]]
        if not free and len(series) == _MOST_PROFILERS:
            return rows[:0], ()
        if not free:
            series.append([])
        (following or free or series[-1:])[0].append(step)
    longest = max(series, key=lambda steps: int((end[steps] - start[steps]).sum()))
    text = message(
        "{count} profilers marked steps at the same time: {others} of {all} recorded steps are not counted",
        count=len(series),
        others=len(rows) - len(longest),
        all=len(rows),
    )
    return np.delete(rows, longest), (Finding("steps-of-several-profilers", text),)


def warm_up_work(trace: Trace) -> tuple[IntArray, tuple[Finding, ...]]:
    """Return the rows of device work of the warm-up, and a note about them. A profiler records the device earlier than
    the host, so this work ended before the host's ranges and operators begin. Calls of the runtime may be of the
    warm-up, too. Without steps, no rows are returned."""
    if not (trace.host & trace.rows("kind", schema.STEP)).any():
        return np.empty(0, np.int64), ()
    ranges = trace.host & trace.rows("kind", *schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC})
    first = int(ranges.argmax())
    begin = trace.ints("start_ns")[first]
    rows = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK)[:first] & (trace.end_ns[:first] <= begin))
    if not len(rows):
        return rows, ()
    text = plural(
        "1 kernel or copy ({time:ns}) belongs to the profiler's warm-up: it ended before the host was recorded, and is "
        "not counted",
        "{n} kernels and copies ({time:ns}) belong to the profiler's warm-up: they ended before the host was recorded, "
        "and are not counted",
        len(rows),
        time=int(trace.ints("dur_ns")[rows].sum()),
    )
    return rows, (Finding(WARM_UP, text, note=True),)


def _worked_in(trace: Trace, rows: IntArray, loading: bool = False) -> BoolArray:
    """Return for each step in ``rows`` whether the host worked in it. With ``loading``, work in data loaders counts."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    begin, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    since = int(np.searchsorted(trace.ints("start_ns"), int(begin.min())))
    kinds = (*OPERATOR_KINDS, schema.RUNTIME, schema.SYNC, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER)
    work = trace.host & trace.rows("kind", *kinds)
    loaders = trace.host & trace.rows("kind", schema.DATALOADER)
    computing = since + np.flatnonzero(work[since:])
    if not loading and loaders[since:].any():
        nested = since + np.flatnonzero((work | loaders)[since:])
        thread, _ = groupby.distinct(_thread_keys(trace, nested), len(nested))
        parent = nesting.nest(thread, trace.ints("start_ns")[nested], trace.end_ns[nested])
        computing = nested[work[nested] & ~nesting.lies_in(parent, loaders[nested])]
    start = trace.ints("start_ns")[computing]
    first, last = np.searchsorted(start, begin), np.searchsorted(start, end)
    endless = trace.ints("dur_ns")[rows] <= 0  # the step was cut off, so its duration is unknown
    worked: BoolArray = first < np.where(endless, len(start), last)
    return worked


def _partial_steps(trace: Trace) -> tuple[Finding, ...]:
    rows = np.flatnonzero(trace.rows("kind", schema.OTHER) & (trace.ints("step") >= 0))
    number, worked = trace.ints("step")[rows], _worked_in(trace, rows)
    steps = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    earlier = (rows < steps[-1:].max(initial=-1)) & (trace.ints("dur_ns")[rows] <= 0)
    without_end, cut, empty = (np.unique(number[mask]) for mask in (earlier, worked & ~earlier, ~worked & ~earlier))
    findings = []
    if len(without_end):
        numbers = ", ".join(map(str, without_end))
        text = message("step {numbers} has no duration: it is not counted as a step", numbers=numbers)
        findings.append(Finding(WITHOUT_DURATION, text))
    if len(cut):
        numbers = ", ".join(map(str, cut))
        text = message("the recording ended inside step {numbers}: it is not counted as a step", numbers=numbers)
        findings.append(Finding(PARTIAL, text))
    if len(empty):
        text = message(
            "step {numbers} had just begun when the recording ended and has no events: it is left out",
            numbers=", ".join(map(str, empty)),
        )
        findings.append(Finding(EMPTY, text, note=True))
    return tuple(findings)


def assign_phases(trace: Trace) -> tuple[pa.ChunkedArray, tuple[Finding, ...]]:
    """Return the column ``phase``, shape (rows,), and data-quality warnings. An event outside all phases gets ``other``
    if it has a self time or a launch, and null otherwise. If no phase was recorded, all values are null."""
    codes = trace.codes("phase")
    indices = np.array([PHASES.index(value) if value in PHASES else -1 for value in codes.values], np.int8)
    phase = _without_closures(trace, codes.lookup(indices, -1))
    if not (phase == _OPTIMIZER).any():
        phase[_updates(trace, bool((phase == _BACKWARD).any())) & (phase < 0)] = _OPTIMIZER
    inferred = np.zeros(0, np.int64)
    spans, labels = phase == _FORWARD, trace.rows("kind", schema.ANNOTATION)
    labelled = bool((spans & labels).any())  # labels of layers do not cover the operators between the layers
    if not (spans & ~labels).any() and (phase == _BACKWARD).any():
        inferred = _forward_roots(trace, phase)
        phase[inferred] = _FORWARD
    phase = nesting.first_on_path(trace.ints("parent"), phase)
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    phase[launched] = phase[launched_by[launched]]
    any_phase = bool((phase >= 0).any())
    nested = (trace.ints("self_ns") >= 0) | launched
    phase[nested & (phase < 0)] = _OTHER if any_phase else -1
    findings: tuple[Finding, ...] = ()
    if len(inferred):
        text = message("no forward spans were recorded: forward is inferred from sequence numbers of the backward pass")
        if labelled:
            text = message(
                "outside the labelled layers, forward is inferred from sequence numbers of the backward pass"
            )
        findings = (Finding("forward-inferred", text, note=True),)
    elif not any_phase:
        text = message("neither data loading, forward, backward nor optimizer spans were recorded")
        findings = (Finding(NO_PHASES, text, note=True),)
    return texts(phase.astype(np.int32), PHASES), findings


def _updates(trace: Trace, has_backward: bool) -> BoolArray:
    """Return the mask of operators that update parameters, for recordings without spans of the optimizer.

    Inference also runs operators of this family, such as those on lists of tensors or a check for infinite values. So
    if no gradients were computed, only operators with the name of an optimizer count.
    """
    names, updates = trace.codes("op_name"), trace.host & _of_families(trace, "optimizer_update")
    if has_backward or any(name.endswith(GRADIENT_SUFFIX) for name in names.values) or not updates.any():
        return updates
    natives = trace.codes("name")
    used = np.unique(natives.codes[updates])
    named = used[[_OPTIMIZERS.search(natives.values[code]) is not None for code in used]]
    return np.asarray(updates & np.isin(natives.codes, named), np.bool_)


def _of_families(trace: Trace, *families: str) -> BoolArray:
    names = trace.codes("op_name")
    return names.lookup(np.array([family(name) in families for name in names.values], np.bool_), False)


def _without_closures(trace: Trace, phase: PhaseArray) -> PhaseArray:
    """Return the phases after taking closures out of optimizer spans.

    Some training loops pass a whole step to the optimizer as a closure, which LBFGS calls several times. The
    optimizer's span then overlaps backward work of the same process. Only children of the span that start after the
    last backward work belong to the optimizer.
    """
    spans = np.flatnonzero(trace.host & (phase == _OPTIMIZER))
    if len(spans):  # keep the spans that no other event with a phase encloses
        spans = spans[~nesting.lies_in(trace.ints("parent"), phase >= 0)[spans]]
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


def _last_backward(trace: Trace, spans: IntArray, backward: IntArray) -> IntArray:
    """For each span, find the backward events of the same process that start inside the span. Return the time at which
    the last of these events ends, or -1 if there are none."""
    last = np.full(len(spans), -1, np.int64)
    start, end = trace.ints("start_ns"), trace.end_ns
    of_spans, of_backward = (
        # The column rank is read only for these rows, because no other part of the assembly needs it.
        np.stack([to_int64([picked(trace.column("rank"), rows)], len(rows), -1), trace.ints("pid")[rows]])
        for rows in (spans, backward)
    )
    for key in np.unique(of_spans, axis=1).T:
        mine = np.flatnonzero((of_spans == key[:, None]).all(axis=0))
        inner = backward[(of_backward == key[:, None]).all(axis=0)]
        at = np.searchsorted(start[spans[mine]], start[inner], side="right") - 1
        inside = (at >= 0) & (start[inner] < end[spans[mine]][at])
        np.maximum.at(last, mine[at[inside]], end[inner[inside]])
    return last


def _forward_roots(trace: Trace, phase: PhaseArray) -> IntArray:
    """Return the top-level operators that lie outside all phases and are inferred to be forward."""
    parent = trace.ints("parent")
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    around = nesting.last_on_path(parent, phase)
    counts = operator | (phase >= 0)
    top = np.flatnonzero(counts & ~nesting.lies_in(parent, counts))
    # An event that needs no gradient records the sequence number of the next autograd node. So if several events of a
    # thread have this number, the last one created the node. Events in a phase, such as labelled layers, are not used.
    sequence = trace.ints("sequence")
    numbered = np.flatnonzero(sequence >= 0)
    number, node = sequence[numbered], around[numbered] == _BACKWARD
    has_node = ~node & np.isin(number, number[node])
    rows = numbered[has_node][::-1]
    _, first = groupby.distinct([*_thread_keys(trace, rows), number[has_node][::-1]], len(rows))
    makers = rows[first]
    proof = np.zeros(len(trace), np.bool_)
    proof[makers[around[makers] < 0]] = True
    proof &= operator
    proof |= nesting.holds(parent, proof)
    # a series of operators ends at an event with a phase, and where the thread or the step changes
    thread, first = groupby.distinct(_thread_keys(trace, top), len(top))
    by_thread = groupby.stable_order(thread, len(first))
    order, thread = top[by_thread], thread[by_thread]
    step, marked = trace.ints("step")[order], around[order] >= 0
    run = np.cumsum(marked | np.append(True, (thread[1:] != thread[:-1]) | (step[1:] != step[:-1])))
    frozen = _of_families(trace, *_LAYERS) & (sequence >= 0)
    begin, last = np.full(len(order) + 1, len(order)), np.full(len(order) + 1, -1)
    at, begins = (np.flatnonzero(mask[order]) for mask in (proof, proof | frozen))
    np.maximum.at(last, run[at], at)
    np.minimum.at(begin, run[begins], begins)
    return order[(np.arange(len(order)) >= begin[run]) & (np.arange(len(order)) <= last[run]) & ~marked]


def _thread_keys(trace: Trace, rows: IntArray) -> list[IntArray]:
    return [trace.ints(name)[rows] for name in ("pid", "tid")]
