"""Steps of inference servers: what an adapter reads from the name of a range, and which ranges become steps.

A server labels each step with a range whose name says what the step computes. An adapter returns a
:class:`ServingStep` for such a name (``Dialect.serving_step``), and declares the range as a step without a number. The
description becomes a row of the side table ``server_steps``.

- If the profiler recorded steps of its own, these stay the steps. A step that contains exactly one outermost range of
  a server gets the description of this range.
- Otherwise the outermost ranges are the steps, numbered from 0 in time order.
- All other ranges of servers are annotations.

A server launches a step while a device still computes earlier steps. So a step ends when its range and the device work
that it launched have ended, and not before earlier steps. The time of a step is the time since the end of the previous
step. Without device work in the steps, a step ends with its range, and the gap lies between two ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, nullable
from perfkit_core.trace.assembly import labels
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.serving_step import DECODE, MIXED, PREFILL, TABLE, ServingStep
from perfkit_core.trace.model.side_table import structs
from perfkit_core.trace.model.side_tables import renumbered
from perfkit_core.trace.model.trace import Trace


def language_step(
    context_requests: int | None, context_tokens: int | None, generation_requests: int | None,
    generation_tokens: int | None, context_keys: int | None = None, generation_keys: int | None = None,
    kind: str | None = None,
) -> ServingStep | None:  # fmt: skip
    """Return the step of a language model, or None for a step of 0 requests. If both groups have a number of requests,
    the kind follows from these. Otherwise it is ``kind``, which the name of the range says."""
    requests = None
    if context_requests is not None and generation_requests is not None:
        requests = context_requests + generation_requests
        kind = DECODE if not context_requests else MIXED if generation_requests else PREFILL
    if kind is None or requests == 0:
        return None
    groups = (context_requests, context_tokens), (generation_requests, generation_tokens)
    unknown = any(number is None for requests, number in groups if requests != 0)
    tokens = None if unknown else sum(number or 0 for _, number in groups)
    return ServingStep(
        kind, requests, context_requests, generation_requests, tokens, context_tokens, generation_tokens, context_keys,
        generation_keys,
    )  # fmt: skip


@once
def serving_steps(trace: Trace) -> tuple[IntArray, list[ServingStep]]:
    """Return the rows of the steps that a server described, in the order of the trace, and their descriptions."""
    table = _of_steps(trace, trace.tables[TABLE.name])
    return table["row"].to_numpy(), structs(table, ServingStep)


def _of_steps(trace: Trace, table: pa.Table) -> pa.Table:
    """Return the descriptions of events that are steps."""
    return table.filter(pa.array((trace.host & trace.rows("kind", schema.STEP))[table["row"].to_numpy()]))


def with_server_steps(draft: Trace) -> Trace:
    """Return the events of a draft, sorted by time, in which only those ranges of a server that are steps have the kind
    ``step``."""
    table = _of_steps(draft, draft.tables[TABLE.name])
    ranges = table["row"].to_numpy()
    if not len(ranges):
        return draft
    numbered = draft.host & draft.rows("kind", schema.STEP) & (draft.ints("step") >= 0)
    framework_steps = np.flatnonzero(numbered)  # the name of a server's range has no number
    thread, _ = groupby.distinct([draft.ints(name)[ranges] for name in ("pid", "tid")], len(ranges))
    start, end = draft.ints("start_ns"), draft.end_ns
    is_outer = nesting.nest(thread, start[ranges], end[ranges]) == NO_ROW
    outer = ranges[is_outer]
    if not len(framework_steps):
        described = draft.with_tables(**{TABLE.name: table.filter(pa.array(is_outer))})
        return with_kind(described, ranges[~is_outer], schema.ANNOTATION)
    step = np.searchsorted(start[framework_steps], start[outer], side="right") - 1
    inside = (step >= 0) & (start[outer] < end[framework_steps][step])
    only = inside & (np.bincount(step[inside], minlength=len(framework_steps))[step] == 1)
    of_steps = table.filter(pa.array(is_outer)).filter(pa.array(only))
    of_steps = renumbered(of_steps, lambda rows: framework_steps[step[only]])
    return with_kind(draft.with_tables(**{TABLE.name: of_steps}), ranges, schema.ANNOTATION)


def with_times(trace: Trace) -> Trace:
    """Return the trace of one process with the times and gaps of the steps added to their descriptions."""
    table = _of_steps(trace, trace.tables[TABLE.name])
    rows = table["row"].to_numpy()
    if not len(rows):
        return trace
    number = trace.ints("step")[rows]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    device = trace.rows("kind", *schema.DEVICE_WORK)
    work = np.flatnonzero(device & np.isin(trace.ints("step"), number))
    order = np.argsort(number, kind="stable")
    step = order[np.searchsorted(number[order], trace.ints("step")[work])]
    first, last, works = start, end, np.ones(len(rows), np.bool_)
    if len(work):
        first, _ = groupby.extremes(step, len(rows), trace.ints("start_ns")[work])
        _, last = groupby.extremes(step, len(rows), trace.end_ns[work])
        works = np.bincount(step, minlength=len(rows)) > 0
    ended = np.maximum.accumulate(np.maximum(end, np.where(works, last, end)))
    gaps = np.full(len(rows), -1, np.int64)
    if len(work) or not device.any():  # if no step launched the recorded device work, its gaps are unknown
        busy = np.flatnonzero(works)
        before = np.maximum.accumulate(last[busy])
        gaps[busy[1:]] = np.maximum(first[busy[1:]] - before[:-1], 0)
    for name, values in (("time_ns", np.append(-1, np.diff(ended))), ("gap_ns", gaps)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), nullable(values))
    return trace.with_tables(**{TABLE.name: table})


def with_args(trace: Trace, rows: IntArray, texts: Sequence[str | None]) -> Trace:
    """Return the trace with the args of some rows, in ascending order, replaced."""
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    columns = labels.replaced(pa.table({"args": trace.column("args")}), "args", mask, pa.array(texts, pa.string()))
    return trace.with_columns(args=columns["args"])


def with_kind(trace: Trace, rows: IntArray, kind: str) -> Trace:
    """Return the trace with the kind of some rows replaced."""
    if not len(rows):
        return trace
    kinds = trace.codes("kind")
    values = [*kinds.values, *({kind} - set(kinds.values))]
    codes = kinds.codes.copy()
    codes[rows] = values.index(kind)
    return trace.with_columns(kind=pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string())))


def of_kind(trace: Trace, kind: str) -> Trace:
    """Return the trace with only the steps of one kind."""
    rows, steps = serving_steps(trace)
    return without_steps(trace, rows[np.array([step.kind != kind for step in steps], np.bool_)])


def without_steps(trace: Trace, rows: IntArray) -> Trace:
    """Return the trace in which the steps in ``rows`` are annotations, and their events belong to no step."""
    step, rank = trace.ints("step"), trace.ints("rank")
    gone = np.zeros(len(trace), np.bool_)
    for number in np.unique(rank[rows]).tolist():
        gone |= (rank == number) & np.isin(step, step[rows][rank[rows] == number])
    return with_kind(trace, rows, schema.ANNOTATION).with_ints(step=np.where(gone, -1, step))
