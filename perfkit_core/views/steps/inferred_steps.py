"""Inferred steps as events of a trace, so that all views count by them, and the notes that report them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Message, message, plural
from perfkit_core.trace.assembly.draft import with_events
from perfkit_core.trace.assembly.steps import NO_STEPS, WITHOUT_STEPS, assign_steps
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.event_columns import ROW_REFERENCES
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import ranks
from perfkit_core.views.steps.steady_steps import INFERRED, REASONS, SetApart, SteadySteps, steady_steps
from perfkit_core.views.steps.step_rows import step_rows

CATEGORY: Final = "inferred_step"
"""Category of the events of inferred steps."""
CODE: Final = "inferred-steps"
SET_APART: Final = "steps-set-apart"
"""Codes of the notes on inferred steps, and on what is set apart from them."""
CODES: Final = (NO_STEPS, CODE, SET_APART)
_SHOWN: Final = 5
"""Maximum number of set-apart times that a note lists."""
_NAME_LENGTH: Final = 80
"""Maximum number of characters of a name in a note."""


@once
def with_inferred_steps(trace: Trace) -> Trace:
    """Return the trace of one rank with its inferred steady steps as events of kind ``step``, and notes on them.

    A trace with recorded steps is returned as it is. If no steps could be inferred, the finding says why."""
    lacking = any(finding.code == NO_STEPS for finding in trace.quality)
    if not lacking or len(step_rows(trace)) or len(ranks(trace)) != 1:
        return trace
    steps = steady_steps(trace)
    (source,) = steps.sources
    quality = tuple(finding for finding in trace.quality if finding.code != NO_STEPS)
    if source.kind != INFERRED or not steps.steady.any():
        return trace.with_quality((*quality, Finding(NO_STEPS, why_no_steps(trace))))
    rows = np.flatnonzero(steps.steady)
    table = _events(trace, steps, source.first_row)
    none = np.full(len(rows), NO_ROW)
    references = (np.append(trace.ints(name), none) for name in ROW_REFERENCES)
    inserted = with_events(trace, table, *references)
    step, findings = assign_steps(inserted)
    return inserted.with_ints(step=step).with_quality((*quality, *findings, *_notes(steps, source.basis)))


def why_no_steps(trace: Trace) -> Message:
    """Return the reason why a trace has no steps, and what to do about it."""
    reasons = [source.why for source in steady_steps(trace).sources if source.why is not None]
    if not reasons:
        return WITHOUT_STEPS
    return message("{recorded}. None were inferred: {why}", recorded=WITHOUT_STEPS, why=reasons[0])


def _notes(steps: SteadySteps, basis: str | Message) -> list[Finding]:
    count, steady = len(steps.number), int(steps.steady.sum())
    text = plural("1 step, inferred from {basis}", "{n} steps, inferred from {basis}", count, basis=_shortened(basis))
    if steady < count:
        text = message("{steps}, {steady} of them steady", steps=text, steady=steady)
    notes = [Finding(CODE, text, note=True)]
    if steps.set_apart:
        longest = sorted(steps.set_apart, key=lambda apart: apart.begin_ns - apart.end_ns)
        parts = [_part(apart) for apart in longest[:_SHOWN]]
        more = len(longest) - len(parts)
        text = message("set apart: {parts:list}", parts=parts)
        if more:
            text = message("set apart: {parts:list}, and {more} shorter times", parts=parts, more=more)
        notes.append(Finding(SET_APART, text, note=True))
    return notes


def _shortened(name: str | Message) -> str | Message:
    return f"{name[:_NAME_LENGTH]}…" if isinstance(name, str) and len(name) > _NAME_LENGTH else name


def _part(apart: SetApart) -> Message:
    values = {
        "time": apart.end_ns - apart.begin_ns, "reason": message(REASONS[apart.reason]), "step": apart.step,
        "cause": _shortened(apart.cause), "cause_time": apart.cause_ns,
    }  # fmt: skip
    if apart.step >= 0 and apart.cause:
        return message("step {step} ({time:ns}, {reason}; {cause} {cause_time:ns})", **values)
    if apart.step >= 0:
        return message("step {step} ({time:ns}, {reason})", **values)
    if apart.cause:
        return message("{time:ns} {reason} ({cause} {cause_time:ns})", **values)
    return message("{time:ns} {reason}", **values)


def _events(trace: Trace, steps: SteadySteps, row: int) -> pa.Table:
    """Return the steady steps as rows of the event table, on the thread of an event."""
    rows = np.flatnonzero(steps.steady)
    cells = {name: trace.pick(name, np.full(len(rows), row)) for name in ("rank", "pid", "tid", "device")}
    cells |= {
        "name": pa.array([f"step {number}" for number in steps.number[rows].tolist()]),
        "kind": pa.array([schema.STEP] * len(rows)),
        "category": pa.array([CATEGORY] * len(rows)),
        "start_ns": pa.array(steps.begin_ns[rows]),
        "dur_ns": pa.array(steps.host_ns[rows]),
        "step": pa.array(steps.number[rows]),
        **dict.fromkeys(("parent", "launched_by"), pa.array(np.full(len(rows), NO_ROW))),
    }
    columns = [cells.get(field.name, pa.nulls(len(rows), field.type)) for field in schema.SCHEMA]
    columns = [
        cell.dictionary_encode()
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(cell.type)
        else cell
        for cell, field in zip(columns, schema.SCHEMA, strict=True)
    ]
    return pa.table([cell.cast(field.type) for cell, field in zip(columns, schema.SCHEMA, strict=True)], schema.SCHEMA)
