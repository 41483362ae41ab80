"""Inferred steps as events of a trace, so that all views count by them, and the notes that report them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Message, Text, message, plural
from perfkit_core.trace.assembly.chosen_steps import CHOSEN, without_markers
from perfkit_core.trace.assembly.draft import with_events
from perfkit_core.trace.assembly.steps import NO_STEPS, WITHOUT_STEPS, assign_steps_of_ranks
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.event_columns import ROW_REFERENCES
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import ranks, span
from perfkit_core.views.steps.inferred_periods import alike_updates
from perfkit_core.views.steps.steady_steps import INFERRED, REASONS, SetApart, SteadySteps, steady_steps
from perfkit_core.views.steps.step_rows import step_rows

CATEGORY: Final = "inferred_step"
"""Category of the events of inferred steps."""
CODE: Final = "inferred-steps"
SET_APART: Final = "steps-set-apart"
WHOLE: Final = "whole-recording-step"
"""Codes of the notes on inferred steps, on what is set apart from them, and on recorded steps that are none."""
_WHOLE: Final = 0.95
"""Minimum share of the host events that lie in a step that is the whole recording."""
CODES: Final = (NO_STEPS, CODE, SET_APART)
_SHOWN: Final = 5
"""Maximum number of set-apart times that a note lists."""
_NAME_LENGTH: Final = 80
"""Maximum number of characters of a name in a note."""


@once
def with_inferred_steps(trace: Trace) -> Trace:
    """Return the trace with its inferred steady steps as events of kind ``step``, and notes on them.

    A trace with recorded steps is returned as it is, except if each is the whole recording of its rank. If a rank has
    no steps, and none could be inferred, the finding says why. The window of the recording is then the time from the
    first to the last event, as in all views."""
    trace = _without_whole_steps(trace)
    lacking = any(finding.code == NO_STEPS for finding in trace.quality)
    if len(step_rows(trace)) or trace.rows("kind", schema.IMPLAUSIBLE).all():
        return trace
    begin, end = span(trace, ~trace.rows("kind", schema.IMPLAUSIBLE))
    if not len(begin):
        return trace
    trace = trace.with_meta(window_ns=(int(begin[0]), int(end[0])))
    if not lacking:
        return trace
    steps = steady_steps(trace)
    quality = tuple(finding for finding in trace.quality if finding.code != NO_STEPS)
    inferred = bool(steps.sources) and all(source.kind == INFERRED for source in steps.sources)
    if not inferred or not set(steps.rank.tolist()) <= set(steps.rank[steps.steady].tolist()):
        return trace.with_quality((*quality, Finding(NO_STEPS, why_no_steps(trace))))
    rows = np.flatnonzero(steps.steady)
    table = _events(trace, steps)
    none = np.full(len(rows), NO_ROW)
    references = (np.append(trace.ints(name), none) for name in ROW_REFERENCES)
    inserted = with_events(trace, table, *references)
    step, findings = assign_steps_of_ranks(inserted)
    return inserted.with_ints(step=step).with_quality((*quality, *findings, *_notes(steps)))


def _without_whole_steps(trace: Trace) -> Trace:
    """Return the trace without its recorded steps if each is the only one of its rank, has the number 0, and holds the
    updates of several iterations: a profiler marks this step if nothing calls its ``step()``."""
    rows = step_rows(trace)
    rank, chosen = trace.ints("rank"), any(finding.code == CHOSEN for finding in trace.quality)
    if chosen or not len(rows) or trace.ints("step")[rows].any() or rank[rows].tolist() != ranks(trace).tolist():
        return trace
    work = trace.host & trace.rows("kind", *schema.NESTED_KINDS)
    if np.isin(trace.ints("step")[work], 0).mean() < _WHOLE:
        return trace
    bare = without_markers(trace, np.zeros(len(trace), np.bool_)).with_ints(step=np.full(len(trace), NO_ROW))
    iterations = [alike_updates(bare, number) for number in rank[rows].tolist()]
    if not all(iterations):
        return trace
    text = message(
        "the recorded step 0 is the whole recording and holds {count} iterations that update parameters, as if the "
        "profiler's step() was never called: it is not counted as a step", count=max(iterations),
    )  # fmt: skip
    return bare.with_findings(Finding(WHOLE, text, note=True), Finding(NO_STEPS, WITHOUT_STEPS))


def why_no_steps(trace: Trace) -> Text:
    """Return the reason why a trace has no steps, and what to do about it."""
    recorded = next((finding.text for finding in trace.quality if finding.code == NO_STEPS), WITHOUT_STEPS)
    reasons = [source.why for source in steady_steps(trace).sources if source.why is not None]
    if not reasons or not (trace.host & trace.rows("kind", *schema.OPERATOR_KINDS)).any():
        return recorded
    return message("{recorded}. None were inferred: {why}", recorded=WITHOUT_STEPS, why=reasons[0])


def _notes(steps: SteadySteps) -> list[Finding]:
    count, steady, basis = len(steps.number), int(steps.steady.sum()), steps.sources[0].basis
    text = plural("1 step, inferred from {basis}", "{n} steps, inferred from {basis}", count, basis=_shortened(basis))
    if steady < count:
        text = message("{steps}, {steady} of them steady", steps=text, steady=steady)
    notes = [Finding(CODE, text, note=True)]
    if steps.set_apart:
        longest = sorted(steps.set_apart, key=lambda apart: apart.begin_ns - apart.end_ns)
        parts = [_part(apart) for apart in longest[:_SHOWN]]
        more = len(longest) - len(parts)
        apart_ns = sum(apart.end_ns - apart.begin_ns for apart in longest)
        values = {"share": apart_ns / (apart_ns + int(steps.host_ns[steps.steady].sum())), "parts": parts}
        text = message("set apart, {share:ratio} of the recorded time: {parts:list}", **values)
        if more:
            text = message("{text}, and {more} shorter times", text=text, more=more)
        notes.append(Finding(SET_APART, text, note=True))
    return notes


def _shortened(name: str | Message) -> str | Message:
    return f"{name[:_NAME_LENGTH]}…" if isinstance(name, str) and len(name) > _NAME_LENGTH else name


def _part(apart: SetApart) -> Message:
    values = {"time": apart.end_ns - apart.begin_ns, "reason": message(REASONS[apart.reason]), "step": apart.step}
    cause = {"cause": _shortened(apart.cause), "cause_time": apart.cause_ns}
    if apart.step >= 0:
        after = message("; {cause} {cause_time:ns}", **cause) if apart.cause else None
        return message("step {step} ({time:ns}, {reason}{after})", **values, after=after)
    after = message(" ({cause} {cause_time:ns})", **cause) if apart.cause else None
    return message("{time:ns} {reason}{after}", **values, after=after)


def _events(trace: Trace, steps: SteadySteps) -> pa.Table:
    """Return the steady steps as rows of the event table, on the threads that run them."""
    rows = np.flatnonzero(steps.steady)
    first_row = {source.rank: source.first_row for source in steps.sources}
    threads = np.array([first_row[rank] for rank in steps.rank[rows].tolist()])
    cells: dict[str, Any] = {name: trace.pick(name, threads) for name in ("rank", "pid", "tid", "device")}
    cells |= {
        "name": [f"step {number}" for number in steps.number[rows].tolist()],
        "kind": [schema.STEP] * len(rows),
        "category": [CATEGORY] * len(rows),
        "start_ns": steps.begin_ns[rows],
        "dur_ns": steps.host_ns[rows],
        "step": steps.number[rows],
        "self_ns": np.zeros(len(rows), np.int64),  # the events in it keep their parents, so it has no own time
        **dict.fromkeys(("parent", "launched_by"), np.full(len(rows), NO_ROW)),
    }
    columns = [cells.get(field.name, pa.nulls(len(rows), field.type)) for field in schema.SCHEMA]
    columns = [
        cell.cast(field.type) if isinstance(cell, pa.Array | pa.ChunkedArray) else pa.array(cell, field.type)
        for cell, field in zip(columns, schema.SCHEMA, strict=True)
    ]
    return pa.table(columns, schema.SCHEMA)
