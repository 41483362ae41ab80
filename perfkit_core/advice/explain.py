"""Everything about one advice: what it was seen by, what is changed in the recording, what the number rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from perfkit_core.advice import assumptions, edit_words, in_sum, measured, sentences, words
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.advice.naming import one_of
from perfkit_core.advice.outcomes import latest
from perfkit_core.advice.predict import ONE_STEP
from perfkit_core.advice.sections import step_or_recording
from perfkit_core.advice.table import table
from perfkit_core.report import facts
from perfkit_core.report.headline import duration
from perfkit_core.report.model import Report, Section
from perfkit_core.trace import Trace
from perfkit_core.verification.ledger import Record

_NO_TABLE: Final = pd.DataFrame()


def meant(found: Advices, wanted: str) -> Advice:
    """The advice of an id, or of the beginning of one, also one that saves nothing. Raises UsageError."""
    every = {one.id: one for one in (*found.advice, *found.without_saving)}
    return every[one_of(wanted, list(every))]


def report(one: Advice, found: Advices, trace: Trace, records: Sequence[Record] = ()) -> Report:
    """The whole contract of one advice, with what was measured of it before."""
    of = step_or_recording(trace)
    seen = (_what(one), _evidence(one), _transform(one, trace))
    told = (_prediction(one, found, of), _trust(one, found, of), _risks(one), _action(one), _outcome(one, records))
    return Report(f"{one.id}: {one.title}", (facts.source(trace),), (*seen, *told))


def _what(one: Advice) -> Section:
    lines = [
        sentences.sentence(one.candidate.what),
        f"Rule {one.number}, {one.rule}, version {one.version}; {one.framework}, {one.mode} mode"
        + (f"; moved {one.candidate.direction}" if one.candidate.direction else ""),
        f"Where: {'; '.join(p for p in (one.place, sentences.steps(one)) if p) or 'no line of code was recorded'}",
        _severity(one),
    ]
    return Section("what", "What was found", _NO_TABLE, lines=tuple(lines))


def _severity(one: Advice) -> str:
    if one.severity == "none":
        return "No severity: it saves nothing."
    if one.severity == "note":
        return "No severity: how much it saves is not known."
    return f"Severity: {one.severity}, by the predicted saving alone."


def _evidence(one: Advice) -> Section:
    it = one.candidate
    values = [words.value(name, value) for name, value in it.evidence.items()]
    rows = zip(words.names(list(it.evidence)), values, strict=True)
    lines = [f"Holds: {text}" for text in it.preconditions]
    lines += [f"Looked for, not there: {text}" for text in it.vetoes]
    lines += [_rows(it.rows.tolist())] if len(it.rows) else []
    found = pd.DataFrame(rows, columns=["name", "value"], dtype=object)
    return Section("evidence", "Evidence", found, lines=tuple(lines), empty="the rule gives no numbers")


def _rows(rows: list[int]) -> str:
    many = "row" if len(rows) == 1 else "rows"
    return f"Shown by {many} {words.some(list(map(str, rows)))} of the event table"


def _transform(one: Advice, trace: Trace) -> Section:
    lines = tuple(edit_words.said(edit, trace) for edit in one.candidate.edits)
    return Section(
        "transform",
        "What is changed in the recording",
        _NO_TABLE,
        lines=lines or ("Nothing: the number is not from a replay.",),
    )


def _prediction(one: Advice, found: Advices, of: str) -> Section:
    lines = [_now(one, of), *sentences.expected(one.prediction, of)]
    lines += [sentences.sentence(sentences.after(one, found))] if one.id in found.after else []
    if one.prediction.naive_ns is not None:
        naive = f"a {of} of {duration(one.prediction.naive_ns)}"
        lines.append(f"Whoever takes its share of the time for the saving expects {naive}; the replay does not.")
    chosen = Advices(found.identity, (one,), {})
    columns = ["method", "step_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "saving_ratio", "ceiling_ns", "floor_ns"]
    return Section("prediction", "Prediction", table(chosen)[columns], lines=tuple(lines))


def _now(one: Advice, of: str) -> str:
    p = one.prediction
    low, high = duration(p.base_p10_ns or p.base_ns), duration(p.base_p90_ns or p.base_ns)
    return f"Now: {duration(p.base_ns)}, the median {of}; its 80% interval is {low} to {high}"


def _trust(one: Advice, found: Advices, of: str) -> Section:
    it = one.candidate
    lines = [in_sum.replayed(found.identity, of), _noise(found, of)]
    lines += [f"Assumed: {assumptions.told(one.rule, a)} ({a.source})." for a in it.assumptions]
    lines += [] if it.assumptions else ["Nothing else is assumed: the number rests on the recording alone."]
    why = found.excluded.get(one.id)
    lines += [f"Not in the combined saving: {why}."] if why else []
    return Section("trust", "How sure it is", _NO_TABLE, lines=tuple(lines))


def _noise(found: Advices, of: str) -> str:
    if found.noise_ns is None:
        only = "Only one step was" if of == "step" else "No steps were"
        return f"{only} recorded, so nothing shows how steps differ: the interval is {ONE_STEP:.0%} wider each way."
    return f"Noise of the run: the median of the steps is known to ±{duration(found.noise_ns)} (80% interval)."


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


def _outcome(one: Advice, records: Sequence[Record]) -> Section:
    """The remedy knows what to compare; the ledger shows how far the prediction was off."""
    verify = one.remedy.verify if one.remedy else "perfkit verify --base COMMAND --change COMMAND"
    lines = [*measured.lines(one, records)] or ["Predicted, not measured."]
    lines += [*_off(latest(records, one.id)), "This measures it with your commands, and keeps the outcome in a ledger:"]
    code = f"perfkit advise SOURCE -o advice.json\n{verify} --advice advice.json:{one.id} --ledger ledger.jsonl"
    return Section("outcome", "Outcome", _NO_TABLE, lines=tuple(lines), code=code)


def _off(record: Record | None) -> Iterator[str]:
    if record is not None and record.saving_error is not None:
        yield f"The prediction of the saving was {record.saving_error:+.0%} off."
