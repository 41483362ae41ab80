"""Everything about one advice: what it was seen by, what is changed in the recording, what the number rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import sentences
from perfkit_core.advice.as_data import data
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.advice.naming import one_of
from perfkit_core.advice.outcomes import latest
from perfkit_core.advice.sections import step_or_recording
from perfkit_core.advice.table import table
from perfkit_core.report import facts
from perfkit_core.report.headline import duration
from perfkit_core.report.model import Report, Section
from perfkit_core.trace import Trace
from perfkit_core.verification.ledger import Record

_NO_TABLE: Final = pd.DataFrame()
_SHOWN: Final = 8
"""Rows of events that are named; the JSON has all."""


def meant(found: Advices, wanted: str) -> Advice:
    """The advice of an id, or of the beginning of one, also one that saves nothing. Raises UsageError."""
    every = {one.id: one for one in (*found.advice, *found.without_saving)}
    return every[one_of(wanted, list(every))]


def report(one: Advice, found: Advices, trace: Trace, records: Sequence[Record] = ()) -> Report:
    """The whole contract of one advice, with what was measured of it before."""
    of = step_or_recording(trace)
    parts = (_what(one), _evidence(one), _transform(one), _prediction(one, found, of), _trust(one, found), _risks(one))
    return Report(
        f"{one.id}: {one.title}", (facts.source(trace),), (*parts, _action(one), _outcome(one, latest(records, one.id)))
    )


def _what(one: Advice) -> Section:
    lines = [
        sentences.sentence(one.candidate.what),
        f"Rule {one.number}, {one.rule}, version {one.version}; {one.framework}, {one.mode} mode"
        + (f"; moved {one.candidate.direction}" if one.candidate.direction else ""),
        f"Where: {'; '.join(p for p in (one.place, sentences.steps(one)) if p) or 'no line of code was recorded'}",
        f"Severity: {one.severity}, by the predicted saving alone",
    ]
    return Section("what", "What was found", _NO_TABLE, lines=tuple(lines))


def _evidence(one: Advice) -> Section:
    it = one.candidate
    rows = [(name, _text(value)) for name, value in it.evidence.items()]
    lines = [f"Holds: {text}" for text in it.preconditions]
    lines += [f"Looked for, not there: {text}" for text in it.vetoes]
    lines += [f"Shown by rows {_some(it.rows.tolist())} of the event table"] if len(it.rows) else []
    found = pd.DataFrame(rows, columns=["name", "value"], dtype=object)
    return Section("evidence", "Evidence", found, lines=tuple(lines), empty="the rule gives no numbers")


def _transform(one: Advice) -> Section:
    rows = [(edit["edit"], _parameters(edit)) for edit in map(data, one.candidate.edits)]
    found = pd.DataFrame(rows, columns=["edit", "note"], dtype=object)
    return Section(
        "transform", "What is changed in the recording", found, empty="nothing: the number is not from a replay"
    )


def _parameters(edit: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in edit.items() if name != "edit")


def _prediction(one: Advice, found: Advices, of: str) -> Section:
    lines = [_now(one, of), *sentences.expected(one.prediction, of)]
    if one.prediction.naive_ns is not None:
        naive = f"a {of} of {duration(one.prediction.naive_ns)}"
        lines.append(f"Whoever takes its share of the time for the saving expects {naive}; the replay does not.")
    chosen = Advices(found.identity, (one,), {})
    columns = ["method", "step_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "saving_ratio", "ceiling_ns"]
    return Section("prediction", "Prediction", table(chosen)[columns], lines=tuple(lines))


def _now(one: Advice, of: str) -> str:
    p = one.prediction
    low, high = duration(p.base_p10_ns or p.base_ns), duration(p.base_p90_ns or p.base_ns)
    return f"Now: {duration(p.base_ns)}, the median {of}; its 80 % interval is {low} to {high}"


def _trust(one: Advice, found: Advices) -> Section:
    rows = [(a.name, _text(data(a.value)), a.source) for a in one.candidate.assumptions]
    lines = [sentences.replayed(found.identity), _noise(found)]
    why = found.excluded.get(one.id)
    lines += [f"Not in the combined saving: {why}."] if why else []
    table_ = pd.DataFrame(rows, columns=["assumption", "value", "note"], dtype=object)
    return Section("trust", "How sure it is", table_, lines=tuple(lines), empty="it rests on the recording alone")


def _noise(found: Advices) -> str:
    if found.noise_ns is None:
        return "One step shows no noise: the interval takes 5 % for it."
    return f"Noise of the run: the median of the steps is known to ±{duration(found.noise_ns)} (80 % interval)."


def _risks(one: Advice) -> Section:
    it = one.candidate
    lines = [sentences.sentence(text) for text in it.risks]
    lines += [f"Takes the place of, or hinders: {', '.join(it.conflicts)}."] if it.conflicts else []
    return Section("risks", "Risks and conflicts", _NO_TABLE, lines=tuple(lines) or ("None known.",))


def _action(one: Advice) -> Section:
    remedy = one.remedy
    if remedy is None:
        return Section("action", "What to do", _NO_TABLE, lines=(f"No fix is known for {one.framework}.",))
    since = f", since version {remedy.since}" if remedy.since else ""
    lines = [f"API: {remedy.api}{since}"] if remedy.api else []
    lines += [sentences.sentence(remedy.note.strip())] if remedy.note else []
    return Section("action", "What to do", _NO_TABLE, lines=tuple(lines), code=remedy.code)


def _outcome(one: Advice, record: Record | None) -> Section:
    """The remedy knows what to compare; the ledger shows how far the prediction was off."""
    verify = one.remedy.verify if one.remedy else "perfkit verify --base COMMAND --change COMMAND"
    lines = [_measured(record), "This measures it with your commands, and keeps the outcome in a ledger:"]
    code = f"perfkit advise SOURCE -o advice.json\n{verify} --advice advice.json:{one.id} --ledger ledger.jsonl"
    return Section("outcome", "Outcome", _NO_TABLE, lines=tuple(lines), code=code)


def _measured(record: Record | None) -> str:
    if record is None:
        return "Predicted, not measured."
    if record.saving_ratio is None or record.saving_error is None:
        return f"Measured {record.date}: {record.outcome}."
    return (
        f"Measured {record.date}: {record.outcome}; it saved {record.saving_ratio:.1%} of a step, the prediction of "
        f"the saving was {record.saving_error:+.0%} off."
    )


def _text(value: Any) -> str:
    """A number, a text, an uncertain number or rows of the event table, in few words."""
    if isinstance(value, Mapping) and {"p10", "p50", "p90"} <= set(value):
        return f"{value['p10']:g} to {value['p90']:g}, likely {value['p50']:g}"
    if isinstance(value, (list, tuple)):
        return _some(list(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _some(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    more = len(values) - _SHOWN
    return f"{shown}{f' and {more} more' if more > 0 else ''}"
